"""The section `training.grpo`: for any environment (`PolicyGradient`), and for refining (`Grpo`)."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from arc_refinery.config.base import (
    TUNING,
    Gigabytes,
    Line,
    Mass,
    NonNegativeFloat,
    NonNegativeInt,
    OfMemory,
    Penalty,
    PositiveFloat,
    PositiveInt,
)
from arc_refinery.config.lora import Optimizer, OptimizerName
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.trl_keywords import TRL, Keyword, check_keywords

# Advantages (training/advantages.py): of a completion, and, the last one, of the turns of an episode
GROUP, LEAVE_ONE_OUT, BEST_OF, OTHERS = "group", "leave-one-out", "best-of-", "others"
EPSILON = 0.2  # of TRL
ADVANTAGE = "def advantage(group):"  # first line of a function of the user


class PolicyGradient(Optimizer):
    """GRPO on any prompts and rewards."""

    advantage: Line = Field(
        GROUP,
        description="What a completion's reward is compared with (docs/methods.md): `group`, `leave-one-out`, "
        "`best-of-4` or another number, `others` (on-policy turns and tool use), or `file.py:name`, a function of "
        "your own.",
    )
    optimizer: OptimizerName = Field(
        "adamw", description="AdamW, or the same with states of 8 bits (bitsandbytes, GPU only)."
    )
    weight_decay: Annotated[NonNegativeFloat, TRL] = Field(
        0.0, description="Weight decay of AdamW, on the adapter's weights."
    )
    beta: Annotated[NonNegativeFloat, TRL] = Field(
        0.02, description="Weight of the KL term; the reference is the model before this training."
    )
    loss_type: Annotated[Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "vespo"], TRL] = Field(
        "grpo", description="How token losses are clipped and averaged (TRL)."
    )
    epsilon_high: Annotated[PositiveFloat | None, TRL] = Field(
        None, description="Upper clipping range, if different (clip-higher, DAPO); for `cispo` the cap of the ratio."
    )
    steps_per_generation: PositiveInt = Field(
        1,
        description="Optimizer steps whose prompts are answered as one batch, which is faster; steps after "
        "the first learn from older completions (docs/methods.md). `save_steps` must be a multiple.",
    )
    scale_rewards: Annotated[Literal["group", "batch", "none"], TRL] = Field(
        "batch", description="Divide advantages by the rewards' deviation over this."
    )
    drop_zero_variance: bool = Field(
        False, description="Exclude groups whose completions all earn the same reward from the loss, KL included."
    )
    mask_truncated_completions: Annotated[bool, TRL] = Field(
        True, description="Exclude truncated completions from the loss."
    )
    repetition_penalty: Annotated[Penalty, TRL] = Field(1.02, description="Penalty on repeated tokens while sampling.")
    temperature: Annotated[Penalty, TRL] = Field(1.0, description="Softmax temperature while sampling.")
    top_p: Annotated[Mass, TRL] = Field(0.95, description="Probability mass kept while sampling.")
    num_generations: Annotated[int, TRL] = Field(
        32, ge=2, le=10**6, description="Completions per prompt in one optimizer step: the group for the advantages."
    )
    gradient_accumulation_steps: PositiveInt = Field(4, description="Forward and backward passes per optimizer step.")
    prompts_per_step: PositiveInt = Field(1, description="Prompts per optimizer step.")
    shared_prefix: Literal["auto", "off"] = Field(
        "auto",
        description="Read each prompt once for all of its completions in training, equal but for rounding. "
        "`auto`: where the model allows it (docs/methods.md).",
    )
    n_heldout: NonNegativeInt = Field(
        0,
        description="Prompts held out of training; the checkpoint with the best mean reward on them becomes "
        "the adapter. 0: the last step.",
    )
    n_jobs: Annotated[PositiveInt, TUNING] = Field(
        1, description="Sandbox servers that execute completions for the reward."
    )
    sampler: Literal["transformers", "vllm-colocate"] = Field(
        "transformers",
        description="Sampler of completions: the model in the trainer, or vLLM on the same GPU (docs/methods.md).",
    )
    importance_sampling_correction: bool = Field(
        True,
        description="With vLLM: weight losses by the ratio of the trainer's to the sampler's probabilities, per token "
        "and at most 2.",
    )
    gpu_memory_utilization: Annotated[OfMemory, TUNING] = Field(
        0.3, description="Share of the GPU's memory for vLLM inside the trainer."
    )
    kv_cache_gb: Annotated[Gigabytes | None, TUNING] = Field(
        None, description="For `vllm-colocate`: as `model.kv_cache_gb`, inside the trainer."
    )
    sleep_mode: Annotated[bool, TUNING] = Field(
        False,
        description="For `vllm-colocate`: during updates, vLLM drops its cache and moves its weights to the machine's "
        "memory (`resources.train.mem_mb`), to fit a smaller GPU.",
    )
    trl: dict[str, Keyword] = Field(
        {},
        description="Further keywords of `trl.GRPOConfig`: `{top_entropy_quantile: 0.2}` (docs/methods.md).",
    )
    report_to: Annotated[tuple[Literal["tensorboard", "wandb", "trackio"], ...], TUNING] = Field(
        ("tensorboard",), description="Where steps are logged in addition to training.jsonl."
    )

    @property
    def answers_once(self) -> bool:
        """Whether a rollout is one completion of a prompt."""
        return False

    @property
    def own_advantage(self) -> OwnCode | None:
        return OwnCode.parse(self.advantage)

    @property
    def best_of(self) -> int | None:
        """The number of completions in `best-of-4`."""
        number = self.advantage.removeprefix(BEST_OF)
        is_number = self.advantage.startswith(BEST_OF) and re.fullmatch(r"[1-9][0-9]{0,6}", number)
        return int(number) if is_number else None

    @property
    def trains_with_unsloth(self) -> bool:
        return False

    @property
    def opens_vllm(self) -> bool:
        """Whether vLLM runs in the trainer's process, opened by us and not by Unsloth."""
        return self.sampler == "vllm-colocate" and not self.trains_with_unsloth

    @property
    def steps_per_batch(self) -> int:
        """Optimizer steps with one batch of completions; training can resume only before a new batch."""
        return self.steps_per_generation

    @property
    def n_training_processes(self) -> int:
        """Processes that train together; each has a GPU, if there are any."""
        return 1

    @field_validator("trl")
    @classmethod
    def _trl_has_them(cls, trl: dict[str, Keyword]) -> dict[str, Keyword]:
        check_keywords(trl, cls.model_fields)
        return trl

    @model_validator(mode="after")
    def _batches_divide(self) -> "PolicyGradient":
        completions = self.num_generations * self.prompts_per_step
        if completions % self.gradient_accumulation_steps:
            raise ValueError(
                f"num_generations x prompts_per_step = {completions} must be divisible by "
                f"gradient_accumulation_steps = {self.gradient_accumulation_steps}"
            )
        if self.save_steps % self.steps_per_batch:
            raise ValueError(
                f"save_steps = {self.save_steps} must be a multiple of steps_per_generation = "
                f"{self.steps_per_batch}: training can resume only before a new batch of completions"
            )
        return self

    @model_validator(mode="after")
    def _settings_go_together(self) -> "PolicyGradient":
        epsilon = self.trl.get("epsilon", EPSILON)
        if self.epsilon_high is not None and self.loss_type != "cispo" and self.epsilon_high < float(epsilon):
            raise ValueError(f"epsilon_high = {self.epsilon_high} must not be below epsilon = {epsilon}")
        return self

    @model_validator(mode="after")
    def _names_an_advantage(self) -> "PolicyGradient":
        name = self.advantage
        if name == GROUP:
            return self
        if name == LEAVE_ONE_OUT and self.scale_rewards != "none":
            raise ValueError(
                f"advantage `{name}` is `{GROUP}` times n / (n - 1), which a deviation divides out again: set "
                "scale_rewards to `none`"
            )
        if name == LEAVE_ONE_OUT:
            return self
        if self.best_of is not None:
            if not 2 <= self.best_of <= self.num_generations:
                raise ValueError(
                    f"advantage `{name}`: expected a number from 2 to num_generations = {self.num_generations}"
                )
            return self
        if name == OTHERS and self.answers_once:
            raise ValueError(f"advantage `{name}` is for refining in several turns: set rollout to `on-policy`")
        if self.own_advantage is None and name != OTHERS:
            names = ", ".join([GROUP, LEAVE_ONE_OUT, f"{BEST_OF}4", OTHERS])
            raise ValueError(f"advantage is {name!r:.100}; expected {names}, or `file.py:name`")
        if self.scale_rewards != "none":
            raise ValueError(f"advantage `{name}` is not divided by a deviation: set scale_rewards to `none`")
        if self.trains_with_unsloth:
            raise ValueError(f"advantage `{name}` is not supported with unsloth; set unsloth to false")
        return self

    @model_validator(mode="after")
    def _the_sampler_can(self) -> "PolicyGradient":
        if self.kv_cache_gb is not None and not self.opens_vllm:
            raise ValueError("kv_cache_gb is for the sampler `vllm-colocate` without Unsloth; leave it out")
        if self.sleep_mode and self.sampler != "vllm-colocate":
            raise ValueError(f"sleep_mode with sampler `{self.sampler}`: it is for `vllm-colocate`; set it to false")
        return self
