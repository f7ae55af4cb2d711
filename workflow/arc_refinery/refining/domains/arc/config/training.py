"""The section `training` of ARC."""

from typing import Annotated

from pydantic import AfterValidator, Field

from arc_refinery.config.rewards import distinct
from arc_refinery.refining.config import training
from arc_refinery.refining.domains.arc.config.rewards import AttemptTerm


class Grpo(training.Grpo):
    rewards: Annotated[tuple[AttemptTerm, ...], AfterValidator(distinct)] = Field(
        (AttemptTerm(reward="arc-v2-no-pixel-score"),),
        min_length=1,
        description=training.Grpo.model_fields["rewards"].description,
    )


class Training(training.Training):
    grpo: Grpo | None = Field(None, description=training.Training.model_fields["grpo"].description)
