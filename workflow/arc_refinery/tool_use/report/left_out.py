"""Report section on questions that were not used, and why, from the stages' files."""

from pathlib import Path

from arc_refinery.reporting.left_out import notes_of, rows_of, section
from arc_refinery.tool_use.config import ToolUse


def of_questions(experiment: ToolUse, folder: Path) -> list[str]:
    """Return Markdown blocks on questions that were not used."""
    rows = []
    for name in experiment.sets:
        notes = notes_of(folder / f"questions/{name}.parquet")
        reasons = {**notes.get("held_out", {}), "their programs fail": len(notes.get("failing", {}))}
        rows += rows_of(f"questions of `{name}`", reasons)
        unchecked = {"some cannot be checked": len(notes.get("unchecked", {}))}
        rows += rows_of(f"asserts of questions of `{name}`", unchecked)
    return section(rows, "All questions were used.")
