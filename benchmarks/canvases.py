"""Random input grids in the manner of ARC's: one kind for each thing that the benchmark's programs are about.

`palette` holds the nine colours in random order; a program names the first of them, so its input must contain them.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

MAX_SIDE = 30

Grid = NDArray[np.uint8]
Rng = np.random.Generator


def _sides(rng: Rng, low: int = 5, high: int = 20) -> tuple[int, int]:
    """Return the sides of a grid: up to 20 x 20, as most of ARC's are, and larger in one case of ten."""
    n, m = rng.integers(low, high + 1, size=2)
    if high == 20 and rng.random() < 0.1:
        n, m = rng.integers(21, MAX_SIDE + 1, size=2)
    return int(n), int(m)


def _empty(rng: Rng, low: int = 5, high: int = 20) -> Grid:
    return np.zeros(_sides(rng, low, high), np.uint8)


def _some(rng: Rng, colors: Sequence[int], shape: tuple[int, ...], density: float) -> Grid:
    """Each cell coloured with this probability."""
    return np.where(rng.random(shape) < density, rng.choice(colors, shape), 0).astype(np.uint8)


def _sprite(rng: Rng, colors: Sequence[int], largest: int) -> Grid:
    """A connected shape: the trace of a random walk; in one of five cases with several colours."""
    n, m = (int(side) for side in rng.integers(2, largest + 1, size=2))
    sprite = np.zeros((n, m), np.uint8)
    x, y = int(rng.integers(n)), int(rng.integers(m))
    mixed = rng.random() < 0.2
    trace = rng.choice(colors if mixed else [rng.choice(colors)], 2 * n * m)
    for color, direction in zip(trace, rng.integers(4, size=trace.size).tolist(), strict=True):
        sprite[x, y] = color
        dx, dy = ((0, 1), (1, 0), (0, -1), (-1, 0))[direction]
        x, y = min(max(x + dx, 0), n - 1), min(max(y + dy, 0), m - 1)
    return sprite


def _scatter(rng: Rng, grid: Grid, make_sprite: Callable[[], Grid], n_wanted: int) -> Grid:
    """Draw sprites at random places where they do not touch; fewer than wanted where there is no room."""
    for _ in range(5 * n_wanted):
        sprite = make_sprite()
        n, m = sprite.shape
        if n > grid.shape[0] or m > grid.shape[1]:
            continue
        x, y = rng.integers(grid.shape[0] - n + 1), rng.integers(grid.shape[1] - m + 1)
        if not grid[max(x - 1, 0) : x + n + 1, max(y - 1, 0) : y + m + 1].any():
            grid[x : x + n, y : y + m] = sprite
            n_wanted -= 1
        if n_wanted == 0:
            break
    return grid


def _shapes(rng: Rng, colors: Sequence[int], largest: int = 4, grid: Grid | None = None) -> Grid:
    grid = _empty(rng) if grid is None else grid
    return _scatter(rng, grid, lambda: _sprite(rng, colors, largest), int(rng.integers(2, 8)))


def _rectangles(rng: Rng, colors: Sequence[int], hollow: bool = False) -> Grid:
    def rectangle() -> Grid:
        sprite = np.full(rng.integers(2 + hollow, 8, size=2), rng.choice(colors), np.uint8)
        if hollow:
            sprite[1:-1, 1:-1] = 0
        return sprite

    return _scatter(rng, _empty(rng, 7), rectangle, int(rng.integers(2, 6)))


def _dots(rng: Rng, colors: Sequence[int]) -> Grid:
    return _scatter(rng, _empty(rng), lambda: np.full((1, 1), rng.choice(colors), np.uint8), int(rng.integers(2, 9)))


def _mirrored(rng: Rng, palette: list[int]) -> Grid:
    """A picture with both mirror symmetries, and a rectangle of the first colour that hides a part of it."""
    n, m = _sides(rng, 4, 12)
    quarter = _some(rng, palette[1:6], (n, m), 0.8)
    grid = np.block([[quarter, quarter[:, ::-1]], [quarter[::-1], quarter[::-1, ::-1]]])
    dx, dy = rng.integers(2, min(n, m) + 1, size=2)
    x, y = rng.integers(n), rng.integers(m)
    grid[x : x + dx, y : y + dy] = palette[0]
    return grid


