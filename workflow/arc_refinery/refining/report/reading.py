"""Report section on reading without sampling, from the log-probabilities of the tasks' own programs.

A second turn shows the results of a wrong program or, in a control, something else. Of one task with one parent:

    own results    ln p = -4.0 of 8 tokens
    control        ln p = -5.6 of 8 tokens      own − control = +0.200 nats per token

Parents are those that both arms refine; values are means over the parents of a task, then over tasks.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from arc_refinery import records
from arc_refinery.evaluation.intervals import Estimate, estimate_difference
from arc_refinery.evaluation.sides import Values, run_means
from arc_refinery.records import ReferenceLogprob
from arc_refinery.refining.config import Refining, Turn
from arc_refinery.reporting.markdown import markdown_table, number

HEADER = ["the tasks' own programs", "set", "n tasks", "n parents", "own − control, nats per token", "per training"]
EXPLAINED = (
    "How much likelier the right program is, per token, after the results of a model's own program than after what a "
    "control shows, for the same wrong program: a measure of reading that takes no sampling. Means over the wrong "
    "programs of a task, then over tasks; brackets: 95 % intervals. 0: the model does not use what its program gave."
)

Pair = tuple[str, str]  # names of arms: own results, a control


class PerTask(NamedTuple):
    """Log-probability per token with own results and with a control, on the parents that both refine."""

    own: pd.DataFrame  # a row per run, a column per task
    control: pd.DataFrame
    n_parents: "pd.Series[int]"  # by task

    @property
    def task_ids(self) -> list[str]:
        return list(self.own)

    def of(self, task_ids: list[str]) -> tuple[Values, Values]:
        return self.own[task_ids].to_numpy(), self.control[task_ids].to_numpy()


def section(experiment: Refining, folder: Path) -> list[str]:
    """Return Markdown blocks; none unless the log-probabilities were computed and arms differ in feedback alone."""
    if not experiment.evaluation.reference_logprobs:
        return []
    primaries = {primary.set for primary in experiment.primaries}
    names = sorted(experiment.set_names, key=lambda name: name not in primaries)
    rows = [row for name in names for row in _rows(experiment, folder, name)]
    return ["## Reading, without sampling", EXPLAINED, markdown_table(HEADER, rows)] if rows else []


def _rows(experiment: Refining, folder: Path, name: str) -> Iterator[list[object]]:
    """Yield a line per pair of arms, then one per two pairs that differ in training."""
    values = {pair: per_task(experiment, folder / name, pair) for pair in pairs(experiment)}
    for pair, of_pair in values.items():
        if task_ids := of_pair.task_ids:
            yield _line(_title(pair), name, task_ids, [of_pair], estimate_difference(*of_pair.of(task_ids)))
    for first, second in contrasts(experiment, list(values)):
        a, b = values[first], values[second]
        if task_ids := [task_id for task_id in a.task_ids if task_id in b.task_ids]:
            title = f"({_title(first)}) − ({_title(second)})"
            yield _line(title, name, task_ids, [a, b], contrast(a, b, task_ids))


def _title(pair: Pair) -> str:
    return " − ".join(f"`{arm}`" for arm in pair)


def _line(title: str, name: str, task_ids: list[str], values: Sequence[PerTask], reading: Estimate) -> list[object]:
    n_parents = min(int(of_pair.n_parents[task_ids].sum()) for of_pair in values)
    interval = f" [{_nats(reading.low)}, {_nats(reading.high)}]" if reading.has_interval else ""
    runs = ", ".join(map(_nats, reading.runs)) if len(reading.runs) > 1 else "–"
    return [title, f"`{name}`", len(task_ids), n_parents, f"{_nats(reading.mean)}{interval}", runs]


def _nats(value: float) -> str:
    return number(value, "+.4f")


def per_task(experiment: Refining, folder: Path, pair: Pair) -> PerTask:
    """Return the values of two arms, on the tasks that all repetitions have; `folder` is that of a set."""
    runs = experiment.paired_runs(*pair)
    by_parent = {
        (own.name, control.name): pd.concat(
            {"own": _by_parent(folder / own.branch(2)), "control": _by_parent(folder / control.branch(2))},
            axis=1,
            join="inner",
        )
        for run in runs
        for own, control in run
    }
    by_task = {arms: table.groupby("task_id").mean() for arms, table in by_parent.items()}
    task_ids = sorted(set.intersection(*(set(table.index) for table in by_task.values())))
    own, control = (
        pd.DataFrame(
            run_means([[by_task[a.name, b.name].loc[task_ids, side] for a, b in run] for run in runs]), columns=task_ids
        )
        for side in ("own", "control")
    )
    parents = pd.concat([*by_parent.values()]).index.unique()
    return PerTask(own, control, parents.to_frame(index=False).groupby("task_id").size())


def _by_parent(branch: Path) -> "pd.Series[float]":
    """Return the log-probability per token by task and parent, a mean over the prompts of a parent."""
    path = branch / "reference.parquet"
    records.check_made_from(path, [branch / "prompts.parquet"])
    table = records.columns(path, ReferenceLogprob, ["task_id", "parent_id", "logprob", "n_tokens"]).to_pandas()
    values: pd.Series[float] = (
        (table["logprob"] / table["n_tokens"]).groupby([table["task_id"], table["parent_id"]]).mean()
    )
    return values


def contrast(first: PerTask, second: PerTask, task_ids: list[str]) -> Estimate:
    """Return the difference of two pairs of arms, minus that of the second; one without trainings is in each run."""
    a, b = np.broadcast_arrays(*(own - control for own, control in (first.of(task_ids), second.of(task_ids))))
    return estimate_difference(a, b)


def pairs(experiment: Refining) -> list[Pair]:
    """Return the pairs of repeated arms whose second turns refine the same attempts with one model.

    The first shows own results, the second what a control shows or, if the two are compared, another form.
    """
    return [pair for pair in permutations(experiment.repetitions, 2) if _differ_in_feedback(experiment, *pair)]


def _differ_in_feedback(experiment: Refining, first: str, second: str) -> bool:
    for own, control in (arms for run in experiment.paired_runs(first, second) for arms in run):
        if min(len(own.turns), len(control.turns)) < 2 or own.branch(1) != control.branch(1):
            return False
        shown, instead = own.turns[1], control.turns[1]
        is_compared = shown.form != instead.form and (first, second) in experiment.compared
        if shown.adapter != instead.adapter or shown.control or not (instead.control or is_compared):
            return False
    return True


def contrasts(experiment: Refining, known: Sequence[Pair]) -> list[tuple[Pair, Pair]]:
    """Return two pairs each: with a trained and the untrained model and the same feedback; those of the primary."""

    def second_turns(pair: Pair) -> list[Turn]:
        return [experiment.arms_called(name)[0].turns[1] for name in pair]

    def shown(pair: Pair) -> list[tuple[str, str | None]]:
        return [(turn.feedback, turn.form) for turn in second_turns(pair)]

    trained = [pair for pair in known if second_turns(pair)[0].adapter != "none"]
    untrained = [pair for pair in known if pair not in trained]
    of_training = [two for two in product(trained, untrained) if shown(two[0]) == shown(two[1])]
    declared = [(primary.arms, primary.minus) for primary in experiment.primaries if primary.minus]
    return list(dict.fromkeys([*(two for two in declared if {*two} <= {*known}), *of_training]))
