"""On-policy turns: the model answers, the answer is executed, feedback is appended, the model refines, up to n times.

Training uses the sampled token ids; text is never re-tokenised. The mask is 1 for sampled tokens and 0 for the tokens
that the chat template and the feedback put between two answers. An episode of the embedded model:

    mask  tokens
    1      3  ```python\\nfrom common import *\\n\\ndef transform(grid):\\n    return grid\\n```<|end|>
    0     15  <|user|>Executing your program gave:\\npair 1 wrong, pixel similarity 0%, given 1x2\\n1 10\\n
              Write a corrected program.<|assistant|>
    1     31  ```python\\nfrom common import *\\n\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```<|end|>

With `history: last`, the third answer and later ones read the task, the answer before and its feedback. No sequence of
tokens holds all answers in the contexts in which they were sampled, so the last answer alone carries loss there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from arc_refinery.domains.domain import Answer, Domain
from arc_refinery.domains.grading import grades_of
from arc_refinery.domains.prompts import begun_answer, next_turn, split_prefix
from arc_refinery.models.chat import ANSWER, Message, ids_after_answer, special_marks, without_marks
from arc_refinery.records import Prompt
from arc_refinery.refining.config import History
from arc_refinery.refining.grading import can_be_refined
from arc_refinery.sandbox import Executor


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """A conversation to be answered, and what answers are graded against."""

    prompt: Prompt  # of the domain's class
    subject: Any
    prefix: str  # beginning of the answer; may be empty

    @classmethod
    def of(cls, domain: Domain, prompt: Prompt) -> "TrainingPrompt":
        return cls(prompt, domain.subject(prompt), split_prefix(prompt.messages)[1])

    @property
    def task_id(self) -> str:
        return self.prompt.task_id

    @property
    def conversation(self) -> list[Message]:
        """The messages without the prefix."""
        return split_prefix(self.prompt.messages)[0]

    def answer(self, sampled: str) -> Answer:
        """Return the whole answer that this text ends, to be graded."""
        return Answer(begun_answer(self.prompt) + sampled, self.subject)

    @property
    def parent(self) -> str | None:
        """The answer to refine; None in a first turn."""
        answers = [message["content"] for message in self.prompt.messages if message["role"] == "assistant"]
        answers = answers[:-1] if self.prefix else answers
        return answers[-1] if answers else None

    @property
    def feedback(self) -> str:
        """The text about the answer to refine; empty in a first turn."""
        return "" if self.parent is None else self.conversation[-1]["content"]


@dataclass(frozen=True, slots=True)
class OnPolicyEpisode:
    """The answers of an episode with the tokens between them, and the grade of each answer."""

    completion_ids: list[int]
    mask: list[int]  # 1: sampled
    logprobs: list[float] | None  # from the sampler, 0 where the mask is; None if the sampler returns none
    turns: list[int]  # number of the turn of each token, 0 between two of them
    grades: tuple[Any, ...]  # one grade per answer
    is_truncated: bool  # true if an answer was cut, of those that are learned from
    answer: str  # the last answer
    feedback: str  # on the answer before; empty in a first turn

    @property
    def sampled_ids(self) -> list[int]:
        """Sampled tokens that carry loss."""
        return [token for token, is_sampled in zip(self.completion_ids, self.mask, strict=True) if is_sampled]


@dataclass(frozen=True)
class Continuation:
    """The tokens that a chat template puts between two answers.

    The template begins answers with the prompts' prefix (`begin_answers`).
    """

    tokenizer: Any
    ends: Sequence[int]

    def ids(self, prompt: TrainingPrompt, answer_ids: Sequence[int], feedback: str) -> list[int]:
        """Return the ids after `answer_ids`: the answer's end token, unless sampled, the feedback, the next header.

        An answer that was cut is closed as the template closes answers.
        """
        plain = without_marks(feedback, special_marks(self.tokenizer.added_tokens_decoder))
        conversation, _ = split_prefix(next_turn(list(prompt.prompt.messages), ANSWER, plain))
        ids = ids_after_answer(self.tokenizer, frozenset(self.ends), conversation)
        return ids[1:] if answer_ids[-1] in self.ends else ids


@dataclass(frozen=True, slots=True)
class _Turn:
    """One sampled answer and its grade; `before` are the tokens between the answer before and this one."""

    answer: str
    feedback: str  # in `before`
    before: list[int]
    ids: list[int]
    logprobs: list[float] | None
    is_cut: bool
    grade: Any


@dataclass(slots=True)
class _Episode:
    """An episode while it runs; `context` is what the next answer reads."""

    prompt: TrainingPrompt
    prompt_ids: list[int]
    context: list[int]
    turns: list[_Turn] = field(default_factory=list)
    feedback: str = ""  # on the last answer
    between: list[int] = field(default_factory=list)  # after the last answer: tokens with the feedback


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicyTurns:
    """One episode per row of the data set, of at most `n_turns` answers."""

    domain: Domain
    prompts: Sequence[TrainingPrompt]
    executors: tuple[Executor, ...]
    wording: Any
    include_errors: bool
    n_turns: int
    history: History
    max_tokens: int  # length of the longest prompt that leaves room for an answer
    mask_truncated: bool
    feedback: Literal["real", "twin"] = "real"

    def __call__(self, rows: Sequence[Mapping[str, Any]], trainer: Any) -> dict[str, Any]:
        conversations = [self.prompts[row["prompt_index"]] for row in rows]
        prompt_ids, _, _ = trainer._tokenize_prompts([row["prompt"] for row in rows])
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
    ) -> list[OnPolicyEpisode]:
        continuation = Continuation(trainer.processing_class, trainer.eos_token_ids)
        episodes = [_Episode(prompt, ids, ids) for prompt, ids in zip(prompts, prompt_ids, strict=True)]
        self._sample(episodes, trainer)
        running = episodes
        for _ in range(self.n_turns - 1):
            refined = [
                episode
                for episode in running
                if can_be_refined(episode.turns[-1].grade, self.domain, self.include_errors)
            ]
            self._comment(refined)
            running = [episode for episode in refined if self._continue(episode, continuation)]
            self._sample(running, trainer)
        return [self._finished(episode) for episode in episodes]

    def _sample(self, episodes: Sequence[_Episode], trainer: Any) -> None:
        """Add an answer to each episode."""
        if not episodes:
            return
        sampled, logprobs = trainer._generate_single_turn([episode.context for episode in episodes], None, {}, 1)
        texts = trainer.processing_class.batch_decode(sampled, skip_special_tokens=True)
        with trainer.timed("reward"):
            answers = [episode.prompt.answer(text) for episode, text in zip(episodes, texts, strict=True)]
            names = [episode.prompt.prompt.prompt_id for episode in episodes]
            grades = list(grades_of(self.domain, answers, self.executors, names))
        for episode, answer, ids, log_probs, grade in zip(
            episodes, answers, sampled, logprobs or [None] * len(sampled), grades, strict=True
        ):
            is_cut = ids[-1] not in trainer.eos_token_ids
            episode.turns.append(_Turn(answer.text, episode.feedback, episode.between, ids, log_probs, is_cut, grade))

    def _comment(self, episodes: Sequence[_Episode]) -> None:
        """Write the feedback on the last answers; `twin` is the next other one in the group, if there is another."""
        own = [
            self.domain.feedback(episode.prompt.prompt, episode.turns[-1].grade, self.wording) for episode in episodes
        ]
        for index, episode in enumerate(episodes):
            episode.feedback = own[index]
            if self.feedback == "twin":
                after = zip([*episodes[index:], *episodes[:index]], [*own[index:], *own[:index]], strict=True)
                twins = (text for other, text in after if other.prompt is episode.prompt and text != own[index])
                episode.feedback = next(twins, own[index])

    def _continue(self, episode: _Episode, continuation: Continuation) -> bool:
        """Append the feedback on the last answer; return false if there is no room for it."""
        turn = episode.turns[-1]
        episode.between = continuation.ids(episode.prompt, turn.ids, episode.feedback)
        before = episode.context if self.history == "whole" else episode.prompt_ids
        episode.context = before + turn.ids + episode.between
        return len(episode.context) <= self.max_tokens

    def _finished(self, episode: _Episode) -> OnPolicyEpisode:
        turns = learned = episode.turns
        first = 1  # number of the first turn of these
        if self.history == "last" and len(turns) > 2:
            turns, learned, first = turns[-2:], turns[-1:], len(turns) - 1
            carry_loss = [False, True]
        else:  # TRL decides about the last answer
            carry_loss = [not (turn.is_cut and self.mask_truncated) for turn in turns[:-1]] + [True]
        before = [turn.before for turn in turns]
        before[0] = []
        parts = list(zip(before, turns, carry_loss, strict=True))
        logprobs = None
        if all(turn.logprobs is not None for turn in turns):
            values = ([0.0] * len(ids) + list(turn.logprobs or ()) for ids, turn, _ in parts)
            logprobs = list(chain.from_iterable(values))
        numbers = enumerate(parts, first)
        return OnPolicyEpisode(
            list(chain.from_iterable(ids + turn.ids for ids, turn, _ in parts)),
            list(chain.from_iterable([0] * len(ids) + [int(carries)] * len(turn.ids) for ids, turn, carries in parts)),
            logprobs,
            list(chain.from_iterable([0] * len(ids) + [n] * len(turn.ids) for n, (ids, turn, _) in numbers)),
            tuple(turn.grade for turn in episode.turns),
            any(turn.is_cut for turn in learned),
            episode.turns[-1].answer,
            episode.turns[-1].feedback,
        )
