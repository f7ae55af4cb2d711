"""When a training counts as collapsed, and what is done then."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from arc_refinery.config.base import Share, Strict


class Guard(Strict):
    action: Literal["rollback", "stop", "none"] = Field(
        "rollback",
        description="`rollback`: go on from the last good checkpoint with a lower learning rate; `stop`: keep the best "
        "checkpoint before; `none`: only say so.",
    )
    window: PositiveInt = Field(10, description="Steps over which the figures below are averaged.")
    max_truncated: Share = Field(0.5, description="Collapsed when more completions than this share are cut.")
    max_repetition: Share = Field(
        0.5, description="Collapsed when more than this share of a completion's 4-grams repeat earlier ones."
    )
    min_reward: Share = Field(
        0.5, description="Collapsed when the mean reward falls under this share of what it was in all steps before."
    )
    max_zero_variance: Share = Field(
        0.9,
        description="Collapsed when in more than this share of the groups all completions earn the same, though fewer "
        "than half of them are right: the model always answers alike, and nothing is left to learn from.",
    )
    max_kl: NonNegativeFloat = Field(
        0.0, description="Collapsed when the KL from the start exceeds this (nats/token); 0: not looked at."
    )
    rate_factor: Share = Field(0.5, description="What a rollback multiplies the learning rate with.")
    max_rollbacks: NonNegativeInt = Field(2, description="After that many rollbacks a collapse stops the training.")
