"""The section `training`: methods, what to train on, sweeps."""

import re
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from arc_refinery.config.base import PROMPTS, RUN_NAME, Name, explain, marked
from arc_refinery.config.grpo import Grpo
from arc_refinery.config.guard import Guard
from arc_refinery.config.lora import Lora
from arc_refinery.config.sft import Sft

TRAINED = "trained"  # the final adapter of an experiment with one training
SFT = "sft"  # the adapter that GRPO starts from, if SFT comes first


def _run_name(run: Grpo, keys: Iterable[str]) -> str:
    """Return a name such as `learning-rate-4e-6-lora-r-1`; values are validated, so 4e-6 and 4.0e-6 give one name."""
    values = {key: getattr(run, key) for key in keys}
    texts = {
        key: f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
        for key, value in values.items()
    }
    return "-".join(f"{key}-{text}" for key, text in texts.items()).replace("_", "-").lower()


class Training(Grpo):
    train: tuple[Literal["sft", "grpo"], ...] = Field(
        ("grpo",),
        description="Methods, in order: `[sft]`, `[grpo]`, or `[sft, grpo]`, where GRPO starts from the adapter `sft`.",
    )
    prompts: Literal["first-turn", "second-turn"] = Field(
        "second-turn",
        description="What GRPO trains on. `first-turn`: answer the task (needed by `rollout: on-policy`, which makes "
        "its own second turns); `second-turn`: refine the best incorrect attempt on it.",
    )
    sets: tuple[Name, ...] = Field(
        (), description="Evaluation sets whose tasks to train on; default: the tasks of the parts."
    )
    prompts_per_task: PositiveInt = Field(
        1, description="For `first-turn`: prompts per task, each with its own augmentation."
    )
    sft: Sft | None = Field(None, description="Supervised fine-tuning, if `train` starts with `sft`.")
    guard: Guard = Field(default_factory=lambda: Guard(), description="What happens when GRPO collapses.")
    sweep: tuple[dict[str, Any], ...] = Field(
        (),
        description="One training per entry, which overrides some keys of this section and is named after them: "
        "`{learning_rate: 4.0e-6, lora_r: 1}` gives `learning-rate-4e-6-lora-r-1`.",
    )

    seeds: tuple[NonNegativeInt, ...] = Field(
        (),
        description="Repeat all training with each of these seeds, so that the report can show how much results vary; "
        "adapters are then called `seed-0`, `sft-seed-0`, `<run>-seed-0`. Default: once, with the experiment's seed.",
    )

    @model_validator(mode="after")
    def _methods_are_described(self) -> "Training":
        if self.train not in (("sft",), ("grpo",), ("sft", "grpo")):
            raise ValueError(f"train is [{', '.join(self.train)}]; expected [sft], [grpo] or [sft, grpo]")
        if ("sft" in self.train) != (self.sft is not None):
            raise ValueError("the section `sft` belongs to `train: [sft]` and `train: [sft, grpo]`; add or remove it")
        if self.sweep and "grpo" not in self.train:
            raise ValueError("sweep: varies GRPO, but `train` does not include it")
        if self.unsloth and "grpo" not in self.train:
            raise ValueError("unsloth: SFT does not use it; remove the key")
        if self.rollout == "on-policy" and self.prompts != "first-turn":
            raise ValueError("rollout `on-policy` makes its own second turns: set prompts to `first-turn`")
        if self.unsloth and self.train == ("sft", "grpo") and self.beta:
            raise ValueError(
                "unsloth: its KL term compares with the model without the SFT adapter, not with the start of GRPO; set "
                "beta to 0, or unsloth to false"
            )
        return self

    @model_validator(mode="after")
    def _runs_are_distinct_trainings(self) -> "Training":
        names: list[str] = []
        for changes in self.sweep:
            # All train on the same prompts and, after SFT, go on from one adapter
            shared = marked(Grpo, PROMPTS) | (set(Lora.model_fields) if self.sft else set())
            if unknown := sorted(set(changes) - set(Grpo.model_fields) | set(changes) & shared):
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
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {', '.join(map(str, self.seeds))}: name each seed once")
        return self

    def runs(self) -> dict[str, Grpo]:
        """GRPO trainings by the names of their adapters: one per sweep entry (or just one) and seed."""
        if "grpo" not in self.train:
            return {}
        return {name: run for base, run in self._unrepeated().items() for name in self.repeated(base)}

    def seeds_of_adapters(self) -> dict[str, int | None]:
        """Seed of each adapter, SFT's included; None means the experiment's seed."""
        bases = [SFT, *self._unrepeated()]
        return {name: seed for base in bases for name, seed in self.repeated(base).items()}

    def base_of(self, adapter: str) -> str:
        """Name of an adapter without its seed."""
        return next(base for base in [SFT, *self._unrepeated()] if adapter in self.repeated(base))

    def repeated(self, adapter: str) -> dict[str, int | None]:
        """Names and seeds of the adapters trained in place of one; None means the experiment's seed."""
        if not self.seeds:
            return {adapter: None}
        base = "" if adapter == TRAINED else f"{adapter}-"
        return {f"{base}seed-{seed}": seed for seed in self.seeds}

    def _unrepeated(self) -> dict[str, Grpo]:
        runs = [self._run(changes) for changes in self.sweep]
        named = {_run_name(run, changes): run for run, changes in zip(runs, self.sweep, strict=True)}
        return named or {TRAINED: self._run({})}

    def _run(self, changes: dict[str, Any]) -> Grpo:
        return Grpo.model_validate(self.model_dump(include=set(Grpo.model_fields)) | changes)
