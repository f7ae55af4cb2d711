"""The section `guard`: when a training counts as collapsed, and what happens then."""

from typing import Literal

from pydantic import Field

from arc_refinery.config.base import NonNegativeFloat, NonNegativeInt, PositiveInt, Share, Strict

GuardAction = Literal["rollback", "stop", "none"]


class Guard(Strict):
    action: GuardAction = Field(
        "rollback",
        description="`rollback`: continue from the last good checkpoint with a lower learning rate; `stop`: end and "
        "keep the best checkpoint before the collapse; `none`: only report it.",
    )
    window: PositiveInt = Field(10, description="Steps over which the metrics below are averaged.")
    max_truncated: Share = Field(0.5, description="Collapsed when more than this share of completions is truncated.")
    max_repetition: Share = Field(
        0.5, description="Collapsed when more than this share of a completion's 4-grams repeat earlier ones."
    )
    min_reward: Share = Field(
        0.5, description="Collapsed when the mean reward falls below this share of its mean over all earlier steps."
    )
    max_zero_variance: Share = Field(
        0.9,
        description="Collapsed when in more than this share of the groups all completions earn the same reward, though "
        "fewer than half of them are right: all answers are alike, so there is nothing to learn from.",
    )
    max_kl: NonNegativeFloat = Field(
        0.0, description="Collapsed when the KL from the start exceeds this (nats/token); 0: not checked."
    )
    rate_factor: Share = Field(0.5, description="A rollback multiplies the learning rate by this.")
    max_rollbacks: NonNegativeInt = Field(2, description="After this many rollbacks, a collapse stops the training.")
