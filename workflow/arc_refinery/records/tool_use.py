"""Records of tool use: questions, demonstrations for SFT, and sampled episodes.

question   "Greta has 134 tiles. A year later there are 5 times as many. [...] How many tiles are left over?"
messages   assistant   '<think>\\nThen there are 5 * 134 =\\n</think>\\n\\n<tool_call>\\n{"name": [...]}\\n</tool_call>'
           tool        "670"
           [...]
           assistant   "<think>\\n0 tiles.\\n</think>\\n\\n#### 0"
mask       129 ids: 1 for the 99 of the assistant's turns, 0 for the 30 of results and headers
ending "answer", answer "0", reward 1.0
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

# How an episode ends: with an answer; with a truncated turn; without tokens left for tool results and another turn;
# with another tool call after a result that said that no calls are left.
Ending = Literal["answer", "truncated", "tokens", "calls", "failed"]


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a data set."""

    KIND: ClassVar = "questions"
    question_id: str
    text: str  # as the model reads it
    domain: str  # that checks an answer
    task: str  # the domain's, as JSON


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a conversation, written by the model or not."""

    text: str
    is_sampled: bool  # written by the model, so it carries loss


@dataclass(frozen=True, slots=True)
class Conversation:
    """A correct answer to a question, for supervised fine-tuning."""

    KIND: ClassVar = "conversations"
    question_id: str
    segments: tuple[Segment, ...]
    n_calls: int

    def fault(self) -> str:
        has_answer = any(segment.is_sampled and segment.text for segment in self.segments)
        return "" if has_answer else "column 'segments' has no text that is sampled, expected at least one"


@dataclass(frozen=True, slots=True)
class EpisodeMessage:
    """A turn of the model, as it wrote it, or a tool's result."""

    role: str  # assistant or tool
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    tool: str  # empty if the call named no existing tool
    fault: str  # what was wrong with the call (tool_use/calls/tool.py); empty if nothing was


@dataclass(frozen=True, slots=True)
class Episode:
    """A sampled episode and its reward."""

    KIND: ClassVar = "episodes"
    episode_id: str
    question_id: str
    model: str
    adapter: str  # empty: the base model
    seed: int
    temperature: float
    top_p: float
    messages: tuple[EpisodeMessage, ...]  # after the question
    calls: tuple[Call, ...]
    completion_ids: tuple[Annotated[int, "int32"], ...]  # the messages as token ids, as they were sampled
    mask: tuple[Annotated[int, "int8"], ...]  # 1: sampled, so it would carry loss in training
    ending: str
    n_prompt_tokens: int
    n_tokens: int  # written by the model
    answer: str  # what the domain found; empty without an answer
    reward: float
