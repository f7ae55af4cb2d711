"""The reward in training: weighted terms, whose functions are built in or of the user."""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from statistics import fmean
from typing import Any

from arc_refinery.config import RewardTerm
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import OwnFunction
from arc_refinery.files import content_hash
from arc_refinery.training.step_metrics import REWARD_TERM

MAX_REWARD = 1e9  # from a function of the user; sums and squares of rewards have to be finite


class Reward:
    """The terms of a reward; a completion is what their functions take, with the text `about` for errors."""

    def __init__(self, terms: Sequence[RewardTerm]) -> None:
        """Import the user's files; raise `InputError` if one cannot be used."""
        self.terms = tuple(terms)
        self._functions = {
            term.name: _own_score(term.own_code) if term.own_code else term.built_in[term.reward] for term in terms
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

    def metrics(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        return {f"{REWARD_TERM}{name}": fmean(term_values) for name, term_values in values.items()}


def _own_score(code: OwnCode) -> Callable[[Any], float]:
    function = OwnFunction(code)

    def score(completion: Any) -> float:
        value = function(completion, completion.about)
        try:
            number = float(value) if isinstance(value, Real) else math.nan
        except OverflowError:
            number = math.inf
        if not abs(number) <= MAX_REWARD:
            fault = f"returned {value!r:.80}; expected a number of at most {MAX_REWARD:g} in size"
            raise function.error(completion.about, fault)
        return number

    return score
