"""Experiments whose tasks are rows of files: those of the domain `code`, and of domains from outside."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from arc_refinery.config.base import NonNegativeInt, PositiveInt
from arc_refinery.config.experiment import Wanted
from arc_refinery.config.inputs import rows_files, with_local_path
from arc_refinery.config.sampling import RowsFile
from arc_refinery.models.hub import Download
from arc_refinery.refining.config.evaluation import Evaluation
from arc_refinery.refining.config.experiment import Refining
from arc_refinery.refining.config.tasks import TaskSet


class RowsSet(TaskSet, RowsFile):
    n_tasks: PositiveInt | None = Field(None, description="Number of tasks, from the first; default: all.")
    first_row: NonNegativeInt = Field(0, description="Rows to skip, so that one file can give several sets.")

    @property
    def expected_size(self) -> int | None:
        return self.n_tasks

    def files_named(self, key: str) -> list[Wanted]:
        return [Wanted(f"{key}.path", Path(self.path), f"a file of {self.content}")] if self.path else []


class RowsExperiment(Refining):
    evaluation: Evaluation[RowsSet] = Field(description=Refining.model_fields["evaluation"].description)

    def settings_of_set(self, tasks: str) -> dict[str, Any]:
        return {"task_set": with_local_path(self, self.evaluation_set(tasks))}

    def files_of_set(self, tasks: str) -> list[str]:
        return rows_files(self, self.evaluation_set(tasks))

    def evaluation_set(self, name: str) -> RowsSet:
        task_set = super().evaluation_set(name)
        assert isinstance(task_set, RowsSet)
        return task_set

    def sources(self) -> Iterable[Download | None]:
        return [*super().sources(), *(task_set.download for task_set in self.evaluation.sets)]

    def trained_on(self) -> Iterable[Download | None]:
        named = [name for name in self.training_tasks if name not in self.part_names]
        return [*super().trained_on(), *(self.evaluation_set(name).download for name in named)]
