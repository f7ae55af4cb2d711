"""Save plots as PNG and SVG files with reproducible bytes: fixed style and resolution, no date or version."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.style
from matplotlib.figure import Figure

from arc_refinery.files import atomic_write

DPI = 120
LINE_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito 2008
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


@contextmanager
def style() -> Iterator[None]:
    """Use this module's style, ignoring the user's matplotlibrc."""
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file, and an SVG file of the same name next to it."""
    save_png(figure, path)
    with atomic_write(path.with_suffix(".svg")) as unfinished:
        figure.savefig(unfinished, format="svg", metadata={"Creator": None, "Date": None})


def save_png(figure: Figure, path: Path, dpi: int = DPI) -> None:
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, dpi=dpi, format="png", metadata={"Software": None})
