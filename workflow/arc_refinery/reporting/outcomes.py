"""Report sections on what refining does: to programs, to the outcomes of attempts by turn, to single tasks.

A later attempt repeats the program that it refines, repairs it, or starts over:

| program and the one that it refines | n tasks | same program | same outputs | likeness |
| turn 2 × 8 of `refine` | 45 | 46.4 % [39.2, 53.6] | 70.3 % [62.7, 77.9] | 90.6 % [88.8, 92.4] |
| for comparison: other answers to the first prompt | 45 | 0.0 % [0.0, 7.9] | 12.2 % [6.5, 17.9] | 37.1 % [34.1, 40.0] |
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from arc_refinery.config import BaseArm, Compared
from arc_refinery.evaluation.attempts import Results, tasks_with_attempts, turns_of
from arc_refinery.evaluation.metrics import PASS_RATE, SOLVED
from arc_refinery.programs import likeness
from arc_refinery.reporting import plots
from arc_refinery.reporting.kind import PerTask, Reported
from arc_refinery.reporting.markdown import folded, listed, markdown_table, percent, share_text, write_csv
from arc_refinery.reporting.publish import Attachments
from arc_refinery.reporting.tables import metrics_table, sampled_by, turn_title

N_ERRORS = 4  # most frequent error types of a set, each an outcome of its own
CORRECT, WRONG, OTHER_ERRORS = "correct", "wrong", "other errors"
SHOWN_ONLY = "{} only"  # right on what the prompt shows
# Outcomes of attempts without grids and without an exception, by status
FAILED = {
    "invalid_output": "invalid output",
    "timeout": "timeout",
    "memory": "out of memory",
    "crash": "crash",
    "protocol": "no readable answer",
    "no_code": "no program",
    "truncated": "last turn truncated",
    "tokens": "out of tokens",
    "calls": "called a tool with no calls left",
    "failed": "a tool failed",
}
# Colour and hatch of outcomes; error types have those of `ERROR_LOOKS`, most frequent first
LOOKS = {
    CORRECT: ("#009E73", ""),
    SHOWN_ONLY: ("#56B4E9", "///"),
    WRONG: ("#DDDDDD", ""),
    OTHER_ERRORS: ("#FFFFFF", "xx--"),
    FAILED["invalid_output"]: ("#CC79A7", ".."),
    FAILED["timeout"]: ("#FFFFFF", "|||"),
    FAILED["memory"]: ("#FFFFFF", "---"),
    FAILED["crash"]: ("#000000", ""),
    FAILED["protocol"]: ("#FFFFFF", "*"),
    FAILED["no_code"]: ("#777777", ""),
    FAILED["truncated"]: ("#FFFFFF", "//"),
    FAILED["tokens"]: ("#FFFFFF", "oo"),
    FAILED["calls"]: ("#CC79A7", "\\\\"),
    FAILED["failed"]: ("#FFFFFF", "++"),
}
ERROR_LOOKS = (("#D55E00", "\\\\\\"), ("#E69F00", "xxx"), ("#F0E442", "+++"), ("#D2B48C", "//--"))
BOTH, ONLY_REFINING, ONLY_BASELINE, NEITHER = CLASSES = ("both", "only refining", "only the baseline", "neither")
MARKS = {
    BOTH: ("o", "#0072B2"),
    ONLY_REFINING: ("^", "#009E73"),
    ONLY_BASELINE: ("v", "#D55E00"),
    NEITHER: ("x", "#666666"),
}


def repair_section(of_kind: Reported, results: Results) -> list[str]:
    """Return blocks on what later attempts do with the programs that they refine; none if no arm refines."""
    rows: list[list[object]] = []
    references: dict[str, list[object]] = {}
    n_compared = 0
    for turn in turns_of(of_kind.experiment.arms):
        arm = turn.arms[0]
        attempts = results.attempts_of_turn(arm, turn.turn)
        attempts = attempts[attempts["likeness"].notna()]
        if turn.turn == 1 or attempts.empty:
            continue
        n_compared = max(n_compared, int(attempts["sample"].max()) + 1)
        before = arm.branch(turn.turn - 1)
        first = results.attempts_of_branch(before)
        rows.append(_likeness_row(turn_title(turn), attempts, first))
        if turn.turn == 2 and before not in references:
            refined = first[first["attempt_id"].isin(attempts["parent_id"])]
            refined = refined[["prompt_id", "attempt_id"]].rename(columns={"attempt_id": "parent_id"})
            siblings = first.drop(columns=["parent_id", "likeness"]).groupby("prompt_id").head(n_compared)
            pairs = siblings.merge(refined, on="prompt_id")
            pairs = pairs[pairs["attempt_id"] != pairs["parent_id"]]
            if pairs.empty:  # one first attempt
                continue
            programs = of_kind.programs(results.name, before, {*pairs["attempt_id"], *pairs["parent_id"]})
            two = zip(pairs["attempt_id"], pairs["parent_id"], strict=True)
            alike = [likeness(programs[attempt], programs[parent]) for attempt, parent in two]
            title = f"for comparison: other answers to the first prompt{sampled_by(before)}"
            references[before] = _likeness_row(title, pairs.assign(likeness=alike), first)
    if not rows:
        return []
    return [
        "### Repeated, repaired or started over",
        "Programs of a later turn beside the one that each of them refines; for comparison, other first attempts at "
        "the same prompt, which have not read it. *Likeness*: the words and signs that two programs have in common, in "
        "order, as a share of all their words and signs; *same program*: a likeness of 100 %; *same outputs*: it ran, "
        f"and gave the same on the {of_kind.shown}. Means over tasks, of at most {n_compared} attempts each.",
        markdown_table(
            ["program and the one that it refines", "n tasks", "same program", "same outputs", "likeness"],
            [*rows, *references.values()],
        ),
    ]


def _likeness_row(title: str, pairs: pd.DataFrame, parents: pd.DataFrame) -> list[object]:
    """`pairs`: columns `task_id`, `parent_id`, `fingerprint`, `likeness`."""
    of_parents = parents.set_index("attempt_id")["fingerprint"].loc[pairs["parent_id"]].to_numpy()
    same = (pairs["fingerprint"] != "") & (pairs["fingerprint"].to_numpy() == of_parents)
    measured = pairs.assign(program=pairs["likeness"] == 1.0, outputs=same)
    means = measured.groupby("task_id")[["program", "outputs", "likeness"]].mean()
    return [title, len(means), *(share_text(list(means[column])) for column in means)]


def section(of_kind: Reported, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
    """Return Markdown blocks on a set; its pictures and tables are added to `files`.

    `metrics`: `per_task` of each arm of the experiment.
    """
    name, experiment = results.name, of_kind.experiment
    shown_only = SHOWN_ONLY.format(of_kind.shown)
    shares = {
        title: of_turn.rename(columns={SHOWN_ONLY: shown_only})
        for title, of_turn in shares_by_turn(results, experiment.arms).items()
    }
    own = {shown_only if outcome == SHOWN_ONLY else outcome: look for outcome, look in LOOKS.items()}
    errors = [outcome for outcome in next(iter(shares.values())) if outcome not in own]
    looks = own | dict(zip(errors, ERROR_LOOKS, strict=False))
    title = f"Outcomes of attempts: {name}"
    plot = files.add(f"{name}-outcomes.png", partial(plots.outcomes_plot, shares, looks, title))
    means = pd.DataFrame({title.replace("`", ""): table_of_turn.mean() for title, table_of_turn in shares.items()}).T
    shares_correct = means.reindex(columns=[CORRECT])[CORRECT].fillna(0.0)
    correct = [f"{percent(share)} in {turn}" for turn, share in shares_correct.items()]
    table = files.add(f"{name}-outcomes.csv", partial(write_csv, means.rename_axis("turn").reset_index()))
    return [
        "### Outcomes of attempts",
        f"{of_kind.outcomes} Means over the tasks that have attempts in a turn, as above.",
        metrics_table("share of attempts", shares, list(next(iter(shares.values())))),
        f"![{title}, one bar per turn; correct: {', '.join(correct)}]({plot})",
        f"[As CSV]({table}).",
        *_gained_and_lost(of_kind, results, metrics, files),
    ]


def shares_by_turn(results: Results, arms: Sequence[BaseArm]) -> dict[str, pd.DataFrame]:
    """Return, by title of each turn, shares 0..1: one row per task with attempts, one column per outcome.

    All turns have the same columns, in a fixed order: the outcomes that occur in any turn.
    """
    turns = {turn_title(turn): results.attempts_of_turn(turn.arms[0], turn.turn) for turn in turns_of(arms)}
    errors = pd.concat([attempts.loc[attempts["status"] == "error", "error_type"] for attempts in turns.values()])
    # programs may raise types that have the name of an outcome
    counts = errors.astype(str).value_counts().drop(["", *LOOKS], errors="ignore")
    frequent = sorted(counts.index, key=lambda kind: (-counts[kind], kind))[:N_ERRORS]
    outcomes = {title: outcomes_of(attempts, frequent) for title, attempts in turns.items()}
    order = [CORRECT, SHOWN_ONLY, WRONG, *frequent, OTHER_ERRORS, *FAILED.values()]
    present = set().union(*(set(by_attempt) for by_attempt in outcomes.values()))
    columns = [outcome for outcome in order if outcome in present]
    shares = {}
    for title, attempts in turns.items():
        table = pd.crosstab(attempts["task_id"], outcomes[title], normalize="index")
        task_ids = tasks_with_attempts(attempts, results.task_ids)
        shares[title] = table.reindex(index=task_ids, columns=columns, fill_value=0.0)
    return shares


def outcomes_of(attempts: pd.DataFrame, frequent: Sequence[str]) -> "pd.Series[str]":
    """Return the outcome of each attempt: a key of `LOOKS` or one of the `frequent` error types."""
    errors = attempts["error_type"].astype(str)
    failed = attempts["status"].map(FAILED)
    outcomes = np.select(
        [attempts["solved"], attempts["shown_solved"], attempts["status"] == "ok", attempts["status"] == "error"],
        [CORRECT, SHOWN_ONLY, WRONG, errors.where(errors.isin(frequent), OTHER_ERRORS)],
        failed,
    )
    return pd.Series(outcomes, attempts.index, dtype=str)


def refining_pairs(experiment: Compared[Any]) -> list[tuple[Any, Any]]:
    """Pair each arm that refines with its baseline; of repeated baselines, the one with the same seed."""
    baseline, *others = experiment.repetitions
    pairs = [pair for name in others for run in experiment.paired_runs(name, baseline) for pair in run]
    return [(arm, paired_baseline) for arm, paired_baseline in pairs if len(arm.turns) > 1]


def _gained_and_lost(of_kind: Reported, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
    pairs = refining_pairs(of_kind.experiment)
    if not pairs:
        return []
    name, rows, lists, panels = results.name, [], [], {}
    for arm, baseline in pairs:
        title = f"`{arm.name}` against `{baseline.name}`"
        solved_by = classes_of(metrics[arm.name][SOLVED], metrics[baseline.name][SOLVED])
        counts = solved_by.value_counts()
        rows.append([title, len(solved_by), *(counts.get(kind, 0) for kind in CLASSES)])
        lists += [
            f"- {title}, {kind}: {listed(solved_by.index[solved_by == kind]) or 'none'}"
            for kind in (ONLY_REFINING, ONLY_BASELINE)
        ]
        panels[arm.name] = pass_rates(results, arm).assign(solved_by=solved_by)
    baselines = {baseline.name: baseline for _, baseline in pairs if baseline.turns[0].n_predictions > 1}
    for baseline in baselines.values():
        attempts, half = results.attempts_of_turn(baseline, 1), baseline.turns[0].n_predictions // 2
        halves = attempts[attempts["sample"] < half], attempts[attempts["sample"].between(half, 2 * half - 1)]
        solved_by = classes_of(*(results.per_task(rows)[SOLVED] for rows in halves))  # an A/A comparison
        counts = solved_by.value_counts()
        title = f"for comparison: `{baseline.name}`, first half of turn 1 against the second"
        rows.append([title, len(solved_by), *(counts.get(kind, 0) for kind in CLASSES)])
    rates = pd.concat(panels, names=["arm", "task_id"]).reset_index()
    table = files.add(f"{name}-pass-rates.csv", partial(write_csv, rates))
    plot_title = f"Pass rates of each task: {name}"
    plot = files.add(f"{name}-pass-rates.png", partial(plots.pass_rates_plot, panels, MARKS, plot_title))
    seen = [
        f"{arm}: {(panel['later'] > panel['first']).sum()} of {len(panel)} tasks above the diagonal, "
        f"{(panel['later'] < panel['first']).sum()} below"
        for arm, panel in panels.items()
    ]
    header = ["tasks solved by", "n tasks", *CLASSES]
    return [
        "### Tasks that only one of two arms solves",
        "Tasks by which of two arms solves them, each with its whole budget. Refining cannot lose a task that the "
        "first turn solved: tasks that *only the baseline* solves were found by its later attempts. Two halves of one "
        "sample show how many tasks change hands by chance; see *Differences* for intervals and tests.",
        markdown_table(header, rows),
        folded("Tasks that only one of the two arms solves", "\n".join(lists)),
        f"![{plot_title}, in later turns against turn 1. {'; '.join(seen)}]({plot})",
        "One mark per task that has something to refine: above the diagonal, refining attempts are correct more often "
        f"than first attempts. Pass rates count attempts that are correct on all {of_kind.checks}; both axes have "
        "square-root scales. Tasks with equal rates share a larger mark, labelled with their number if more than "
        f"{plots.MAX_UNCOUNTED}. [As CSV]({table}).",
    ]


def classes_of(by_refining: "pd.Series[float]", by_baseline: "pd.Series[float]") -> "pd.Series[str]":
    """Return which of two arms solves each task, from their `solved`."""
    refining, baseline = by_refining == 1.0, by_baseline == 1.0
    classes = np.select([refining & baseline, refining, baseline], [BOTH, ONLY_REFINING, ONLY_BASELINE], NEITHER)
    return pd.Series(classes, by_refining.index, dtype=str)


def pass_rates(results: Results, arm: BaseArm) -> pd.DataFrame:
    """Return each task's share of attempts that are correct on all pairs, in turn 1 (`first`) and after it (`later`).

    One row per task that has something to refine.
    """
    later = pd.concat([results.attempts_of_turn(arm, turn) for turn in range(2, len(arm.turns) + 1)], ignore_index=True)
    task_ids = tasks_with_attempts(later, results.task_ids)
    first = results.attempts_of_turn(arm, 1)
    rates = {
        "first": results.per_task(first, task_ids)[PASS_RATE],
        "later": results.per_task(later, task_ids)[PASS_RATE],
    }
    return pd.DataFrame(rates, index=task_ids)
