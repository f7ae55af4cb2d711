"""Sections of the page that compares several tool-use experiments: arms, paired differences."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from arc_refinery.config import ToolUse
from arc_refinery.evaluation.intervals import estimate
from arc_refinery.evaluation.sides import Side
from arc_refinery.reporting.markdown import estimate_text, markdown_table, percent
from arc_refinery.reporting.tool_use.compare import differences
from arc_refinery.tool_use.grading.evaluated import QuestionsOfSide, load_questions_of_side

COLUMNS_EXPLAINED = """\
*pass@1*: share of a question's episodes that are correct, mean over questions. Brackets: 95 % interval over questions
and, of repeated trainings, over trainings. *Supported*: the interval of the difference excludes 0."""


def set_section(sides: Sequence[Side[ToolUse]], name: str) -> list[str]:
    """Return blocks on a set: the arms of all experiments that have it, and comparisons of arms of the same name."""
    found = [load_questions_of_side(one, name, one.experiment.repetitions) for one in sides if name in one.sets]
    blocks = [
        f"## Set `{name}`",
        markdown_table(
            ["experiment", "arm", "n questions", "episodes per question", "pass@1", "episodes that call"],
            [row for one in found for row in _arms(one)],
        ),
    ]
    for first, second in combinations(found, 2):
        titles = [f"`{one.side.experiment.experiment}`" for one in (second, first)]
        common = [(arm, arm) for arm in second.arms if arm in first.arms]
        if not common:
            blocks.append(f"{titles[0]} and {titles[1]} have no arm of the same name.")
        elif first.evaluated.questions.keys().isdisjoint(second.evaluated.questions):
            blocks.append(f"{titles[0]} and {titles[1]} have no question in common.")
        else:
            blocks += [f"Arms of the same name, {titles[0]} − {titles[1]}:", *differences(second, first, common)]
    return blocks


def _arms(one: QuestionsOfSide) -> Iterator[list[object]]:
    experiment = one.side.experiment
    for name in one.arms:
        arms = experiment.arms_called(name)
        episodes = [episode for arm in arms for episode in one.evaluated.of_arm(arm.name)]
        rates = estimate([one.evaluated.pass_at(arm.name, 1) for arm in arms])
        yield [
            f"`{experiment.experiment}`",
            f"`{name}`{f', mean of {len(arms)}' if len(arms) > 1 else ''}",
            len(one.evaluated.questions),
            experiment.evaluation.n_predictions,
            estimate_text(rates),
            percent(float(np.mean([bool(episode.calls) for episode in episodes]))),
        ]
