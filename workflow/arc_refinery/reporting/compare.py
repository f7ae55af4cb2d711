"""Compare finished experiments, or arms of them, paired by task: sets, then settings and trainings.

`results/demo:refine-trained` and `results/demo:refine-base` on the 50 tasks of the set `heldout`:

solved       27 and 30 tasks; 0 by the first only, 3 by the second only
difference   -6.0 points, 95 % interval [-14.0, +0.0], exact McNemar p = 0.250: no supported difference

All figures come from the tables of attempts; the numbers of shards may differ. Tasks of two kinds, refining and tool
use, are paired by their ids: each kind has its own prompts, and may grade in its own way.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from arc_refinery.errors import InputError
from arc_refinery.evaluation.attempts import TABLE, Results, tasks_in_all
from arc_refinery.evaluation.metrics import PASS_RATE, SOLVED
from arc_refinery.evaluation.sides import Side, arms_to_pair, arms_to_show, by_training, match_runs, sets_to_compare
from arc_refinery.evaluation.statistics import Comparison, budget_curve, compare, solved_within, spent_tokens
from arc_refinery.reporting.export import exported
from arc_refinery.reporting.kind import reported
from arc_refinery.reporting.markdown import (
    DIFFERENCE,
    Columns,
    columns_explained,
    columns_table,
    difference_text,
    listed,
    markdown_table,
    percent,
    runs_in_brackets,
    share_text,
    solved_text,
    supported_text,
    verdict_sentence,
)
from arc_refinery.reporting.plots import Curve, budget_plot, marks_in_words, solved_in_words
from arc_refinery.reporting.provenance import NO_RESULT, result_settings
from arc_refinery.reporting.publish import plot_style
from arc_refinery.reporting.summary import VALIDATION
from arc_refinery.reporting.tables import COMPARISON, PairedMetric
from arc_refinery.reporting.training_curves import Log, read_log

MISSING = object()
MAX_NAMED = 20  # longer lists of tasks are only counted


@dataclass(frozen=True, slots=True)
class SideResults:
    """Results of some arms of a side on one set."""

    side: Side
    results: Results
    metrics: dict[str, list[pd.DataFrame]]  # `per_task` of each repetition of an arm

    @classmethod
    def read(cls, side: Side, set_name: str, arms: Iterable[str], are_mixed: bool = False) -> "SideResults":
        """`are_mixed`: sides are of several kinds, so that ids of tasks are needed that all kinds have."""
        experiment, results = side.experiment, reported(side.experiment, side.folder).results(set_name)
        if are_mixed:
            bare = {name: name.removeprefix(f"{set_name}/") for name in results.tasks}  # of tool use, behind the set
            tasks = {bare[name]: content for name, content in results.tasks.items()}
            attempts = results.attempts.assign(task_id=results.attempts["task_id"].map(bare))
            results = Results(results.name, tasks, attempts, results.metrics)
        metrics = {
            name: [results.per_task(results.attempts_of_arm(arm)) for arm in experiment.arms_called(name)]
            for name in arms
        }
        return cls(side, results, metrics)


RATES: Columns[PairedMetric] = {
    "pass rate": (
        lambda row: f"{row.title}{runs_in_brackets(row.difference)}",
        "share of the attempts of a turn that are right on everything, mean over tasks that have any",
    ),
    "n tasks": (lambda row: row.difference.n_tasks, ""),
    "first": (lambda row: percent(row.first), ""),
    "second": (lambda row: percent(row.second), ""),
    "points": DIFFERENCE["points"],
    "95 % interval": DIFFERENCE["95 % interval"],
    "detectable": DIFFERENCE["detectable"],
    "supported": (
        lambda row: supported_text(row.difference, row.difference.supports_difference),
        "the interval excludes 0 and six tasks differ",
    ),
}
EXPLAINED = f"""\
{columns_explained(COMPARISON)}
{columns_explained({name: RATES[name] for name in ("pass rate", "supported")})}
- **tokens per task**: those of completions, and of each prompt once for all completions that share it.

