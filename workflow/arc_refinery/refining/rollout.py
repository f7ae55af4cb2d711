"""On-policy second turns: the model answers, the answer is executed, feedback is appended, the model refines.

Training uses the sampled token ids; text is never re-tokenised. The mask is 1 for sampled tokens and 0 for the tokens
that the chat template and the feedback put between the two answers. An episode of the embedded model:

    mask  tokens
    1      3  ```python\\nfrom common import *\\n\\ndef transform(grid):\\n    return grid\\n```<|end|>
    0     15  <|user|>Executing your program gave:\\npair 1 wrong, pixel similarity 0%, given 1x2\\n1 10\\n
              Write a corrected program.<|assistant|>
    1     31  ```python\\nfrom common import *\\n\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```<|end|>
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arc_refinery.arc.metrics import correct_grids
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.models.chat import ANSWER, Message, ids_after_answer, special_marks, without_marks
from arc_refinery.records import Prompt
from arc_refinery.refining.config.rewards import Grade
from arc_refinery.refining.grading import Answer, grade_answers
from arc_refinery.refining.prompts import Template, error_feedback, execution_feedback, next_turn, split_prefix
from arc_refinery.sandbox import Executor, Status

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """A conversation to be answered, and the task in the form shown in it."""

    task_id: str
    messages: tuple[Message, ...]  # ends with the prefix of the answer, if any
    prefix: str  # beginning of the answer; may be empty
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]  # pairs with known outputs; Kaggle's may be unknown

    @classmethod
    def of(cls, prompt: Prompt) -> "TrainingPrompt":
        train, test = (tuple(pair for pair in pairs if pair.output.size) for pairs in (prompt.train, prompt.test))
        return cls(prompt.task_id, tuple(prompt.messages), split_prefix(prompt.messages)[1], train, test)

    @property
    def conversation(self) -> list[Message]:
        """The messages without the prefix."""
        return split_prefix(self.messages)[0]

    def answer(self, text: str) -> Answer:
        """Return a whole answer, to be executed on all pairs."""
        inputs, truths = zip(*((pair.input, pair.output) for pair in self.train + self.test), strict=True)
        return Answer(text, inputs, truths)

    @property
    def parent(self) -> str | None:
        """The answer to refine; None in a first turn."""
        answers = [message["content"] for message in self.messages if message["role"] == "assistant"]
        answers = answers[:-1] if self.prefix else answers
        return answers[-1] if answers else None


@dataclass(frozen=True, slots=True)
class TwoTurnEpisode:
    """One or two answers with the tokens between them, and the grade of each answer."""

    completion_ids: list[int]
    mask: list[int]  # 1: sampled
    logprobs: list[float] | None  # from the sampler, 0 where the mask is; None if the sampler returns none
    grades: tuple[Grade, ...]  # one grade per answer
    is_truncated: bool  # true if an answer was cut
    answer: str  # the last answer

    @property
    def sampled_ids(self) -> list[int]:
        """Sampled tokens that carry loss."""
        return [token for token, is_sampled in zip(self.completion_ids, self.mask, strict=True) if is_sampled]


class Continuation:
    """The tokens that a chat template puts between a first and a second answer.

    The template begins answers with the prompts' prefix (`begin_answers`).
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", ends: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)
        self.marks = special_marks(tokenizer.added_tokens_decoder)

    def ids(self, prompt: TrainingPrompt, answer_ids: Sequence[int], feedback: str) -> list[int]:
        """Return the ids after `answer_ids`: the answer's end token, unless sampled, the feedback, the next header.

        An answer that was cut is closed as the template closes answers.
        """
        plain = without_marks(feedback, self.marks)
        conversation, _ = split_prefix(next_turn(list(prompt.messages), ANSWER, plain))
        ids = ids_after_answer(self.tokenizer, self.ends, conversation)
        return ids[1:] if answer_ids[-1] in self.ends else ids


@dataclass(frozen=True, slots=True)
class _Turn:
    """One sampled answer and its grade."""

    answer: str
    ids: list[int]
    logprobs: list[float] | None
    is_cut: bool
    grade: Grade


