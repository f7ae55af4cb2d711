"""Records of refining: prompts, attempts that answer them, verdicts from executing attempts, and SFT demonstrations.

prompt     "mirror/turn1-000", text "<|user|>\\ninput 1x2\\n1 10\\noutput 1x2\\n1 01...<|assistant|>", 46 tokens
attempt    "mirror/turn1-000/001", completion "```python\\n...    grid = grid[-1:]\\n    return grid\\n```", 4 tokens
verdict    status "ok", train_outputs [[1, 0]], ..., train_correct_grids 0.0, train_pixel_score 0.167
prompt     "mirror/refine-turn2-000", parent_id "mirror/turn1-000/001", messages: the question, the completion, feedback
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair
from arc_refinery.models.chat import Message
from arc_refinery.records.tool_use import Segment

NO_CODE = "no_code"  # status of an attempt whose completion contains no program


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that waits for an answer, and the task as the model sees it (augmented, reordered)."""

    KIND: ClassVar = "prompts"
    prompt_id: str
    task_id: str
    turn: int
    parent_id: str  # attempt to refine; empty in turn 1
    augmentation: Augmentation
    train_order: tuple[Annotated[int, "int8"], ...]
    messages: tuple[Message, ...]
    text: str  # the messages rendered by the model's chat template
    n_tokens: int
    n_predictions: int  # completions to draw
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]


def attempt_id(prompt_id: str, number: int) -> str:
    """Return the id of a prompt's completion, numbered from 0."""
    return f"{prompt_id}/{number:03d}"


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
    augmentation: Augmentation
    train_order: tuple[Annotated[int, "int8"], ...]
    completion: str
    n_prompt_tokens: int
    n_tokens: int
    finish_reason: str  # stop, or length if the completion was truncated
    logprob: float  # sum over the completion's tokens, natural logarithm, temperature 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of executing an attempt's program. Outputs have augmentation and order undone; empty unless status is ok.

    Scores compare the outputs with the task's grids (0 without outputs); see metrics.py.
    """

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
    train_outputs: tuple[Grid, ...]
    test_outputs: tuple[Grid, ...]  # on test and hidden pairs
    fingerprint: str  # hash of the outputs on the inputs that the prompt shows; empty unless status is ok
    train_pixel_score: float
    train_correct_grids: float
    test_pixel_score: float
    test_correct_grids: float

    @property
    def train_is_correct(self) -> bool:
        return self.train_correct_grids == 1.0

    @property
    def test_is_correct(self) -> bool:
        return self.test_correct_grids == 1.0


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
