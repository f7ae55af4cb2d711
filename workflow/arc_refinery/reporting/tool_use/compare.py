"""Paired comparison of two tool-use experiments or arms, as Markdown for a terminal."""

from collections.abc import Sequence

import numpy as np

from arc_refinery.config import ToolUse
from arc_refinery.evaluation.intervals import estimate_difference
from arc_refinery.evaluation.sides import Side, arms_to_pair, paired_runs, sets_to_pair
from arc_refinery.evaluation.statistics import detectable
from arc_refinery.reporting.compared import only_one_has, sets_of_one
from arc_refinery.reporting.markdown import interval_text, markdown_table, percent, points, runs_text
from arc_refinery.tool_use.grading.evaluated import QuestionsOfSide, load_questions_of_side, on_shared_questions

COMPARED_EXPLAINED = """\
pass@1: share of a question's episodes that are correct, mean over the questions that both have. Supported: the 95 %
interval excludes 0, without correction for the number of comparisons; it covers other questions and, of repeated
trainings, other trainings. Detectable: the true difference that an experiment like this one finds with 80 % power."""
HEADER = ["pass@1", "first", "second", "points", "95 % interval", "detectable", "supported"]


def paired_comparison(first: Side[ToolUse], second: Side[ToolUse], wanted: Sequence[str] = ()) -> str:
    """Compare two sides on the wanted sets, by default on all that both have."""
    arms = arms_to_pair(first, second)
    blocks = [f"# {first.title} − {second.title}"]
    for name in sets_to_pair(first, second, wanted):
        one = load_questions_of_side(first, name, [a for a, _ in arms])
        other = load_questions_of_side(second, name, [b for _, b in arms])
        blocks += [f"## `{name}`", *differences(one, other, arms)]
    return "\n\n".join([*blocks, *sets_of_one(first, second, wanted), COMPARED_EXPLAINED])


def differences(first: QuestionsOfSide, second: QuestionsOfSide, arms: Sequence[tuple[str, str]]) -> list[str]:
    """Return blocks that compare pairs of arms on the questions that both sides have."""
    one, other = on_shared_questions(first, second)
    common = one.evaluated.questions
    ids = {side.side.folder: side.evaluated.questions for side in (first, second)}
    return [
        f"{len(common)} questions, paired:",
        markdown_table(HEADER, [_row(one, other, *pair) for pair in arms]),
        *only_one_has(ids, common, "questions"),
    ]


def _row(one: QuestionsOfSide, other: QuestionsOfSide, first: str, second: str) -> list[object]:
    a, b = one.pass_rates(first), other.pass_rates(second)
    found = estimate_difference(*paired_runs(a, b))
    runs = f" ({runs_text(found)})" if len(found.runs) > 1 else ""
    return [
        f"`{one.side.folder}:{first}` − `{other.side.folder}:{second}`{runs}",
        percent(float(np.mean(list(a.values())))),
        percent(float(np.mean(list(b.values())))),
        points(found.mean),
        interval_text(found),
        f"{100 * detectable(found):.1f}" if found.standard_error else "–",
        "yes" if found.excludes_zero else "no",
    ]
