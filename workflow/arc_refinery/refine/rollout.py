"""On-policy second turns: the model answers, the answer is executed, feedback is appended, the model refines.

What is trained on are the very tokens that were sampled, never a text that was tokenised again. A mask says which they
are: 1 for sampled tokens, 0 for what the chat template and the feedback put between the two answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arc_refinery.errors import InputError
from arc_refinery.metrics import correct_grids
from arc_refinery.prompts import Template, error_feedback, execution_feedback, next_turn
from arc_refinery.refine.grading import Grade, grade_answers
from arc_refinery.refine.rows import TrainingPrompt, prompt_of_row
from arc_refinery.sandbox import Executor, Status
from arc_refinery.tasks import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLACE = "<answer goes here>"


class ConversationError(InputError):
    """A model's chat template cannot carry a second turn; the message says why."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The token ids of one or two answers with what stands between them, and what each answer's program gave."""

    completion_ids: list[int]
    mask: list[int]  # 1: sampled
    logprobs: list[float] | None  # of the sampler, 0 where nothing was sampled; None where it gives none
    graded: tuple[Grade, ...]  # of each answer
    is_truncated: bool  # an answer of it was cut


class Continuation:
    """The tokens that a chat template puts between an answer and the answer to its feedback."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", ends: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)

    def ids(self, asked: TrainingPrompt, answer_ids: Sequence[int], feedback: str) -> list[int]:
        """What follows `answer_ids`: the end of the answer, unless it was sampled, the feedback, the next header.

        Nothing of it was sampled. An answer that was cut is closed as the template closes answers.
        """
        *conversation, begun = next_turn(list(asked.messages), PLACE, feedback)
        prefix = begun["content"] if begun["role"] == "assistant" else ""
        if not prefix:
            conversation.append(begun)
        text = str(self.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True))
        _, found, after = text.rpartition(PLACE)
        ids: list[int] = self.tokenizer(after + prefix, add_special_tokens=False)["input_ids"]
        if not found or not ids or ids[0] not in self.ends:
            raise ConversationError(
                f"{self.tokenizer.name_or_path}: its chat template does not end an answer with a token that ends one "
                f"({after[:20]!r} follows it), so a second turn cannot go on from the sampled tokens; "
                "use rollout: prepared"
            )
        return ids[1:] if answer_ids[-1] in self.ends else ids


@dataclass(frozen=True, slots=True)
class _Turn:
    """One sampled answer and what its program gave."""

    ids: list[int]
    logprobs: list[float] | None
    is_cut: bool
    graded: Grade


class TwoTurns:
    """A rollout function of TRL: one episode for each prompt it is given."""

    def __init__(
        self, executor: Executor, template: Template, include_errors: bool, max_tokens: int, mask_truncated: bool
    ) -> None:
        self.executor = executor
        self.template = template
        self.include_errors = include_errors
        self.max_tokens = max_tokens  # of a prompt that still leaves room for an answer
        self.mask_truncated = mask_truncated

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        asked = [prompt_of_row(row) for row in trainer.rows]
        prompt_ids, _, _ = trainer._tokenize_prompts(list(prompts))
        episodes = self._play(asked, prompt_ids, trainer)
        logprobs = [episode.logprobs for episode in episodes]
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [episode.completion_ids for episode in episodes],
            "env_mask": [episode.mask for episode in episodes],
            "logprobs": None if None in logprobs else logprobs,
            "episode": episodes,
        }

    def _play(self, asked: Sequence[TrainingPrompt], prompt_ids: Sequence[list[int]], trainer: Any) -> list[Episode]:
        continuation = Continuation(trainer.processing_class, trainer.eos_token_ids)
        first = self._sample(asked, prompt_ids, trainer)
        between = [
            self._between(continuation, one, ids, turn) for one, ids, turn in zip(asked, prompt_ids, first, strict=True)
        ]
        going_on = [index for index, ids in enumerate(between) if ids]
        longer = [prompt_ids[index] + first[index].ids + between[index] for index in going_on]
        second = self._sample([asked[index] for index in going_on], longer, trainer)
        after = dict(zip(going_on, second, strict=True))
        return [self._episode(turn, between[index], after.get(index)) for index, turn in enumerate(first)]

    def _sample(self, asked: Sequence[TrainingPrompt], prompt_ids: Sequence[list[int]], trainer: Any) -> list[_Turn]:
        if not asked:
            return []
        sampled, logprobs = trainer._generate_single_turn(prompt_ids, None, {}, 1)
        texts = trainer.processing_class.batch_decode(sampled, skip_special_tokens=True)
        with trainer.timed("reward"):
            answers = [one.answered(one.prefix + text) for one, text in zip(asked, texts, strict=True)]
            graded = list(grade_answers(answers, self.executor))
        return [
            _Turn(ids, of_sampler, ids[-1] not in trainer.eos_token_ids, one)
            for ids, of_sampler, one in zip(sampled, logprobs or [None] * len(sampled), graded, strict=True)
        ]

    def _between(
        self, continuation: Continuation, asked: TrainingPrompt, prompt_ids: list[int], turn: _Turn
    ) -> list[int]:
        """The tokens that lead to the second answer; none where there is nothing to refine, or no room to."""
        feedback = self._feedback(asked, turn.graded)
        ids = continuation.ids(asked, turn.ids, feedback) if feedback else []
        return ids if len(prompt_ids) + len(turn.ids) + len(ids) <= self.max_tokens else []

    def _feedback(self, asked: TrainingPrompt, graded: Grade) -> str:
        """What the model is told; empty where there is nothing to refine. Test pairs have no part in it."""
        if graded.status == Status.error and self.include_errors:
            return error_feedback(graded.error, self.template)
        outputs = graded.outputs[: len(asked.train)]
        if not outputs or correct_grids(outputs, [pair.output for pair in asked.train]) == 1.0:
            return ""
        return execution_feedback(Task("", asked.train, asked.test, ""), outputs, self.template)

    def _episode(self, first: _Turn, between: list[int], second: _Turn | None) -> Episode:
        if second is None:
            return Episode(first.ids, [1] * len(first.ids), first.logprobs, (first.graded,), first.is_cut)
        logprobs = None
        if first.logprobs is not None and second.logprobs is not None:
            logprobs = first.logprobs + [0.0] * len(between) + second.logprobs
        carries_loss = int(not (first.is_cut and self.mask_truncated))  # of the last answer, TRL decides
        return Episode(
            first.ids + between + second.ids,
            [carries_loss] * len(first.ids) + [0] * len(between) + [1] * len(second.ids),
            logprobs,
            (first.graded, second.graded),
            first.is_cut or second.is_cut,
        )
