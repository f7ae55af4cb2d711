"""The section `training.sft`: fine-tuning on any rows (`Imitation`), and on second turns (`Sft`)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from arc_refinery.config.base import ROWS, TUNING, PositiveInt, Share, Strict
from arc_refinery.config.lora import Optimizer
from arc_refinery.config.trl_keywords import TRL


class Demonstrations(Strict):
    targets: Literal["source", "attempts", "hindsight"] = Field(
        "source",
        description="The correct program of a row: `source`: the task's own (only for tasks shown without "
        "augmentation); `attempts`: the most frequent correct attempt on the same prompt; `hindsight`: every attempt "
        "that ran, on the task that its own outputs make of the train pairs (Pourcel et al. 2025).",
    )
    n_parents: PositiveInt = Field(8, description="Incorrect attempts per task to refine, best first.")
    max_pass_rate: Share = Field(
        1.0,
        description="Skip tasks where a larger share of the attempts is correct; 0 keeps only tasks that none solved.",
    )
    first_turn_share: Share = Field(
        0.0, description="Share of rows that answer a first-turn prompt, so that the model does not forget how to."
    )


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


class Sft(Imitation):
    demonstrations: Annotated[Demonstrations, ROWS] = Field(
        default_factory=lambda: Demonstrations(), description="Demonstrations to train on."
    )
