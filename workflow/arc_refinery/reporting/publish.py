"""Publish a report: compose its text, write its pictures and tables, then replace the earlier report.

Pictures are PNG and SVG files with reproducible bytes: fixed style and resolution, no date or version.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import matplotlib.style
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from arc_refinery.files import atomic_write

DPI = 120
# Okabe and Ito 2008, then darker ones of Tol 2021
LINE_COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#882255",
    "#999933",
    "#332288",
    "#888888",
    "#8B4513",
)
DASHES = ("-", "--", "-.", ":")
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "svg.hashsalt": "arc-refinery",  # without it, ids in the file are random
}

Write = Callable[[Path], None]


@dataclass
class Attachments:
    """Pictures and tables that a report links to. Adding one writes nothing, so text can be composed alone."""

    link: str  # from the report to their folder
    _writers: dict[str, Write] = field(default_factory=dict)

    def add(self, name: str, write: Write) -> str:
        """Register `write`, to be called with the path of the file `name`; return the link to it."""
        self._writers[name] = write
        return f"{self.link}/{name}"

    def write(self, folder: Path) -> None:
        with plot_style():
            for name, write in self._writers.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write(folder / name)


def publish(report: Path, folder: Path, compose: Callable[[Attachments], Sequence[str]]) -> None:
    """Write the Markdown file `report` and replace `folder`/report by the files that it links to."""
    attachments = Attachments(os.path.relpath(folder / "report", report.parent))
    blocks = compose(attachments)
    with atomic_write(folder / "report") as unfinished:
        unfinished.mkdir()
        attachments.write(unfinished)
    with atomic_write(report) as unfinished:
        unfinished.write_text("\n\n".join(blocks) + "\n")


def line_colors(n: int) -> list[str]:
    """Return n colours, all different."""
    more = n - len(LINE_COLORS)
    return [*LINE_COLORS[:n], *(to_hex(colormaps["turbo"](index / more)) for index in range(more))]


class LineEnd(NamedTuple):
    """The end of a line in a plot, and the text to write there."""

    text: str
    x: float
    y: float
    color: str


def label_line_ends(axes: Axes, ends: Sequence[LineEnd], fontsize: float = 8.5) -> None:
    """Write a label to the right of the axes for each line, level with its end where labels do not overlap.

    The limits of the axes must be final.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    bottom, top = axes.get_ylim()
    spec = axes.get_subplotspec()
    n_rows = spec.get_gridspec().nrows if spec else 1
    points_high = 72 * (figure.get_figheight() / n_rows - 0.7)  # about: without the title and the labels of the x axis
    in_order = sorted(ends, key=lambda end: end.y)
    heights = [1.3 * fontsize * (end.text.count("\n") + 1) / points_high for end in in_order]
    middles: list[float] = []
    floor = 0.0
    for end, height in zip(in_order, heights, strict=True):  # upwards, each above the one before
        middles.append(max(floor + height / 2, (end.y - bottom) / (top - bottom)))
        floor = middles[-1] + height / 2
    ceiling = 1.0
    for index in reversed(range(len(middles))):  # down again, below the upper edge
        middles[index] = min(middles[index], ceiling - heights[index] / 2)
        ceiling = middles[index] - heights[index] / 2
    for end, middle in zip(in_order, middles, strict=True):
        axes.annotate(
            end.text,
            (end.x, end.y),
            (1.04, middle),
            textcoords="axes fraction",
            va="center",
            fontsize=fontsize,
            color=end.color,
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.color,
                "linewidth": 0.6,
                "relpos": (0, 0.5),  # from the left edge of the text
                "shrinkA": 1,
                "shrinkB": 2,
            },
        )


@contextmanager
def plot_style() -> Iterator[None]:
    """Draw with `STYLE`, ignoring the user's matplotlibrc."""
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        yield


def is_drawable(text: str) -> bool:
    """Return whether the font of the pictures has all characters; it is the same on every machine."""
    font = get_font(findfont(FontProperties("DejaVu Sans")))
    return all(font.get_char_index(ord(character)) for character in text)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file, and an SVG file of the same name next to it."""
    save_png(figure, path)
    figure.set_layout_engine("none")  # that of the PNG file stays
    with atomic_write(path.with_suffix(".svg")) as unfinished:
        figure.savefig(unfinished, format="svg", metadata={"Creator": None, "Date": None})


def save_png(figure: Figure, path: Path, dpi: int = DPI) -> None:
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, dpi=dpi, format="png", metadata={"Software": None})
