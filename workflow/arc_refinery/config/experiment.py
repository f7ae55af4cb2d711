"""A whole configuration: sections that fit together."""

from functools import cached_property

from pydantic import Field, model_validator

from arc_refinery.config.base import Name, Strict
from arc_refinery.config.evaluation import Arm, Evaluation
from arc_refinery.config.grpo import Grpo
from arc_refinery.config.resources import Resources
from arc_refinery.config.sampling import Model, Refinement, Sampling, Sandbox
from arc_refinery.config.tasks import Parts, Problems
from arc_refinery.config.training import SFT, TRAINED, Training


class Experiment(Strict):
    experiment: Name = Field(description="Names the report `results/<experiment>.md` and its folder.")
    seed: int = Field(0, ge=0, description="Reaches every random choice.")
    model: Model = Field(description="The model that answers.")
    problems: Problems | None = Field(None, description="Where training problems come from.")
    parts: Parts | None = Field(None, description="How training tasks are split.")
    sampling: Sampling = Field(description="How completions are drawn, in attempts and evaluation.")
    sandbox: Sandbox = Field(default_factory=lambda: Sandbox(), description="Limits of executed programs.")
    refinement: Refinement = Field(default_factory=lambda: Refinement(), description="Which attempts get another turn.")
    training: Training | None = Field(None, description="Training of a LoRA adapter; without it, nothing is trained.")
    evaluation: Evaluation = Field(description="What is compared, and on which tasks.")
    resources: Resources = Field(default_factory=lambda: Resources(), description="What jobs ask of the machine.")

    @property
    def part_names(self) -> list[str]:
        return self.parts.names if self.parts else []

    @cached_property
    def runs(self) -> dict[str, Grpo]:
        """The GRPO trainings by name; each gives the adapter of that name."""
        return self.training.runs() if self.training else {}

    @cached_property
    def sft_adapters(self) -> list[str]:
        """The adapters that SFT gives: what the training ends with, or what GRPO goes on from."""
        if self.training is None or self.training.sft is None:
            return []
        return list(self.training.repeated(SFT if self.runs else TRAINED))

    @property
    def trained(self) -> list[str]:
        """The adapters that the training ends with."""
        return list(self.runs) or self.sft_adapters

    @property
    def adapters(self) -> list[str]:
        """All adapters that are trained."""
        return list(dict.fromkeys([*self.sft_adapters, *self.runs]))

    def seed_of(self, adapter: str) -> int:
        """The seed of an adapter's training."""
        seed = self.training.seeds_of_adapters()[adapter] if self.training else None
        return self.seed if seed is None else seed

    def start_of(self, run: str) -> str | None:
        """The adapter that a GRPO training goes on from."""
        of_its_seed = [name for name in self.sft_adapters if self.seed_of(name) == self.seed_of(run)]
        return of_its_seed[0] if of_its_seed else None

    @property
    def _learns_from_sources(self) -> bool:
        sft = self.training.sft if self.training else None
        return sft is not None and sft.demonstrations.targets == "source"

    @property
    def augments_parts(self) -> bool:
        chosen = self.parts.use_data_augmentation if self.parts else None
        return self.sampling.use_data_augmentation if chosen is None else chosen

    @property
    def training_tasks(self) -> list[str]:
        """Parts or evaluation sets whose tasks are trained on."""
        if self.training is None:
            return []
        return list(self.training.sets) or self.part_names

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that are compared: those of the config, of which some stand for one for each trained adapter."""
        return tuple(one for arm in self.evaluation.arms for one in self._arms_like(arm))

    def _arms_like(self, arm: Arm) -> list[Arm]:
        asked = {turn.adapter for turn in arm.turns}
        if TRAINED in asked and self.trained not in ([], [TRAINED]):
            return [arm.with_adapters(run, {TRAINED: run, SFT: self.start_of(run) or SFT}) for run in self.trained]
        if SFT in asked and self.sft_adapters not in ([], [SFT]):
            return [arm.with_adapters(name.removeprefix("sft-"), {SFT: name}) for name in self.sft_adapters]
        return [arm]

    @property
    def branches(self) -> list[str]:
        """Folder names of all turns of all arms; arms share some."""
        return list(dict.fromkeys(branch for arm in self.arms for branch in arm.branches))

    @model_validator(mode="after")
    def _names_are_free(self) -> "Experiment":
        taken = {*self.part_names, "adapters", "report", "tasks"}
        if clash := {s.name for s in self.evaluation.sets} & taken:
            raise ValueError(f"evaluation.sets: the name {', '.join(sorted(clash))} is taken; choose another")
        if clash := {arm.name for arm in self.evaluation.arms if arm.name.startswith("turn1")}:
            raise ValueError(f"evaluation.arms: {', '.join(sorted(clash))}: the name of an arm cannot begin with turn1")
        return self

    @model_validator(mode="after")
    def _what_is_used_is_there(self) -> "Experiment":
        if self.parts and not self.problems:
            raise ValueError("problems is missing: parts are made of them")
        if self.parts and self.problems and self.problems.source == "generator" and not self.parts.tasks_per_part:
            raise ValueError("parts.tasks_per_part is missing: the generator must be told how many problems to make")
        if self.parts and self.training and self.training.sets:
            raise ValueError("parts are not used, for training.sets says what is trained on; remove one of them")
        if self.training and self.training.prompts_per_task > 1 and not self.sampling.use_data_augmentation:
            raise ValueError("training.prompts_per_task: without sampling.use_data_augmentation they are all the same")
        if self.model.window <= self.sampling.max_output_tokens:
            raise ValueError("model.window leaves no room for a prompt beside sampling.max_output_tokens")
        if self.training and not self.training_tasks:
            raise ValueError("training: there is nothing to train on; give parts, or training.sets")
        sets = [task_set.name for task_set in self.evaluation.sets]
        if self.training and (unknown := sorted(set(self.training.sets) - set(sets))):
            raise ValueError(f"training.sets: {unknown[0]} is no evaluation set; there are {', '.join(sets)}")
        if self._learns_from_sources and (not self.parts or self.augments_parts):
            raise ValueError(
                "training.sft.demonstrations.targets `source`: a task's source answers the task as it is; sample parts "
                "with parts.use_data_augmentation: false, or take the targets `attempts`"
            )
        adapters = ["none", *self.adapters]
        names = [arm.name for arm in self.arms]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"evaluation.arms: an arm is called as the sweep calls another: {', '.join(twice)}")
        for arm in self.arms:
            for turn in arm.turns:
                if turn.adapter not in adapters:
                    raise ValueError(
                        f"evaluation.arms: {arm.name} samples with the adapter {turn.adapter}; there are "
                        f"{', '.join(adapters)}"
                    )
        return self
