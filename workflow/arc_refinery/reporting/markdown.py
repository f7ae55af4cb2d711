"""Tables in Markdown and CSV, folded parts of a page, and numbers as text: shares, differences, p values."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from arc_refinery.evaluation.intervals import Estimate, detectable, estimate
from arc_refinery.evaluation.power import FEWEST_CHANGED, POWER, SIGNIFICANCE
from arc_refinery.evaluation.statistics import Comparison

TOO_FEW = "Arms with two trainings have no intervals: that takes three."

Row = TypeVar("Row")
Columns: TypeAlias = Mapping[str, tuple[Callable[[Row], object], str]]  # by header: cell of a row, meaning


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right-aligned."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def columns_table(columns: Columns[Row], rows: Iterable[Row]) -> str:
    """Return a Markdown table with one line per row, a cell per column."""
    return markdown_table([*columns], [[cell(row) for cell, _ in columns.values()] for row in rows])


def columns_explained(columns: Columns[Row]) -> str:
    """Return the meaning of each column as a list; a column without one explains itself."""
    return "\n".join(f"- **{header}**: {meaning}." for header, (_, meaning) in columns.items() if meaning)


def folded(title: str, *blocks: str) -> str:
    """Return blocks under a title that a click unfolds."""
    return "\n\n".join([f"<details><summary>{title}</summary>", *blocks, "</details>"])


def fenced(text: str, language: str, most: int) -> str:
    """Return at most `most` lines of a text as a fenced block; ` and ``` in the text do not end it."""
    lines = text.rstrip().splitlines()
    if len(lines) > most:
        lines = [*lines[:most], f"... ({len(lines) - most} more lines)"]
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return "\n".join([f"{fence}{language}", *lines, fence])


def folded_section(summary: str, blocks: Sequence[str]) -> list[str]:
    """Fold the blocks of a section under its heading, which the table of contents keeps; `summary`: what they show."""
    return [blocks[0], folded(summary, *blocks[1:])] if blocks else []


def write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def verdict_sentence(comparison: Comparison) -> str:
    """Return a sentence with all numbers and whether the evidence supports a difference between two arms."""
    c, d = comparison, comparison.difference
    solved = [f"{count:.0f}" if c.is_exact else f"{count:.1f}" for count in (c.n_first, c.n_second)]
    only, more = ("solved by", "only") if c.is_exact else ("solved more often by", "")
    numbers = (
        f"`{c.first}` solved {solved[0]} of {d.n_tasks} tasks ({percent(c.n_first / d.n_tasks)}) and `{c.second}` "
        f"{solved[1]} ({percent(c.n_second / d.n_tasks)}): {points(d.mean)} points, {interval_phrase(d)}; "
        f"{c.only_first} {only} the first {more}".rstrip()
        + f", {c.only_second} by the second {more}".rstrip()
    )
    numbers += f"; {runs_text(d)}" if c.n_runs > 1 else ""
    numbers += f", {'exact McNemar ' if c.is_exact else ''}{p_text(c.p_value)}" if d.has_interval else ""
    numbers += "." if c.corrected is None else f", {p_text(c.corrected)} after correction."
    if c.supports_difference:
        better, worse = (c.first, c.second) if d.mean > 0 else (c.second, c.first)
        return f"{numbers} **The evidence supports that `{better}` solves more than `{worse}`.**"
    return f"{numbers} **The evidence does not support a difference.**"


def interval_text(difference: Estimate) -> str:
    """Format the interval of a difference of shares in percentage points; a dash if there is none."""
    if not difference.has_interval:
        return "–"
    return f"[{points(max(-1.0, difference.low))}, {points(min(1.0, difference.high))}]"


def interval_phrase(difference: Estimate) -> str:
    if difference.has_interval:
        return f"95 % interval {interval_text(difference)}"
    return f"{'one task is' if difference.n_tasks == 1 else 'two trainings are'} too few for an interval"


def difference_text(difference: Estimate) -> str:
    """Format a difference of shares with its interval, in a table: `+2.0 [−3.3, +7.1]`."""
    return points(difference.mean) + (f" {interval_text(difference)}" if difference.has_interval else "")


def points_text(difference: Estimate) -> str:
    """Format a difference of shares in a sentence: `+2.0 points [−3.3, +7.1]`."""
    interval = interval_text(difference) if difference.has_interval else f"({interval_phrase(difference)})"
    return f"{points(difference.mean)} points {interval}"


def detectable_text(difference: Estimate) -> str:
    """Format the detectable difference of shares in points: `2.8`; a dash if it is not known, or cannot be."""
    return "–" if (smallest := detectable(difference)) > 1 else f"{100 * smallest:.1f}"


def supported_text(difference: Estimate, is_supported: bool) -> str:
    return "–" if difference.n_tasks == 1 else "yes" if is_supported else "no"


def runs_text(difference: Estimate) -> str:
    """Format the differences of the runs: `per training +2.0, +2.5, +0.5`."""
    return f"per training {', '.join(map(points, difference.runs))}"


def share_text(values: ArrayLike) -> str:
    """Format a mean over tasks with its interval: `27.5 % [17.1, 40.9]`; a single task or two runs have none."""
    return estimate_text(estimate(np.asarray(values, dtype=float)[None]))


def estimate_text(share: Estimate) -> str:
    """Format a share with its interval: `27.5 % [17.1, 40.9]`."""
    if not share.has_interval:
        return percent(share.mean)
    low, high = max(0.0, share.low), min(1.0, share.high)  # t has no limits
    return f"{percent(share.mean)} [{100 * low:.1f}, {100 * high:.1f}]"


def solved_text(values: Sequence[float]) -> str:
    """Format a number of solved tasks: `14/51 = 27.5 % [17.1, 40.9]`."""
    return f"{round(sum(values))}/{len(values)} = {share_text(values)}"


def at_a_glance(table: str, picture: str, *caption: str) -> list[str]:
    """Return a table and a picture, side by side where there is room (page.css)."""
    return ['<div class="glance">', table, picture, "</div>", *caption]


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def count_text(tasks: float) -> str:
    """Format a number of tasks, or its mean over runs: `15`, `15.4`."""
    return f"{tasks:.1f}".removesuffix(".0")


def number(value: float, form: str) -> str:
    """Format a number with a minus sign, not a hyphen: `−2.2`."""
    return f"{value:{form}}".replace("-", "−")


def points(share: float, decimals: int = 1) -> str:
    """Format a difference of shares in percentage points, with its sign: `+2.4`, `−0.9`."""
    return number(round(100 * share, decimals) + 0.0, f"+.{decimals}f")


def p_text(p_value: float) -> str:
    if isnan(p_value):
        return "–"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def short_p(p_value: float) -> str:
    """Format p in a column of such values: `0.024`, `< 0.001`."""
    return p_text(p_value).removeprefix("p = ").removeprefix("p ")


def runs_in_brackets(difference: Estimate) -> str:
    return f" ({runs_text(difference)})" if len(difference.runs) > 1 else ""


class HasDifference(Protocol):
    @property
    def difference(self) -> Estimate: ...


# Columns of every table of differences: the first of two arms minus the second
DIFFERENCE: Columns[HasDifference] = {
    "points": (lambda row: points(row.difference.mean), "the first minus the second, in percentage points"),
    "95 % interval": (
        lambda row: interval_text(row.difference),
        "that of the difference, for other tasks or questions and, of repeated trainings, for other trainings; two "
        "trainings are too few for one",
    ),
    "detectable": (
        lambda row: detectable_text(row.difference),
        f"the true difference, in points, that an experiment like this one detects with {100 * POWER:.0f} % power at "
        f"p < {SIGNIFICANCE}, before correction; none if fewer than {FEWEST_CHANGED} tasks differ in a mean over runs "
        "or attempts",
    ),
}
