"""The reward in training, weighted terms whose functions are built in or of the user; metrics of a GRPO step.

The metrics, in addition to TRL's, are functions of the step's completions alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import fmean
from typing import Any

from arc_refinery.config import RewardTerm
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import OwnFunction, number_in
from arc_refinery.config.rewards import ByTurn, Functions, function_of
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash

MAX_REWARD = 1e9  # from a function of the user; sums and squares of rewards have to be finite
NGRAM = 4  # tokens
REWARD_TERM = "reward_term/"  # prefix of a term of the reward: mean of its values, without its weight


class Reward:
    """The terms of a reward; a completion is what their functions take, with the text `about` for errors."""

    def __init__(self, terms: Sequence[RewardTerm], built_in: Functions) -> None:
        """Import the user's files; raise `InputError` if one cannot be used, or a term is not known."""
        self.terms = tuple(terms)
        self._functions = {
            term.name: _own_score(term.own_code) if term.own_code else _known(term, built_in) for term in terms
        }

    def identity(self) -> dict[str, object]:
        """Return what determines the rewards."""
        files = sorted({term.own_code.path for term in self.terms if term.own_code})
        return {"terms": [str(term) for term in self.terms], "files": content_hash(files) if files else ""}

    def values(self, completions: Sequence[Any]) -> dict[str, list[float]]:
        """Return each term's value of each completion, without weights."""
        return {name: [score(completion) for completion in completions] for name, score in self._functions.items()}

    def weighted(self, values: Mapping[str, Sequence[float]]) -> list[list[float]]:
        """Return the summands of each completion's reward, in the order of the terms."""
        rows = zip(*(values[term.name] for term in self.terms), strict=True)
        return [[term.weight * value for term, value in zip(self.terms, row, strict=True)] for row in rows]

    def earned(self, values: Mapping[str, Sequence[float]], n_turns: Sequence[int]) -> list[list[float]]:
        """Return what each turn of each completion earns; empty if no term says, so that the last one earns it all."""
        if not any(isinstance(value, ByTurn) for term_values in values.values() for value in term_values):
            return [[] for _ in n_turns]
        earned = [[0.0] * n for n in n_turns]
        for term in self.terms:
            for turns, value in zip(earned, values[term.name], strict=True):
                parts = value.turns if isinstance(value, ByTurn) else [*[0.0] * (len(turns) - 1), value]
                turns[:] = [before + term.weight * part for before, part in zip(turns, parts, strict=True)]
        return earned

    def metrics(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        return {f"{REWARD_TERM}{name}": fmean(term_values) for name, term_values in values.items()}


def _known(term: RewardTerm, built_in: Functions) -> Callable[[Any], float]:
    try:
        return function_of(term, built_in)
    except ValueError as error:
        raise InputError(f"rewards: {error}") from None


def _own_score(code: OwnCode) -> Callable[[Any], float]:
    function = OwnFunction(code)

    def score(completion: Any) -> float:
        value, n_turns = function(completion, completion.about), getattr(completion, "n_turns", None)
        by_turn = isinstance(value, list | tuple) and len(value) == n_turns
        numbers = [number_in(part) for part in (value if by_turn else [value])]
        if not all(abs(number) <= MAX_REWARD for number in numbers):
            is_list = n_turns and isinstance(value, list | tuple)
            turns = f", or a list of {n_turns}, one for each turn" if is_list else ""
            fault = f"returned {value!r:.80}; expected a number of at most {MAX_REWARD:g} in size{turns}"
            raise function.error(completion.about, fault)
        return ByTurn(numbers) if by_turn else numbers[0]

    return score


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """One completion of a step."""

    token_ids: Sequence[int]  # the sampled ones, of all turns
    truncated: bool
    reward: float
    status: str  # outcome of running its program; empty if there is none to run
    solved: bool  # the answer is right
    name: str = ""  # id of the prompt or question
    turns: Sequence[int] = ()  # number of the turn of each token, 0 between two of them; empty: one turn
    parents: Sequence[float] = ()  # rewards of the answers that turns 2, 3, ... refine
    failed: bool = False  # a tool could not work: it carries no loss
    earned: Sequence[float] = ()  # what each turn earns, in sum the reward; empty: the last one earns it all

    @property
    def n_turns(self) -> int:
        return max(self.turns, default=1)

    def return_from(self, turn: int) -> float:
        """Return what is earned from a turn on; turns are numbered from 1."""
        return fsum(self.earned[turn - 1 :]) if self.earned else self.reward


@dataclass(frozen=True, slots=True)
class Scored:
    """The completions of a step in this process, and each one's values of the terms of the reward, without weights."""

    completions: Sequence[ScoredCompletion]
    terms: Mapping[str, Sequence[float]] = field(default_factory=dict)


def unique_token_ratio(ids: Sequence[int]) -> float:
    """Distinct tokens / tokens; 1 without tokens."""
    return len(set(ids)) / len(ids) if ids else 1.0


def ngram_repetition(ids: Sequence[int]) -> float:
    """Share of a completion's n-grams that repeat earlier ones; 0 with fewer than `NGRAM` tokens."""
    ngrams = [tuple(ids[start : start + NGRAM]) for start in range(len(ids) - NGRAM + 1)]
    return 1.0 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def step_metrics(
    completions: Sequence[ScoredCompletion], group_size: int, failures: Sequence[str] = ()
) -> dict[str, float]:
    """Return the metrics of one step by their names in training.jsonl, without those of empty sets of completions.

    Completions of one prompt are consecutive, `group_size` of each. Raise ValueError if the last group is incomplete.
    `failures` are the statuses whose shares are metrics.
    """
    if not completions or len(completions) % group_size:
        raise ValueError(f"{len(completions)} completions do not form groups of {group_size}")
    groups = [completions[start : start + group_size] for start in range(0, len(completions), group_size)]
    truncated = [completion for completion in completions if completion.truncated]
    finished = [completion for completion in completions if not completion.truncated]
    metrics = {
        "reward/max": max(completion.reward for completion in completions),
        "reward/min": min(completion.reward for completion in completions),
        "share/solved": fmean(completion.solved for completion in completions),
        "share/zero_variance": fmean(len({completion.reward for completion in group}) == 1 for group in groups),
        "share/truncated": len(truncated) / len(completions),
        "repetition": fmean(ngram_repetition(completion.token_ids) for completion in completions),
    }
    for status in failures:
        metrics[f"share/{status}"] = fmean(completion.status == status for completion in completions)
    for name, members in (("truncated", truncated), ("finished", finished)):
        if members:
            metrics[f"reward/{name}"] = fmean(completion.reward for completion in members)
            metrics[f"unique_tokens/{name}"] = fmean(unique_token_ratio(completion.token_ids) for completion in members)
            metrics[f"repetition/{name}"] = fmean(ngram_repetition(completion.token_ids) for completion in members)
    return metrics
