"""The picture of one task and of what attempts on it gave, in ARC's usual colours.

Colour is not all there is to see: in small grids all cells but black ones (0) have their number, wrong cells have a
cross, and words below each grid say whether it is right.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from arc_refinery.evaluation.statistics import percent
from arc_refinery.grids import N_COLORS, UNKNOWN, Grid
from arc_refinery.metrics import pixel_score
from arc_refinery.reporting.plots import DPI, save_png
from arc_refinery.tasks import Pair, Task

MAX_TRAIN, MAX_TEST = 4, 2  # pairs drawn of each task
COLORS = ("#000000", "#0074D9", "#FF4136", "#2ECC40", "#FFDC00", "#AAAAAA", "#F012BE", "#FF851B", "#7FDBFF", "#870C25")
DARK = (0, 1, 6, 9)  # numbers that are written in white on their colour

# Inches; a picture of large grids has a higher resolution instead
PANEL, GAP, LEFT, TOP, BOTTOM, CAPTION = 1.7, 0.25, 0.55, 0.8, 0.35, 0.42
PIXELS_A_CELL = 10
LARGEST_WITH_NUMBERS = 10  # side of a grid: in smaller cells a number could not be read


@dataclass(frozen=True, slots=True)
class Execution:
    """What an attempt's program gave, and its text (empty where the completion holds none)."""

    outputs: tuple[Grid, ...]  # train pairs, then test pairs; empty unless all are valid
    problem: str  # why there are no outputs
    program: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One grid of a picture, and the words below it."""

    grid: Grid  # `UNKNOWN` where there is none
    words: str
    wrong: NDArray[np.bool_] | None = None  # cells to cross
    instead: str = ""  # what is written where there is no grid

    @property
    def cell(self) -> float:
        """Side of a cell in inches."""
        return PANEL / float(max(self.grid.shape))

    @property
    def height(self) -> float:
        return float(self.grid.shape[0]) * self.cell if self.grid.size else 0.5 * PANEL


def draw(task: Task, attempts: Mapping[str, Execution], path: Path) -> None:
    """A PNG file: one column a pair; rows: input, expected output, and what each attempt gave, by their labels."""
    indices = [*range(len(task.train))[:MAX_TRAIN], *range(len(task.train), len(task.pairs))[:MAX_TEST]]
    pairs = [task.pairs[index] for index in indices]
    rows = {
        "input": [_known(pair.input) for pair in pairs],
        "expected": [_known(pair.output) for pair in pairs],
        **{label: [_given(one, index, task.pairs[index]) for index in indices] for label, one in attempts.items()},
    }
    heights = [max(panel.height for panel in row) for row in rows.values()]
    width = LEFT + len(pairs) * (PANEL + GAP)
    height = TOP + sum(heights) + len(rows) * CAPTION + BOTTOM
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # inches, from the upper left
    axes.axis("off")
    centers = [LEFT + column * (PANEL + GAP) + PANEL / 2 for column in range(len(pairs))]
    _write_titles(axes, task, indices, centers, width)
    top = TOP
    for (label, row), row_height in zip(rows.items(), heights, strict=True):
        axes.text(0.3, top + row_height / 2, label, rotation=90, ha="center", va="center", fontsize=9)
        for panel, center in zip(row, centers, strict=True):
            _draw_panel(axes, panel, center, top)
        top += row_height + CAPTION
    _draw_legend(axes, width / 2, height - BOTTOM / 2)
    largest = max(side for row in rows.values() for panel in row for side in panel.grid.shape)
    save_png(figure, path, max(DPI, round(PIXELS_A_CELL * largest / PANEL)))


def _known(grid: Grid) -> Panel:
    if not grid.size:  # the output of a test that nobody has published
        return Panel(grid, "", instead="unknown")
    return Panel(grid, _shape(grid))


def _shape(grid: Grid) -> str:
    return "×".join(map(str, grid.shape))


def _given(execution: Execution, index: int, pair: Pair) -> Panel:
    """What an attempt gave for a pair, and how far it is right."""
    if not execution.outputs:
        problem = textwrap.fill(textwrap.shorten(execution.problem, 90), 22, max_lines=5)
        return Panel(UNKNOWN, "no output", instead=problem)
    output, truth = execution.outputs[index], pair.output
    if not truth.size:
        return Panel(output, "right or wrong: unknown")
    if output.shape != truth.shape:
        return Panel(output, f"wrong shape: {_shape(output)},\nexpected {_shape(truth)}")
    if np.array_equal(output, truth):
        return Panel(output, "correct")
    return Panel(output, f"wrong, {percent(pixel_score(output, truth))} match", output != truth)


def _write_titles(axes: Axes, task: Task, indices: Sequence[int], centers: Sequence[float], width: float) -> None:
    n_hidden = len(task.pairs) - len(indices)
    hidden = f"\n({n_hidden} more {'pair' if n_hidden == 1 else 'pairs'} not drawn)" if n_hidden else ""
    look: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    axes.text(width / 2, 0.28, f"{task.task_id}{hidden}", fontsize=10, **look)
    for index, center in zip(indices, centers, strict=True):
        is_train = index < len(task.train)
        title = f"train {index + 1}" if is_train else f"test {index + 1 - len(task.train)}"
        axes.text(center, TOP - 0.13, title, fontsize=10, **look)


def _draw_panel(axes: Axes, panel: Panel, center: float, top: float) -> None:
    look: dict[str, Any] = {"ha": "center", "parse_math": False}
    axes.text(center, top + panel.height + 0.05, panel.words, va="top", fontsize=8, **look)
    if panel.grid.size:
        _draw_grid(axes, panel, center - panel.grid.shape[1] * panel.cell / 2, top)
    else:
        axes.text(center, top + panel.height / 2, panel.instead, va="center", fontsize=8, **look)


def _draw_grid(axes: Axes, panel: Panel, left: float, top: float) -> None:
    (height, width), cell = panel.grid.shape, panel.cell
    xs, ys = left + cell * np.arange(width + 1), top + cell * np.arange(height + 1)
    colors: dict[str, Any] = {"cmap": ListedColormap(COLORS), "vmin": 0, "vmax": N_COLORS - 1}
    axes.pcolormesh(xs, ys, panel.grid, edgecolors="#666666", linewidth=0.4, **colors)
    wrong = np.zeros(panel.grid.shape, bool) if panel.wrong is None else panel.wrong
    numbered = (panel.grid > 0) & (max(panel.grid.shape) <= LARGEST_WITH_NUMBERS)
    for row, column in np.argwhere(numbered):
        index = 0.24 if wrong[row, column] else 0.5  # beside the cross
        _write_number(axes, panel.grid[row, column], xs[column] + index * cell, ys[row] + cell / 2, cell)
    for index, cells in ((0.73, wrong & numbered), (0.5, wrong & ~numbered)):
        _cross(axes, [(xs[column] + index * cell, ys[row] + cell / 2) for row, column in np.argwhere(cells)], cell)


def _write_number(axes: Axes, number: int, x: float, y: float, cell: float) -> None:
    color = "white" if number in DARK else "black"
    axes.text(x, y, str(number), ha="center", va="center", color=color, fontsize=min(8.0, 36 * cell))


def _cross(axes: Axes, centers: Sequence[tuple[float, float]], cell: float) -> None:
    """White crosses with black edges: one of the two is seen on any colour."""
    arm = min(max(0.17 * cell, 0.018), 0.055)
    falling = [[(x - arm, y - arm), (x + arm, y + arm)] for x, y in centers]
    rising = [[(x - arm, y + arm), (x + arm, y - arm)] for x, y in centers]
    for color, share in (("black", 1.1), ("white", 0.5)):
        axes.add_collection(LineCollection(falling + rising, colors=color, linewidths=share * 72 * arm))


def _draw_legend(axes: Axes, center: float, middle: float) -> None:
    """The numbers of the colours, which programs and feedback use."""
    legend = Panel(np.arange(N_COLORS, dtype=np.uint8)[np.newaxis], "")
    left, cell = center - PANEL / 2, legend.cell
    _draw_grid(axes, legend, left, middle - cell / 2)
    _write_number(axes, 0, left + cell / 2, middle, cell)
