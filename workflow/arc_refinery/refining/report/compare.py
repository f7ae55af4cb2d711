"""Comparison of refining experiments on one set: their arms, and paired differences."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from arc_refinery.evaluation.sides import Side, arms_to_pair, arms_to_show
from arc_refinery.refining.config import Refining
from arc_refinery.refining.evaluation.paired import (
    PairedArms,
    SideResults,
    load_side,
    pair,
    shared_tasks,
    why_tasks_differ,
)
from arc_refinery.refining.metrics import PASS_RATE, SOLVED
from arc_refinery.refining.report.prose import VALIDATION
from arc_refinery.refining.report.tables import COMPARISON
from arc_refinery.reporting.compare import left_out, listed
from arc_refinery.reporting.markdown import (
    columns_explained,
    columns_table,
    difference_text,
    markdown_table,
    share_text,
    solved_text,
    verdict_sentence,
)

EXPLAINED = f"""\
{columns_explained(COMPARISON)}
- **pass rate of turn 2**: share of second-turn attempts that are right on everything, mean over tasks that have any.
- **tokens per task**: those of completions, and of each prompt once for all completions that share it.

Brackets: 95 % interval over tasks and, of repeated trainings, over trainings. Nothing is corrected for the number of
these comparisons."""


def set_section(sides: Sequence[Side[Refining]], name: str) -> list[str]:
    """Return blocks on a set: the arms of all sides, and the differences between each two sides."""
    loaded = [load_side(side, name, arms_to_show(side, sides)) for side in sides]
    task_sets = [side.experiment.evaluation_set(name) for side in sides]
    caveats = [
        text for task_set in task_sets for text in (VALIDATION if task_set.validation else "", task_set.caveat) if text
    ]
    header = ["experiment", "arm", "n tasks", "solved", "pass rate of turn 2", "attempts per task", "tokens per task"]
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
            rates = results.metrics_of_turn(arm, 2)[PASS_RATE] if len(arm.turns) > 1 else ()
            yield [
                f"`{loaded.side.folder}`",
                f"`{arm.name}`",
                n,
                solved_text(list(metrics[SOLVED])),
                share_text(list(rates)) if len(rates) else "–",
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
        return [f"{title}: no task in common; {why_tasks_differ(first, second)}."]
    pairs = [pair(first, second, names, task_ids) for names in arms]
    return [
        f"{title}, on {len(task_ids)} tasks, paired:",
        *left_out([(loaded.side, loaded.results.task_ids) for loaded in (first, second)], task_ids, "tasks"),
        columns_table(COMPARISON, [paired.comparison for paired in pairs]),
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
    for turn, difference in paired.turns.items():
        yield f"  - Pass rate of turn {turn}: {difference_text(difference)} points on {difference.n_tasks} tasks."
    if paired.budgets[0] != paired.budgets[1]:
        yield f"  - Their budgets differ: {paired.budgets[0]} and {paired.budgets[1]} attempts per task."
