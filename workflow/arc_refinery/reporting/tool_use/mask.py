"""Picture of an episode's tokens: those that carry loss have a dark background."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from arc_refinery.reporting import plots

MOST_CHARACTERS = 100  # per line
# Control characters are drawn as these
CONTROLS = dict.fromkeys([*range(32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}") | {9: "⇥", 10: "⏎"}
SAMPLED, INSERTED = ("#0072B2", "white"), ("#DDDDDD", "black")  # background, text
CHARACTER_INCHES, LINE_INCHES = 0.078, 0.24
TEXT: dict[str, Any] = {"family": "monospace", "fontsize": 9, "va": "center", "ha": "left", "parse_math": False}


def mask_picture(tokens: Sequence[str], mask: Sequence[int], path: Path) -> None:
    """Draw tokens on a background by mask: 1 for sampled tokens, 0 for inserted ones. Line breaks end a line."""
    placed = list(_place(tokens))
    n_lines = max((line for line, _, _ in placed), default=0) + 1
    width = max((column + len(text) for _, column, text in placed), default=0) + 1
    figure = Figure(figsize=(width * CHARACTER_INCHES, n_lines * LINE_INCHES + 0.1))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.5, width), ylim=(n_lines, -0.4))
    axes.axis("off")
    for (line, column, text), is_sampled in zip(placed, mask, strict=True):
        background, color = SAMPLED if is_sampled else INSERTED
        axes.add_patch(Rectangle((column - 0.05, line + 0.05), len(text) - 0.1, 0.85, color=background, linewidth=0))
        axes.text(column, line + 0.45, text, color=color, **TEXT)
    plots.save(figure, path)


def _place(tokens: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield line, column and printed form of each token."""
    line = column = 0
    for token in tokens:
        shown = token.translate(CONTROLS) or " "
        if column + len(shown) > MOST_CHARACTERS:
            line, column = line + 1, 0
        yield line, column, shown
        column += len(shown)
        if "\n" in token:
            line, column = line + 1, 0
