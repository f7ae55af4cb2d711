"""One page that compares several finished experiments of one kind: sets, settings, trainings."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from arc_refinery.evaluation.sides import Side
from arc_refinery.files import atomic_write
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.reporting.training_log import Log, read_log

NO_RESULT = {"experiment", "compare", "resources"}  # settings that do not affect results
MISSING = object()

SetSection = Callable[[Sequence[Side[Any]], str], list[str]]  # Markdown blocks on a set


def write_comparison(sides: Sequence[Side[Any]], output: Path, explained: str, set_section: SetSection) -> None:
    """Write the comparison of finished experiments to a Markdown file; `explained` is what the sets' columns mean."""
    names = [f"`{one.experiment.experiment}`" for one in sides]
    sets = list(dict.fromkeys(name for one in sides for name in one.sets))
    shared = [name for name in sets if sum(name in one.sets for one in sides) > 1]
    alone = [f"`{name}`" for name in sets if name not in shared]
    blocks = [
        f"# Experiments {', '.join(names)}",
        explained,
        *(block for name in shared for block in set_section(sides, name)),
        f"Not shown, because only one experiment has them: {', '.join(alone)}." if alone else "",
        "## Settings that differ",
        _settings(sides, names),
        "## Trainings",
        _trainings(sides),
    ]
    with atomic_write(output) as unfinished:
        unfinished.write_text("\n\n".join(block for block in blocks if block) + "\n")


def _settings(sides: Sequence[Side[Any]], names: Sequence[str]) -> str:
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


def _trainings(sides: Sequence[Side[Any]]) -> str:
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
