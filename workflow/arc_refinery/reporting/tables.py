"""Metrics as Markdown tables. Every share of tasks has n and a 95 % interval.

A row of the columns `COMPARISON`, from the demo (`config/config.yaml`):

| arms | solved | points | 95 % interval | only first / only second | p | p corrected | detectable | supported |
| `refine-trained` − `independent` | 15 − 14 of 51 | +2.0 | [-3.3, +7.1] | 1 / 0 | 1.000 | 1.000 | 5.5 | no |
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from arc_refinery.config import BaseArm, Compared
from arc_refinery.evaluation.attempts import (
    Results,
    TurnOfArms,
    n_tasks_with_budget_left,
    tasks_in_all,
    tasks_with_attempts,
)
from arc_refinery.evaluation.intervals import Estimate, estimate, estimate_difference
from arc_refinery.evaluation.metrics import PASS_RATE, SOLVED, UNIQUE, VALID
from arc_refinery.evaluation.power import SIGNIFICANCE
from arc_refinery.evaluation.sides import Values, both_sides, run_means
from arc_refinery.evaluation.statistics import (
    Comparison,
    compare,
    pass_at_k_scores,
    solved_within,
    spent_tokens,
    two_guess_scores,
)
from arc_refinery.reporting.markdown import (
    DIFFERENCE,
    Columns,
    count_text,
    difference_text,
    estimate_text,
    markdown_table,
    percent,
    points,
    runs_in_brackets,
    share_text,
    short_p,
    solved_text,
    supported_text,
    write_csv,
)

PASS_AT = (1, 8, 64, 512)


def short_table(groups: Mapping[str, Sequence[pd.DataFrame]]) -> str:
    """Return what matters most of several groups of attempts (rows): a table of `per_task` for each repetition."""
    rows: list[list[object]] = []
    for name, tables in groups.items():
        n, metrics = len(tables[0]), (SOLVED, PASS_RATE, UNIQUE, VALID)
        cells = [estimate_text(estimate([table[metric] for table in tables])) if n else "–" for metric in metrics]
        if n and len(tables) == 1:
            cells[0] = solved_text(list(tables[0][SOLVED]))
        rows.append([name, n, *cells])
    return markdown_table(["", "n tasks", "solved", "pass rate", UNIQUE, VALID], rows)


def metrics_table(
    title: str, columns: Mapping[str, pd.DataFrame], metrics: Sequence[str], counted: Sequence[str] = ()
) -> str:
    """Return shares (rows) of several groups of attempts (columns), each a table with a row per task.

    `counted`: those that are 0 or 1 per task, so that tasks can be counted.
    """
    rows: list[list[object]] = [["n tasks", *map(len, columns.values())]]
    for metric in metrics:
        write = solved_text if metric in counted else share_text
        rows.append([metric, *(write(list(table[metric])) if len(table) else "–" for table in columns.values())])
    return markdown_table([title, *columns], rows)


def metrics_csv(columns: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Write a CSV file: one line per arm or turn, one column per metric (shares 0..1, means over tasks)."""
    lines = {name: {"n_tasks": len(metrics), **metrics.mean()} for name, metrics in columns.items()}
    write_csv(pd.DataFrame.from_dict(lines, orient="index").rename_axis("name").reset_index(), path)


def turn_title(turn: TurnOfArms) -> str:
    """Return `turn 1 × 64` for a first turn, `turn 2 × 64 of refine-trained` for a later one."""
    title = f"turn {turn.turn} × {turn.n_predictions}"
    if turn.turn > 1:
        title += f" of `{turn.arms[0].name}`"
        return title if turn.adapter == "none" else f"{title} ({turn.adapter})"
    return title + sampled_by(turn.branch)


def sampled_by(branch: str) -> str:
    """Return what tells a first turn from others, in brackets; empty for that of the untrained model."""
    by = branch.removeprefix("turn1").removeprefix("-")
    return f" ({by})" if by else ""


def published_table(columns: Mapping[str, pd.DataFrame], metrics: Sequence[str]) -> str:
    """Return the published form: one line per arm or turn, one column per metric (%, means over tasks), maxima bold."""
    means = pd.DataFrame({name: 100 * table[[*metrics]].mean() for name, table in columns.items()}).T.round(1)
    best = means.max().where(means.max() > means.min())  # no maximum if all are equal
    rows = [
        [name, *(f"**{value:.1f}**" if value == best[metric] else f"{value:.1f}" for metric, value in line.items())]
        for name, line in means.iterrows()
    ]
    return markdown_table(["%", *metrics], rows)


