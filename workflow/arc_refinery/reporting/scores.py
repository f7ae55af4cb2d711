"""Comparison of scores from files of any evaluation, as Markdown with a picture."""

import textwrap
from collections.abc import Sequence
from itertools import combinations
from math import isinf
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from arc_refinery.errors import InputError
from arc_refinery.evaluation.intervals import Estimate, detectable, estimate
from arc_refinery.evaluation.power import FEWEST_CHANGED, POWER, SIGNIFICANCE
from arc_refinery.evaluation.score_files import ScoreColumns, Scores, SideFiles, read_scores
from arc_refinery.evaluation.sides import match_runs
from arc_refinery.evaluation.statistics import Comparison, compare, correct
from arc_refinery.reporting.markdown import (
    Columns,
    columns_explained,
    columns_table,
    markdown_table,
    number,
    short_p,
    supported_text,
)
from arc_refinery.reporting.publish import is_drawable, plot_style, save

SCORE = """\
- **score**: mean over tasks, of the mean over a task's rows. Brackets: 95 % interval for other tasks, and for other
  runs if there are three or more; two are too few."""
MAX_LABEL = 60  # characters of a label in a row


def scores_page(files: Sequence[SideFiles], columns: ScoreColumns, picture: Path | None = None) -> str:
    """Compare the sides in files, each two of them; write a picture of the differences, if wanted."""
    sides, read = read_scores(files, columns)
    if len(sides) < 2:
        raise InputError(
            f"expected two sides, and there is {sides[0].name} alone: give two files, or --side and the column that "
            "tells them apart"
        )
    shown = _Form(all(0 <= score <= 1 for side in sides for run in side.runs.values() for score in run.values()))
    for side in sides:
        if not side.tasks:
            raise InputError(
                f"{side.name}: none of its tasks is in all of its {len(side.runs)} runs; does --runs name the right "
                "column?"
            )
    notes, comparisons = [], []
    for one, another in combinations(sides, 2):
        shared = [run for run in one.runs if run in another.runs]
        is_part = shared and min(len(one.runs), len(another.runs)) > 1  # one run is paired with any
        first, second = (side.of(shared) if is_part else side for side in (one, another))
        in_second = set(second.tasks)
        tasks = [task for task in first.tasks if task in in_second]
        if not tasks:
            raise InputError(
                f"{first.name} and {second.name}: have no task in common; the first has {first.tasks[:3]}, the second "
                f"{second.tasks[:3]}. Name the column with --task"
            )
        runs = match_runs(first.table(tasks), second.table(tasks), "runs")
        comparisons.append(compare(first.name, second.name, runs.first, runs.second, runs.is_paired))
        if runs.note:
            notes.append(f"{_code(first.name)} and {_code(second.name)}: {runs.note}")
        if first.filter and second.filter and first.filter != second.filter and columns.side != "filter":
            notes.append(
                f"Different filters: {_code(first.filter)} of {_code(first.name)}, {_code(second.filter)} of "
                f"{_code(second.name)}."
            )
        notes += [
            f"Left out of {_code(side.name)}, because {_code(other.name)} lacks them: {n} tasks."
            for side, other in ((first, second), (second, first))
            if (n := len(side.tasks) - len(tasks))
        ]
    comparisons, differences = correct(comparisons), _columns(shown)
    for side in sides:
        notes += side.logs
        notes += [f"Left out of {_code(side.name)}, because {why}: {n} rows." for why, n in side.left_out]
        if n := len(set().union(*side.runs.values())) - len(side.tasks):
            notes.append(f"Left out of {_code(side.name)}, because not all of its runs have them: {n} tasks.")
    if picture:
        with plot_style():
            _draw(comparisons, [side.name for side in sides], shown, picture)
    return "\n\n".join(
        [
            f"# Comparison of {', '.join(_code(side.name) for side in sides)}",
            f"Task: {_code(read.task)}; score: {_code(read.score)}.",
            markdown_table(["side", "tasks", "runs", "rows per task", "score"], [_side(side, shown) for side in sides]),
            *notes,
            columns_table(differences, comparisons),
            *([f"![Differences with 95 % intervals]({picture.name})"] if picture else []),
            "## Columns",
            f"{SCORE}\n{columns_explained(differences)}",
        ]
    )


