"""Paired comparison of two experiments or arms, as Markdown for a terminal."""

from collections.abc import Sequence

from arc_refinery.evaluation.paired import (
    PairedArms,
    Side,
    SideResults,
    arms_to_pair,
    load_side,
    pair,
    sets_to_pair,
    shared_tasks,
)
from arc_refinery.evaluation.statistics import interval_text, points, verdict_sentence
from arc_refinery.reporting.refining.prose import VALIDATION
from arc_refinery.reporting.refining.tables import comparisons_table

SUPPORTED_EXPLAINED = """\
Supported: the 95 % interval excludes 0 and p < 0.05 (exact McNemar; of repeated arms a t test, over trainings too if
there are several), without correction for the number of comparisons. Detectable: the true difference that an experiment
like this one finds with 80 % power. Pass rate of a turn: share of its attempts that are correct on all pairs, mean over
tasks with attempts of both."""
MAX_NAMED = 20  # longer lists of left-out tasks are only counted


def paired_comparison(first: Side, second: Side, wanted: Sequence[str] = ()) -> str:
    """Compare two sides on the wanted sets, by default on all that both have."""
    arms = arms_to_pair(first, second)
    sets = sets_to_pair(first, second, wanted)
    blocks = [f"# {_side_title(first)} − {_side_title(second)}"]
    for name in sets:
        one, other = load_side(first, name, [a for a, _ in arms]), load_side(second, name, [b for _, b in arms])
        task_ids = shared_tasks(one, other)
        blocks += [
            f"## `{name}` ({len(task_ids)} tasks)",
            *_caveats(one, other),
            *left_out(one, other, task_ids),
            *_comparison_blocks([pair(one, other, names, task_ids) for names in arms]),
        ]
    for having, lacking in ((first, second), (second, first)):
        if alone := [f"`{name}`" for name in having.sets if name not in lacking.sets and not wanted]:
            blocks.append(f"Not compared, because only `{having.folder}` has it: {', '.join(alone)}.")
    return "\n\n".join([*blocks, SUPPORTED_EXPLAINED])


def _side_title(one: Side) -> str:
    return f"`{one.folder}:{one.arm}`" if one.arm else f"`{one.folder}`"


def _comparison_blocks(pairs: Sequence[PairedArms]) -> list[str]:
    return [
        comparisons_table([one.comparison for one in pairs]),
        "\n".join(line for one in pairs for line in _lines(one)),
    ]


def left_out(first: SideResults, second: SideResults, task_ids: Sequence[str]) -> list[str]:
    """Return a sentence for each side that has tasks which the other lacks."""
    common = set(task_ids)
    alone = [(one, [task_id for task_id in one.results.task_ids if task_id not in common]) for one in (first, second)]
    return [
        f"Left out, because only `{one.side.folder}` has them: {_listed_or_counted(ids)}." for one, ids in alone if ids
    ]


def _caveats(first: SideResults, second: SideResults) -> list[str]:
    """Return the caveats of a set, each once."""
    sets = [one.side.experiment.evaluation_set(one.results.name) for one in (first, second)]
    texts = [text for one in sets for text in (VALIDATION if one.validation else "", one.caveat) if text]
    return [f"> {text}" for text in dict.fromkeys(texts)]


def _lines(one: PairedArms) -> list[str]:
    often = "only" if one.comparison.is_exact else "more often"
    lines = [f"- {verdict_sentence(one.comparison)}"]
    for which, task_ids in (("first", one.only_first), ("second", one.only_second)):
        if task_ids:
            lines.append(f"  - Solved {often} by the {which}: {_listed(task_ids)}.")
    for turn, found in one.turns.items():
        rate = f"{points(found.mean)} {interval_text(found)} points on {found.n_tasks} tasks"
        lines.append(f"  - Pass rate of turn {turn}: {rate}.")
    if one.budgets[0] != one.budgets[1]:
        lines.append(f"  - Their budgets differ: {one.budgets[0]} and {one.budgets[1]} attempts per task.")
    return lines


def _listed_or_counted(task_ids: Sequence[str]) -> str:
    return _listed(task_ids) if len(task_ids) <= MAX_NAMED else f"{len(task_ids)} tasks"


def _listed(task_ids: Sequence[str]) -> str:
    return ", ".join(f"`{task_id}`" for task_id in task_ids)
