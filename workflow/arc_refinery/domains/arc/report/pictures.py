"""Picture of one task and of the outputs of attempts on it, in ARC's usual colours.

It does not rely on colour alone: in small grids all cells but black ones (0) show their number, wrong cells have a
cross, and the caption of each output says whether it is correct.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from arc_refinery.arc.grids import N_COLORS, UNKNOWN, Grid
from arc_refinery.arc.metrics import pixel_score
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.records import Verdict
from arc_refinery.reporting.markdown import percent
from arc_refinery.reporting.publish import DPI, save_png

MAX_TRAIN, MAX_TEST = 4, 2  # pairs drawn per task
ARC_COLORS = (
    "#000000",
    "#0074D9",
    "#FF4136",
    "#2ECC40",
    "#FFDC00",
    "#AAAAAA",
    "#F012BE",
    "#FF851B",
    "#7FDBFF",
    "#870C25",
)
DARK = (0, 1, 6, 9)  # colours on which numbers are white

# Inches; pictures of large grids get a higher resolution instead of a larger size
PANEL, GAP, LEFT, TOP, BOTTOM, CAPTION = 1.7, 0.25, 0.55, 0.8, 0.35, 0.42
SMALL_PANEL, TITLE_HEIGHT = 1.0, 0.28
LOWEST_ROW = 0.25  # with its caption, as high as a label
PIXELS_PER_CELL = 10
LARGEST_WITH_NUMBERS = 10  # side of a grid; in smaller cells numbers are unreadable


@dataclass(frozen=True, slots=True)
class GridPanel:
    """One grid of a picture and its caption."""

    grid: Grid  # `UNKNOWN` if there is none
    caption: str  # below the grid
    wrong: NDArray[np.bool_] | None = None  # cells to cross
    instead: str = ""  # text in the place of a missing grid
    side: float = PANEL  # longest side in inches

    @property
    def cell(self) -> float:
        """Return the side of a cell in inches."""
        return self.side / float(max(self.grid.shape))

    @property
    def height(self) -> float:
        return float(self.grid.shape[0]) * self.cell if self.grid.size else 0.5 * self.side


def draw(task: Task, attempts: Mapping[str, Verdict], path: Path) -> None:
    """Write a PNG file: one column per pair; rows: input, expected output, and the output of each attempt."""
    indices = [*range(len(task.train))[:MAX_TRAIN], *range(len(task.train), len(task.pairs))[:MAX_TEST]]
    pairs = [task.pairs[index] for index in indices]
    rows = {
        "input": [_task_panel(pair.input) for pair in pairs],
        "expected": [_task_panel(pair.output) for pair in pairs],
        **{
            label: [_attempt_panel(verdict, index, task.pairs[index]) for index in indices]
            for label, verdict in attempts.items()
        },
    }
    n_hidden = len(task.pairs) - len(indices)
    more = f"\n({n_hidden} more {'pair' if n_hidden == 1 else 'pairs'} not drawn)" if n_hidden else ""
    _draw_rows(rows, [pair_title(task, index) for index in indices], f"{task.task_id}{more}", path)


def draw_repair(task: Task, attempts: Mapping[str, Verdict], indices: Sequence[int], path: Path) -> None:
    """Write a PNG file that fits a phone: one row per pair of `indices`; columns: those that are rows in `draw`."""
    rows = {
        pair_title(task, index): [
            _task_panel(task.pairs[index].input),
            _task_panel(task.pairs[index].output),
            *(_attempt_panel(verdict, index, task.pairs[index]) for verdict in attempts.values()),
        ]
        for index in indices
    }
    small = {label: [replace(panel, side=SMALL_PANEL) for panel in panels] for label, panels in rows.items()}
    _draw_rows(small, ["input", "expected", *attempts], "", path)


def pair_title(task: Task, index: int) -> str:
    """Return, say, `train 1`, for a pair of `task.pairs`."""
    kinds = {"train": task.train, "test": task.test, "hidden": task.hidden}
    return [f"{kind} {number + 1}" for kind, pairs in kinds.items() for number in range(len(pairs))][index]


def _draw_rows(rows: Mapping[str, Sequence[GridPanel]], titles: Sequence[str], heading: str, path: Path) -> None:
    """Draw panels in labelled rows below the titles of their columns."""
    side = next(iter(rows.values()))[0].side
    heights = [max(LOWEST_ROW, *(panel.height for panel in row)) for row in rows.values()]
    width = LEFT + len(titles) * (side + GAP)
    top = TOP if heading else TITLE_HEIGHT
    height = top + sum(heights) + len(rows) * CAPTION + BOTTOM
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # inches, from the upper left
    axes.axis("off")
    centers = [LEFT + column * (side + GAP) + side / 2 for column in range(len(titles))]
    look: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    axes.text(width / 2, 0.28, heading, fontsize=10, **look)
    for title, center in zip(titles, centers, strict=True):
        axes.text(center, top - 0.13, title, fontsize=9 if side < PANEL else 10, **look)
    for (label, row), row_height in zip(rows.items(), heights, strict=True):
        # in two lines, so that the labels of low rows do not overlap
        axes.text(0.3, top + row_height / 2, label.replace(" p", "\np"), rotation=90, fontsize=9, **look)
        for panel, center in zip(row, centers, strict=True):
            _draw_panel(axes, panel, center, top)
        top += row_height + CAPTION
    _draw_legend(axes, width / 2, height - BOTTOM / 2)
    largest = max(grid_side for row in rows.values() for panel in row for grid_side in panel.grid.shape)
    save_png(figure, path, max(DPI, round(PIXELS_PER_CELL * largest / PANEL)))


def _task_panel(grid: Grid) -> GridPanel:
    if not grid.size:  # an unpublished test output
        return GridPanel(grid, "", instead="unknown")
    return GridPanel(grid, _shape(grid))


def _shape(grid: Grid) -> str:
    return "×".join(map(str, grid.shape))


def _attempt_panel(verdict: Verdict, index: int, pair: Pair) -> GridPanel:
    """Return the panel of an attempt's output for a pair; its caption says how much of it is correct."""
    if not verdict.detail.outputs:
        cause = verdict.error or verdict.status.replace("_", " ")
        problem = textwrap.fill(textwrap.shorten(cause, 90), 22, max_lines=5)
        return GridPanel(UNKNOWN, "no output", instead=problem)
    output, truth = verdict.detail.outputs[index], pair.output
    if not truth.size:
        return GridPanel(output, "cannot be checked")
    if output.shape != truth.shape:
        return GridPanel(output, f"wrong shape: {_shape(output)},\nexpected {_shape(truth)}")
    if np.array_equal(output, truth):
        return GridPanel(output, "correct")
    return GridPanel(output, f"wrong, {percent(pixel_score(output, truth))} match", output != truth)


