"""Records of refining: prompts, attempts that answer them, verdicts from executing attempts, and SFT demonstrations.

These columns are the same for all that can be refined. A domain whose records need more has subclasses with one more
field, `detail`, of a type of its own (domains/arc/records.py).

prompt     "mirror/turn1-000", text "<|user|>\\ninput 1x2\\n1 10\\noutput 1x2\\n1 01...<|assistant|>", 46 tokens
attempt    "mirror/turn1-000/001", completion "```python\\n...    grid = grid[-1:]\\n    return grid\\n```", 4 tokens
verdict    status "ok", score 0.0, solved False
prompt     "mirror/refine-turn2-000", parent_id "mirror/turn1-000/001", messages: the question, the completion, feedback
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from arc_refinery.models.chat import Message
from arc_refinery.records.tool_use import Segment

NO_CODE = "no_code"  # status of an attempt whose completion contains no program


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that waits for an answer. A domain's `detail` has what an answer is graded against."""

    KIND: ClassVar = "prompts"
    prompt_id: str
    task_id: str
    turn: int
    parent_id: str  # attempt to refine; empty in turn 1
    messages: tuple[Message, ...]
    text: str  # the messages rendered by the model's chat template
    n_tokens: int
    n_predictions: int  # completions to draw

    def fault(self) -> str:
        n = self.n_predictions
        return "" if n > 0 else f"column 'n_predictions' is {n}, expected 1 or more"


def attempt_id(prompt_id: str, number: int) -> str:
    """Return the id of a prompt's completion, numbered from 0."""
    return f"{prompt_id}/{number:03d}"


TOO_LONG = "too_long"  # reason of an empty answer: a server had no room for the prompt
# note of answers of a server: [[address, model, fingerprint, number of answers, tokens of prompts, of answers], ...]
SERVED_BY = "served_by"


def by_server(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return rows of such a note with one for each server: their counts are added."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for address, model, fingerprint, *counts in rows:
        before = sums.setdefault((address, model, fingerprint), [0] * len(counts))
        before[:] = map(sum, zip(before, counts, strict=True))
    return [[*server, *counts] for server, counts in sorted(sums.items())]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A completion, with the prompt, model and settings that it was sampled with."""

    KIND: ClassVar = "attempts"
    attempt_id: str
    prompt_id: str
    task_id: str
    turn: int
    parent_id: str
    model: str
    adapter: str  # empty: the base model
    seed: int
    temperature: float
    top_p: float
    completion: str
    n_prompt_tokens: int
    n_tokens: int
    finish_reason: str  # stop, length if the completion was truncated, or what a server says
    logprob: float  # sum over the completion's tokens, natural logarithm, temperature 1; NaN from a server


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of executing an attempt's program."""

    KIND: ClassVar = "verdicts"
    attempt_id: str
    prompt_id: str
    task_id: str
    turn: int
    program_hash: str  # empty: the completion contains no program
    program_length: int  # in characters
    has_closed_code: bool  # its Python block ends; a truncated one does not
    status: str  # no_code, or the sandbox's verdict
    error: str
    fingerprint: str  # hash of what the program gave for the inputs that the prompt shows; empty unless status is ok
    score: float  # share of the checks that the prompt shows, or feedback may reveal, that are right, 0..1
    solved: bool  # right on all checks, hidden ones included


@dataclass(frozen=True, slots=True)
class ReferenceLogprob:
    """The log-probability of a task's own program as the answer to a prompt of turn 2 or later."""

    KIND: ClassVar = "reference log-probabilities"
    prompt_id: str
    task_id: str
    parent_id: str
    logprob: float  # sum over the answer's tokens, natural logarithm, temperature 1
    n_tokens: int  # including the end token


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and a correct answer to it, for supervised fine-tuning."""

    KIND: ClassVar = "demonstrations"
    demonstration_id: str
    task_id: str
    turn: int
    parent_id: str  # attempt to refine; empty in turn 1
    text: str  # the rendered prompt, up to where the model continues
    completion: str  # target text after `text`, without the end token
    target: str  # origin of the program: "source", or the id of a correct attempt
    n_tokens: int  # prompt, completion and one end token

    def segments(self, end_token: str) -> tuple[Segment, ...]:
        """Return the prompt, the answer and its end token, which carries loss, too."""
        return (
            Segment(self.text, is_sampled=False),
            Segment(self.completion, is_sampled=True),
            Segment(end_token, is_sampled=True),
        )


@dataclass(frozen=True, slots=True)
class Overlap:
    """A task to train on that is also a task of an evaluation set."""

    KIND: ClassVar = "overlaps"
    overlap_id: str
    tasks: str  # the part or set that it is trained on in, or `template_rows`
    task_id: str
    evaluated_in: str
    evaluated_id: str
    by: str  # how it was recognized: "id", or "content"
