"""A picture of an episode's tokens: which of them carry loss."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from arc_refinery.reporting import plots

MOST_CHARACTERS = 100  # in a line
# What has no picture of its own
CONTROLS = dict.fromkeys([*range(32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}") | {9: "⇥", 10: "⏎"}
SAMPLED, GIVEN = ("#0072B2", "white"), ("#DDDDDD", "black")  # ground and ink
CHARACTER_INCHES, LINE_INCHES = 0.078, 0.24
TEXT: dict[str, Any] = {"family": "monospace", "fontsize": 9, "va": "center", "ha": "left", "parse_math": False}


def mask_picture(tokens: Sequence[str], mask: Sequence[int], path: Path) -> None:
    """Draw tokens on the ground of what they are: 1 in the mask, sampled; 0, put there. A line break ends a line."""
    placed = list(_placed(tokens))
    n_lines = max((line for line, _, _ in placed), default=0) + 1
    width = max((column + len(text) for _, column, text in placed), default=0) + 1
    figure = Figure(figsize=(width * CHARACTER_INCHES, n_lines * LINE_INCHES + 0.1))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.5, width), ylim=(n_lines, -0.4))
    axes.axis("off")
    for (line, column, text), is_sampled in zip(placed, mask, strict=True):
        ground, ink = SAMPLED if is_sampled else GIVEN
        axes.add_patch(Rectangle((column - 0.05, line + 0.05), len(text) - 0.1, 0.85, color=ground, linewidth=0))
        axes.text(column, line + 0.45, text, color=ink, **TEXT)
    plots.save(figure, path)


def _placed(tokens: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Line and column of each token, and how it is shown."""
    line = column = 0
    for token in tokens:
        shown = token.translate(CONTROLS) or " "
        if column + len(shown) > MOST_CHARACTERS:
            line, column = line + 1, 0
        yield line, column, shown
        column += len(shown)
        if "\n" in token:
            line, column = line + 1, 0