def comparisons(experiment: Compared[Any], set_name: str, metrics: Mapping[str, pd.DataFrame]) -> list[Comparison]:
    """Compare the tasks that arms solve; of repeated arms, the means over repetitions."""
    compared = []
    primaries = [(primary.set, primary.arms) for primary in experiment.primaries if primary.turn is None]
    for first, second in experiment.compared:
        runs = experiment.paired_runs(first, second)
        a, b = ([[metrics[arm.name][SOLVED] for arm in arms] for arms in side] for side in both_sides(runs))
        names = [_label(experiment, name, side) for name, side in zip((first, second), both_sides(runs), strict=True)]
        comparison = compare(names[0], names[1], run_means(a), run_means(b))
        compared.append(replace(comparison, is_primary=(set_name, (first, second)) in primaries))
    return compared


def _label(experiment: Compared[Any], name: str, runs: Sequence[Sequence[BaseArm]]) -> str:
    """Return the name of an arm, or those of its repetitions if only some of them can be paired."""
    names = dict.fromkeys(arm.name for repeated in runs for arm in repeated)
    return name if len(names) == len(experiment.arms_called(name)) else ", ".join(names)


COMPARISON: Columns[Comparison] = {
    "arms": (lambda c: f"`{c.first}` − `{c.second}`{runs_in_brackets(c.difference)}", ""),
    "solved": (
        lambda c: f"{count_text(c.n_first)} − {count_text(c.n_second)} of {c.difference.n_tasks}",
        "tasks that each arm solved; of repeated arms, their mean",
    ),
    "points": DIFFERENCE["points"],
    "95 % interval": DIFFERENCE["95 % interval"],
    "only first / only second": (
        lambda c: f"{c.only_first} / {c.only_second}",
        "tasks that only one of the arms solved; of repeated arms, tasks that it solved more often",
    ),
    "p": (lambda c: short_p(c.p_value), "exact McNemar test; of repeated arms the t test over tasks and runs"),
    "p corrected": (
        lambda c: "primary" if c.is_primary else "–" if c.corrected is None else short_p(c.corrected),
        "for the number of comparisons in the report but the primary one (Holm)",
    ),
    "detectable": DIFFERENCE["detectable"],
    "supported": (
        lambda c: supported_text(c.difference, c.supports_difference),
        f"the interval excludes 0 and p is below {SIGNIFICANCE}: the corrected p, if it is corrected",
    ),
}


class PairedMetric(NamedTuple):
    """Means of a metric of two arms in one turn, over the tasks that both have attempts on, and their difference."""

    first: float
    second: float
    difference: Estimate
    title: str

    @classmethod
    def of(
        cls, first: Sequence[Values], second: Sequence[Values], is_paired: bool = True, title: str = ""
    ) -> "PairedMetric":
        """Compare (tasks,) values of each run of two arms, which are paired by task and, if `is_paired`, by run."""
        return cls(float(np.mean(first)), float(np.mean(second)), estimate_difference(first, second, is_paired), title)


# Values of some metrics by pair of arms, then by turn
TurnDifferences: TypeAlias = Mapping[tuple[str, str], Mapping[int, Mapping[str, PairedMetric]]]


def turns_table(title: str, rows: Mapping[str, Mapping[str, PairedMetric]]) -> str:
    """Return differences of arms in single turns, one line per title; empty without any."""
    names = ["pass rate" if name == PASS_RATE else name for name in next(iter(rows.values()), {})]
    lines = [[name, *_turn_cells(metrics)] for name, metrics in rows.items()]
    return markdown_table([title, "n tasks", *names, "pass rate per training"], lines) if lines else ""


def turn_differences(experiment: Compared[Any], results: Results) -> TurnDifferences:
    """Compare all pairs of arms, in each turn that the two do not share."""
    return {pair: _differences_of_pair(experiment, results, *pair) for pair in experiment.compared}


def _differences_of_pair(
    experiment: Compared[Any], results: Results, first: str, second: str
) -> dict[int, dict[str, PairedMetric]]:
    """Return metrics by turn, on the tasks that all repetitions have attempts on: the pass rate, some of the domain.

    The share of unique outputs falls with their number, so it is
    that of the first attempts, as many as the arm with fewer has.
    """
    pairs = [pair for run in experiment.paired_runs(first, second) for pair in run]
    by_turn: dict[int, dict[str, PairedMetric]] = {}
    for number in range(1, min(len(arm.turns) for pair in pairs for arm in pair) + 1):
        if all(arm.branch(number) == other.branch(number) for arm, other in pairs):
            continue
        n_attempts = min(arm.turns[number - 1].n_predictions for pair in pairs for arm in pair)
        for metric in (PASS_RATE, *(own.name for own in results.metrics if own.is_of_turns), UNIQUE):
            n = n_attempts if metric == UNIQUE else None
            if compared := contrast_of_turn(experiment, results, [(first, second)], number, metric, n):
                by_turn.setdefault(number, {})[metric] = compared
    return by_turn