def _tiled(rng: Rng, palette: list[int]) -> Grid:
    """A small tile repeated over the grid, with black holes."""
    tile = rng.choice(palette[:5], rng.integers(2, 6, size=2)).astype(np.uint8)
    n, m = _sides(rng, 8)
    grid = np.tile(tile, (n // tile.shape[0] + 1, m // tile.shape[1] + 1))[:n, :m]
    for _ in range(int(rng.integers(1, 4))):
        x, y = rng.integers(n), rng.integers(m)
        grid[x : x + 3, y : y + 3] = 0
    return grid


def _halves(rng: Rng, palette: list[int]) -> Grid:
    n, m = _sides(rng, 3, 10)
    line = np.full((n, 1), palette[4], np.uint8)
    return np.hstack([_some(rng, palette[:1], (n, m), 0.5), line, _some(rng, palette[1:2], (n, m), 0.5)])


def _lattice(rng: Rng, palette: list[int]) -> Grid:
    """Cells with some pixels in them, between lines of the first color."""
    side, n, m = (int(value) for value in rng.integers(3, 6, size=3))
    grid = _some(rng, palette[1:4], (n * (side + 1) - 1, m * (side + 1) - 1), 0.25)
    grid[0, 0] = palette[1]
    grid[side :: side + 1] = palette[0]
    grid[:, side :: side + 1] = palette[0]
    return grid


def _bars(rng: Rng, palette: list[int]) -> Grid:
    grid = _empty(rng)
    for y in range(0, grid.shape[1], 2):
        grid[rng.integers(grid.shape[0]) :, y] = rng.choice(palette[:5])
    return grid


def _pairs(rng: Rng, palette: list[int]) -> Grid:
    """Pairs of pixels of one colour in a row or in a column."""
    grid = _empty(rng)
    for color in palette[1 : rng.integers(3, 6)]:
        lines = (grid, grid.T)[rng.integers(2)]
        lines[rng.integers(len(lines)), rng.choice(lines.shape[1], 2, replace=False)] = color
    return grid


def _speckled(rng: Rng, palette: list[int]) -> Grid:
    """Rectangles under noise."""
    grid = _rectangles(rng, palette[:3])
    noise = rng.random(grid.shape) < 0.12
    grid[noise] = _some(rng, palette[:4], grid.shape, 0.7)[noise]
    return grid


def _framed(rng: Rng, palette: list[int]) -> Grid:
    """A frame of the first colour, with some pixels inside and outside."""
    grid = _some(rng, palette[1:4], _sides(rng, 8), 0.12)
    x, y = (int(rng.integers(0, side // 3)) for side in grid.shape)
    dx, dy = (int(rng.integers(4, side - 3)) if side > 7 else 4 for side in grid.shape)
    box = grid[x : x + dx, y : y + dy]
    box[[0, -1]] = palette[0]
    box[:, [0, -1]] = palette[0]
    return grid


def _two_things(rng: Rng, palette: list[int], largest: int) -> Grid:
    """One thing of the first colour and one of the second, at opposite ends."""
    first, second = (
        _sprite(rng, [color], largest) if largest > 1 else np.array([[color]], np.uint8) for color in palette[:2]
    )
    grid = _empty(rng, 10)
    x, y = rng.integers(grid.shape[0] - largest, size=2)
    grid[x : x + first.shape[0], : first.shape[1]] = first
    grid[y : y + second.shape[0], -second.shape[1] :] = second
    return grid if rng.random() < 0.5 else grid.T.copy()


def _maze(rng: Rng, palette: list[int]) -> Grid:
    """Walls of the first colour, one pixel of the second and one of the third."""
    grid = _some(rng, palette[:1], _sides(rng), 0.25)
    cells = rng.choice(grid.size, 2, replace=False)
    grid.flat[cells] = palette[1:3]
    return grid


def _legend(rng: Rng, palette: list[int]) -> Grid:
    grid = _empty(rng)
    _shapes(rng, palette[:1], grid=grid[2:])
    grid[0] = _some(rng, palette[1:6], (grid.shape[1],), 0.7)
    return grid


def _diagonals(rng: Rng, palette: list[int]) -> Grid:
    n, m = _sides(rng)
    period = int(rng.integers(3, 6))
    number = np.add.outer(np.arange(n), np.arange(m))
    colors = np.array(palette[:period], np.uint8)
    return np.where(number < 2 * period, colors[number % period], 0).astype(np.uint8)


def _square(rng: Rng, palette: list[int]) -> Grid:
    side = min(_sides(rng))
    return _some(rng, palette[:4], (side, side), 0.5)


def _enlarged(rng: Rng, palette: list[int]) -> Grid:
    factor = int(rng.integers(2, 5))
    return np.kron(_some(rng, palette[:4], _sides(rng, 2, 6), 0.6), np.ones((factor, factor), np.uint8))


def _stretched(rng: Rng, palette: list[int]) -> Grid:
    grid = _some(rng, palette[:4], _sides(rng, 3, 7), 0.8)
    for axis in (0, 1):
        grid = grid.repeat(rng.integers(1, 5, grid.shape[axis]), axis)
    return grid


CANVASES: dict[str, Callable[[Rng, list[int]], Grid]] = {
    "bars": _bars,
    "blobs": lambda rng, palette: _shapes(rng, palette[:1]),
    "blobs_small": lambda rng, palette: _shapes(rng, palette[:1], largest=3),
    "diagonals": _diagonals,
    "dots": lambda rng, palette: _dots(rng, palette[:4]),
    "framed": _framed,
    "halves": _halves,
    "lattice": _lattice,
    "legend": _legend,
    "maze": _maze,
    "noise": lambda rng, palette: _some(rng, palette[:4], _sides(rng), rng.uniform(0.2, 0.5)),
    "noise_small": lambda rng, palette: _some(rng, palette[:4], _sides(rng, 5, 10), 0.3),
    "objects": lambda rng, palette: _shapes(rng, palette[:4]),
    "pairs": _pairs,
    "rectangles": lambda rng, palette: _rectangles(rng, palette[:4]),
    "rings": lambda rng, palette: _rectangles(rng, palette[:4], hollow=True),
    "small": lambda rng, palette: _some(rng, palette[:4], _sides(rng, 2, 5), 0.6),
    "speckled": _speckled,
    "square": _square,
    "stretched": _stretched,
    "symmetric": _mirrored,
    "tiled": _tiled,
    "two": lambda rng, palette: _two_things(rng, palette, 4),
    "two_dots": lambda rng, palette: _two_things(rng, palette[1:3], 1),
    "upscaled": _enlarged,
}
