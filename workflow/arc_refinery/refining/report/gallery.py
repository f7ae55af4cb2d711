"""Report section with single tasks: a first attempt, the feedback that the model got, and the refined attempt."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import UNKNOWN, as_grid
from arc_refinery.arc.tasks import Task
from arc_refinery.branch_files import BranchFiles
from arc_refinery.refining.config import Arm, Refining
from arc_refinery.refining.domains.arc.config import TaskSet
from arc_refinery.refining.domains.arc.report.pictures import Execution, draw, draw_repair
from arc_refinery.refining.evaluation.results import SetResults
from arc_refinery.refining.prompts import extract_code
from arc_refinery.refining.report.outcomes import refining_pairs
from arc_refinery.reporting.markdown import folded
from arc_refinery.reporting.publish import Attachments

N_SHOWN = 2  # tasks per class
MAX_PROGRAM, MAX_FEEDBACK, MAX_UNFOLDED = 60, 100, 12  # lines
ONLY_BY_REFINING, ONLY_BY_BASELINE = "Solved only by refining", "Solved only by the baseline"
NOBODY = "Solved by nobody"
RULES = f"""\
Tasks are chosen by fixed rules: of each class the first {N_SHOWN} in the set's order that have the attempts shown.

- *{ONLY_BY_REFINING}*: solved by `{{arm}}`, not by `{{baseline}}`. Shown: the first refining attempt that solves it, and the attempt that it refines.
- *{ONLY_BY_BASELINE}*: solved by `{{baseline}}`, not by `{{arm}}`. Shown: the best incorrect attempt of turn 1, which is refined first, and the first attempt to refine it.
- *{NOBODY}*: solved by no arm of the experiment. Shown: as for *{ONLY_BY_BASELINE}*.

