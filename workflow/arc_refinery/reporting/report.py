"""Report of an experiment: one Markdown file, and the pictures and tables that it links to.

It depends only on the settings and the records, without times or dates, so equal settings give equal bytes.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from arc_refinery.config import Compared
from arc_refinery.evaluation.attempts import turns_of
from arc_refinery.evaluation.metrics import SOLVED, counted, names
from arc_refinery.evaluation.statistics import budget_curve, correct
from arc_refinery.reporting import outcomes, over_steps, provenance, reading, registration, summary, tables, training
from arc_refinery.reporting.kind import Reported, reported
from arc_refinery.reporting.markdown import (
    at_a_glance,
    columns_table,
    folded,
    folded_section,
    listed,
    verdict_sentence,
    write_csv,
)
from arc_refinery.reporting.plots import Curve, budget_plot, marks_in_words, solved_in_words
from arc_refinery.reporting.publish import Attachments, publish
from arc_refinery.reporting.summary import EvaluatedSet


def write_report(experiment: Any, folder: Path, report: Path) -> None:
    """Write attempts.parquet; from it the Markdown file `report`, whose pictures and tables replace `folder`/report."""
    of_kind = reported(experiment, folder)
    if isinstance(experiment, Compared):
        of_kind.write_attempts()
    publish(report, folder, lambda files: of_kind.compose(files) or compose(of_kind, files))


def compose(of_kind: Reported, files: Attachments) -> list[str]:
    """Return the report as Markdown blocks; its pictures and tables are added to `files`."""
    experiment, folder = of_kind.experiment, of_kind.folder
    evaluated = [_evaluate(of_kind, task_set) for task_set in experiment.evaluated_sets]
    corrected = iter(correct([comparison for result in evaluated for comparison in result.comparisons]))
    evaluated = [replace(result, comparisons=list(islice(corrected, len(result.comparisons)))) for result in evaluated]
    if primaries := experiment.primaries:
        evaluated.sort(key=lambda result: result.task_set.name != primaries[0].set)
    first = evaluated[0]
    sizes = {result.task_set.name: result.n for result in evaluated}
    trained = of_kind.trained_on(sizes)
    over = [(result.task_set, result.arms) for result in evaluated]
    answered_by, changed = provenance.servers(experiment, folder)
    metrics = {(result.task_set.name, arm): table for result in evaluated for arm, table in result.arms.items()}
    return [
        f"# Experiment {experiment.experiment}",
        *summary.headline(of_kind, evaluated, registration.is_registered(experiment, folder)),
        *([f"> {changed}"] if changed else []),
        *(f"> {sentence}" for result in evaluated for sentence in of_kind.notes(result.results)),
        *at_a_glance(summary.solved_table(experiment, evaluated), *_budget_plot(experiment, first, "budget", files)),
        *reading.section(experiment, first.results),
        of_kind.terms(),
        *of_kind.example(first.results, first.arms, files),
        *summary.limits(of_kind, sum(len(result.comparisons) for result in evaluated), trained, answered_by),
        *(["## Other comparisons", summary.comparisons(evaluated)] if primaries else []),
        *(
            block
            for result in evaluated
            for block in folded_section(
                "Arms, differences, turns, outcomes of attempts, budget, single tasks",
                _set_section(of_kind, result, trained.get(result.task_set.name, []), result is first, files),
            )
        ),
        *folded_section("Metrics by step", over_steps.section(experiment, over, files)),
        *training.section(experiment, folder, files),
        *folded_section("Arms, settings, how to read the metrics", summary.arms_and_settings(of_kind, sizes)),
        *folded_section("Problems and tasks that were not used", of_kind.left_out()),
        *of_kind.sections(metrics, files),
        *folded_section("Command, code, packages", provenance.section(experiment, folder)),
    ]


def _evaluate(of_kind: Reported, task_set: Any) -> EvaluatedSet:
    experiment, results = of_kind.experiment, of_kind.results(task_set.name)
    arms = experiment.arms
    metrics = {arm.name: results.per_task(results.attempts_of_arm(arm)) for arm in arms}
    compared = tables.comparisons(experiment, task_set.name, metrics)
    curves = {
        arm.name: budget_curve(results.attempts_of_arm(arm), results.task_ids, arm.turns[0].n_predictions, arm.budget)
        for arm in arms
    }
    return EvaluatedSet(task_set, results, metrics, compared, tables.turn_differences(experiment, results), curves)


def _set_section(
    of_kind: Reported, result: EvaluatedSet, trained: Sequence[str], is_first: bool, files: Attachments
) -> list[str]:
    experiment, results = of_kind.experiment, result.results
    wanted, flags = names(results.metrics), counted(results.metrics)  # of a task; flags are 0 or 1
    name, arms = result.task_set.name, experiment.arms
    turns = turns_of(arms)
    by_turn = {tables.turn_title(turn): results.metrics_of_turn(turn.arms[0], turn.turn) for turn in turns}
    by_arm = {f"`{arm}`": metrics for arm, metrics in result.arms.items()}
    groups: dict[str, list[pd.DataFrame]] = {}
    for arm_name, repeated in experiment.repetitions.items():
        if len(repeated) > 1:
            groups[f"`{arm_name}`, mean of {len(repeated)}"] = [result.arms[arm.name] for arm in repeated]
        groups |= {f"`{arm.name}`": [result.arms[arm.name]] for arm in repeated}
    plain_titles = {title.replace("`", ""): metrics for title, metrics in by_turn.items()}
    arms_csv = files.add(f"{name}-arms.csv", partial(tables.metrics_csv, result.arms))
    turns_csv = files.add(f"{name}-turns.csv", partial(tables.metrics_csv, plain_titles))
    every_task = pd.concat(result.arms, names=["arm", "task_id"]).reset_index()
    every_point = pd.concat(result.curves, names=["arm", None]).reset_index("arm")
    curves_csv = files.add(f"{name}-budget.csv", partial(write_csv, every_point))
    tasks_csv = files.add(f"{name}-tasks.csv", partial(write_csv, every_task))
    has_turns = any(turn.turn > 1 for turn in turns)
    of_turns = [
        "### Turns",
        "The attempts of one turn alone. Later turns are means over the tasks that had something to refine, not over "
        "all tasks: compare them with each other, not with the first turn.",
        tables.short_table({title: [metrics] for title, metrics in by_turn.items()}),
        folded("All metrics of the turns", tables.metrics_table("", by_turn, wanted, flags)),
        f"[As CSV]({turns_csv}).",
    ]
    blocks = [
        f"## Set `{name}` ({result.n} tasks)",
        f"> {summary.VALIDATION}" if result.task_set.validation else "",
        *(f"> {sentence}" for sentence in trained),
        f"> {result.task_set.caveats}" if result.task_set.caveats else "",
        result.task_set.note,
        "### Arms",
        tables.short_table(groups),
        folded(
            "All metrics of the arms",
            tables.published_table(by_arm, wanted),
            tables.metrics_table("", by_arm, wanted, flags),
        ),
        f"[As CSV]({arms_csv}); [each task]({tasks_csv}).",
        "### Differences",
        *_differences(experiment, result),
        *(reading.section(experiment, results) if not is_first else []),
        *(of_turns if has_turns else []),
        *outcomes.repair_section(of_kind, results),
        *outcomes.section(of_kind, results, result.arms, files),
        "### Budget",
        *tables.spending(results, arms, of_kind.has_guesses),
        tables.pass_at_k_table(results, turns),
        *(_budget_plot(experiment, result, "budget", files) if not is_first else []),
        *_budget_plot(experiment, result, "tokens", files),
        "In the first turn a curve is the expectation over the order of the prompts, so arms with first turns of "
        "different length estimate the same quantity from different samples. "
        f"[As CSV]({curves_csv}).",
        *of_kind.set_sections(results, files),
        "### Tasks",
        *of_kind.gallery(results, result.arms, files),
        _solved_lists(result),
    ]
    return [block for block in blocks if block]


def _differences(experiment: Compared[Any], result: EvaluatedSet) -> list[str]:
    if not result.comparisons:
        return ["There is one arm, so nothing is compared."]
    blocks = [
        columns_table(tables.COMPARISON, result.comparisons),
        folded("In words", "\n".join(f"- {verdict_sentence(comparison)}" for comparison in result.comparisons)),
    ]
    turns = {
        f"turn {number}: `{first}` − `{second}`": metrics
        for (first, second), by_turn in result.turns.items()
        for number, metrics in by_turn.items()
    }
    if table := tables.turns_table("turn by turn", turns):
        blocks += [
            "Differences between arms in one turn, in points with 95 % intervals, on the tasks that both arms have "
            "attempts on. Bold: the interval excludes 0, and six tasks or more differ.",
            table,
        ]
    if one_more := tables.first_attempts_table(experiment, result.results):
        blocks += [
            "Is an attempt better spent on refining, or on trying again? Attempts of a turn against first attempts at "
            "the same tasks, those that had something to refine; further ones come after those that both arms share.",
            one_more,
        ]
    return [
        *blocks,
        "Arms read and generate texts of different length. The next tables therefore limit both arms, on each task, to "
        "the tokens of the arm that spent fewer: those generated, then with those of prompts.",
        *tables.equal_tokens_tables(experiment, result.results),
    ]


def _budget_plot(experiment: Compared[Any], result: EvaluatedSet, x: str, files: Attachments) -> list[str]:
    """Return a plot of tasks solved against attempts (`budget`) or `tokens`, with its caption."""
    name, curves = result.task_set.name, {}
    for arm_name, arms in experiment.repetitions.items():
        tables, metrics = ([by_arm[arm.name] for arm in arms] for by_arm in (result.curves, result.arms))
        curves[arm_name] = Curve.of(arms, tables, metrics)
    title = f"Tasks solved on {name} (n = {result.n} {'task' if result.n == 1 else 'tasks'})"
    filename = f"{name}-budget.png" if x == "budget" else f"{name}-budget-tokens.png"
    plot = files.add(filename, partial(budget_plot, {title: curves}, x))
    against = "attempts" if x == "budget" else "tokens"
    seen = f"{title}, against {against} per task; with the whole budget: {solved_in_words(curves)}"
    return [f"![{seen}]({plot})", f"Share of tasks solved after each attempt.{marks_in_words(curves.values())}"]


def _solved_lists(result: EvaluatedSet) -> str:
    lines = []
    for arm, metrics in result.arms.items():
        solved = [str(task_id) for task_id, value in metrics[SOLVED].items() if value]
        lines.append(f"- `{arm}` ({len(solved)}): {listed(solved) or 'none'}")
    return folded("Tasks solved by each arm", "\n".join(lines))
