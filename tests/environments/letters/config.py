"""The keys of a config: those of every domain whose tasks are rows of a file, and two forms of feedback."""

from typing import ClassVar

from arc_refinery.refining.config import RowsExperiment


class Experiment(RowsExperiment):
    forms: ClassVar = ("letters", "count")