Test pairs are shown here only; the model never sees their outputs or results on them."""  # noqa: E501


@dataclass(frozen=True, slots=True)
class GalleryItem:
    """A task and two attempts on it; the second refines the first."""

    task_id: str
    first_id: str
    second_id: str
    prompt_id: str  # prompt of the second attempt
    turn: int  # turn of the second attempt


@dataclass(frozen=True, slots=True)
class FeedbackShown:
    """Feedback of a refining prompt on the attempt before it, and the augmentation in which it shows the task."""

    feedback: str
    augmentation: Augmentation
    train_order: tuple[int, ...]


def section(
    experiment: Refining,
    folder: Path,
    task_set: TaskSet,
    results: SetResults,
    metrics: Mapping[str, pd.DataFrame],
    files: Attachments,
) -> list[str]:
    """Return Markdown blocks on some tasks of a set; their pictures are added to `files`.

    `folder`: the experiment's results. `metrics`: `per_task` of each of its arms.
    """
    pair = pair_to_show(experiment)
    if pair is None:
        return ["No arm refines, so there are no refining attempts to show."]
    arm, baseline = pair
    solved = pd.DataFrame({name: by_task["is_correct"] == 1.0 for name, by_task in metrics.items()})
    classes = choose(results, arm, baseline, solved)
    all_items = [item for _, items in classes.values() for item in items]
    if not all_items:
        return [f"No task had anything to refine in `{arm.name}`, so there are no refining attempts to show."]
    executed, prompts = _read(partial(experiment.files, folder, task_set.name), arm, all_items)
    wanted = {item.task_id for item in all_items}
    all_tasks = records.read(folder / "tasks" / f"{task_set.name}.parquet", Task)
    tasks = {task.task_id: task for task in all_tasks if task.task_id in wanted}
    blocks = [RULES.format(arm=arm.name, baseline=baseline.name)]
    if any(map(experiment.continues_parents, arm.branches)):
        blocks.append("The refined program runs on the outputs of the first program, not on the task's inputs.")
    for title, (n, items) in classes.items():
        blocks.append(_count_sentence(title, n, len(items)))
        for item in items:
            first, second = executed[item.first_id], executed[item.second_id]
            filename = f"gallery/{task_set.name}-{re.sub(r'[^A-Za-z0-9._-]', '-', item.task_id)}.png"
            executions = {"first program": first, "refined program": second}
            picture = files.add(filename, partial(draw, tasks[item.task_id], executions))
            blocks += [
                f"#### `{item.task_id}`: {title.lower()}",
                f"![{_seen(task_set.name, tasks[item.task_id], executions)}]({picture})",
                programs_block(item.turn, first, prompts[item.prompt_id], second),
            ]
    return blocks


def repaired(
    experiment: Refining,
    folder: Path,
    task_set: TaskSet,
    results: SetResults,
    metrics: Mapping[str, pd.DataFrame],
    files: Attachments,
) -> list[str]:
    """Return blocks on one repaired program, of a task that only refining solves if there is one; none if none is."""
    pair = pair_to_show(experiment)
    if pair is None:
        return []
    arm, baseline = pair
    solved = pd.DataFrame({name: by_task["is_correct"] == 1.0 for name, by_task in metrics.items()})
    _, items = choose(results, arm, baseline, solved)[ONLY_BY_REFINING]
    items = items or _first_items(_solving(_refined(results, arm)), results.task_ids)
    if not items:
        return []
    item = items[0]
    executed, prompts = _read(partial(experiment.files, folder, task_set.name), arm, [item])
    first, second, prompt = executed[item.first_id], executed[item.second_id], prompts[item.prompt_id]
    all_tasks = records.read(folder / "tasks" / f"{task_set.name}.parquet", Task)
    task = next(task for task in all_tasks if task.task_id == item.task_id)
    wrong = next((index for index, is_right in enumerate(_right(task, first)) if not is_right), 0)
    executions = {"first program": first, "refined program": second}
    shown = [wrong, *range(len(task.train), len(task.pairs))[:1]]
    picture = files.add(f"gallery/{task_set.name}-repaired.png", partial(draw_repair, task, executions, shown))
    blocks = [
        f"**A program that `{arm.name}` repaired** (task `{task.task_id}` of `{task_set.name}`). The model read its "
        "first program and what that gave, and wrote the second one. It never sees test pairs.",
        f"![{_seen(task_set.name, task, executions)}]({picture})",
    ]
    if max(len(first.program.splitlines()), len(second.program.splitlines())) > MAX_UNFOLDED:
        return [*blocks, programs_block(item.turn, first, prompt, second)]
    return [
        *blocks,
        f"First program{_fenced(first.program, 'python', MAX_PROGRAM)}",
        f"Refined program{_fenced(second.program, 'python', MAX_PROGRAM)}",
        folded(
            "Feedback that the model read",
            _changes_sentence(prompt),
            f"Feedback{_fenced(prompt.feedback, 'text', MAX_FEEDBACK)}",
        ),
    ]


def _right(task: Task, execution: Execution) -> list[bool]:
    """Return for each pair whether the program gave its output."""
    outputs = execution.outputs or (UNKNOWN,) * len(task.pairs)
    return [np.array_equal(given, pair.output) for given, pair in zip(outputs, task.pairs, strict=True)]


def _seen(set_name: str, task: Task, executions: Mapping[str, Execution]) -> str:
    """Return the alternative text of a picture: the task, and on how many of its pairs each program is right."""
    right = {label: _right(task, execution) for label, execution in executions.items()}
    outputs = [f"of the {label}, right on {sum(pairs)} of {len(pairs)} pairs" for label, pairs in right.items()]
    return f"Task {task.task_id} of {set_name}: inputs, expected outputs, and outputs {'; '.join(outputs)}"


def pair_to_show(experiment: Refining) -> tuple[Arm, Arm] | None:
    """Return the last arm that refines and its baseline; controls only if no other arm refines."""
    pairs = refining_pairs(experiment) or [(arm, experiment.arms[0]) for arm in experiment.arms if len(arm.turns) > 1]
    informed = [(arm, baseline) for arm, baseline in pairs if not arm.is_control]
    return next(reversed(informed or pairs), None)


def choose(
    results: SetResults, arm: Arm, baseline: Arm, solved: pd.DataFrame
) -> dict[str, tuple[int, list[GalleryItem]]]:
    """Return, by class, the number of its tasks and the items to show, by `RULES`.

    `solved`: one row per task, in the set's order; one column of booleans per arm.
    """
    refined = _refined(results, arm)
    solving = _solving(refined)
    by_refining, by_baseline = solved[arm.name], solved[baseline.name]
    classes = {
        ONLY_BY_REFINING: (by_refining & ~by_baseline, solving),
        ONLY_BY_BASELINE: (by_baseline & ~by_refining, refined),
        NOBODY: (~solved.any(axis=1), refined),
    }
    return {
        title: (int(is_in.sum()), _first_items(attempts, list(solved.index[is_in])))
        for title, (is_in, attempts) in classes.items()
    }


def _refined(results: SetResults, arm: Arm) -> pd.DataFrame:
    turns = range(2, len(arm.turns) + 1)
    return pd.concat([results.attempts_of_turn(arm, turn) for turn in turns], ignore_index=True)


def _solving(attempts: pd.DataFrame) -> pd.DataFrame:
    return attempts[attempts["shown_solved"] & attempts["hidden_solved"]]


def _first_items(attempts: pd.DataFrame, task_ids: Sequence[str]) -> list[GalleryItem]:
    """Return the first attempt on each of the first tasks that have any."""
    rows = {row["task_id"]: row for row in attempts.drop_duplicates("task_id").to_dict("records")}
    first_rows = [rows[task_id] for task_id in task_ids if task_id in rows][:N_SHOWN]
    return [
        GalleryItem(row["task_id"], row["parent_id"], row["attempt_id"], row["prompt_id"], int(row["turn"]))
        for row in first_rows
    ]


def _count_sentence(title: str, n: int, n_shown: int) -> str:
    if not n:
        return f"**{title}**: no task."
    return f"**{title}**: {n} {'task' if n == 1 else 'tasks'}, {n_shown or 'none'} of them shown."


def _read(
    files: Callable[[str], BranchFiles], arm: Arm, gallery_items: Sequence[GalleryItem]
) -> tuple[dict[str, Execution], dict[str, FeedbackShown]]:
    """Read the executions of the attempts to show, by id, and the feedback between them, by prompt id.

    `files` returns the files of a branch.
    """
    executed: dict[str, Execution] = {}
    prompts: dict[str, FeedbackShown] = {}
    for turn in sorted({item.turn for item in gallery_items}):
        items = [item for item in gallery_items if item.turn == turn]
        before, after = files(arm.branch(turn - 1)), files(arm.branch(turn))
        executed |= executions(before, [item.first_id for item in items])
        executed |= executions(after, [item.second_id for item in items])
        prompts |= read_feedback(after.prompts, [item.prompt_id for item in items])
    return executed, prompts


def executions(branch: BranchFiles, attempt_ids: Sequence[str]) -> dict[str, Execution]:
    """Read the executions of some attempts of a branch; only these rows are kept in memory."""

    def rows(paths: Sequence[Path], cls: type[records.RecordClass], *columns: str) -> Iterator[dict[str, Any]]:
        for path in paths:
            yield from records.columns(path, cls, ["attempt_id", *columns], attempt_ids).to_pylist()

    completions = {row["attempt_id"]: row["completion"] for row in rows(branch.attempts, records.Attempt, "completion")}
    verdicts = rows(branch.verdicts, records.Verdict, "status", "error", "train_outputs", "test_outputs")
    return {
        row["attempt_id"]: Execution(
            outputs=tuple(as_grid(grid) for grid in row["train_outputs"] + row["test_outputs"]),
            problem=row["error"] or row["status"].replace("_", " "),
            program=extract_code(completions[row["attempt_id"]]) or "",
        )
        for row in verdicts
    }


def read_feedback(path: Path, prompt_ids: Sequence[str]) -> dict[str, FeedbackShown]:
    """Read the feedback (the last user message) of some refining prompts; only these rows are kept in memory."""
    columns = ["prompt_id", "messages", "augmentation", "train_order"]
    feedback = {}
    for row in records.columns(path, records.Prompt, columns, prompt_ids).to_pylist():
        user_messages = [message["content"] for message in row["messages"] if message["role"] == "user"]
        change = row["augmentation"]
        augmentation = Augmentation(change["n_rotations"], change["transpose"], tuple(change["colors"]))
        feedback[row["prompt_id"]] = FeedbackShown(user_messages[-1], augmentation, tuple(row["train_order"]))
    return feedback


def programs_block(turn: int, first: Execution, prompt: FeedbackShown, second: Execution) -> str:
    """Return the first program, its feedback and the second program as a collapsed block."""
    blocks = [
        "<details><summary>First program, feedback, refined program</summary>",
        _changes_sentence(prompt),
        f"First program (turn {turn - 1}){_fenced(first.program, 'python', MAX_PROGRAM)}",
        f"Feedback{_fenced(prompt.feedback, 'text', MAX_FEEDBACK)}",
        f"Refined program (turn {turn}){_fenced(second.program, 'python', MAX_PROGRAM)}",
        "</details>",
    ]
    return "\n\n".join(blocks)


def _changes_sentence(prompt: FeedbackShown) -> str:
    """Describe how the task in the conversation differs from the task in the picture."""
    change = prompt.augmentation
    order = ", ".join(str(index + 1) for index in prompt.train_order)
    colors = ", ".join(f"{old} as {new}" for old, new in enumerate(change.colors) if old != new)
    changes = [
        (list(prompt.train_order) != sorted(prompt.train_order), f"train pairs in the order {order}"),
        (change.transpose, "grids transposed (rows become columns)"),
        (change.n_rotations % 4, f"grids rotated by {90 * (change.n_rotations % 4)}° counterclockwise"),
        (colors, f"colours renamed ({colors})"),
    ]
    words = [description for is_changed, description in changes if is_changed]
    if not words:
        return "The model saw the task as in the picture."
    return f"The model saw the task with these changes: {', then '.join(words)}."


def _fenced(text: str, language: str, most: int) -> str:
    """Return at most `most` lines of a text as a fenced block; ` and ``` in the text do not end it."""
    if not text:
        return ": none."
    lines = text.rstrip().splitlines()
    if len(lines) > most:
        lines = [*lines[:most], f"... ({len(lines) - most} more lines)"]
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return "\n".join([":\n", f"{fence}{language}", *lines, fence])
