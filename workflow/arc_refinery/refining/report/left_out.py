"""Report section on problems and tasks that were left out, and why, from the stages' files."""

from collections import Counter
from pathlib import Path

from arc_refinery.refining.config import Refining
from arc_refinery.refining.overlap import TEMPLATE_ROWS, read_overlap
from arc_refinery.reporting.left_out import notes_of, rows_of, section


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
        notes = notes_of(path)
        rows += rows_of(f"pairs of {purpose}", notes.get("pairs_left_out", {}))
        rows += rows_of(purpose, notes.get("problems_left_out", {}))
    has_problems = any(what.startswith("problems") for what in files)
    if_none = "Every problem became a task, with all of its pairs." if has_problems else "Every task was used."
    return section(rows, if_none)


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