def contrast_of_turn(
    experiment: Compared[Any],
    results: Results,
    pairs: Sequence[tuple[str, str]],
    turn: int,
    metric: str = PASS_RATE,
    n_attempts: int | None = None,
) -> PairedMetric | None:
    """Return `contrast` for a metric of one turn."""
    return contrast(experiment, results, pairs, lambda arm: results.metrics_of_turn(arm, turn, n_attempts)[metric])


def contrast(
    experiment: Compared[Any],
    results: Results,
    pairs: Sequence[tuple[str, str]],
    values: Callable[[Any], "pd.Series[float]"],
) -> PairedMetric | None:
    """Compare the two arms of a pair, or the differences of two pairs; None if no task has values of all arms.

    `values`: of each task that an arm has any of. Repeated trainings are paired, and a pair without trainings is
    compared with each of them.
    """
    runs = [experiment.paired_runs(*names) for names in pairs]
    by_arm = {arm.name: values(arm) for paired in runs for run in paired for two in run for arm in two}
    task_ids = tasks_in_all([*by_arm.values()], results.task_ids)
    if not task_ids:
        return None
    first, second, *others = (
        np.array(run_means([[by_arm[arm.name].loc[task_ids] for arm in repeated] for repeated in side]))
        for paired in runs
        for side in both_sides(paired)
    )
    if others:
        first, second = np.broadcast_arrays(first - second, others[0] - others[1])
    return PairedMetric.of([*first], [*second])


def first_attempts_table(experiment: Compared[Any], results: Results) -> str:
    """Compare later turns of arms with first attempts of arms of one turn, at the tasks that were refined."""
    rows = [row for pair in experiment.compared for row in _against_first_attempts(experiment, results, *pair)]
    header = ["one more attempt", "n tasks", "of this turn", "first attempts", "difference", "per training"]
    return markdown_table(header, rows) if rows else ""


def _against_first_attempts(
    experiment: Compared[Any], results: Results, first: str, second: str
) -> Iterator[list[object]]:
    """Yield a row for each later turn of the first arm, if the second one has a single turn.

    Arms that share the first turn of the same model differ in what they do next: refine, or try again. Then the second
    one's first attempts are those after the shared ones.
    """
    runs = experiment.paired_runs(first, second)
    pairs = [pair for run in runs for pair in run]
    n_turns = min(len(arm.turns) for arm, _ in pairs)
    if any(len(other.turns) > 1 for _, other in pairs):
        return
    is_further = all(arm.branch(1) == other.branch(1) for arm, other in pairs)
    starts = {other.name: arm.turns[0].n_predictions * is_further for arm, other in pairs}
    if any(other.turns[0].n_predictions <= starts[other.name] for _, other in pairs):
        return
    for number in range(2, n_turns + 1):
        refined = {arm.name: results.metrics_of_turn(arm, number) for arm, _ in pairs}
        task_ids = tasks_in_all([*refined.values()], results.task_ids)
        if not task_ids:
            continue
        attempts = {other.name: results.attempts_of_turn(other, 1) for _, other in pairs}
        rates = {name: table.loc[task_ids, PASS_RATE] for name, table in refined.items()}
        for name, table in attempts.items():
            rates[name] = results.per_task(table[table["sample"] >= starts[name]], task_ids)[PASS_RATE]
        own, others = (
            run_means([[rates[arm.name] for arm in repeated] for repeated in side]) for side in both_sides(runs)
        )
        paired = PairedMetric.of(own, others)
        title = f"turn {number} of `{first}` − {'further ' * is_further}first attempts of `{second}`"
        shares = percent(paired.first), percent(paired.second)
        yield [title, len(task_ids), *shares, *_turn_cells({PASS_RATE: paired})[1:]]


def _turn_cells(metrics: Mapping[str, PairedMetric]) -> list[object]:
    cells = {name: difference_cells(paired.difference) for name, paired in metrics.items()}
    n_tasks, _, per_training = cells[PASS_RATE]
    return [n_tasks, *(difference for _, difference, _ in cells.values()), per_training]


def difference_cells(difference: Estimate) -> tuple[int, str, str]:
    """Return the number of tasks, the difference, bold if it is supported, and the differences per training."""
    text = f"**{difference_text(difference)}**" if difference.supports_difference else difference_text(difference)
    per_training = ", ".join(map(points, difference.runs)) if len(difference.runs) > 1 else "–"
    return difference.n_tasks, text, per_training


