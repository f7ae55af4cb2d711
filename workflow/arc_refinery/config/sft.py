"""The section `training.sft`: fine-tuning on any rows (`Imitation`), and on second turns (`Sft`)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from arc_refinery.config.base import TUNING, PositiveInt
from arc_refinery.config.lora import Optimizer
from arc_refinery.config.trl_keywords import TRL


class Imitation(Optimizer):
    """Supervised fine-tuning on any demonstrations."""

    loss_type: Annotated[Literal["nll", "dft"], TRL] = Field(
        "nll",
        description="`nll`: negative log-likelihood; `dft`: the same, each token weighted by its probability, so that "
        "unlikely targets are not forced on the model (Wu et al. 2025).",
    )
    save_steps: Annotated[PositiveInt, TUNING, TRL] = Field(
        200, description=Optimizer.model_fields["save_steps"].description
    )
    rows_per_step: PositiveInt = Field(32, description="Rows per optimizer step.")
    gradient_accumulation_steps: Annotated[PositiveInt, TRL] = Field(
        1, description="Forward and backward passes per optimizer step."
    )

    @model_validator(mode="after")
    def _passes_come_out_even(self) -> "Imitation":
        if self.rows_per_step % self.gradient_accumulation_steps:
            raise ValueError(
                f"rows_per_step = {self.rows_per_step} must be divisible by gradient_accumulation_steps = "
                f"{self.gradient_accumulation_steps}"
            )
        return self
