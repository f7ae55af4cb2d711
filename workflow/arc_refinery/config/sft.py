"""Supervised fine-tuning: of any model, and on second turns."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from arc_refinery.config.base import Share, Strict
from arc_refinery.config.lora import Optimizer


class Demonstrations(Strict):
    targets: Literal["source", "attempts"] = Field(
        "source",
        description="The correct program of a second turn: the task's own source (only where the task was shown as it "
        "is, without augmentation), or of the correct attempts on the same prompt the most frequent.",
    )
    n_parents: PositiveInt = Field(8, description="Incorrect attempts of each task that are refined, best first.")
    max_pass_rate: Share = Field(
        1.0,
        description="Tasks of whose attempts a larger share is correct are left out; 0 leaves those that none solved.",
    )
    first_turn_share: Share = Field(
        0.0, description="Share of the rows that answer a task at once, against forgetting how to."
    )


class Imitation(Optimizer):
    """Supervised fine-tuning on any demonstrations."""

    loss_type: Literal["nll", "dft"] = Field(
        "nll",
        description="`nll`: negative log-likelihood; `dft`: each token's weighted by its probability, so that unlikely "
        "targets are not forced on the model (Wu et al. 2025).",
    )
    rows_per_step: PositiveInt = Field(32, description="Rows in one optimizer step.")
    gradient_accumulation_steps: PositiveInt = Field(1, description="Passes that these rows are split into.")

    @model_validator(mode="after")
    def _passes_come_out_even(self) -> "Imitation":
        if self.rows_per_step % self.gradient_accumulation_steps:
            raise ValueError(
                f"rows_per_step = {self.rows_per_step} must be divisible by gradient_accumulation_steps = "
                f"{self.gradient_accumulation_steps}"
            )
        return self


class Sft(Imitation):
    demonstrations: Demonstrations = Field(
        default_factory=lambda: Demonstrations(), description="What is learned from."
    )
