"""A finished episode, as the terms of the reward in training read it (tool_use/config/rewards.py).

    rewards: [correct, {reward: length, weight: -0.1}]

An episode that is correct and wrote 64 of at most 256 tokens earns 1 - 0.1 x 0.25 = 0.975.

Episodes in which a tool could not work carry no loss, and too many of them end the training. Four episodes earn 1, 0, 0
and, because a database was away, nothing that could be graded. The fourth counts as the mean of the others, 1/3, so
that their mean stays what it is without it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Call, EpisodeMessage, Question
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.episodes.episodes import Rollout, calls_by_turn
from arc_refinery.tool_use.grading.domains import domain_of
from arc_refinery.tool_use.grading.rewards import EpisodeGrade

N_STEPS = 50  # over which failures are counted
UNREADABLE = ("malformed", "cut_off")  # faults of calls that are not written as they should be


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """A finished episode, as a reward of the user reads it."""

    question: Question
    messages: tuple[EpisodeMessage, ...]  # after the question: roles `assistant` and `tool`
    calls: tuple[Call, ...]  # in order, each with its tool and fault
    ending: str  # answer, truncated, tokens, calls
    n_tokens: int  # written by the model
    answer: str  # number, text or program that was graded; empty if there is none
    is_correct: bool
    passed_tests: float  # `Grade.progress`: share of the hidden tests; without tests 1 if the answer is correct, else 0
    max_tokens: int = 1  # that the model may write
    call_format: CallFormat = HERMES

    @property
    def about(self) -> str:
        return f"the question {self.question.question_id}"

    @property
    def n_turns(self) -> int:
        """Turns that the model wrote."""
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def calls_by_turn(self) -> list[list[Call]]:
        """The calls of each turn of the model."""
        return calls_by_turn(self.messages, self.calls)

    @property
    def final_text(self) -> str:
        """The last turn without its thinking; empty unless the episode ended with an answer."""
        if self.ending != "answer":
            return ""
        return parse_turn(self.messages[-1].content, self.call_format).answer or ""

    @property
    def is_well_formed(self) -> bool:
        """Whether the answer has its form, and every call could be read.

        The domain of the question says what an answer is (`Domain.is_marked`).
        """
        if any(call.fault in UNREADABLE for call in self.calls):
            return False
        domain = domain_of(self.question.domain)
        with domain.calling("is_marked", self.question.question_id):
            return bool(self.answer) and domain.is_marked(self.final_text)


def scored_episode(question: Question, rollout: Rollout, grade: EpisodeGrade, max_tokens: int) -> ScoredEpisode:
    """Return a finished episode with its grade."""
    return ScoredEpisode(
        question=question,
        messages=tuple(rollout.messages),
        calls=tuple(Call(result.tool, result.fault or "") for result in rollout.results),
        ending=str(rollout.ending),
        n_tokens=sum(rollout.mask),
        answer=grade.answer,
        is_correct=grade.reward == 1.0,
        passed_tests=grade.progress,
        max_tokens=max_tokens,
        call_format=rollout.toolbox.call_format,
    )


def without_failed(rewards: Sequence[float], failed: Sequence[bool], group: int) -> list[float]:
    """Return the rewards, those of failed episodes replaced by the mean of the others of their group; 0 without any."""
    replaced: list[float] = []
    for start in range(0, len(rewards), group):
        pairs = list(zip(rewards[start : start + group], failed[start : start + group], strict=True))
        graded = [reward for reward, has_failed in pairs if not has_failed]
        mean = fmean(graded) if graded else 0.0
        replaced += [mean if has_failed else reward for reward, has_failed in pairs]
    return replaced


def spread(values: Sequence[float], failed: Sequence[bool]) -> list[float]:
    """Return the values of graded episodes at their places among all; those of failed ones are 0."""
    rest = iter(values)
    return [0.0 if has_failed else next(rest) for has_failed in failed]


class FailureLimit:
    """Counts failed episodes of the last `N_STEPS` steps."""

    def __init__(self, max_failed: float, episodes_per_step: int) -> None:
        self._max_failed = max_failed
        self._n_episodes = N_STEPS * episodes_per_step
        self._latest: deque[bool] = deque(maxlen=self._n_episodes)

    def add(self, failures: Sequence[str]) -> None:
        """Add episodes of training: why a tool could not work, empty if all could. Raises `InputError`."""
        self._latest.extend(reason != "" for reason in failures)
        n_failed = sum(self._latest)
        if any(failures) and n_failed > self._max_failed * self._n_episodes:
            reason = next(filter(None, reversed(failures)))
            raise InputError(
                f"a tool could not work in {n_failed} of the last {len(self._latest)} episodes, more than max_failed = "
                f"{self._max_failed:g} of the {self._n_episodes} of {N_STEPS} steps: {reason}. Make it work, then "
                "start the job again: it resumes from the newest checkpoint"
            )
