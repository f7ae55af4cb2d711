"""Compare two refining experiments, or arms of them, paired by task. The numbers of shards may differ.

`results/demo:refine-trained` and `results/demo:refine-base` on the 50 tasks of the set `heldout`:

solved       27 and 30 tasks; 0 by the first only, 3 by the second only
difference   -6.0 points, 95 % interval [-14.0, +0.0], exact McNemar p = 0.250: no supported difference
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from arc_refinery import config, records
from arc_refinery.config import REPORT, TUNING
from arc_refinery.errors import InputError
from arc_refinery.evaluation.intervals import Estimate
from arc_refinery.evaluation.sides import Side, by_training, match_runs
from arc_refinery.evaluation.statistics import Comparison, compare
from arc_refinery.refining.config import Refining
from arc_refinery.refining.domain import Domain, load_domain
from arc_refinery.refining.evaluation.results import SetResults, load_results
from arc_refinery.refining.metrics import PASS_RATE, SOLVED
from arc_refinery.reporting.compare import why_sets_differ


@dataclass(frozen=True, slots=True)
class SideResults:
    """Results of some arms of a side on one set."""

    side: Side[Refining]
    results: SetResults
    metrics: dict[str, list[pd.DataFrame]]  # `per_task` of each repetition of an arm


@dataclass(frozen=True, slots=True)
class PairedArms:
    """Comparison of two arms on the tasks that both attempted."""

    comparison: Comparison
    only_first: tuple[str, ...]  # ids of tasks that the first arm solved (of repeated arms: more often)
    only_second: tuple[str, ...]
    budgets: tuple[int, int]  # attempts per task
    turns: dict[int, Estimate]  # pass rate, first minus second, of turns with attempts of both on some task
    note: str  # on the trainings that are compared


def load_side(side: Side[Refining], set_name: str, arms: Iterable[str]) -> SideResults:
    """Load the results of some arms of a side on a set."""
    task_set = side.experiment.evaluation.sets[side.sets.index(set_name)]
    repeated = {arm: side.experiment.arms_called(arm) for arm in arms}
    results = load_results(side.experiment, side.folder, task_set, [arm for same in repeated.values() for arm in same])
    metrics = {
        name: [results.per_task(results.attempts_of_arm(arm)) for arm in same] for name, same in repeated.items()
    }
    return SideResults(side, results, metrics)


def shared_tasks(first: SideResults, second: SideResults) -> list[str]:
    """Return the task ids of both sides, in the first one's order; raise if an id is not the same task in both."""
    theirs = set(second.results.task_ids)
    common = [task_id for task_id in first.results.task_ids if task_id in theirs]
    paths = [loaded.side.folder / "tasks" / f"{first.results.name}.parquet" for loaded in (first, second)]
    if paths[0].resolve() != paths[1].resolve():
        domain = load_domain(first.side.experiment.domain)
        contents = [_contents(domain, path) for path in paths]
        if changed := [task_id for task_id in common if contents[0][task_id] != contents[1][task_id]]:
            raise InputError(
                f"{paths[0]} and {paths[1]}: the task {changed[0]} differs between them: "
                f"{why_tasks_differ(first, second)}. Give both experiments the same set"
            )
    return common


def why_tasks_differ(first: SideResults, second: SideResults) -> str:
    """Return the settings in which the sets of two sides differ."""
    settings = [loaded.side.experiment.settings_of_set(loaded.results.name) for loaded in (first, second)]
    without = config.marked(type(settings[0]["task_set"]), TUNING, REPORT)
    return why_sets_differ([made | made.pop("task_set").model_dump(exclude=without) for made in settings])


def pair(first: SideResults, second: SideResults, arms: tuple[str, str], task_ids: Sequence[str]) -> PairedArms:
    """Compare an arm of each side on shared tasks; trainings are paired by their seed."""
    task_ids = list(task_ids)
    ours, theirs = (
        by_training(loaded.side.experiment, arm, [metrics.loc[task_ids, SOLVED] for metrics in loaded.metrics[arm]])
        for loaded, arm in zip((first, second), arms, strict=True)
    )
    runs = match_runs(ours, theirs)
    labels = [f"{loaded.side.folder}:{arm}" for loaded, arm in zip((first, second), arms, strict=True)]
    comparison = compare(labels[0], labels[1], runs.first, runs.second, runs.is_paired)
    more = np.sign(runs.first.mean(axis=0) - runs.second.mean(axis=0))
    return PairedArms(
        comparison,
        tuple(task_id for task_id, sign in zip(task_ids, more, strict=True) if sign > 0),
        tuple(task_id for task_id, sign in zip(task_ids, more, strict=True) if sign < 0),
        (first.side.experiment.arms_called(arms[0])[0].budget, second.side.experiment.arms_called(arms[1])[0].budget),
        _turn_differences((first, second), arms, task_ids),
        runs.note,
    )


def _turn_differences(
    sides: tuple[SideResults, SideResults], arms: tuple[str, str], task_ids: Sequence[str]
) -> dict[int, Estimate]:
    """Compare the pass rates of each turn that the arms do not share, on the tasks that all have attempts on."""
    repeated = [loaded.side.experiment.arms_called(arm) for loaded, arm in zip(sides, arms, strict=True)]
    same_folder = sides[0].side.folder.resolve() == sides[1].side.folder.resolve()
    differences = {}
    for turn in range(1, 1 + min(len(arm.turns) for same in repeated for arm in same)):
        if same_folder and {arm.branch(turn) for arm in repeated[0]} & {arm.branch(turn) for arm in repeated[1]}:
            continue
        rates = [
            [loaded.results.metrics_of_turn(arm, turn)[PASS_RATE] for arm in same]
            for loaded, same in zip(sides, repeated, strict=True)
        ]
        common = [task_id for task_id in task_ids if all(task_id in rate.index for side in rates for rate in side)]
        if common:
            ours, theirs = (
                by_training(loaded.side.experiment, arm, [rate.loc[common] for rate in side])
                for loaded, arm, side in zip(sides, arms, rates, strict=True)
            )
            differences[turn] = match_runs(ours, theirs).difference
    return differences


def _contents(domain: Domain, path: Path) -> dict[str, str]:
    """Return a text of each task by id that is equal for equal tasks, whatever its source is called."""
    return {task.task_id: domain.content(task) for task in records.read(path, domain.task_class)}
