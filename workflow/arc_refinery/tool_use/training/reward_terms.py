"""Terms of the reward in training: correctness, passed tests, form, length, and functions of the user.

    rewards: [correct, {reward: length, weight: -0.1}]

An episode that is correct and wrote 64 of at most 256 tokens earns 1 - 0.1 x 0.25 = 0.975.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import OwnFunction
from arc_refinery.config.rewards import CORRECT, RewardTerm
from arc_refinery.files import content_hash
from arc_refinery.records.questions import Question
from arc_refinery.records.transcripts import Call, EpisodeMessage
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.episodes.episodes import Rollout
from arc_refinery.tool_use.grading.answers import final_number, final_text, marked_number, marked_text
from arc_refinery.tool_use.grading.programs import defines_tested
from arc_refinery.tool_use.grading.rewards import EpisodeGrade

MAX_REWARD = 1e9  # of a function of the user; sums and squares of rewards have to be finite
UNREADABLE = ("malformed", "cut_off")  # faults of calls that are not written as they should be


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """A finished episode, as a reward of the user reads it."""

    question: Question
    messages: tuple[EpisodeMessage, ...]  # after the question: roles `assistant`, `tool` and `user`
    calls: tuple[Call, ...]  # in order, each with its tool and fault
    ending: str  # answer, truncated, tokens, calls
    n_tokens: int  # written by the model
    answer: str  # number, text or program that was graded; empty if there is none
    is_correct: bool
    passed_tests: float  # `AssertsReport.passed_hidden`; without tests 1 if the answer is correct, else 0
    call_format: CallFormat = HERMES

    @property
    def final_text(self) -> str:
        """The last turn without its thinking; empty unless the episode ended with an answer."""
        if self.ending != "answer":
            return ""
        return parse_turn(self.messages[-1].content, self.call_format).answer or ""


Score = Callable[[ScoredEpisode], float]


class EpisodeReward:
    """The weighted sum of terms."""

    def __init__(self, terms: Sequence[RewardTerm] = CORRECT, max_episode_tokens: int = 1) -> None:
        """Import the user's files; raise `InputError` if one cannot be used."""
        self.terms = tuple(terms)
        self.scores = {term.name: _score(term, max_episode_tokens) for term in terms}

    @property
    def is_correctness(self) -> bool:
        """Whether the reward is 1 for a correct answer, else 0."""
        return self.terms == CORRECT

    def identity(self) -> dict[str, object]:
        """Return what determines the rewards."""
        files = sorted({term.own_code.path for term in self.terms if term.own_code})
        return {"terms": [str(term) for term in self.terms], "files": content_hash(files) if files else ""}

    def values(self, episodes: Sequence[ScoredEpisode]) -> dict[str, list[float]]:
        """Return each term's value of each episode, without weights."""
        return {name: [score(episode) for episode in episodes] for name, score in self.scores.items()}

    def total(self, values: dict[str, list[float]]) -> list[float]:
        """Return the reward of each episode from the values of the terms."""
        weights = [term.weight for term in self.terms]
        rows = zip(*(values[term.name] for term in self.terms), strict=True)
        return [math.fsum(weight * value for weight, value in zip(weights, row, strict=True)) for row in rows]


def scored_episode(question: Question, rollout: Rollout, grade: EpisodeGrade) -> ScoredEpisode:
    """Return a finished episode with its grade."""
    return ScoredEpisode(
        question=question,
        messages=tuple(rollout.messages),
        calls=tuple(Call(result.tool, result.fault or "") for result in rollout.results),
        ending=str(rollout.ending),
        n_tokens=sum(rollout.mask),
        answer=grade.answer,
        is_correct=grade.reward == 1.0,
        passed_tests=grade.report.passed_hidden if grade.report else grade.reward,
        call_format=rollout.toolbox.call_format,
    )


def is_well_formed(episode: ScoredEpisode) -> bool:
    """Whether the answer has its form, and every call could be read.

    A number or a text is marked. A program is in a block, and defines a function that the tests call. A mark or a block
    without such content is not an answer.
    """
    if any(call.fault in UNREADABLE for call in episode.calls):
        return False
    question, text = episode.question, episode.final_text
    match question.kind:
        case "gsm8k":
            return marked_number(text) is not None and final_number(text) is not None
        case "exact_match":
            return marked_text(text) is not None and bool(final_text(text))
        case "code_exec":
            asserts = question.asserts.statements if question.asserts else ()
            return bool(episode.answer) and defines_tested(episode.answer, asserts)


def _score(term: RewardTerm, max_episode_tokens: int) -> Score:
    if term.own_code:
        return _own_score(term.own_code)
    match term.reward:
        case "correct":
            return lambda episode: float(episode.is_correct)
        case "passed_tests":
            return lambda episode: episode.passed_tests
        case "format":
            return lambda episode: float(is_well_formed(episode))
        case "length":
            return lambda episode: episode.n_tokens / max_episode_tokens
        case _:
            raise ValueError(f"{term.reward} is not a reward")


def _own_score(code: OwnCode) -> Score:
    function = OwnFunction(code)

    def score(episode: ScoredEpisode) -> float:
        about = f"the question {episode.question.question_id}"
        value = function(episode, about)
        try:
            number = float(value) if isinstance(value, Real) else math.nan
        except OverflowError:
            number = math.inf
        if not abs(number) <= MAX_REWARD:
            raise function.error(about, f"returned {value!r:.80}; expected a number of at most {MAX_REWARD:g} in size")
        return number

    return score