Brackets: 95 % interval over tasks and, of repeated trainings, over trainings. Nothing is corrected for the number of
these comparisons."""


@dataclass(frozen=True, slots=True)
class PairedArms:
    """Comparison of two arms on the tasks that both attempted."""

    comparison: Comparison
    only_first: tuple[str, ...]  # ids of tasks that the first arm solved (of repeated arms: more often)
    only_second: tuple[str, ...]
    budgets: tuple[int, int]  # attempts per task
    turns: list[PairedMetric]  # pass rates of turns with attempts of both on some task
    note: str  # on the trainings that are compared
    at_equal_tokens: str  # the difference with as many generated tokens for both; only of two kinds


def comparison(sides: Sequence[Side], wanted: Sequence[str], picture: Path | None = None) -> str:
    """Compare sides on the wanted sets, by default on all that several have; write a picture, if wanted."""
    for first, second in combinations(sides, 2):
        arms_to_pair(first, second)  # raises before anything is loaded
    experiments = list({side.folder.resolve(): side for side in sides}.values())
    sets = sets_to_compare(sides, wanted)
    alone = [
        (side, [name for name in side.sets if not any(name in other.sets for other in sides if other is not side)])
        for side in sides
    ]
    loaded = {name: _read([side for side in sides if name in side.sets], name) for name in sets}
    sections = [block for name in sets for block in _set_section(loaded[name], name)]  # refuses tasks that differ
    blocks = [
        f"# Comparison of {', '.join(side.title for side in sides)}",
        *(_drawn(loaded, picture) if picture else []),
        *sections,
        *(f"Not compared, because only {side.title} has it: {listed(names)}." for side, names in alone if names),
        "## Columns",
        EXPLAINED,
    ]
    if len(experiments) > 1:
        dumped = [side.experiment.model_dump(mode="json", exclude=NO_RESULT) for side in experiments]
        rows = list(differences(dumped))
        settings = markdown_table(["setting", *(f"`{side.folder}`" for side in experiments)], rows) if rows else "None."
        if len(sides) == 2 and sides[0].arm == sides[1].arm:
            blocks += _repetition(sides[0], sides[1], sets)
        blocks += ["## Settings that differ", settings, "## Trainings", _trainings(experiments)]
    return "\n\n".join(blocks)


def _repetition(first: Side, second: Side, sets: Sequence[str]) -> list[str]:
    """Count the equal attempts of two runs with equal settings; nothing is said of other runs."""
    if result_settings(first.experiment) != result_settings(second.experiment):
        return []
    rows = []
    for name in sets:
        ours, theirs = (  # a hash of the text, and the score, of each attempt by arm and id
            {
                (row.row["repetition"], row.row["id"]): (hash(json.dumps(row.completion)), row.score)
                for row in exported(side, name)
            }
            for side in (first, second)
        )
        common = [key for key in ours if key in theirs]
        counts = [sum(ours[key][part] == theirs[key][part] for key in common) for part in (0, 1)]
        rows.append(
            [f"`{name}`", len(ours), len(common), *(f"{n} ({percent(n / max(1, len(common)))})" for n in counts)]
        )
    header = ["set", "attempts of the first", "also in the second", "same text", "same score"]
    explained = "Both runs have the same settings, so one repeats the other. Attempts are paired by their ids."
    return ["## Repetition", explained, markdown_table(header, rows)]


def _read(sides: Sequence[Side], name: str) -> list[SideResults]:
    return [SideResults.read(side, name, arms_to_show(side, sides), _are_mixed(sides)) for side in sides]


def _are_mixed(sides: Sequence[Side]) -> bool:
    return len({side.experiment.kind for side in sides}) > 1


def _drawn(loaded: Mapping[str, Sequence[SideResults]], picture: Path) -> list[str]:
    """Draw tasks solved against tokens, a panel per set, on the tasks that all its sides have; return its blocks."""
    panels = {}
    for name, sides in loaded.items():
        tables = [table for side in sides for repeated in side.metrics.values() for table in repeated]
        task_ids = tasks_in_all(tables, sides[0].results.task_ids)
        curves = dict(_curves(sides, task_ids)) if task_ids else {}
        panels[f"Tasks solved on {name} (n = {len(task_ids)})"] = curves
    with plot_style():
        budget_plot(panels, "tokens", picture)
    seen = "; ".join(f"{title}: {solved_in_words(curves)}" for title, curves in panels.items())
    marks = marks_in_words(curve for curves in panels.values() for curve in curves.values())
    on = "on the tasks that all sides have"
    return [f"![{seen}]({picture.name})", f"Share of tasks solved after each attempt, {on}.{marks}"]


def _curves(sides: Sequence[SideResults], task_ids: Sequence[str]) -> Iterator[tuple[str, Curve]]:
    is_one = len({loaded.side.folder for loaded in sides}) == 1
    for loaded in sides:
        for name, repeated in loaded.metrics.items():
            arms = loaded.side.experiment.arms_called(name)
            tables = [
                budget_curve(loaded.results.attempts_of_arm(arm), task_ids, arm.turns[0].n_predictions, arm.budget)
                for arm in arms
            ]
            title = name if is_one else f"{loaded.side.folder.name}: {name}"
            yield title, Curve.of(arms, tables, (metrics.loc[list(task_ids)] for metrics in repeated))


def _set_section(loaded: Sequence[SideResults], name: str) -> list[str]:
    """Return blocks on a set: the arms of all sides, and the differences between each two sides."""
    sides = [side_results.side for side_results in loaded]
    task_sets = [entry for side in sides for entry in side.experiment.evaluated_sets if entry.name == name]
    caveats = [
        text for task_set in task_sets for text in (VALIDATION if task_set.validation else "", task_set.caveats) if text
    ]
    header = ["experiment", "arm", "n tasks", "solved", "turn 1", "turn 2", "attempts per task", "tokens per task"]
    if _are_mixed(sides):
        caveats.append("The sides are of two kinds, and tasks are paired by their ids: prompts and grading may differ.")
    return [
        f"## Set `{name}`",
        *(f"> {text}" for text in dict.fromkeys(caveats)),
        markdown_table(header, [row for side in loaded for row in _arms(side)]),
        *(block for first, second in combinations(loaded, 2) for block in _differences(first, second)),
    ]


def _arms(loaded: SideResults) -> Iterator[list[object]]:
    results, n = loaded.results, len(loaded.results.task_ids)
    for name, repeated in loaded.metrics.items():
        for arm, metrics in zip(loaded.side.experiment.arms_called(name), repeated, strict=True):
            attempts = results.attempts_of_arm(arm)
            rates = [results.metrics_of_turn(arm, turn)[PASS_RATE] for turn in range(1, len(arm.turns) + 1)]
            yield [
                f"`{loaded.side.folder}`",
                f"`{arm.name}`",
                n,
                solved_text(list(metrics[SOLVED])),
                *([share_text(list(rate)) if len(rate) else "–" for rate in rates[:2]] + ["–"])[:2],
                f"{len(attempts) / n:.1f}",
                f"{attempts['tokens'].sum() / n:.0f}",
            ]


def _differences(first: SideResults, second: SideResults) -> list[str]:
    title = f"{first.side.title} − {second.side.title}"
    arms = arms_to_pair(first.side, second.side)
    if not arms:
        return [f"{title}: no arm of the same name."]
    task_ids = shared_tasks(first, second)
    if not task_ids:
        return [f"{title}: no task in common; {_why_tasks_differ(first, second)}."]
    pairs, shared = [pair(first, second, names, task_ids) for names in arms], set(task_ids)
    return [
        f"{title}, on {len(task_ids)} tasks, paired:",
        *(
            f"Left out, because only {loaded.side.title} has them: "
            f"{listed(alone) if len(alone) <= MAX_NAMED else f'{len(alone)} tasks'}."
            for loaded in (first, second)
            if (alone := [name for name in loaded.results.task_ids if name not in shared])
        ),
        columns_table(COMPARISON, [paired.comparison for paired in pairs]),
        *([columns_table(RATES, rates)] if (rates := [row for paired in pairs for row in paired.turns]) else []),
        "\n".join(line for paired in pairs for line in _lines(paired)),
    ]


def _lines(paired: PairedArms) -> Iterator[str]:
    yield f"- {verdict_sentence(paired.comparison)}"
    if paired.note:
        yield f"  - {paired.note}"
    often = "only" if paired.comparison.is_exact else "more often"
    for which, task_ids in (("first", paired.only_first), ("second", paired.only_second)):
        if task_ids:
            yield f"  - Solved {often} by the {which}: {listed(task_ids)}."
    if paired.at_equal_tokens:
        yield f"  - {paired.at_equal_tokens}"
    if paired.budgets[0] != paired.budgets[1]:
        yield f"  - Their budgets differ: {paired.budgets[0]} and {paired.budgets[1]} attempts per task."


def shared_tasks(first: SideResults, second: SideResults) -> list[str]:
    """Return the task ids of both sides, in the first one's order; raise if an id is not the same task in both."""
    ours, theirs = first.results.tasks, second.results.tasks
    common = [task_id for task_id in ours if task_id in theirs]
    if first.side.experiment.kind != second.side.experiment.kind:
        return common
    if changed := [task_id for task_id in common if ours[task_id] != theirs[task_id]]:
        tables = " and ".join(str(loaded.side.folder / TABLE) for loaded in (first, second))
        raise InputError(
            f"{tables}: the task {changed[0]} of {first.results.name} differs between them: "
            f"{_why_tasks_differ(first, second)}. Give both experiments the same set"
        )
    return common


