"""The config of the domain `arc`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from arc_refinery.config.experiment import Wanted
from arc_refinery.config.inputs import rows_files
from arc_refinery.config.rewards import distinct
from arc_refinery.models.hub import Download
from arc_refinery.refining.config import evaluation, training
from arc_refinery.refining.config.experiment import Refining, faults_of_files
from arc_refinery.refining.domains.arc.config.rewards import AttemptTerm
from arc_refinery.refining.domains.arc.config.sampling import (
    LEARNED,
    Parts,
    PromptedModel,
    Refinement,
    Sampling,
    TemplateRows,
)
from arc_refinery.refining.domains.arc.config.tasks import DIFFICULTY, Problems, TaskSet
from arc_refinery.refining.domains.arc.prompts import FeedbackForm, load_template, template_files


class Evaluation(evaluation.Evaluation):
    sets: tuple[TaskSet, ...] = Field(min_length=1, description=evaluation.Evaluation.model_fields["sets"].description)


class Grpo(training.Grpo):
    rewards: Annotated[tuple[AttemptTerm, ...], AfterValidator(distinct)] = Field(
        (AttemptTerm(reward="arc-v2-no-pixel-score"),),
        min_length=1,
        description=training.Grpo.model_fields["rewards"].description,
    )


class Training(training.Training):
    grpo: Grpo | None = Field(None, description=training.Training.model_fields["grpo"].description)


class ArcExperiment(Refining):
    domain: Literal["arc"] = Field("arc", description=Refining.model_fields["domain"].description)
    forms: ClassVar = get_args(FeedbackForm)
    templates: ClassVar = f"`compact`, `words` or `{LEARNED}`"
    model: PromptedModel = Field(description="The model that answers.")
    problems: Problems | None = Field(None, description=Refining.model_fields["problems"].description)
    parts: Parts | None = Field(None, description=Refining.model_fields["parts"].description)
    sampling: Sampling = Field(description=Refining.model_fields["sampling"].description)
    refinement: Refinement = Field(
        default_factory=lambda: Refinement(), description=Refining.model_fields["refinement"].description
    )
    training: Training | None = Field(None, description=Refining.model_fields["training"].description)
    evaluation: Evaluation = Field(description=Refining.model_fields["evaluation"].description)
    template_rows: TemplateRows | None = Field(
        None,
        description="Rows that the model was trained on; `model.template: learned` takes its wording from them.",
    )

    @property
    def rules(self) -> list[str]:
        wording = ["rules/wording.smk"] if self.template_rows else []  # the template, from the model's training rows
        return [*wording, *super().rules]

    def files_named(self) -> list[Wanted]:
        wanted = [file for file in super().files_named() if not self.learned_template or file.key != "model.template"]
        if self.template_rows and self.template_rows.path:
            path = Path(self.template_rows.path)
            wanted.append(Wanted("template_rows.path", path, "rows, or a folder of them", "either"))
        return wanted

    def template_files(self) -> list[str]:
        return [str(path) for path in template_files(self.learned_template or self.model.template)]

    @property
    def wording(self) -> dict[str, Any]:
        return {"template": self.learned_template or self.model.template, "colors": self.model.colors}

    @property
    def learned_template(self) -> str:
        """The folder of the template that is learned from rows; empty if none is."""
        return f"results/{self.experiment}/template" if self.model.template == LEARNED else ""

    def faults_of_contents(self) -> list[str]:
        if self.model.template == LEARNED:
            return super().faults_of_contents()
        check = partial(load_template, self.model.template, self.model.colors)
        return [*faults_of_files({"model.template": check}), *super().faults_of_contents()]

    def sources(self) -> list[Download | None]:
        rows = self.template_rows
        return [*super().sources(), *([rows.download] if rows else [])]

    def settings_of_set(self, tasks: str) -> dict[str, Any]:
        task_set, problems = self.evaluation_set(tasks), self.problems
        if task_set.source != "generator":
            return {"task_set": task_set}
        changes: dict[str, Any] = {"seed": self.seed if task_set.seed is None else task_set.seed}
        if problems:
            changes |= {key: getattr(problems, key) for key in DIFFICULTY if getattr(task_set, key) is None}
        max_cells = (problems or Problems(source="generator")).max_cells
        return {"task_set": task_set.model_copy(update=changes), "max_cells": max_cells}

    @property
    def n_earlier_rows(self) -> int:
        return self.template_rows.n_rows if self.template_rows else 0

    @property
    def more_to_keep_apart(self) -> dict[str, Any]:
        if not self.template_rows:
            return {}
        (messages,) = rows_files(self, self.template_rows)
        return {"messages": Path(messages), "template": self.learned_template, "n_rows": self.template_rows.n_rows}

    @property
    def files_to_keep_apart(self) -> list[str]:
        rows = self.template_rows
        return [*rows_files(self, rows), *self.template_files()] if rows else []

    def evaluation_set(self, name: str) -> TaskSet:
        task_set = super().evaluation_set(name)
        assert isinstance(task_set, TaskSet)
        return task_set

    def sampling_of(self, tasks: str) -> Sampling:
        own = self.parts.use_data_augmentation if self.parts and tasks in self.part_names else None
        return self.sampling if own is None else self.sampling.model_copy(update={"use_data_augmentation": own})

    @model_validator(mode="after")
    def _a_learned_wording_has_rows(self) -> Self:
        if (self.model.template == LEARNED) != bool(self.template_rows):
            raise ValueError("`model.template: learned` and the section `template_rows` go together; add or remove one")
        return self

    @model_validator(mode="after")
    def _sources_answer_what_is_shown(self) -> Self:
        if self.training and self.training.prompts_per_task > 1 and not self.sampling.use_data_augmentation:
            raise ValueError("training.prompts_per_task: without sampling.use_data_augmentation they are all the same")
        sft = self.training.sft if self.training else None
        learns_from_sources = sft is not None and sft.demonstrations.targets == "source"
        if learns_from_sources and (not self.parts or self.sampling_of(self.part_names[0]).use_data_augmentation):
            raise ValueError(
                "training.sft.demonstrations.targets `source`: a task's source answers the unaugmented task; set "
                "parts.use_data_augmentation to false, or the targets to `attempts` or `nearest`"
            )
        return self
