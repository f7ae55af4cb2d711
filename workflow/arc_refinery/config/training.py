"""The section `training`: the methods in turn, sweeps and seeds (`Methods`); for refining also what is trained on."""

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from arc_refinery.config.base import (
    PROMPTS,
    RUN_NAME,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seed,
    Share,
    Strict,
    explain,
    marked,
)
from arc_refinery.config.grpo import Grpo, PolicyGradient
from arc_refinery.config.lora import Lengths, Lora
from arc_refinery.config.sampling import Dtype
from arc_refinery.config.sft import Imitation, Sft

TRAINED = "trained"  # the final adapter of an experiment with one training
SFT = "sft"  # the adapter that GRPO starts from, if SFT comes first


GuardAction = Literal["rollback", "stop", "none"]


class Guard(Strict):
    """When a training counts as collapsed, and what happens then."""

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


class Precision(Strict):
    """Keys of `model` that a sweep may vary."""

    dtype: Dtype | None = None


class Run(NamedTuple):
    """One GRPO training."""

    lora: Lora
    grpo: PolicyGradient
    dtype: Dtype | None = None  # this run's; None: the model's


class Methods(Strict):
    lora: Lora = Field(default_factory=lambda: Lora(), description="The adapter, and the weights under it.")
    sft: Imitation | None = Field(None, description="Supervised fine-tuning; without the section, there is none.")
    grpo: PolicyGradient | None = Field(
        None, description="GRPO, which starts from the adapter of SFT if both are there."
    )
    guard: Guard = Field(
        default_factory=lambda: Guard(), description="When GRPO counts as collapsed, and what is done then."
    )
    sweep: tuple[dict[str, Any], ...] = Field(
        (),
        description="One GRPO training per entry, which overrides keys of `lora` and `grpo`, or `dtype`, and is named "
        "after them: `{learning_rate: 4.0e-6, lora_r: 1}` gives `learning-rate-4e-6-lora-r-1`.",
    )
    seeds: tuple[Seed, ...] = Field(
        (),
        description="Repeat all training with each of these seeds, so that the report can show how much results vary; "
        "adapters are then called `seed-0`, `sft-seed-0`, `<run>-seed-0`. Default: once, with the experiment's seed.",
    )

    @property
    def methods(self) -> list[str]:
        """Names of the sections, in running order."""
        return [name for name in ("sft", "grpo") if getattr(self, name)]

    @model_validator(mode="after")
    def _a_method_can_train(self) -> "Methods":
        if not (self.sft or self.grpo):
            raise ValueError("there is nothing to train with; give the section `sft`, `grpo`, or both")
        if self.grpo:
            check_weights(self.lora, self.grpo)
        if self.sweep and not self.grpo:
            raise ValueError("sweep: varies GRPO; add the section `grpo`")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {', '.join(map(str, self.seeds))}: name each seed once")
        return self

    @model_validator(mode="after")
    def _runs_are_distinct_trainings(self) -> "Methods":
        names: list[str] = []
        for changes in self.sweep:
            # All train on the same prompts and, after SFT, continue from one adapter
            assert self.grpo
            grpo = type(self.grpo)
            swept = set(Precision.model_fields) | set(grpo.model_fields) - marked(grpo, PROMPTS)
            if not self.sft:
                swept |= set(Lora.model_fields)
            if unknown := sorted(set(changes) - swept):
                raise ValueError(f"sweep: {unknown[0]} cannot differ between runs; name keys such as learning_rate")
            try:
                name = _run_name(self._run(changes), changes)
            except ValidationError as error:
                raise ValueError(f"sweep: {explain(error.errors()[0])}") from None
            if name in names or not re.fullmatch(RUN_NAME, name):
                raise ValueError(f"sweep: {name!r} cannot name a run; give each entry its own numbers or short words")
            names.append(name)
        return self

    def runs(self) -> dict[str, Run]:
        """GRPO trainings by the names of their adapters: one per sweep entry (or just one) and seed."""
        return {name: run for base, run in self._unrepeated().items() for name in self.repeated(base)}

    def seeds_of_adapters(self) -> dict[str, int | None]:
        """Seed of each adapter, SFT's included; None means the experiment's seed."""
        return {name: seed for base in self._bases for name, seed in self.repeated(base).items()}

    def base_of(self, adapter: str) -> str:
        """Name of an adapter without its seed."""
        return next(base for base in self._bases if adapter in self.repeated(base))

    def repeated(self, adapter: str) -> dict[str, int | None]:
        """Names and seeds of the adapters trained instead of one; None means the experiment's seed."""
        if not self.seeds:
            return {adapter: None}
        base = "" if adapter == TRAINED else f"{adapter}-"
        return {f"{base}seed-{seed}": seed for seed in self.seeds}

    @property
    def _bases(self) -> list[str]:
        """Names of all adapters without seeds."""
        return [SFT, *(self._unrepeated() or [TRAINED])]

    def _unrepeated(self) -> dict[str, Run]:
        runs = [self._run(changes) for changes in self.sweep]
        named = {_run_name(run, changes): run for run, changes in zip(runs, self.sweep, strict=True)}
        return named or ({TRAINED: Run(self.lora, self.grpo)} if self.grpo else {})

    def _run(self, changes: dict[str, Any]) -> Run:
        assert self.grpo
        of_lora = {key: value for key, value in changes.items() if key in Lora.model_fields}
        of_grpo = {
            key: value for key, value in changes.items() if key not in {*Lora.model_fields, *Precision.model_fields}
        }
        lora = Lora.model_validate(self.lora.model_dump() | of_lora)
        grpo = type(self.grpo).model_validate(self.grpo.model_dump() | of_grpo)
        check_weights(lora, grpo)
        of_model = Precision.model_validate({key: changes[key] for key in Precision.model_fields if key in changes})
        return Run(lora, grpo, of_model.dtype)


