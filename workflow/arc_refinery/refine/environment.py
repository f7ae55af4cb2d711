"""The training environment of refining: prepared prompts of first or second turns, or on-policy second turns."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from arc_refinery.config import Grpo, Lengths
from arc_refinery.errors import InputError
from arc_refinery.models.chat import ANSWERED, ids_after_answer
from arc_refinery.models.tokenizers import begin_answers
from arc_refinery.prompts import Template, split_prefix
from arc_refinery.records import Prompt
from arc_refinery.refine.rollout import TwoTurns
from arc_refinery.refine.rows import row_of, streamed
from arc_refinery.refine.scoring import Scorer
from arc_refinery.sampling.library_arguments import refining_rollouts
from arc_refinery.sandbox import Executor
from arc_refinery.training.environment import TrainingData
from arc_refinery.training.trainer import Trainer


def read_prompts(read: Callable[[], Iterator[Prompt]], training: Grpo, seed: int) -> tuple[TrainingData, str]:
    """Return the rows to train on, and the prefix of answers, the same for all prompts, which share a template.

    `read` returns a new iterator over the prompts. Raise `InputError` if there are none.
    """
    prompts = [] if training.stream else list(read())
    first = next(iter(prompts or read()), None)
    if first is None:
        raise InputError(
            "there are no training prompts. Either the files have none (second turns: no attempt was incorrect "
            "with valid outputs; sample more tasks), or all are longer than max_seq_length minus "
            "max_completion_length"
        )
    if training.stream:
        data = TrainingData(streamed(read), None)
    else:
        data = TrainingData.split([row_of(prompt) for prompt in prompts], training.n_heldout, seed)
    return data, split_prefix(first.messages)[1]


@dataclass(kw_only=True)
class RefineEnvironment:
    data: TrainingData
    prefix: str  # of answers (`read_prompts`)
    prompts_hash: str  # hash of the files of prompts
    training: Grpo
    lengths: Lengths
    template: Template  # wording of the feedback of on-policy second turns
    include_errors: bool  # give programs that raised a second turn, too
    executor: Executor

    def identity(self) -> dict[str, Any]:
        return {
            "template": asdict(self.template),
            "include_errors": self.include_errors,
            "lengths": self.lengths.model_dump(),
            "prompts": self.prompts_hash,
        }

    def arguments(self) -> dict[str, Any]:
        return refining_rollouts(self.lengths)

    @property
    def longest_completion(self) -> int:
        has_two_turns = self.training.rollout == "on-policy"
        return self.lengths.max_seq_length if has_two_turns else self.lengths.max_completion_length

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        ids_after_answer(tokenizer, ends, ANSWERED)  # raises if answers would not end
        begin_answers(tokenizer, self.prefix)
        scorer = Scorer(self.training, self.executor, ends)
        rollout = None
        if self.training.rollout == "on-policy":
            longest, masks_truncated = self.lengths.longest_prompt, self.training.mask_truncated_completions
            rollout = TwoTurns(self.executor, self.template, self.include_errors, longest, masks_truncated)
        return Trainer(self.training, scorer, rollout_func=rollout, **arguments)
