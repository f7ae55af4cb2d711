"""The section `training`: the methods in turn, sweeps and seeds (`Methods`); for refining also what is trained on."""

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from arc_refinery.config.base import (
    PROMPTS,
    RUN_NAME,
    PositiveInt,
    Seed,
    Share,
    Strict,
    check_once,
    explain,
    marked,
)
from arc_refinery.config.grpo import PolicyGradient
from arc_refinery.config.lora import Imitation, Lora
from arc_refinery.config.sampling import Dtype

TRAINED = "trained"  # the final adapter of an experiment with one training
SFT = "sft"  # the adapter that GRPO starts from, if SFT comes first


GuardAction = Literal["stop", "none"]


class Guard(Strict):
    """When a training counts as collapsed, and what happens then."""

    action: GuardAction = Field(
        "stop",
        description="`stop`: end the training there; the adapter is the best checkpoint before the collapse, without "
        "held-out prompts the newest. `none`: only report it.",
    )
    window: PositiveInt = Field(10, description="Steps over which the metrics below are averaged.")
    max_zero_variance: Share = Field(
        0.9,
        description="Collapsed when in more than this share of the groups all completions earn the same "
        "reward, though fewer than half of them are right.",
    )


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
        description="One GRPO training per entry, which overrides keys of `lora` and `grpo`, or `dtype`: "
        "`{learning_rate: 4.0e-6, lora_r: 1}` is named `learning-rate-4e-6-lora-r-1`, or as its key `name` says.",
    )
    seeds: tuple[Seed, ...] = Field(
        (),
        description="Repeat all training with each of these seeds; adapters are then called `seed-0`, "
        "`sft-seed-0`, `<run>-seed-0`. Default: once, with the experiment's seed.",
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
        check_once("seeds", self.seeds)
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
            if unknown := sorted(set(changes) - swept - {"name"}):
                raise ValueError(f"sweep: {unknown[0]} cannot differ between runs; name keys such as learning_rate")
            try:
                name = self._name(changes)
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
        named = dict(zip(map(self._name, self.sweep), runs, strict=True))
        return named or ({TRAINED: Run(self.lora, self.grpo)} if self.grpo else {})

    def _name(self, changes: dict[str, Any]) -> str:
        """Name of the run of an entry of `sweep`: its own, or one of what it changes."""
        return str(changes.get("name") or _run_name(self._run(changes), changes))

    def _run(self, changes: dict[str, Any]) -> Run:
        assert self.grpo
        changes = {key: value for key, value in changes.items() if key != "name"}
        lora_changes = {key: value for key, value in changes.items() if key in Lora.model_fields}
        grpo_changes = {
            key: value for key, value in changes.items() if key not in {*Lora.model_fields, *Precision.model_fields}
        }
        lora = Lora.model_validate(self.lora.model_dump() | lora_changes)
        grpo = type(self.grpo).model_validate(self.grpo.model_dump() | grpo_changes)
        check_weights(lora, grpo)
        precision = Precision.model_validate({key: changes[key] for key in Precision.model_fields if key in changes})
        return Run(lora, grpo, precision.dtype)


def check_weights(lora: Lora, grpo: PolicyGradient) -> None:
    """Raise `ValueError` if GRPO's sampler cannot load the weights that are trained."""
    if lora.load_in_4bit and grpo.sampler != "transformers":
        raise ValueError(
            f"load_in_4bit with sampler `{grpo.sampler}`: vLLM 0.31 cannot load 4-bit bitsandbytes weights, and "
            "TRL would send it packed ones (trl issue 4973); set load_in_4bit to false or sampler to `transformers`"
        )


def _run_name(run: Run, keys: Iterable[str]) -> str:
    """Return a name such as `learning-rate-4e-6-lora-r-1`; values are validated, so 4e-6 and 4.0e-6 give one name."""
    sections = (run.lora, run.grpo, run)
    values = {key: next(getattr(section, key) for section in sections if hasattr(section, key)) for key in keys}
    values = {key: value.rpartition(":")[2] if isinstance(value, str) else value for key, value in values.items()}
    lists = {key: value if isinstance(value, tuple) else (value,) for key, value in values.items()}
    texts = {
        key: "-".join(f"{part:g}".replace("e-0", "e-") if isinstance(part, float) else str(part) for part in parts)
        for key, parts in lists.items()
    }
    return "-".join(f"{key}-{text}" for key, text in texts.items()).replace("_", "-").replace("=", "-").lower()
