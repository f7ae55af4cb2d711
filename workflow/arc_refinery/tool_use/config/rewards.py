"""The section `training.grpo` of tool use: GRPO, and the terms of its reward."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, Field

from arc_refinery.config.base import TUNING, Share
from arc_refinery.config.grpo import PolicyGradient
from arc_refinery.config.rewards import ByTurn, RewardTerm, described, distinct


class Episode(Protocol):
    """A finished episode, as built-in rewards read it (tool_use/training/reward_terms.ScoredEpisode)."""

    is_correct: bool
    passed_tests: float
    is_well_formed: bool
    n_tokens: int
    max_tokens: int
    calls_by_turn: Sequence[Sequence[Any]]  # records.tool_use.Call


Score = Callable[[Any], float]
REWARDS: dict[str, Score] = {}


def built_in(function: Score) -> Score:
    REWARDS[function.__name__.removesuffix("_")] = function
    return function


@built_in
def correct(episode: Episode) -> float:
    """1 if the answer is correct"""
    return float(episode.is_correct)


@built_in
def passed_tests(episode: Episode) -> float:
    """share of the hidden tests that a program passes (of other answers as `correct`)"""
    return episode.passed_tests


@built_in
def format_(episode: Episode) -> float:
    """1 if the answer has its form and every call can be read"""
    return float(episode.is_well_formed)


@built_in
def length(episode: Episode) -> float:
    """tokens that the model wrote / `max_episode_tokens`"""
    return episode.n_tokens / episode.max_tokens


@built_in
def faulty_calls(episode: Episode) -> float:
    """calls with a fault, for `advantage: others` in the turn that made them"""
    return ByTurn(sum(call.fault != "" for call in calls) for calls in episode.calls_by_turn)


class EpisodeTerm(RewardTerm):
    example: ClassVar = "def score(episode):"
    reward: str = Field(description=described(REWARDS, "docs/tool-use.md"))


CORRECT = (EpisodeTerm(reward="correct"),)


class ToolGrpo(PolicyGradient):
    rewards: Annotated[tuple[EpisodeTerm, ...], AfterValidator(distinct)] = Field(
        CORRECT,
        min_length=1,
        description="Terms whose weighted sum is the reward in training: each a name, or a section.",
    )
    max_failed: Annotated[Share, TUNING] = Field(
        0.05,
        description="Training ends when a tool could not work in more than this share of the episodes of 50 steps.",
    )
