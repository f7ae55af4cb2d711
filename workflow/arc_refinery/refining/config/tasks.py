"""Tasks: the source of the training tasks, the parts they are dealt into, evaluation sets."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from arc_refinery.config.base import REPORT, TUNING, Name, PositiveInt, Strict, Text
from arc_refinery.config.experiment import Experiment, Wanted
from arc_refinery.config.sampling import RowsFile
from arc_refinery.models.hub import Download

Split = Literal["train", "heldout"]  # which tasks a generator makes


class Problems(RowsFile):
    content: ClassVar = "tasks"

    @property
    def is_endless(self) -> bool:
        """Whether the source makes as many tasks as it is asked for."""
        return False


class TaskSet(Strict):
    """A set of tasks to evaluate on; in tool use, also to train on."""

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
    def caveats(self) -> str:
        """Texts that the report prints next to the set's results."""
        return self.caveat

    @property
    def note(self) -> str:
        """A sentence on its tasks for the report; empty if there is nothing to say."""
        return ""

    def files_named(self, key: str) -> list[Wanted]:
        """Files and folders that the set names; `key` is its place in the config."""
        return []

    def files_read(self, experiment: Experiment) -> list[str]:
        """Files that the job reads that makes the tasks."""
        return []

    def completed(self, experiment: Experiment) -> Self:
        """Return the set as that job reads it: with what keys leave to the experiment, and with fetched files."""
        return self

    @property
    def downloads(self) -> list[Download]:
        """Repositories to fetch."""
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
