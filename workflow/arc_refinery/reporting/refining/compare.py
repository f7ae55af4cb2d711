"""Paired comparison of two experiments or arms, as Markdown for a terminal."""

from collections.abc import Sequence

from arc_refinery.config import Refining
from arc_refinery.evaluation.paired import PairedArms, SideResults, load_side, pair, shared_tasks
from arc_refinery.evaluation.sides import Side, arms_to_pair, sets_to_pair
from arc_refinery.reporting.compared import listed, only_one_has, sets_of_one
from arc_refinery.reporting.markdown import columns_table, interval_text, points, verdict_sentence
from arc_refinery.reporting.refining.prose import VALIDATION
from arc_refinery.reporting.refining.tables import COMPARISON

SUPPORTED_EXPLAINED = """\
Supported: the 95 % interval excludes 0 and p < 0.05 (exact McNemar; of repeated arms a t test, over trainings too if
there are several), without correction for the number of comparisons. Detectable: the true difference that an experiment
like this one finds with 80 % power. Pass rate of a turn: share of its attempts that are correct on all pairs, mean over
tasks with attempts of both."""


def paired_comparison(first: Side[Refining], second: Side[Refining], wanted: Sequence[str] = ()) -> str:
    """Compare two sides on the wanted sets, by default on all that both have."""
    arms = arms_to_pair(first, second)
    sets = sets_to_pair(first, second, wanted)
    blocks = [f"# {first.title} − {second.title}"]
    for name in sets:
        one, other = load_side(first, name, [a for a, _ in arms]), load_side(second, name, [b for _, b in arms])
        task_ids = shared_tasks(one, other)
        blocks += [
            f"## `{name}` ({len(task_ids)} tasks)",
            *_caveats(one, other),
            *left_out(one, other, task_ids),
            *_comparison_blocks([pair(one, other, names, task_ids) for names in arms]),
        ]
    return "\n\n".join([*blocks, *sets_of_one(first, second, wanted), SUPPORTED_EXPLAINED])


def _comparison_blocks(pairs: Sequence[PairedArms]) -> list[str]:
    return [
        columns_table(COMPARISON, [one.comparison for one in pairs]),
        "\n".join(line for one in pairs for line in _lines(one)),
    ]


def left_out(first: SideResults, second: SideResults, task_ids: Sequence[str]) -> list[str]:
    """Return a sentence for each side that has tasks which the other lacks."""
    return only_one_has({one.side.folder: one.results.task_ids for one in (first, second)}, task_ids, "tasks")


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
            lines.append(f"  - Solved {often} by the {which}: {listed(task_ids)}.")
    for turn, found in one.turns.items():
        rate = f"{points(found.mean)} {interval_text(found)} points on {found.n_tasks} tasks"
        lines.append(f"  - Pass rate of turn {turn}: {rate}.")
    if one.budgets[0] != one.budgets[1]:
        lines.append(f"  - Their budgets differ: {one.budgets[0]} and {one.budgets[1]} attempts per task.")
    return lines
