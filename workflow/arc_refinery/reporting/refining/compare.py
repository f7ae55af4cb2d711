"""The paired comparison of two experiments or arms, as Markdown for a terminal."""

from collections.abc import Sequence

from arc_refinery.evaluation.paired import Given, Pair, Side, arms_to_pair, given, pair, sets_to_pair, shared_tasks
from arc_refinery.evaluation.statistics import verdict_sentence
from arc_refinery.reporting.refining.tables import comparisons_table

MANY = 20  # more tasks are counted, not named


def paired_comparison(first: Side, second: Side, wanted: Sequence[str] = ()) -> str:
    """The two sides on the wanted sets, by default on all that both have."""
    arms = arms_to_pair(first, second)
    sets = sets_to_pair(first, second, wanted)
    blocks = [f"# {_called(first)} − {_called(second)}"]
    for name in sets:
        one, other = given(first, name, [a for a, _ in arms]), given(second, name, [b for _, b in arms])
        task_ids = shared_tasks(one, other)
        blocks += [
            f"## `{name}` ({len(task_ids)} tasks)",
            *left_out(one, other, task_ids),
            *_compared([pair(one, other, names, task_ids) for names in arms]),
        ]
    for having, lacking in ((first, second), (second, first)):
        if alone := [f"`{name}`" for name in having.sets if name not in lacking.sets and not wanted]:
            blocks.append(f"Not compared, for only `{having.folder}` has it: {', '.join(alone)}.")
    return "\n\n".join(blocks)


def _called(one: Side) -> str:
    return f"`{one.folder}:{one.arm}`" if one.arm else f"`{one.folder}`"


def _compared(pairs: Sequence[Pair]) -> list[str]:
    return [
        comparisons_table([one.comparison for one in pairs]),
        "\n".join(line for one in pairs for line in _lines(one)),
    ]


def left_out(first: Given, second: Given, task_ids: Sequence[str]) -> list[str]:
    """A sentence for each side that has tasks beside those that both have."""
    common = set(task_ids)
    alone = [(one, [task_id for task_id in one.results.task_ids if task_id not in common]) for one in (first, second)]
    return [f"Left out, for only `{one.side.folder}` has them: {_few(ids)}." for one, ids in alone if ids]


def _lines(one: Pair) -> list[str]:
    often = "more often" if one.comparison.repetitions > 1 else "only"
    lines = [f"- {verdict_sentence(one.comparison)}"]
    for which, task_ids in (("first", one.only_first), ("second", one.only_second)):
        if task_ids:
            lines.append(f"  - Solved {often} by the {which}: {_listed(task_ids)}.")
    if one.budgets[0] != one.budgets[1]:
        lines.append(f"  - Their budgets differ: {one.budgets[0]} against {one.budgets[1]} attempts a task.")
    return lines


def _few(task_ids: Sequence[str]) -> str:
    return _listed(task_ids) if len(task_ids) <= MANY else f"{len(task_ids)} tasks"


def _listed(task_ids: Sequence[str]) -> str:
    return ", ".join(f"`{task_id}`" for task_id in task_ids)
