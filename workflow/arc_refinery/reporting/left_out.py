"""Report section on problems, tasks and questions that were left out, and why, from the stages' files."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.config import Refining, ToolUse
from arc_refinery.refine.overlap import TEMPLATE_ROWS, read_overlap
from arc_refinery.reporting.markdown import markdown_table


def of_tasks(experiment: Refining, folder: Path) -> list[str]:
    """Return Markdown blocks on problems that gave no task, and tasks left out; none where neither can be."""
    files: dict[str, Path] = {}
    if parts := experiment.part_names:  # each has the notes of all
        files["problems to train on"] = folder / f"tasks/{parts[0]}.parquet"
    for task_set in experiment.evaluation.sets:
        if task_set.source == "generator" or task_set.leave_out_too_large:
            what = "problems" if task_set.source == "generator" else "tasks"
            files[f"{what} of `{task_set.name}`"] = folder / f"tasks/{task_set.name}.parquet"
    rows = _not_trained_on(experiment, folder)
    if not files and not rows:
        return []
    for purpose, path in files.items():
        notes = _notes(path)
        rows += _rows(f"pairs of {purpose}", notes.get("pairs_left_out", {}))
        rows += _rows(purpose, notes.get("problems_left_out", {}))
    has_problems = any(what.startswith("problems") for what in files)
    if_none = "Every problem became a task, with all of its pairs." if has_problems else "Every task was used."
    return _section(rows, if_none)


def _not_trained_on(experiment: Refining, folder: Path) -> list[list[str]]:
    if experiment.training is None or experiment.training.evaluated_tasks == "keep":
        return []
    pairs = {
        (pair.tasks, pair.task_id, pair.evaluated_in) for pair in read_overlap(folder) if pair.tasks != TEMPLATE_ROWS
    }
    counts = Counter((tasks, evaluated_in) for tasks, _, evaluated_in in pairs)
    return [
        [f"tasks of `{tasks}` to train on", f"also in `{evaluated_in}`", str(n)]
        for (tasks, evaluated_in), n in sorted(counts.items())
    ]


def of_questions(experiment: ToolUse, folder: Path) -> list[str]:
    """Return Markdown blocks on questions that were not used."""
    rows = []
    for name in experiment.sets:
        notes = _notes(folder / f"questions/{name}.parquet")
        reasons = {**notes.get("held_out", {}), "their programs fail": len(notes.get("failing", {}))}
        rows += _rows(f"questions of `{name}`", reasons)
        rows += _rows(f"asserts of questions of `{name}`", {"some cannot be checked": len(notes.get("unchecked", {}))})
    return _section(rows, "All questions were used.")


def _notes(path: Path) -> dict[str, Any]:
    """Return the notes of a file, empty if it has been deleted."""
    return records.notes(path) if path.exists() else {}


def _rows(what: str, left_out: Mapping[str, int]) -> list[list[str]]:
    return [[what, reason, str(n)] for reason, n in sorted(left_out.items()) if n]


def _section(rows: list[list[str]], if_none: str) -> list[str]:
    return ["## Data left out", markdown_table(["left out", "reason", "number"], rows) if rows else if_none]
