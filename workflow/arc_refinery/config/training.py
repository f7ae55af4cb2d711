"""The section about training: GRPO, what it trains on, and sweeps."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError, model_validator

from arc_refinery.config.base import RUN_NAME, Name, Share, Strict, explain

TRAINED = "trained"  # the adapter of the one training of an experiment


class Grpo(Strict):
    reward_name: Literal["arc-v1", "arc-v2-no-pixel-score"] = Field(
        "arc-v2-no-pixel-score", description="Reward function."
    )
    lora_r: PositiveInt = Field(1, description="Rank of the LoRA adapter.")
    lora_alpha: PositiveInt = Field(64, description="Scale of the LoRA adapter (with rsLoRA: alpha / sqrt(r)).")
    target_modules: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="Matrices that get an adapter.",
    )
    learning_rate: PositiveFloat = Field(allow_inf_nan=False, description="Peak learning rate.")
    lr_scheduler_type: Literal["constant_with_warmup", "linear", "cosine"] = Field(
        "constant_with_warmup", description="Learning-rate schedule."
    )
    warmup_ratio: Share = Field(0.01, description="Share of the steps in which the learning rate rises.")
    beta: NonNegativeFloat = Field(0.02, description="Weight of the KL term against the model before training.")
    max_grad_norm: PositiveFloat = Field(0.05, description="Gradients are clipped to this norm.")
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo"] = Field(
        "grpo", description="How token losses are averaged (TRL)."
    )
    scale_rewards: Literal["group", "batch", "none"] = Field("batch", description="What advantages are divided by.")
    mask_truncated_completions: bool = Field(True, description="Cut completions carry no loss.")
    repetition_penalty: PositiveFloat = Field(1.02, description="Penalty on repeated tokens while sampling.")
    temperature: PositiveFloat = Field(1.0, description="Softmax temperature while sampling.")
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.95, description="Probability mass kept while sampling.")
    num_generations: int = Field(
        32, ge=2, description="Completions of one prompt in one optimizer step; they are compared with each other."
    )
    gradient_accumulation_steps: PositiveInt = Field(4, description="Passes that these completions are split into.")
    prompts_per_step: PositiveInt = Field(1, description="Prompts in one optimizer step.")
    epochs: PositiveFloat = Field(1.0, description="Passes over the training prompts.")
    max_steps: int = Field(-1, ge=-1, description="Optimizer steps at most; -1: as many as `epochs` takes.")
    max_completion_length: PositiveInt = Field(description="Longest completion, in tokens.")
    max_seq_length: PositiveInt = Field(description="Longest prompt and completion together, in tokens.")
    save_steps: PositiveInt = Field(
        200, description="Steps between checkpoints, from which an interrupted job goes on."
    )
    n_jobs: PositiveInt = Field(1, description="Sandbox servers that execute completions for the reward.")
    gpu_memory_utilization: Share = Field(0.3, description="Share of the GPU's memory for vLLM inside the trainer.")
    use_vllm: bool = Field(False, description="Sample with vLLM inside the trainer (GPU only).")
    load_in_4bit: bool = Field(False, description="Train on 4-bit weights (GPU only).")

    @model_validator(mode="after")
    def _batches_divide(self) -> "Grpo":
        completions = self.num_generations * self.prompts_per_step
        if self.max_seq_length <= self.max_completion_length:
            raise ValueError(
                f"max_seq_length = {self.max_seq_length} leaves no room for a prompt beside max_completion_length = "
                f"{self.max_completion_length}"
            )
        if completions % self.gradient_accumulation_steps:
            raise ValueError(
                f"num_generations x prompts_per_step = {completions} must be divisible by "
                f"gradient_accumulation_steps = {self.gradient_accumulation_steps}"
            )
        return self


# Settings of a training that decide how it runs, not what comes out
CHANGE_NO_ADAPTER = {"n_jobs", "save_steps", "gpu_memory_utilization"}

# What decides the prompts is the same in all runs of a sweep: they train on the same files
SHARED_BY_RUNS = {"max_completion_length", "max_seq_length"}


def _run_name(run: Grpo, keys: Iterable[str]) -> str:
    """`learning-rate-4e-6-lora-r-1`, of validated values: however they are written, equal ones give one name."""
    values = {key: getattr(run, key) for key in keys}
    texts = {
        key: f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
        for key, value in values.items()
    }
    return "-".join(f"{key}-{text}" for key, text in texts.items()).replace("_", "-").lower()


class Training(Grpo):
    prompts: Literal["first-turn", "second-turn"] = Field(
        "second-turn",
        description="`first-turn`: answer the task; `second-turn`: refine the best incorrect attempt on it.",
    )
    sets: tuple[Name, ...] = Field(
        (), description="Evaluation sets whose tasks are trained on; without any, those of the parts."
    )
    prompts_per_task: PositiveInt = Field(
        1, description="For `first-turn`: prompts of each task, each with its own augmentation."
    )
    sweep: tuple[dict[str, Any], ...] = Field(
        (),
        description="One training for each entry, which changes some keys of this section and is named by them, for "
        "instance `{learning_rate: 4.0e-6, lora_r: 1}`: `learning-rate-4e-6-lora-r-1`.",
    )

    @model_validator(mode="after")
    def _runs_are_distinct_trainings(self) -> "Training":
        names: list[str] = []
        for changes in self.sweep:
            if unknown := sorted(set(changes) - set(Grpo.model_fields) | set(changes) & SHARED_BY_RUNS):
                raise ValueError(f"sweep: {unknown[0]} cannot differ between runs; name keys such as learning_rate")
            try:
                name = _run_name(self._run(changes), changes)
            except ValidationError as error:
                raise ValueError(f"sweep: {explain(error.errors()[0])}") from None
            if name in names or not re.fullmatch(RUN_NAME, name):
                raise ValueError(f"sweep: {name!r} cannot name a run; give each entry its own numbers or short words")
            names.append(name)
        return self

    @model_validator(mode="after")
    def _sets_are_distinct(self) -> "Training":
        if len(set(self.sets)) < len(self.sets):
            raise ValueError(f"sets: {', '.join(self.sets)}: name each set once")
        return self

    def runs(self) -> dict[str, Grpo]:
        """The trainings of the sweep by name; without a sweep, the one there is, called `trained`."""
        if not self.sweep:
            return {TRAINED: self._run({})}
        runs = [self._run(changes) for changes in self.sweep]
        return {_run_name(run, changes): run for run, changes in zip(runs, self.sweep, strict=True)}

    def _run(self, changes: dict[str, Any]) -> Grpo:
        return Grpo.model_validate(self.model_dump(include=set(Grpo.model_fields)) | changes)