class TwoTurns:
    """A rollout function of TRL: one episode per prompt."""

    def __init__(
        self,
        prompts: Sequence[TrainingPrompt],
        executor: Executor,
        template: Template,
        include_errors: bool,
        max_tokens: int,
        mask_truncated: bool,
    ) -> None:
        self.prompts = prompts
        self.executor = executor
        self.template = template
        self.include_errors = include_errors
        self.max_tokens = max_tokens  # length of the longest prompt that leaves room for an answer
        self.mask_truncated = mask_truncated

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        conversations = [self.prompts[row["prompt_index"]] for row in trainer.rows]
        prompt_ids, _, _ = trainer._tokenize_prompts(list(prompts))
        episodes = self._run_episodes(conversations, prompt_ids, trainer)
        logprobs = [episode.logprobs for episode in episodes]
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [episode.completion_ids for episode in episodes],
            "env_mask": [episode.mask for episode in episodes],
            "logprobs": None if None in logprobs else logprobs,
            "episode": episodes,
        }

    def _run_episodes(
        self, prompts: Sequence[TrainingPrompt], prompt_ids: Sequence[list[int]], trainer: Any
    ) -> list[TwoTurnEpisode]:
        continuation = Continuation(trainer.processing_class, trainer.eos_token_ids)
        first = self._sample(prompts, prompt_ids, trainer)
        between = [
            self._between(continuation, prompt, ids, turn)
            for prompt, ids, turn in zip(prompts, prompt_ids, first, strict=True)
        ]
        continued = [index for index, ids in enumerate(between) if ids]
        longer = [prompt_ids[index] + first[index].ids + between[index] for index in continued]
        second = self._sample([prompts[index] for index in continued], longer, trainer)
        after = dict(zip(continued, second, strict=True))
        return [self._episode(turn, between[index], after.get(index)) for index, turn in enumerate(first)]

    def _sample(self, prompts: Sequence[TrainingPrompt], prompt_ids: Sequence[list[int]], trainer: Any) -> list[_Turn]:
        if not prompts:
            return []
        sampled, logprobs = trainer._generate_single_turn(prompt_ids, None, {}, 1)
        texts = trainer.processing_class.batch_decode(sampled, skip_special_tokens=True)
        with trainer.timed("reward"):
            answers = [prompt.answer(prompt.prefix + text) for prompt, text in zip(prompts, texts, strict=True)]
            grades = list(grade_answers(answers, self.executor))
        return [
            _Turn(answer.text, ids, log_probs, ids[-1] not in trainer.eos_token_ids, grade)
            for answer, ids, log_probs, grade in zip(
                answers, sampled, logprobs or [None] * len(sampled), grades, strict=True
            )
        ]

    def _between(
        self, continuation: Continuation, prompt: TrainingPrompt, prompt_ids: list[int], turn: _Turn
    ) -> list[int]:
        """Return the ids between the two answers; empty if there is nothing to refine or no room for it."""
        feedback = self._feedback(prompt, turn.grade)
        ids = continuation.ids(prompt, turn.ids, feedback) if feedback else []
        return ids if len(prompt_ids) + len(turn.ids) + len(ids) <= self.max_tokens else []

    def _feedback(self, prompt: TrainingPrompt, grade: Grade) -> str:
        """Return the feedback on the train pairs; empty if there is nothing to refine."""
        if grade.status == Status.error and self.include_errors:
            return error_feedback(grade.error, self.template)
        outputs = grade.outputs[: len(prompt.train)]
        if not outputs or correct_grids(outputs, [pair.output for pair in prompt.train]) == 1.0:
            return ""
        return execution_feedback(Task("", prompt.train, prompt.test, ""), outputs, self.template)

    def _episode(self, first: _Turn, between: list[int], second: _Turn | None) -> TwoTurnEpisode:
        if second is None:
            mask, grades = [1] * len(first.ids), (first.grade,)
            return TwoTurnEpisode(first.ids, mask, first.logprobs, grades, first.is_cut, first.answer)
        logprobs = None
        if first.logprobs is not None and second.logprobs is not None:
            logprobs = first.logprobs + [0.0] * len(between) + second.logprobs
        carries_loss = int(not (first.is_cut and self.mask_truncated))  # for the last answer, TRL decides
        return TwoTurnEpisode(
            first.ids + between + second.ids,
            [carries_loss] * len(first.ids) + [0] * len(between) + [1] * len(second.ids),
            logprobs,
            (first.grade, second.grade),
            first.is_cut or second.is_cut,
            second.answer,
        )
