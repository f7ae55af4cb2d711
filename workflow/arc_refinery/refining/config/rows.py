"""Experiments whose tasks are rows of files: those of all domains but `arc`."""

from pathlib import Path
from typing import Self

from pydantic import Field

from arc_refinery.config.base import NonNegativeInt, PositiveInt
from arc_refinery.config.experiment import Experiment, Wanted
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

    def files_read(self, experiment: Experiment) -> list[str]:
        return rows_files(experiment, self)

    def completed(self, experiment: Experiment) -> Self:
        return with_local_path(experiment, self)

    @property
    def downloads(self) -> list[Download]:
        return [self.download] if self.download else []


class RowsExperiment(Refining):
    evaluation: Evaluation[RowsSet] = Field(description=Refining.model_fields["evaluation"].description)
