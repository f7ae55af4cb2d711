"""Tables in Markdown and CSV."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right-aligned."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
