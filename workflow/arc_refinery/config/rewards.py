"""Terms of the reward in training, for every kind of experiment: built-in functions and functions of the user.

    rewards: [correct, {reward: format, weight: 0.1}, {reward: rewards.py:score, weight: 0.5}]

Each kind has a table of built-in functions. A term's name is that of its function, and so is its description.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from arc_refinery.config.own_code import Entry, OwnCode

Functions = Mapping[str, Callable[[Any], float]]
Term = TypeVar("Term", bound="RewardTerm")


class ByTurn(float):
    """A term's value of an episode: the sum of what it gives for each turn of the model."""

    turns: tuple[float, ...]

    def __new__(cls, turns: Iterable[float]) -> Self:
        turns = tuple(turns)
        value = super().__new__(cls, math.fsum(turns))
        value.turns = turns
        return value


class RewardTerm(Entry):
    key: ClassVar = "reward"
    example: ClassVar[str]  # first line of a function of the user
    reward: str
    weight: float = Field(1.0, ge=-1e6, le=1e6, description="The term is multiplied by it; below 0 it is a penalty.")

    @property
    def name(self) -> str:
        """Name in the training log."""
        return self.own_code.name if self.own_code else self.reward

    def __str__(self) -> str:
        """The term as one word: `format=0.1`."""
        return self.reward if self.weight == 1.0 else f"{self.reward}={self.weight}"

    @classmethod
    def settings_of(cls, word: str) -> dict[str, Any]:
        """Return the keys and values of a term that is one word."""
        if OwnCode.parse(word) or "=" not in word:
            return {"reward": word}
        reward, _, weight = word.rpartition("=")
        return {"reward": reward, "weight": weight}

    @model_validator(mode="after")
    def _changes_the_reward(self) -> Self:
        if self.weight == 0.0:
            raise ValueError(f"weight of {self.reward} is 0, so it changes nothing; remove the entry")
        return self


def described(functions: Functions, page: str) -> str:
    """Return what the docs say about the key `reward` of a kind."""
    names = [f"`{name}`: {str(function.__doc__).rstrip('.')}" for name, function in functions.items()]
    return f"{'; '.join(names)}; or `file.py:name`, a function of your own ({page})."


def function_of(term: RewardTerm, functions: Functions) -> Callable[[Any], float]:
    """Return a built-in function; raise `ValueError` if there is none of this name."""
    if term.reward not in functions:
        raise ValueError(f"{term.reward!r:.100} is not a reward; expected {', '.join(functions)}, or `file.py:name`")
    return functions[term.reward]


def distinct(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Raise `ValueError` if two terms have one name in the training log."""
    counts = Counter(term.name for term in terms)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"two terms have the name {twice[0]}; rename or remove one")
    return terms