class _Form:
    """How scores are written: as percentages if all are between 0 and 1."""

    def __init__(self, is_share: bool) -> None:
        self.scale, self.digits, self.unit = (100, 1, " %") if is_share else (1, 3, "")

    def number(self, value: float, sign: str = "") -> str:
        return number(round(self.scale * value, self.digits) + 0.0, f"{sign}.{self.digits}f")

    def ends(self, value: Estimate, lowest: float) -> Sequence[float]:
        """Return the ends of an interval, within the possible range of shares (from 0) or their differences (-1)."""
        ends = [value.low, value.high]
        return list(np.clip(ends, lowest, 1.0)) if self.unit else ends

    def interval(self, value: Estimate, sign: str = "") -> str:
        """Return the text of the interval of a mean or, with the sign `+`, of a difference."""
        low, high = self.ends(value, -1.0 if sign else 0.0)
        return f"[{self.number(low, sign)}, {self.number(high, sign)}]" if value.has_interval else "–"


def _side(side: Scores, shown: _Form) -> list[object]:
    mean = estimate(np.array(list(side.table(side.tasks).values())))
    text = f"{shown.number(mean.mean)}{shown.unit}{f' {shown.interval(mean)}' if mean.has_interval else ''}"
    n_rows = f"{side.n_rows[0]}" if len(side.n_rows) == 1 else f"{side.n_rows[0]} to {side.n_rows[-1]}"
    return [_code(side.name), len(side.tasks), len(side.runs), n_rows, text]


def _columns(shown: _Form) -> Columns[Comparison]:
    def smallest(difference: Estimate) -> str:
        found = detectable(difference)
        return "–" if isinf(found) or (shown.unit and found > 1) else shown.number(found)

    return {
        "first − second": (lambda c: f"{_code(c.first)} − {_code(c.second)}", ""),
        "tasks": (lambda c: c.difference.n_tasks, ""),
        "difference": (
            lambda c: shown.number(c.difference.mean, "+"),
            "the first minus the second, paired by task, and by run where both sides have runs of the same names",
        ),
        "95 % interval": (lambda c: shown.interval(c.difference, "+"), ""),
        "better: first / second": (
            lambda c: f"{c.only_first} / {c.only_second}",
            "tasks on which one of them scores higher",
        ),
        "p": (
            lambda c: short_p(c.p_value),
            "exact McNemar test of scores that are 0 or 1 in one run; else that of the interval's t",
        ),
        "p corrected": (
            lambda c: short_p(c.p_value if c.corrected is None else c.corrected),
            "for the number of comparisons (Holm)",
        ),
        "detectable": (
            lambda c: smallest(c.difference),
            f"the true difference that such an experiment detects with {100 * POWER:.0f} % power, before correction; "
            f"none if it cannot be, or fewer than {FEWEST_CHANGED} tasks differ in a mean over runs or rows",
        ),
        "supported": (
            lambda c: supported_text(c.difference, c.supports_difference),
            f"the interval excludes 0 and the corrected p is below {SIGNIFICANCE}",
        ),
    }


def _code(name: str) -> str:
    """Return a name as code, in one cell of a table."""
    text = " ".join(name.split()).translate({ord("`"): "'", ord("|"): "/"})
    return f"`{text}`"


def _draw(comparisons: Sequence[Comparison], sides: Sequence[str], shown: _Form, path: Path) -> None:
    names = {side: side if is_drawable(side) else f"side {number}" for number, side in enumerate(sides, 1)}
    titles = [textwrap.fill(f"{names[c.first]} − {names[c.second]}", MAX_LABEL) for c in comparisons]
    n_lines = sum(title.count("\n") + 1 for title in titles)
    figure = Figure(figsize=(8, 1.2 + 0.2 * (len(titles) + n_lines)), layout="constrained")
    axes = figure.subplots()
    places = range(len(comparisons))[::-1]
    for place, comparison in zip(places, comparisons, strict=True):
        difference = comparison.difference
        axes.plot([shown.scale * end for end in shown.ends(difference, -1.0)], [place, place], color="C0")
        axes.plot(shown.scale * difference.mean, place, color="C0", marker="o")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(list(places), titles, parse_math=False)
    axes.set_xlabel("difference" + (" in percentage points" if shown.unit else ""))
    axes.margins(y=0.2)
    save(figure, path)