def _why_tasks_differ(first: SideResults, second: SideResults) -> str:
    """Return the settings in which two sets of one name differ."""
    settings = [loaded.side.experiment.decisive_settings(loaded.results.name) for loaded in (first, second)]
    if changed := [f"{key} is {ours} and {theirs}" for key, ours, theirs in differences(settings)]:
        return f"the settings of the sets differ: {'; '.join(changed)}"
    return "the settings of the sets are equal, so their source has changed since, or another version made them"


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
        list(_rates_of_turns((first, second), arms, labels, task_ids)),
        runs.note,
        ""
        if first.side.experiment.kind == second.side.experiment.kind
        else _at_equal_tokens(first, second, arms, task_ids),
    )


def _at_equal_tokens(first: SideResults, second: SideResults, arms: tuple[str, str], task_ids: Sequence[str]) -> str:
    """Compare arms that may both generate, at each task, as many tokens as the one that generates fewest."""
    sides = [
        (
            loaded.side.experiment,
            arm,
            list(map(loaded.results.attempts_of_arm, loaded.side.experiment.arms_called(arm))),
        )
        for loaded, arm in zip((first, second), arms, strict=True)
    ]
    spent = [np.array([spent_tokens(attempts, task_ids) for attempts in repeated]) for *_, repeated in sides]
    tokens = np.minimum(spent[0].min(axis=0), spent[1].min(axis=0))
    ours, theirs = (
        by_training(experiment, arm, [solved_within(attempts, task_ids, tokens) for attempts in repeated])
        for experiment, arm, repeated in sides
    )
    generated = " and ".join(f"{side.mean():.0f}" for side in spent)
    difference = difference_text(match_runs(ours, theirs).difference)
    return f"At equal generated tokens: {difference} points. Unlimited, they generate {generated} per task."


