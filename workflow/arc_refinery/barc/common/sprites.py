"""Everything that draws random numbers: scattered points, free places, and random sprites.

`randomly_scatter_points` uses `np.random`, the others the standard library's `random`. The order of the draws is
part of the promise (it is what reproduces a generator for a seed), down to drawing from lists of one element.
"""

import random
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .drawing import blit
from .measuring import Grid, grow, is_contiguous, neighborhood
from .symmetry import apply_diagonal_symmetry, apply_symmetry

# A side of a sprite, or a list or range to choose it from.
Sides: TypeAlias = int | list[int] | range

_AXIS_MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]
_MOVES = {4: _AXIS_MOVES, 8: [*_AXIS_MOVES, (1, 1), (1, -1), (-1, 1), (-1, -1)]}


def randomly_scatter_points(grid: Grid, color: int, density: float = 0.5, background: int = 0) -> Grid:
    """Colour background cells in place until they make up `density` (0..1) of the whole grid; returns the grid.

    Never ends if there are too few background cells.
    """
    n, m = grid.shape
    placed = 0
    while placed < density * n * m:
        x, y = np.random.randint(0, n), np.random.randint(0, m)
        if grid[x, y] == background:
            grid[x, y] = color
            placed += 1
    return grid


def randomly_spaced_indices(max_len: int, n_indices: int, border_size: int = 1, padding: int = 1) -> NDArray[np.int64]:
    """Sorted indices below `max_len`, more than `padding` apart; an IndexError when there is no room left.

    With a border they run from border_size to max_len - 3, whatever its size.
    """
    if border_size > 0:
        return randomly_spaced_indices(max_len - border_size - 2, n_indices, 0, padding) + border_size
    positions = range(max_len)
    chosen: list[int] = []
    while len(chosen) < n_indices:
        assert hasattr(padding, "__index__"), f"padding must be an int, not {padding!r}"
        chosen.append(random.choice([i for i in positions if all(abs(i - other) > padding for other in chosen)]))
    return np.array(sorted(chosen), dtype=np.int64)


def random_free_location_for_sprite(
    grid: Grid,
    sprite: Grid,
    background: int = 0,
    border_size: int = 0,
    padding: int = 0,
    padding_connectivity: int = 8,
) -> tuple[int, int]:
    """An (x, y) where the sprite covers only background of the grid; a ValueError if there is none.

    The sprite stays `border_size` cells off the edges and `padding` cells off what is in the grid.
    """
    n, m = grid.shape
    width, height = sprite.shape
    blocked = grid != background
    if padding > 0:
        blocked = grow(blocked, neighborhood(padding_connectivity), padding)
    xs, ys = np.nonzero(sprite != background)

    def is_free(x: int, y: int) -> bool:
        at_x, at_y = xs + x, ys + y
        inside = (at_x >= 0) & (at_x < n) & (at_y >= 0) & (at_y < m)
        return bool(inside.all()) and not blocked[at_x, at_y].any()

    places = [
        (x, y)
        for x in range(border_size, n - border_size - width + 1)
        for y in range(border_size, m - border_size - height + 1)
        if is_free(x, y)
    ]
    if not places:
        raise ValueError("no free location for the sprite")
    return random.choice(places)


def random_free_location_for_object(*args: Any, **kwargs: Any) -> tuple[int, int]:
    """`random_free_location_for_sprite` under another name."""
    return random_free_location_for_sprite(*args, **kwargs)


def generate_sprite(
    n: int,
    m: int,
    symmetry_type: str,
    fill_percentage: float = 0.5,
    max_colors: int = 9,
    color_palate: Any = None,
    connectivity: int = 4,
    background: int = 0,
) -> Grid:
    """A random n x m sprite: a random walk that colours `fill_percentage` (0..1) of the cells, made symmetric.

    `symmetry_type`: "not_symmetric", "horizontal", "vertical", "diagonal", "mirror" (both axes, the walk in a
    quarter) or "radial" (quarter turns; square only). Only "mirror" is repeated until it is contiguous.
    """
    palette = _draw_palette(max_colors, background) if color_palate is None else color_palate
    while True:
        sprite = _walked_sprite(n, m, symmetry_type, fill_percentage, palette, connectivity, background)
        if symmetry_type != "mirror" or is_contiguous(sprite, background, connectivity):
            return sprite


def _draw_palette(max_colors: int, background: int) -> list[int]:
    count = 1
    while count < max_colors and random.random() < 0.3:
        count += 1
    return random.sample([color for color in range(10) if color != background], count)


