"""What is kept of conversations with tools: demonstrations to imitate, and episodes that were played."""

from dataclasses import dataclass
from typing import Any, Literal

# How an episode ends: with an answer; a turn was cut; no tokens are left for the results of calls and another turn; the
# model went on calling after it was told that no calls are left.
Ending = Literal["answer", "truncated", "tokens", "calls"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a conversation."""

    text: str
    is_sampled: bool  # written by the model, so that it carries loss


@dataclass(frozen=True, slots=True)
class Conversation:
    """A right answer to a question, for supervised fine-tuning."""

    question_id: str
    segments: tuple[Segment, ...]
    n_calls: int


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of the model, as it wrote it, or what it was told then."""

    role: str  # assistant, or tool
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    tool: str  # empty where no tool that there is was named
    fault: str  # what was wrong with it (tools.py); empty where nothing was


@dataclass(frozen=True, slots=True)
class Episode:
    """One played episode and what it earned."""

    episode_id: str
    question_id: str
    model: str
    adapter: str  # empty: the model as it is
    seed: int
    temperature: float
    top_p: float
    messages: tuple[Message, ...]  # after the question
    calls: tuple[Call, ...]
    completion_ids: tuple[int, ...]  # the same as ids, as they were sampled
    mask: tuple[int, ...]  # 1: sampled, so that it would carry loss in training
    ending: str
    n_prompt_tokens: int
    n_tokens: int  # that the model wrote
    answer: str  # what was held against the reference; empty where there is none
    reward: float

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Episode":
        """The episode whose fields `row` holds as plain lists and mappings."""
        tuples = {
            "messages": tuple(Message(**one) for one in row["messages"]),
            "calls": tuple(Call(**one) for one in row["calls"]),
            "completion_ids": tuple(row["completion_ids"]),
            "mask": tuple(row["mask"]),
        }
        return cls(**row | tuples)
