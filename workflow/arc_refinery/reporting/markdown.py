"""Tables in Markdown and CSV, and parts of a page that are folded."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right-aligned."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def folded(title: str, *blocks: str) -> str:
    """Return blocks under a title that a click unfolds."""
    return "\n\n".join([f"<details><summary>{title}</summary>", *blocks, "</details>"])


def write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
