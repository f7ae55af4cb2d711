"""Comparison of tool-use experiments on one set: their arms, and differences paired by question."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from arc_refinery.evaluation.intervals import Estimate, estimate
from arc_refinery.evaluation.sides import Side, arms_to_pair, arms_to_show, match_runs
from arc_refinery.reporting.compare import left_out
from arc_refinery.reporting.markdown import (
    DIFFERENCE,
    Columns,
    columns_explained,
    columns_table,
    estimate_text,
    markdown_table,
    percent,
    runs_in_brackets,
)
from arc_refinery.tool_use.config import ToolUse
from arc_refinery.tool_use.grading.evaluated import (
    QuestionsOfSide,
    load_questions_of_side,
    on_shared_questions,
    why_questions_differ,
)


class PairedRates(NamedTuple):
    """pass@1 of two arms on the questions that both have."""

    arms: str
    first: float
    second: float
    difference: Estimate
    note: str  # on the trainings that are compared


PAIRED: Columns[PairedRates] = {
    "pass@1": (
        lambda row: f"{row.arms}{runs_in_brackets(row.difference)}",
        "share of a question's episodes that are correct, mean over questions",
    ),
    "first": (lambda row: percent(row.first), ""),
    "second": (lambda row: percent(row.second), ""),
    "points": DIFFERENCE["points"],
    "95 % interval": DIFFERENCE["95 % interval"],
    "detectable": DIFFERENCE["detectable"],
    "supported": (
        lambda row: "yes" if row.difference.supports_difference else "no",
        "the interval of the difference excludes 0 and six questions differ, without correction for the number of "
        "comparisons",
    ),
}
EXPLAINED = f"""\
{columns_explained(PAIRED)}

Brackets: 95 % interval over questions and, of repeated trainings, over trainings."""


def set_section(sides: Sequence[Side[ToolUse]], name: str) -> list[str]:
    """Return blocks on a set: the arms of all sides, and the differences between each two sides."""
    loaded = [load_questions_of_side(side, name, arms_to_show(side, sides)) for side in sides]
    header = ["experiment", "arm", "n questions", "episodes per question", "pass@1", "episodes that call"]
    return [
        f"## Set `{name}`",
        markdown_table(header, [row for side in loaded for row in _arms(side)]),
        *(block for first, second in combinations(loaded, 2) for block in _differences(first, second)),
    ]


def _arms(loaded: QuestionsOfSide) -> Iterator[list[object]]:
    experiment = loaded.side.experiment
    for name in loaded.arms:
        arms = experiment.arms_called(name)
        episodes = [episode for arm in arms for episode in loaded.evaluated.episodes_of_arm(arm.name)]
        yield [
            f"`{loaded.side.folder}`",
            f"`{name}`{f', mean of {len(arms)}' if len(arms) > 1 else ''}",
            len(loaded.evaluated.questions),
            experiment.evaluation.n_predictions,
            estimate_text(estimate([loaded.evaluated.pass_at(arm.name, 1) for arm in arms])),
            percent(float(np.mean([bool(episode.calls) for episode in episodes]))),
        ]


def _differences(first: QuestionsOfSide, second: QuestionsOfSide) -> list[str]:
    title = f"{first.side.title} − {second.side.title}"
    arms = arms_to_pair(first.side, second.side)
    if not arms:
        return [f"{title}: no arm of the same name."]
    ours, theirs = on_shared_questions(first, second)
    if not ours.evaluated.questions:
        return [f"{title}: no question in common; {why_questions_differ(first, second)}."]
    common = ours.evaluated.questions
    rows = [_paired(ours, theirs, *pair) for pair in arms]
    return [
        f"{title}, on {len(common)} questions, paired:",
        columns_table(PAIRED, rows),
        *(f"{row.arms}: {row.note}" for row in rows if row.note),
        *left_out([(each.side, each.evaluated.questions) for each in (first, second)], common, "questions"),
    ]


def _paired(ours: QuestionsOfSide, theirs: QuestionsOfSide, first: str, second: str) -> PairedRates:
    a, b = ours.pass_rates(first), theirs.pass_rates(second)
    runs = match_runs(a, b)
    return PairedRates(
        f"`{ours.side.folder}:{first}` − `{theirs.side.folder}:{second}`",
        float(runs.first.mean()),
        float(runs.second.mean()),
        runs.difference,
        runs.note,
    )