def check_weights(lora: Lora, grpo: PolicyGradient) -> None:
    """Raise `ValueError` if GRPO's sampler cannot load the weights that are trained."""
    if lora.load_in_4bit and grpo.sampler != "transformers":
        raise ValueError(
            f"load_in_4bit with sampler `{grpo.sampler}`: vLLM 0.31 cannot load 4-bit bitsandbytes weights, and "
            "TRL would send it packed ones (trl issue 4973); set load_in_4bit to false or sampler to `transformers`"
        )


class Training(Lengths, Methods):
    sets: tuple[Name, ...] = Field(
        (), description="Evaluation sets whose tasks to train on; default: the tasks of the parts."
    )
    evaluated_tasks: Literal["leave-out", "keep"] = Field(
        "leave-out",
        description="Tasks to train on that are also in an evaluation set (one that is not among `sets`), in any "
        "symmetry, colors or order of pairs: `leave-out`, or `keep` and let the report say how many they are.",
    )
    prompts: Literal["first-turn", "second-turn"] = Field(
        "second-turn",
        description="What GRPO trains on. `first-turn`: answer the task (needed by `rollout: on-policy`, which makes "
        "its own second turns); `second-turn`: refine the best incorrect attempt on it.",
    )
    prompts_per_task: PositiveInt = Field(
        1, description="For `first-turn`: prompts per task, each with its own augmentation."
    )
    sft: Sft | None = Field(None, description=Methods.model_fields["sft"].description)
    grpo: Grpo | None = Field(None, description=Methods.model_fields["grpo"].description)
    keep_steps: tuple[PositiveInt, ...] = Field(
        (),
        description="Steps of GRPO whose adapters are results, too: `trained@1000`, for arms, and in the folder "
        "`adapters`. Multiples of `grpo.save_steps`. Up to each of them, training is a job of its own, so evaluation "
        "of its adapter begins while training goes on. Does not change the final adapter.",
    )
    keep_every: PositiveInt | None = Field(
        None, description="Instead of `keep_steps`: each multiple of this before `grpo.max_steps`."
    )

    @model_validator(mode="after")
    def _methods_go_together(self) -> "Training":
        if self.grpo and self.grpo.rollout == "on-policy" and self.prompts != "first-turn":
            raise ValueError("rollout `on-policy` makes its own second turns: set training.prompts to `first-turn`")
        if self.sft and self.grpo and self.grpo.unsloth and self.grpo.beta:
            raise ValueError(
                "unsloth: its KL term compares with the model without the SFT adapter, not with the start of GRPO; set "
                "beta to 0, or unsloth to false"
            )
        return self

    @model_validator(mode="after")
    def _kept_steps_are_checkpoints(self) -> "Training":
        if self.keep_steps and self.keep_every:
            raise ValueError("keep_steps and keep_every say the same; remove one of them")
        if not self.keep_steps and not self.keep_every:
            return self
        if not self.grpo:
            raise ValueError("keep_steps and keep_every: keep adapters of GRPO; add the section `grpo`")
        for run in self._unrepeated().values():
            saved, last = run.grpo.save_steps, run.grpo.max_steps
            if self.keep_every and last < 0:
                raise ValueError("keep_every: with `epochs` alone the last step is not known; set grpo.max_steps")
            if self.keep_every and self.keep_every >= last:
                raise ValueError(
                    f"keep_every: {self.keep_every} is not before the last step, grpo.max_steps = {last}, so no step "
                    "before it would be kept; lower it or remove it"
                )
            if wrong := [step for step in self.kept_steps(run) if step % saved]:
                key = "keep_every" if self.keep_every else "keep_steps"
                raise ValueError(f"{key}: {wrong[0]} is not a multiple of grpo.save_steps = {saved}; change one")
            if last > 0 and (wrong := [step for step in self.kept_steps(run) if step >= last]):
                raise ValueError(
                    f"keep_steps: {wrong[0]} is not before the last step, grpo.max_steps = {last}, whose adapter is "
                    "kept anyway; remove it"
                )
        return self

    def kept_steps(self, run: Run) -> list[int]:
        """Steps of a GRPO training whose adapters are kept, ascending; without the last one."""
        if self.keep_every:
            return list(range(self.keep_every, run.grpo.max_steps, self.keep_every))
        return sorted(set(self.keep_steps))

    @model_validator(mode="after")
    def _sets_are_distinct(self) -> "Training":
        if len(set(self.sets)) < len(self.sets):
            raise ValueError(f"sets: {', '.join(self.sets)}: name each set once")
        return self


def _run_name(run: Run, keys: Iterable[str]) -> str:
    """Return a name such as `learning-rate-4e-6-lora-r-1`; values are validated, so 4e-6 and 4.0e-6 give one name."""
    sections = (run.lora, run.grpo, run)
    values = {key: next(getattr(one, key) for one in sections if hasattr(one, key)) for key in keys}
    lists = {key: value if isinstance(value, tuple) else (value,) for key, value in values.items()}
    texts = {
        key: "-".join(f"{one:g}".replace("e-0", "e-") if isinstance(one, float) else str(one) for one in parts)
        for key, parts in lists.items()
    }
    return "-".join(f"{key}-{text}" for key, text in texts.items()).replace("_", "-").replace("=", "-").lower()
