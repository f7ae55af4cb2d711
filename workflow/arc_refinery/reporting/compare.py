"""Compare finished experiments of one kind, or arms of them: sets, then settings and trainings, as Markdown."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from arc_refinery import config
from arc_refinery.evaluation.sides import Side, arms_to_pair, sets_to_compare
from arc_refinery.reporting.markdown import markdown_table, percent
from arc_refinery.reporting.provenance import NO_RESULT, result_settings
from arc_refinery.reporting.training_log import Log, read_log

MISSING = object()
MAX_NAMED = 20  # longer lists of tasks or questions are only counted

SetSection = Callable[[Sequence[Side[Any]], str], list[str]]  # Markdown blocks on a set that all these sides have


def comparison(sides: Sequence[Side[Any]], wanted: Sequence[str], set_section: SetSection, explained: str) -> str:
    """Compare sides on the wanted sets, by default on all that several have; `explained`: meaning of the columns."""
    for first, second in combinations(sides, 2):
        arms_to_pair(first, second)  # raises before anything is loaded
    experiments = list({side.folder.resolve(): side for side in sides}.values())
    sets = sets_to_compare(sides, wanted)
    alone = [
        (side, [name for name in side.sets if not any(name in other.sets for other in sides if other is not side)])
        for side in sides
    ]
    blocks = [
        f"# Comparison of {', '.join(side.title for side in sides)}",
        *(block for name in sets for block in set_section([side for side in sides if name in side.sets], name)),
        *(f"Not compared, because only {side.title} has it: {listed(names)}." for side, names in alone if names),
        "## Columns",
        explained,
    ]
    if len(experiments) > 1:
        dumped = [side.experiment.model_dump(mode="json", exclude=NO_RESULT) for side in experiments]
        rows = list(differences(dumped))
        settings = markdown_table(["setting", *(f"`{side.folder}`" for side in experiments)], rows) if rows else "None."
        if len(sides) == 2 and sides[0].arm == sides[1].arm:
            blocks += _repetition(sides[0], sides[1], sets)
        blocks += ["## Settings that differ", settings, "## Trainings", _trainings(experiments)]
    return "\n\n".join(blocks)


def _repetition(first: Side[Any], second: Side[Any], sets: Sequence[str]) -> list[str]:
    """Count the equal attempts of two runs with equal settings; nothing is said of other runs."""
    if result_settings(first.experiment) != result_settings(second.experiment):
        return []
    rows = []
    for name in sets:
        ours, theirs = (_answers(side, name) for side in (first, second))
        common = [key for key in ours if key in theirs]
        counts = [sum(ours[key][part] == theirs[key][part] for key in common) for part in (0, 1)]
        rows.append(
            [f"`{name}`", len(ours), len(common), *(f"{n} ({percent(n / max(1, len(common)))})" for n in counts)]
        )
    header = ["set", "attempts of the first", "also in the second", "same text", "same score"]
    explained = "Both runs have the same settings, so one repeats the other. Attempts are paired by their ids."
    return ["## Repetition", explained, markdown_table(header, rows)]


def _answers(side: Side[Any], set_name: str) -> dict[tuple[str, str], tuple[int, float]]:
    """Return a hash of the text, and the score, of each attempt by arm and id."""
    rows = config.part(side.experiment.kind, "report:exported")(side, set_name)
    return {(row.row["repetition"], row.row["id"]): (hash(json.dumps(row.completion)), row.score) for row in rows}


def left_out(ids: Iterable[tuple[Side[Any], Iterable[str]]], common: Collection[str], what: str) -> list[str]:
    """Return a sentence for each side with ids that are not common; `what` names them, such as `tasks`."""
    alone = [(side, [name for name in names if name not in common]) for side, names in ids]
    return [
        f"Left out, because only {side.title} has them: "
        f"{listed(names) if len(names) <= MAX_NAMED else f'{len(names)} {what}'}."
        for side, names in alone
        if names
    ]


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


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


def why_sets_differ(settings: Sequence[Any]) -> str:
    """Return the settings in which two sets of one name differ; `settings` is all that decides each."""
    changed = [f"{key} is {first} and {second}" for key, first, second in differences(settings)]
    if changed:
        return f"the settings of the sets differ: {'; '.join(changed)}"
    return "the settings of the sets are equal, so their source has changed since, or another version made them"


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


def _trainings(experiments: Sequence[Side[Any]]) -> str:
    rows = []
    for side in experiments:
        for adapter in side.experiment.adapters:
            log = read_log(side.folder / "adapters" / adapter / "training.jsonl")
            rows.append([f"`{side.folder}`", f"`{adapter}`", *_training_summary(log)])
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
    step = log.choice.step if log.choice else n_steps
    checks = [f"{check.reward:.2f} at {check.step}" for check in log.checks if check.step in (0, step)]
    collapses = f"at step {', '.join(str(decision.step) for decision in log.decisions)}" if log.decisions else "none"
    change = f"{metric} {first:.3g} → {last:.3g}"
    return ["GRPO" if log.is_grpo else "SFT", n_steps, change, step, ", ".join(checks) or "–", collapses]
