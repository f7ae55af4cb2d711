"""Sections of the page that compares several refining experiments: arms, paired differences."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import pandas as pd

from arc_refinery.config import Arm, Refining
from arc_refinery.evaluation.arms import PASS_RATE, SetResults
from arc_refinery.evaluation.paired import SideResults, load_side, pair, shared_tasks
from arc_refinery.evaluation.sides import Side
from arc_refinery.reporting.markdown import columns_table, markdown_table, share_text, solved_text
from arc_refinery.reporting.refining.compare import left_out
from arc_refinery.reporting.refining.tables import COMPARISON

COLUMNS_EXPLAINED = """\
*Solved*: tasks on which the arm has attempts that are correct on all train and on all test pairs. *Pass rate of
turn 2*: share of second-turn attempts that are correct on all pairs, mean over tasks that have any. *Tokens per task*:
those of completions, and of each prompt once for all completions that share it. Brackets: 95 % interval over tasks."""


def set_section(sides: Sequence[Side[Refining]], name: str) -> list[str]:
    """Return blocks on a set: the arms of all experiments that have it, and comparisons of arms of the same name."""
    found = [load_side(one, name, one.experiment.repetitions) for one in sides if name in one.sets]
    header = ["experiment", "arm", "n tasks", "solved", "pass rate of turn 2", "attempts per task", "tokens per task"]
    return [
        f"## Set `{name}`",
        markdown_table(header, [row for one in found for row in _arms(one)]),
        *(block for first, second in combinations(found, 2) for block in _differences(second, first)),
    ]


def _arms(one: SideResults) -> Iterator[list[object]]:
    settings, results = one.side.experiment, one.results
    for name, repeated in settings.repetitions.items():
        for arm, metrics in zip(repeated, one.metrics[name], strict=True):
            attempts = results.of_arm(arm)
            n = len(results.task_ids)
            solved = solved_text(list(metrics["is_correct"]))
            spent = [f"{len(attempts) / n:.1f}", f"{attempts['tokens'].sum() / n:.0f}"]
            yield [
                f"`{settings.experiment}`",
                f"`{arm.name}`",
                n,
                solved,
                _second_turn_rate(results, arm),
                *spent,
            ]


def _second_turn_rate(results: SetResults, arm: Arm) -> str:
    if len(arm.turns) < 2:
        return "–"
    rates: pd.Series = results.metrics_of_turn(arm, 2)[PASS_RATE]
    return share_text(list(rates)) if len(rates) else "–"


def _differences(first: SideResults, second: SideResults) -> list[str]:
    titles = [f"`{one.side.experiment.experiment}`" for one in (first, second)]
    arms = [arm for arm in first.metrics if arm in second.metrics]
    if not arms:
        return [f"{titles[0]} and {titles[1]} have no arm of the same name."]
    task_ids = shared_tasks(first, second)
    if not task_ids:
        return [f"{titles[0]} and {titles[1]} have no task in common."]
    return [
        f"Arms of the same name, {titles[0]} − {titles[1]}, paired by task:",
        *left_out(first, second, task_ids),
        columns_table(COMPARISON, [pair(first, second, (arm, arm), task_ids).comparison for arm in arms]),
    ]
