"""ARC's attempts in words: the verdict for a terminal, how a prompt changed the task, how much of it is right."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import numpy as np

from arc_refinery.arc.grids import UNKNOWN, Grid
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.grading import outputs_seen
from arc_refinery.domains.arc.prompts import shape_text
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Status


def verdict_lines(graded: GradedAttempt) -> Iterator[str]:
    """Yield the sandbox's verdict, and the grids of incorrect pairs as the prompt shows them."""
    verdict, shown, outputs = graded.verdict, graded.prompt.detail, graded.verdict.detail
    if verdict.status != Status.ok:
        no_program = "no program in the answer" if verdict.status == NO_CODE else ""
        yield no_program or verdict.error or verdict.status.replace("_", " ")
        return
    n_train, n_test = len(outputs.train_outputs), len(outputs.test_outputs)
    yield (
        f"ok, {outputs.train_correct_grids * n_train:.0f} of {n_train} train pairs and "
        f"{outputs.test_correct_grids * n_test:.0f} of {n_test} test pairs are correct"
    )
    test_outputs = [shown.augmentation.apply(grid) for grid in outputs.test_outputs[: len(shown.test)]]
    for name, pairs, grids in (
        ("train", shown.train, outputs_seen(graded.prompt, verdict)),
        ("test", shown.test, test_outputs),
    ):
        for index, (pair, output) in enumerate(zip(pairs, grids, strict=True), 1):
            if not np.array_equal(pair.output, output):
                expected = _lines("expected", pair.output) if pair.output.size else []
                width = 3 + max(map(len, expected), default=-3)
                yield f"{name} pair {index}:"
                for left, right in zip_longest(expected, _lines("given", output), fillvalue=""):
                    yield f"  {left:{width}}{right}".rstrip()


def _lines(title: str, grid: Grid) -> list[str]:
    return [f"{title} {shape_text(grid)}", *("".join(map(str, row)) for row in grid.tolist())]


def pairs_right(task: Task, graded: GradedAttempt) -> list[bool]:
    """Return for each pair whether the program gave its output."""
    outputs = graded.verdict.detail.outputs or (UNKNOWN,) * len(task.pairs)
    return [np.array_equal(given, pair.output) for given, pair in zip(outputs, task.pairs, strict=True)]


def facts_in_words(task: Task, graded: GradedAttempt) -> str:
    right = pairs_right(task, graded)
    return f"right on {sum(right)} of {len(right)} pairs"


def draw(task: Task, attempts: Mapping[str, GradedAttempt], is_small: bool, path: Path) -> None:
    """Draw a task and what attempts, by label, gave for it; a small picture has the most telling pairs."""
    from arc_refinery.domains.arc.report import pictures

    verdicts = {label: graded.verdict for label, graded in attempts.items()}
    if not is_small:
        pictures.draw(task, verdicts, path)
        return
    right = pairs_right(task, next(iter(attempts.values())))
    wrong = right.index(False) if False in right else 0
    shown = [wrong, *range(len(task.train), len(task.pairs))[:1]]
    pictures.draw_repair(task, verdicts, shown, path)


def changes(prompt: Prompt) -> str:
    """Describe how the task in the conversation differs from the task in the picture."""
    change, train_order = prompt.detail.augmentation, prompt.detail.train_order
    order = ", ".join(str(index + 1) for index in train_order)
    colors = ", ".join(f"{old} as {new}" for old, new in enumerate(change.colors) if old != new)
    descriptions = [
        (list(train_order) != sorted(train_order), f"train pairs in the order {order}"),
        (change.transpose, "grids transposed (rows become columns)"),
        (change.n_rotations % 4, f"grids rotated by {90 * (change.n_rotations % 4)}° counterclockwise"),
        (colors, f"colours renamed ({colors})"),
        (prompt.detail.n_revealable, f"only the first {prompt.detail.n_shown} train pairs in its first prompt"),
    ]
    words = [description for is_changed, description in descriptions if is_changed]
    if not words:
        return "The model saw the task as in the picture."
    return f"The model saw the task with these changes: {', then '.join(words)}."
