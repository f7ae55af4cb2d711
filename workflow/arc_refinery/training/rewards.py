"""The reward in training: weighted terms, whose functions are built in or of the user."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from arc_refinery.config import RewardTerm
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import OwnFunction, number_in
from arc_refinery.config.rewards import ByTurn, Functions, function_of
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.training.step_metrics import REWARD_TERM

MAX_REWARD = 1e9  # from a function of the user; sums and squares of rewards have to be finite


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
