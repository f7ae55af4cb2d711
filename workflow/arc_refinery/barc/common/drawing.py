"""Writing into grids: filling, lines, copying sprites; and the two ways to redraw one (scaled, shifted).

`flood_fill`, `draw_line` and the `blit` functions change the grid that they are given. Nothing wraps round an edge:
what falls outside is dropped. A value is cast to the grid's dtype as NumPy assignment does.
"""

from collections.abc import Container
from typing import Any

import numpy as np

from .measuring import Grid, neighbor_steps


def flood_fill(grid: Grid, x: int, y: int, color: int, connectivity: int = 4) -> None:
    """Recolour, in place, the region of equal colour around (x, y).

    A negative coordinate is accepted as NumPy does for the start; its neighbours are found by counting from the
    raw number, so from -1 the fill goes to 0.
    """
    old = grid[x, y]
    assert connectivity in (4, 8), f"connectivity must be 4 or 8, not {connectivity!r}"
    if grid.dtype.type(color) == old:
        return
    n, m = grid.shape
    # Depth first in the order of the steps: from a negative start, one cell has two raw addresses that lead to
    # different neighbours, and the one that is visited first decides how far the fill goes.
    steps = neighbor_steps(connectivity)[::-1]
    waiting = [(x, y)]
    while waiting:
        x, y = waiting.pop()
        if grid[x, y] != old:
            continue
        grid[x, y] = color
        waiting += [(x + dx, y + dy) for dx, dy in steps if _can_step(x, dx, n) and _can_step(y, dy, m)]


def _can_step(position: int, step: int, size: int) -> bool:
    if step < 0:
        return position > 0
    return step == 0 or position < size - 1


def draw_line(
    grid: Grid,
    x: int,
    y: int,
    end_x: int | None = None,
    end_y: int | None = None,
    length: int | None = None,
    direction: tuple[int, int] | None = None,
    color: int | None = None,
    stop_at_color: Container[Any] = (),
) -> tuple[int, int]:
    """Paint cells in place from (x, y) on, and return the last one painted (the start if there was none).

    Only the signs of `direction` count. An end overrides length and direction, and is not aimed at: the line runs
    straight or along the diagonal, for as many cells as the longer of the two distances. It continues through cells
    outside the grid, and ends before a cell whose colour is in `stop_at_color`. Default length: twice the larger side.
    """
    assert (end_x is None) == (end_y is None), "give both end_x and end_y, or neither"
    assert x == int(x) and y == int(y), f"the start must be whole numbers, not ({x!r}, {y!r})"
    x, y = int(x), int(y)
    n, m = grid.shape
    if end_x is not None and end_y is not None:
        length = max(abs(end_x - x), abs(end_y - y)) + 1
        direction = (end_x - x, end_y - y)
    if length is None:
        length = 2 * max(n, m)
    if direction is None:
        raise TypeError("give a direction, or an end")
    dx, dy = (part // abs(part) if part != 0 else part for part in direction)

    stop_x, stop_y = x, y
    for i in range(length):
        at_x, at_y = x + i * dx, y + i * dy
        if not (0 <= at_x < n and 0 <= at_y < m):
            continue
        if grid[at_x, at_y] in stop_at_color:
            break
        grid[at_x, at_y] = color
        stop_x, stop_y = at_x, at_y
    return stop_x, stop_y


def blit(grid: Grid, sprite: Grid, x: int = 0, y: int = 0, background: int | None = None) -> Grid:
    """Copy the sprite into the grid with its cell [0, 0] at (x, y), truncated to ints; returns the grid.

    Sprite cells of the colour `background` are transparent; None copies everything.
    """
    x, y = int(x), int(y)
    n, m = grid.shape
    width, height = sprite.shape
    # Cell by cell, because a sprite may be a view of the grid: later reads see earlier writes.
    for i in range(width):
        for j in range(height):
            if (background is None or sprite[i, j] != background) and 0 <= x + i < n and 0 <= y + j < m:
                grid[x + i, y + j] = sprite[i, j]
    return grid


def blit_object(grid: Grid, obj: Grid, background: int | None = 0) -> Grid:
    """Copy an object (an array with its position in it) into the grid; returns the grid."""
    return blit(grid, obj, background=background)


def blit_sprite(grid: Grid, sprite: Grid, x: int, y: int, background: int | None = 0) -> Grid:
    """Copy a sprite into the grid at (x, y), which must be given; returns the grid."""
    return blit(grid, sprite, x, y, background)


def scale_sprite(sprite: Grid, factor: int) -> Grid:
    """A new array in which each cell is a block of factor x factor cells; keeps the dtype."""
    return np.kron(sprite, np.ones((factor, factor), dtype=sprite.dtype))


def scale_pattern(pattern: Grid, scale_factor: int) -> Grid:
    """`scale_sprite` under its old name; says so on stdout each time."""
    print("scale_pattern: DEPRECATED, switch to scale_sprite")
    return scale_sprite(pattern, scale_factor)


def translate(obj: Grid, x: int, y: int, background: int = 0) -> Grid:
    """A new array of the same shape and dtype with the content shifted by (x, y) over background.

    Offsets are not rounded: with a float one, even 1.0, a cell that lands inside is an IndexError.
    """
    n, m = obj.shape
    shifted = np.full_like(obj, background)
    for i in range(n):
        for j in range(m):
            if 0 <= i + x < n and 0 <= j + y < m:
                shifted[i + x, j + y] = obj[i, j]
    return shifted
