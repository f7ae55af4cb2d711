"""Report section on what was left out, and why, from the stages' files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.reporting.markdown import markdown_table


def notes_of(path: Path) -> dict[str, Any]:
    """Return the notes of a file, empty if it has been deleted."""
    return records.notes(path) if path.exists() else {}


def rows_of(what: str, left_out: Mapping[str, int]) -> list[list[str]]:
    return [[what, reason, str(n)] for reason, n in sorted(left_out.items()) if n]


def section(rows: list[list[str]], if_none: str) -> list[str]:
    return ["## Data left out", markdown_table(["left out", "reason", "number"], rows) if rows else if_none]