def _walked_sprite(
    n: int, m: int, symmetry_type: str, fill: float, palette: Any, connectivity: int, background: int
) -> Grid:
    """One try of `generate_sprite`."""
    sprite = np.full((n, m), background)
    region = sprite
    if symmetry_type in ("mirror", "radial"):
        assert symmetry_type == "mirror" or n == m, f"a radial sprite must be square, not {n} x {m}"
        region = sprite[: (n + 1) // 2, : (m + 1) // 2]
    width, height = region.shape
    flipped = False
    match symmetry_type:
        case "not_symmetric" | "mirror":
            start = random.randint(0, width - 1), random.randint(0, height - 1)
        case "horizontal":
            start = random.randint(0, width - 1), height // 2
        case "vertical":
            start = width // 2, random.randint(0, height - 1)
        case "diagonal":
            flipped = random.choice([True, False])
            x = random.randint(0, width - 1)
            start = x, x if flipped else width - 1 - x
        case "radial":
            start = width - 1, height - 1
        case _:
            raise ValueError(f"unknown symmetry_type {symmetry_type!r}")
    if connectivity not in _MOVES:
        raise ValueError(f"connectivity must be 4 or 8, not {connectivity!r}")
    _walk(region, start, fill, palette, _MOVES[connectivity], background)
    match symmetry_type:
        case "horizontal" | "vertical":
            apply_symmetry(sprite, symmetry_type, background)
        case "diagonal":
            apply_diagonal_symmetry(sprite[::-1] if flipped else sprite, background)
        case "mirror":
            _unfold(sprite, region.copy())
        case "radial":
            for _ in range(3):
                # A view on purpose: each copied cell may be read again later.
                blit(sprite, np.rot90(sprite), background=background)
        case _:
            pass
    return sprite


def _walk(
    region: Grid, start: tuple[int, int], fill: float, palette: Any, moves: list[tuple[int, int]], background: int
) -> None:
    """Colour the cells of a random walk in place, until `fill` of the region is not background."""
    n, m = region.shape
    x, y = start
    index = 0
    while np.count_nonzero(region != background) < fill * n * m:
        region[x, y] = palette[index]
        if random.random() < 0.33:
            index = random.choice(range(len(palette)))
        dx, dy = random.choice(moves)
        if 0 <= x + dx < n and 0 <= y + dy < m:
            x, y = x + dx, y + dy


def _unfold(sprite: Grid, quarter: Grid) -> None:
    """Fill the sprite with the quarter and its mirror images; on an odd side they share the middle line."""
    right, down = sprite.shape[0] // 2, sprite.shape[1] // 2
    blit(sprite, quarter)
    blit(sprite, quarter[::-1], right, 0)
    blit(sprite, quarter[:, ::-1], 0, down)
    blit(sprite, quarter[::-1, ::-1], right, down)


def random_sprite(
    n: Sides,
    m: Sides,
    density: float = 0.5,
    symmetry: str | None = None,
    color_palette: Any = None,
    connectivity: int = 4,
    background: int = 0,
) -> Grid:
    """A random contiguous sprite that touches all four edges of its n x m cells.

    A side may be a list or a range to choose from, but not a tuple. `symmetry` as in `generate_sprite`, by default any
    that fits. `density` (0..1) varies a little, except for small sides, which want at least a certain one.
    """
    widths, heights = _choices(n), _choices(m)
    squares = [(a, b) for a in widths for b in heights if a == b]
    while True:
        kind = symmetry or random.choice(
            ["horizontal", "vertical", "not_symmetric", "mirror"] + (["diagonal", "radial"] if squares else [])
        )
        if kind in ("diagonal", "radial"):
            width, height = random.choice(squares)
        else:
            width, height = random.choice(widths), random.choice(heights)
        if 0 in (width, height):
            raise ValueError(f"a sprite needs at least one cell, not {width} x {height}")
        fill = _draw_density(width, height, density)
        sprite = generate_sprite(
            width,
            height,
            kind,
            fill_percentage=fill,
            color_palate=color_palette,
            connectivity=connectivity,
            background=background,
        )
        assert is_contiguous(sprite, background, connectivity), "the sprite is not contiguous"
        occupied = sprite != background
        if all(edge.any() for edge in (occupied[0], occupied[-1], occupied[:, 0], occupied[:, -1])):
            return sprite


def _choices(sides: Sides) -> list[int]:
    return list(sides) if isinstance(sides, list | range) else [sides]


def _draw_density(width: int, height: int, density: float) -> float:
    if 1 in (width, height):
        return 1
    if 2 in (width, height):
        return max(density, 0.6)
    if 3 in (width, height):
        return max(density, 0.5)
    if density == 1:
        return 1
    return min(max(random.gauss(density, 0.1), 0.4), 0.95)
