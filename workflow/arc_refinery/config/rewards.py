"""The section `training.grpo` of tool use: GRPO, and the terms of its reward.

rewards: [correct, {reward: format, weight: 0.1}, {reward: rewards.py:score, weight: 0.5}]
"""

from collections import Counter
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from arc_refinery.config.grpo import PolicyGradient
from arc_refinery.config.own_code import Entry, OwnCode

BuiltInReward = Literal["correct", "passed_tests", "format", "length"]


class RewardTerm(Entry):
    key: ClassVar = "reward"
    reward: str = Field(
        description=f"{', '.join(f'`{name}`' for name in get_args(BuiltInReward))}, or `file.py:name`, a function of "
        "your own (docs/tool-use.md)."
    )
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
        """Return the keys and values of a term that is given as one word."""
        if OwnCode.parse(word) or "=" not in word:
            return {"reward": word}
        reward, _, weight = word.rpartition("=")
        return {"reward": reward, "weight": weight}

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        known = get_args(BuiltInReward)
        if self.own_code is None and self.reward not in known:
            raise ValueError(f"{self.reward!r:.100} is not a reward; expected {', '.join(known)}, or `file.py:name`")
        if self.weight == 0.0:
            raise ValueError(f"weight of {self.reward} is 0, so it changes nothing; remove the entry")
        return self


CORRECT = (RewardTerm(reward="correct"),)


class ToolGrpo(PolicyGradient):
    rewards: tuple[RewardTerm, ...] = Field(
        CORRECT,
        min_length=1,
        description="Terms whose weighted sum is the reward in training: each a name, or a section. The evaluation "
        "counts correct answers, whatever the terms are.",
    )

    @model_validator(mode="after")
    def _terms_have_their_own_names(self) -> Self:
        counts = Counter(term.name for term in self.rewards)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"rewards: two terms have the name {twice[0]}; rename or remove one")
        return self
