"""One page that compares several finished experiments: arms, paired differences, settings, trainings."""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from arc_refinery.config import Arm
from arc_refinery.evaluation.arms import PASS_RATE, SetResults
from arc_refinery.evaluation.paired import Side, SideResults, load_side, pair, shared_tasks
from arc_refinery.evaluation.statistics import share_text, solved_text
from arc_refinery.files import atomic_write
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.reporting.refining.compare import left_out
from arc_refinery.reporting.refining.tables import comparisons_table
from arc_refinery.reporting.training_log import Log, read_log

COLUMNS_EXPLAINED = """\
*Solved*: tasks on which the arm has attempts that are correct on all train and on all test pairs. *Pass rate of
turn 2*: share of second-turn attempts that are correct on all pairs, mean over tasks that have any. *Tokens per task*:
those of completions, and of each prompt once for all completions that share it. Brackets: 95 % interval over tasks."""
NO_RESULT = {"experiment", "compare", "resources"}  # settings that do not affect results
MISSING = object()


def write_comparison(sides: Sequence[Side], output: Path) -> None:
    """Write the comparison of finished experiments to a Markdown file."""
    names = [f"`{one.experiment.experiment}`" for one in sides]
    sets = list(dict.fromkeys(name for one in sides for name in one.sets))
    shared = [name for name in sets if sum(name in one.sets for one in sides) > 1]
    alone = [f"`{name}`" for name in sets if name not in shared]
    blocks = [
        f"# Experiments {', '.join(names)}",
        COLUMNS_EXPLAINED,
        *(block for name in shared for block in _set_section(sides, name)),
        f"Not shown, because only one experiment has them: {', '.join(alone)}." if alone else "",
        "## Settings that differ",
        _settings(sides, names),
        "## Trainings",
        _trainings(sides),
    ]
    with atomic_write(output) as unfinished:
        unfinished.write_text("\n\n".join(block for block in blocks if block) + "\n")


def _set_section(sides: Sequence[Side], name: str) -> list[str]:
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
        comparisons_table([pair(first, second, (arm, arm), task_ids).comparison for arm in arms]),
    ]


def _settings(sides: Sequence[Side], names: Sequence[str]) -> str:
    rows = list(differences([one.experiment.model_dump(mode="json", exclude=NO_RESULT) for one in sides]))
    return markdown_table(["setting", *names], rows) if rows else "None."


def differences(values: Sequence[Any], key: str = "") -> Iterator[list[str]]:
    """Yield a row for each key whose values differ: its path, then the values. List items are keyed by their names."""
    if all(value == values[0] for value in values):
        return
    named = [_by_name(value) for value in values]
    if all(isinstance(value, dict) for value in named):
        for inner in dict.fromkeys(inner for value in named for inner in value):
            yield from differences([value.get(inner, MISSING) for value in named], f"{key}.{inner}".removeprefix("."))
    else:
        yield [f"`{key}`", *map(_format, values)]


def _by_name(value: Any) -> Any:
    is_named = isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value)
    return {item["name"]: item for item in value} if is_named else value


def _format(value: Any) -> str:
    match value:
        case _ if value is MISSING:
            return "–"
        case None | []:
            return "none"
        case dict():
            return "given"
        case str() | float() | int():
            return str(value)
        case _:
            return f"`{json.dumps(value)}`"


def _trainings(sides: Sequence[Side]) -> str:
    rows = []
    for one in sides:
        for adapter in one.experiment.adapters:
            log = read_log(one.folder / "adapters" / adapter / "training.jsonl")
            rows.append([f"`{one.experiment.experiment}`", f"`{adapter}`", *_training_summary(log)])
    header = [
        "experiment",
        "adapter",
        "method",
        "steps",
        "first → last tenth",
        "adapter from step",
        "held-out reward",
        "collapses",
    ]
    return markdown_table(header, rows) if rows else "None."


def _training_summary(log: Log) -> list[object]:
    if log.steps.empty:
        return ["–"] * 6
    metric = "reward" if log.is_grpo else "loss"
    first, last = log.first_and_last(metric)
    n_steps = int(log.steps["step"].max())
    step = log.chosen.step if log.chosen else n_steps
    checks = [f"{check.reward:.2f} at {check.step}" for check in log.checks if check.step in (0, step)]
    collapses = f"at step {', '.join(str(one.step) for one in log.decisions)}" if log.decisions else "none"
    change = f"{metric} {first:.3g} → {last:.3g}"
    return ["GRPO" if log.is_grpo else "SFT", n_steps, change, step, ", ".join(checks) or "–", collapses]
