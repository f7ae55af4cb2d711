"""What the report, comparisons and exports ask a kind of experiment: words, metrics, texts of attempts, own sections.

A kind's package has it as `report:Reported`. All figures come from the table of attempts (evaluation/attempts.py).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from arc_refinery import config, records
from arc_refinery.evaluation import attempts
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.metrics import Metric
from arc_refinery.models.chat import Message
from arc_refinery.reporting.provenance import result_settings
from arc_refinery.reporting.publish import Attachments

PerTask = Mapping[str, pd.DataFrame]  # `per_task` of each arm on a set


class Texts(NamedTuple):
    """What the model read and wrote in an attempt."""

    prompt: list[Message]  # up to the first message that the model wrote in this turn
    completion: list[Message]
    n_tokens: int  # of the completion
    is_right: bool
    more: dict[str, Any]  # further columns of an export


class Reported:
    """The results of an experiment; a kind overrides what it has, one without arms only `compose`."""

    metrics: Sequence[Metric]
    metrics_explained: str  # list items
    checks: str  # what an answer is right on: "pairs", "tests"
    shown: str  # those that prompts show
    outcomes: str
    limits: Sequence[str] = ()
    has_guesses: bool = False  # whether attempts that are right on what prompts show vote for two guesses

    def __init__(self, experiment: Any, folder: Path) -> None:
        self.experiment, self.folder = experiment, folder

    def compose(self, files: Attachments) -> list[str] | None:
        """Return the blocks of a report of the kind's own; None: the one of experiments with arms."""
        return None

    def write_attempts(self) -> None:
        """Write the table of attempts from the records; raises `RecordError` if the settings did not make them."""
        raise NotImplementedError

    def results(self, name: str) -> Results:
        """Return all attempts on a set; the table is read once."""
        return attempts.results_of(self._table, name, self.metrics)

    @cached_property
    def _table(self) -> pa.Table:
        return attempts.read(self.folder, settings_hash(self.experiment))

    # Texts

    @property
    def arm_to_show(self) -> str:
        """The name of the arm of which single attempts are shown."""
        raise NotImplementedError

    def show(self, name: str, arm: Any, row: "pd.Series[Any]") -> Iterator[str]:
        """Yield an attempt as blocks of text, with what it refines; `row` is its row of the table."""
        raise NotImplementedError

    def texts(self, name: str, arm: Any, turn: int) -> Iterator[tuple[str, Texts]]:
        """Yield all attempts of a branch by id."""
        raise NotImplementedError

    def programs(self, name: str, branch: str, attempt_ids: Collection[str]) -> dict[str, str]:
        """Return the programs of some attempts, by id."""
        raise NotImplementedError

    # Sections

    def terms(self) -> str:
        """Explain the words of the first screen."""
        raise NotImplementedError

    def notes(self, results: Results) -> list[str]:
        """Return sentences on attempts that are missing."""
        return []

    def trained_on(self, sizes: Mapping[str, int]) -> dict[str, list[str]]:
        """Return sentences for each set that was trained on; `sizes` are the sets' numbers of tasks."""
        return {}

    def example(self, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
        """Return blocks on the attempt that the first screen shows; none if there is none."""
        return []

    def gallery(self, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
        """Return blocks on single tasks of a set."""
        return []

    def set_sections(self, results: Results, files: Attachments) -> list[str]:
        """Return what only this kind says of a set."""
        return []

    def left_out(self) -> list[str]:
        """Return blocks on tasks that were not used."""
        return []

    def sections(self, metrics: Mapping[tuple[str, str], pd.DataFrame], files: Attachments) -> list[str]:
        """Return further blocks of the report; `metrics`: `per_task` by set and arm."""
        return []


def settings_hash(experiment: Any) -> str:
    """Return a hash of the settings that decide results and comparisons."""
    return records.settings_hash(result_settings(experiment))


def reported(experiment: Any, folder: Path) -> Any:
    """Return the results of an experiment of any kind."""
    return config.part(experiment.kind, "report:Reported")(experiment, folder)
