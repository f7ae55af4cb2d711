"""Records of refining: prompts, the attempts that answer them, what executing these gave, and what SFT imitates."""

from dataclasses import dataclass

from arc_refinery.augment import Augmentation
from arc_refinery.grids import Grid
from arc_refinery.messages import Message
from arc_refinery.tasks import Pair

NO_CODE = "no_code"  # status of an attempt whose completion holds no program


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation that waits for an answer, and the task as the model sees it (augmented, reordered)."""

    prompt_id: str
    task_id: str
    turn: int
    parent_id: str  # attempt that is refined; empty in turn 1
    augmentation: Augmentation
    train_order: tuple[int, ...]
    messages: tuple[Message, ...]
    text: str  # the messages rendered by the model's chat template
    n_tokens: int
    n_predictions: int  # completions to draw
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One completion with its lineage."""

    attempt_id: str
    prompt_id: str
    task_id: str
    turn: int
    parent_id: str
    model: str
    adapter: str  # empty: the model as it is
    seed: int
    temperature: float
    top_p: float
    augmentation: Augmentation
    train_order: tuple[int, ...]
    completion: str
    n_prompt_tokens: int
    n_tokens: int
    finish_reason: str  # stop, or length where the completion was cut
    logprob: float  # sum over the completion's tokens, natural logarithm, temperature 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What executing one attempt's program gave. Outputs have augmentation and order undone; empty unless status is ok.

    Scores compare them with the task's grids (0 where there are none); see metrics.py.
    """

    attempt_id: str
    prompt_id: str
    task_id: str
    turn: int
    program_hash: str  # empty: no program could be taken out of the completion
    status: str  # no_code, or the sandbox's verdict
    error: str
    train_outputs: tuple[Grid, ...]
    test_outputs: tuple[Grid, ...]
    fingerprint: str  # of all outputs; empty unless status is ok
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
    """A prompt of a task and a correct answer to it, for supervised fine-tuning."""

    demonstration_id: str
    task_id: str
    turn: int
    parent_id: str  # attempt that is refined; empty in turn 1
    text: str  # the rendered prompt, up to where the model goes on
    completion: str  # what the model is to sample after `text`, without the end token
    target: str  # where the program comes from: "source", or the id of a correct attempt
    n_tokens: int  # prompt, completion and one end token