def equal_tokens_tables(experiment: Compared[Any], results: Results) -> list[str]:
    """Compare arms at equal tokens, generated ones and with prompts; none if there is one arm."""
    generated, shared, unshared = (
        _at_equal_tokens(experiment, results, cost) for cost in ("n_tokens", "tokens", "tokens_unshared")
    )
    if not generated:
        return []
    titles = ["tokens per task, unlimited", "solved", "points"]
    rows = [
        [f"{title}{runs_in_brackets(difference)}", spent, solved, difference_text(difference)]
        for title, spent, solved, difference in generated
    ]
    with_prompts = [
        [once.title, once.spent, difference_text(once.difference), again.spent, difference_text(again.difference)]
        for once, again in zip(shared, unshared, strict=True)
    ]
    more_titles = ["tokens per task", "points", "prompt per attempt: tokens per task", "points"]
    return [
        markdown_table(["at equal generated tokens", *titles], rows),
        markdown_table(["at equal tokens, prompts included", *more_titles], with_prompts),
    ]


class _Limited(NamedTuple):
    """Two arms, both limited on each task to the tokens of the one with fewer."""

    title: str
    spent: str
    solved: str
    difference: Estimate


def _at_equal_tokens(experiment: Compared[Any], results: Results, cost: str) -> list[_Limited]:
    """Compare arms at equal tokens; `cost`: column of an attempt's tokens."""
    attempts_by_arm = {arm.name: results.attempts_of_arm(arm) for arm in experiment.arms}
    task_ids = results.task_ids
    spent = {name: spent_tokens(attempts, task_ids, cost) for name, attempts in attempts_by_arm.items()}

    def solved(pair: tuple[BaseArm, BaseArm]) -> list[Values]:
        tokens = np.minimum(*(spent[arm.name] for arm in pair))
        return [solved_within(attempts_by_arm[arm.name], task_ids, tokens, cost) for arm in pair]

    rows = []
    for first, second in experiment.compared:
        runs = experiment.paired_runs(first, second)
        limited = [[solved(pair) for pair in run] for run in runs]
        a, b = (run_means([[pair[side] for pair in run] for run in limited]) for side in (0, 1))
        difference = estimate_difference(a, b)
        mean_spent = [np.mean([spent[arm.name] for repeated in side for arm in repeated]) for side in both_sides(runs)]
        rows.append(
            _Limited(
                f"`{first}` − `{second}`",
                f"{mean_spent[0]:.0f} / {mean_spent[1]:.0f}",
                f"{' − '.join(count_text(np.mean(runs, axis=0).sum()) for runs in (a, b))} of {difference.n_tasks}",
                difference,
            )
        )
    return rows


def pass_at_k_table(results: Results, turns: Iterable[TurnOfArms]) -> str:
    """Return pass@k of the attempts of each turn, up to its budget; of shared first turns, the largest counts.

    Later turns are means over the tasks that had something to refine, as in all other tables.
    """
    largest: dict[str, TurnOfArms] = {}
    for turn in turns:
        if turn.n_predictions > getattr(largest.get(turn.branch), "n_predictions", 0):
            largest[turn.branch] = turn
    rows: list[list[object]] = []
    ks = [k for k in PASS_AT if k <= max((turn.n_predictions for turn in largest.values()), default=0)]
    for turn in largest.values():
        attempts = results.attempts_of_turn(turn.arms[0], turn.turn)
        task_ids = results.task_ids if turn.turn == 1 else tasks_with_attempts(attempts, results.task_ids)
        scores = {k: pass_at_k_scores(attempts, task_ids, k) for k in ks if k <= turn.n_predictions and task_ids}
        cells = [share_text(scores[k]) if k in scores else "–" for k in ks]
        rows.append([turn_title(turn), len(task_ids), *cells])
    return markdown_table(["", "n tasks", *(f"pass@{k}" for k in ks)], rows)


def spending(results: Results, arms: Iterable[BaseArm], has_guesses: bool) -> list[str]:
    """Return a table of what each arm spent, perhaps with the score of two guesses, and a sentence on budgets left."""
    n, rows, unspent = len(results.task_ids), [], []
    for arm in arms:
        attempts = results.attempts_of_arm(arm)
        if n_left := n_tasks_with_budget_left(attempts, arm, results.task_ids):
            unspent.append(f"{n_left} of {n} tasks in `{arm.name}`")
        truncated = float((attempts["finish_reason"] == "length").mean()) if len(attempts) else 0.0
        rows.append(
            [
                f"`{arm.name}`",
                arm.budget,
                f"{len(attempts) / n:.1f}",
                f"{n_left}/{n}",
                f"{attempts['tokens'].sum() / n:.0f}",
                f"{attempts['tokens_unshared'].sum() / n:.0f}",
                percent(truncated),
                *([solved_text(list(two_guess_scores(attempts, results.task_ids)))] if has_guesses else []),
            ]
        )
    header = ["arm", "budget", "attempts per task", "tasks with budget left", "tokens per task", "prompt per attempt"]
    table = markdown_table([*header, "completions truncated", *["two guesses"] * has_guesses], rows)
    sentence = f"If a task has nothing to refine, the rest of its budget stays unspent: {', '.join(unspent)}."
    return [table, *([sentence] if unspent else [])]
