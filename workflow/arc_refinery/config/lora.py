"""Settings that SFT and GRPO share: adapter, precision of the weights, lengths of rows, optimizer; those of SFT."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from arc_refinery.config.base import TUNING, Line, PositiveFloat, PositiveInt, Share, Strict
from arc_refinery.config.trl_keywords import TRL

OptimizerName = Literal["adamw", "adamw_8bit"]


class Lora(Strict):
    lora_r: PositiveInt = Field(1, description="Rank of the LoRA adapter.")
    lora_alpha: PositiveInt = Field(64, description="Scale of the LoRA adapter (with rsLoRA: alpha / sqrt(r)).")
    target_modules: tuple[Line, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="Matrices that get an adapter.",
    )
    load_in_4bit: bool = Field(
        False,
        description="Train with the model's weights in 4 bits (bitsandbytes nf4, GPU only; not with a vLLM sampler).",
    )


class Lengths(Strict):
    max_completion_length: PositiveInt = Field(description="Longest completion of one turn, in tokens.")
    max_seq_length: PositiveInt = Field(description="Longest prompt and completion together, in tokens.")

    @property
    def longest_prompt(self) -> int:
        """Tokens."""
        return self.max_seq_length - self.max_completion_length

    @model_validator(mode="after")
    def _a_prompt_has_room(self) -> "Lengths":
        if self.longest_prompt < 1:
            raise ValueError(
                f"max_seq_length = {self.max_seq_length} leaves no room for a prompt beside max_completion_length = "
                f"{self.max_completion_length}"
            )
        return self


class Optimizer(Strict):
    learning_rate: PositiveFloat = Field(le=100.0, description="Peak learning rate.")
    lr_scheduler_type: Annotated[Literal["constant_with_warmup", "linear", "cosine"], TRL] = Field(
        "constant_with_warmup", description="Learning-rate schedule."
    )
    warmup_ratio: Share = Field(0.01, description="Share of the steps during which the learning rate rises.")
    max_grad_norm: Annotated[PositiveFloat, TRL] = Field(0.05, description="Gradients are clipped to this norm.")
    epochs: PositiveFloat = Field(1.0, description="Passes over the training data.")
    max_steps: Annotated[int, TRL] = Field(
        -1, ge=-1, le=10**9, description="Maximum number of optimizer steps; -1: as many as `epochs` takes."
    )
    save_steps: Annotated[PositiveInt, TRL] = Field(
        200, description="Steps between checkpoints, from which an interrupted job resumes."
    )

    @field_validator("max_steps")
    @classmethod
    def _some_steps(cls, max_steps: int) -> int:
        if max_steps == 0:
            raise ValueError("is 0, but transformers makes at least one step; expected -1 or 1 and more")
        return max_steps


class Imitation(Optimizer):
    """Supervised fine-tuning on any demonstrations."""

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
