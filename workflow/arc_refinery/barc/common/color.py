"""The ten colours by name, and grids shown to a person: as coloured text, in a window, as examples of a problem."""

import traceback
from collections.abc import Callable
from typing import ClassVar

from .measuring import Grid

# Terminal colour (of 256) for each colour number.
_TERMINAL_COLORS = [0, 4, 1, 2, 3, 7, 13, 202, 6, 196]


class Color:
    """Colour numbers as plain ints.

    The two lists are shared by everyone: a program that changes one changes it for the whole process.
    """

    BLACK = 0
    BLUE = 1
    RED = 2
    GREEN = 3
    YELLOW = 4
    GREY = 5
    PINK = 6
    ORANGE = 7
    TEAL = 8
    MAROON = 9

    GRAY = GREY
    TRANSPARENT = BLACK
    BACKGROUND = BLACK

    ALL_COLORS: ClassVar[list[int]] = [BLACK, BLUE, RED, GREEN, YELLOW, GREY, PINK, ORANGE, TEAL, MAROON]
    NOT_BLACK: ClassVar[list[int]] = [BLUE, RED, GREEN, YELLOW, GREY, PINK, ORANGE, TEAL, MAROON]


def show_colored_grid(grid: Grid, text: bool = True) -> None:
    """Print the grid as coloured numbers, one line per y, or (text False) open a matplotlib window.

    As text, a colour of 10 or more is an IndexError and a bool or float cell a TypeError.
    """
    if not text:
        _show_window(grid)
        return
    n, m = grid.shape
    for y in range(m):
        row = [grid[x, y] for x in range(n)]
        print("".join(f"\033[38;5;{_TERMINAL_COLORS[cell]}m{cell}\033[0m" for cell in row))


def _show_window(grid: Grid) -> None:
    # Imported here because it is slow, and hardly any program opens a window.
    import matplotlib.pyplot as plt

    _, axes = plt.subplots()
    axes.pcolormesh(grid.T, vmin=0, vmax=9, edgecolors="grey")
    axes.invert_yaxis()
    axes.set_aspect("equal")
    plt.show()


def visualize(
    input_generator: Callable[[], Grid], transform: Callable[[Grid], Grid], n_examples: int = 5, n_attempts: int = 100
) -> None:
    """Print generated inputs with their outputs, then how many attempts failed, with the first traceback."""
    pairs: list[tuple[Grid, Grid]] = []
    tracebacks: list[str] = []
    while len(pairs) < n_examples and len(pairs) + len(tracebacks) < n_attempts:
        try:
            grid = input_generator()
            pairs.append((grid, transform(grid.copy())))
        except Exception:  # noqa: BLE001 (whatever a program raises counts as a failure)
            tracebacks.append(traceback.format_exc())
    for number, (grid, output) in enumerate(pairs):
        print(f"Example {number}")
        print("Input:")
        show_colored_grid(grid)
        print("Output:")
        show_colored_grid(output)
        print("\n\n---------------------\n\n")
    if tracebacks:
        total = len(pairs) + len(tracebacks)
        print(f"{len(tracebacks)}/{total} failures ({len(tracebacks) / total}). For example:")
        print(tracebacks[0])
