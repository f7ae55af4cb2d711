"""Tasks: the source of the training tasks, the parts they are dealt into, evaluation sets."""

from typing import Annotated, ClassVar

from pydantic import Field

from arc_refinery.config.base import REPORT, TUNING, Name, PositiveInt, Strict, Text
from arc_refinery.config.experiment import Wanted
from arc_refinery.config.sampling import RowsFile


class Problems(RowsFile):
    content: ClassVar = "tasks"

    @property
    def is_endless(self) -> bool:
        """Whether the source makes as many tasks as it is asked for."""
        return False


class TaskSet(Strict):
    name: Name = Field(description="Name of the set, used in file names and in the report.")
    shards: Annotated[PositiveInt, TUNING] = Field(
        1, description="Sampling jobs for this set; does not change results."
    )
    validation: Annotated[bool, REPORT] = Field(
        False,
        description="Settings are chosen by results on this set: the report says so, and the primary "
        "comparison cannot be on it.",
    )
    caveat: Annotated[Text, REPORT] = Field("", description="Text that the report prints next to this set's results.")

    @property
    def expected_size(self) -> int | None:
        """Number of tasks; None if only reading a file of tasks can tell."""
        return None

    @property
    def unit(self) -> str:
        """Name of what its tasks are made from, for what is left out."""
        return "tasks"

    @property
    def may_leave_out(self) -> bool:
        """Whether rows can be dropped."""
        return True

    @property
    def note(self) -> str:
        """A sentence on its tasks for the report; empty if there is nothing to say."""
        return ""

    def files_named(self, key: str) -> list[Wanted]:
        """Files and folders that the set names; `key` is its place in the config."""
        return []

    def files_read(self) -> list[str]:
        """Files that the job reads that makes the tasks."""
        return []

    def check_contents(self) -> None:
        """Raise `InputError` if a job could not read the set; large files are left to the job."""


class Parts(Strict):
    n_parts: PositiveInt = Field(2, description="Number of parts that the training tasks are split into.")
    tasks_per_part: PositiveInt | None = Field(None, description="Tasks per part; default: all tasks, dealt evenly.")
    shards_per_part: Annotated[PositiveInt, TUNING] = Field(
        1, description="Sampling jobs per part; does not change results."
    )

    @property
    def names(self) -> list[str]:
        return [f"part{number}" for number in range(1, self.n_parts + 1)]