def _draw_panel(axes: Axes, panel: GridPanel, center: float, top: float) -> None:
    look: dict[str, Any] = {"ha": "center", "parse_math": False}
    axes.text(center, top + panel.height + 0.05, panel.caption, va="top", fontsize=8, **look)
    if panel.grid.size:
        _draw_grid(axes, panel, center - panel.grid.shape[1] * panel.cell / 2, top)
    else:
        axes.text(center, top + panel.height / 2, panel.instead, va="center", fontsize=8, **look)


def _draw_grid(axes: Axes, panel: GridPanel, left: float, top: float) -> None:
    (height, width), cell = panel.grid.shape, panel.cell
    xs, ys = left + cell * np.arange(width + 1), top + cell * np.arange(height + 1)
    colors: dict[str, Any] = {"cmap": ListedColormap(ARC_COLORS), "vmin": 0, "vmax": N_COLORS - 1}
    axes.pcolormesh(xs, ys, panel.grid, edgecolors="#666666", linewidth=0.4, **colors)
    wrong = np.zeros(panel.grid.shape, bool) if panel.wrong is None else panel.wrong
    numbered = (panel.grid > 0) & (max(panel.grid.shape) <= LARGEST_WITH_NUMBERS)
    for row, column in np.argwhere(numbered):
        offset = 0.24 if wrong[row, column] else 0.5  # leaves room for the cross
        _write_number(axes, panel.grid[row, column], xs[column] + offset * cell, ys[row] + cell / 2, cell)
    for offset, cells in ((0.73, wrong & numbered), (0.5, wrong & ~numbered)):
        _cross(axes, [(xs[column] + offset * cell, ys[row] + cell / 2) for row, column in np.argwhere(cells)], cell)


def _write_number(axes: Axes, number: int, x: float, y: float, cell: float) -> None:
    color = "white" if number in DARK else "black"
    axes.text(x, y, str(number), ha="center", va="center", color=color, fontsize=min(8.0, 36 * cell))


def _cross(axes: Axes, centers: Sequence[tuple[float, float]], cell: float) -> None:
    """Draw white crosses with black edges, visible on any colour."""
    arm = min(max(0.17 * cell, 0.018), 0.055)
    falling = [[(x - arm, y - arm), (x + arm, y + arm)] for x, y in centers]
    rising = [[(x - arm, y + arm), (x + arm, y - arm)] for x, y in centers]
    for color, share in (("black", 1.1), ("white", 0.5)):
        axes.add_collection(LineCollection(falling + rising, colors=color, linewidths=share * 72 * arm))


def _draw_legend(axes: Axes, center: float, middle: float) -> None:
    """Draw the colours with their numbers, which programs and feedback use."""
    legend = GridPanel(np.arange(N_COLORS, dtype=np.uint8)[np.newaxis], "")
    left, cell = center - PANEL / 2, legend.cell
    _draw_grid(axes, legend, left, middle - cell / 2)
    _write_number(axes, 0, left + cell / 2, middle, cell)