def _rates_of_turns(
    sides: tuple[SideResults, SideResults], arms: tuple[str, str], labels: Sequence[str], task_ids: Sequence[str]
) -> Iterator[PairedMetric]:
    """Compare the pass rates of each turn that the arms do not share, on the tasks that all have attempts on."""
    repeated = [loaded.side.experiment.arms_called(arm) for loaded, arm in zip(sides, arms, strict=True)]
    same_folder = sides[0].side.folder.resolve() == sides[1].side.folder.resolve()
    for turn in range(1, 1 + min(len(arm.turns) for same in repeated for arm in same)):
        if same_folder and {arm.branch(turn) for arm in repeated[0]} & {arm.branch(turn) for arm in repeated[1]}:
            continue
        rates = [
            [loaded.results.metrics_of_turn(arm, turn)[PASS_RATE] for arm in same]
            for loaded, same in zip(sides, repeated, strict=True)
        ]
        common = tasks_in_all([rate for side in rates for rate in side], task_ids)
        if common:
            ours, theirs = (
                by_training(loaded.side.experiment, arm, [rate.loc[common] for rate in side])
                for loaded, arm, side in zip(sides, arms, rates, strict=True)
            )
            runs = match_runs(ours, theirs)
            title = f"turn {turn}: `{labels[0]}` − `{labels[1]}`"
            yield PairedMetric.of([*runs.first], [*runs.second], runs.is_paired, title)


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


def _trainings(experiments: Sequence[Side]) -> str:
    rows = []
    for side in experiments:
        for adapter in side.experiment.adapters:
            log = read_log(side.folder / "adapters" / adapter / "training.jsonl")
            rows.append([f"`{side.folder}`", f"`{adapter}`", *_training_summary(log)])
    header = ["experiment", "adapter", "method", "steps", "first → last tenth", "adapter from step"]
    header += ["held-out reward", "collapses"]
    return markdown_table(header, rows) if rows else "None."


def _training_summary(log: Log) -> list[object]:
    if log.steps.empty:
        return ["–"] * 6
    metric = "reward" if log.is_grpo else "loss"
    first, last = log.first_and_last(metric)
    step = log.choice.step if log.choice else log.n_steps
    checks = [f"{check.reward:.2f} at {check.step}" for check in log.checks if check.step in (0, step)]
    collapses = f"at step {', '.join(str(decision.step) for decision in log.decisions)}" if log.decisions else "none"
    change = f"{metric} {first:.3g} → {last:.3g}"
    return ["GRPO" if log.is_grpo else "SFT", log.n_steps, change, step, ", ".join(checks) or "–", collapses]
