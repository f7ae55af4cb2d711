"""Symmetries of grids: as objects that move coordinates, finding them, and making a sprite symmetric.

Detection scores every candidate by where it takes the occupied cells, so a grid may be incomplete or reach over its
edge. There is no public class for rotations; only `detect_rotational_symmetry` makes them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .measuring import Grid

# A number, or an integer array of them.
Coordinate: TypeAlias = Any


class _Mover(Protocol):
    """Methods that `orbit` and the detectors need; `MirrorSymmetry` has them without being a `Symmetry`."""

    def apply(self, x: Coordinate, y: Coordinate, iters: int = 1) -> tuple[Coordinate, Coordinate]: ...

    def _iter_range(self, grid_shape: tuple[int, ...]) -> tuple[int, int]: ...


class Symmetry:
    """Base class for `isinstance`; does nothing by itself. `MirrorSymmetry` is not a subclass."""

    def apply(self, x: Coordinate, y: Coordinate, iters: int = 1) -> Any:
        """Does nothing, returns None."""


class TranslationalSymmetry(Symmetry):
    """The pattern repeats every (translate_x, translate_y)."""

    def __init__(self, translate_x: float, translate_y: float) -> None:
        self.translate_x = translate_x
        self.translate_y = translate_y

    def apply(self, x: Coordinate, y: Coordinate, iters: int = 1) -> tuple[Coordinate, Coordinate]:
        """The point `iters` repetitions on; negative ones go back."""
        return _whole(x + iters * self.translate_x), _whole(y + iters * self.translate_y)

    def _iter_range(self, grid_shape: tuple[int, ...]) -> tuple[int, int]:
        shifts = (self.translate_x, self.translate_y)
        times = [math.ceil(size / abs(shift)) for size, shift in zip(grid_shape, shifts, strict=True) if shift != 0]
        most = max(times, default=0)
        return -most, most + 1

    def __repr__(self) -> str:
        return f"TranslationalSymmetry(translate_x={self.translate_x}, translate_y={self.translate_y})"


class MirrorSymmetry:
    """Reflection across x = mirror_x and y = mirror_y; None leaves that coordinate alone."""

    def __init__(self, mirror_x: float | None, mirror_y: float | None) -> None:
        self.mirror_x = mirror_x
        self.mirror_y = mirror_y

    def apply(self, x: Coordinate, y: Coordinate, iters: int = 1) -> tuple[Coordinate, Coordinate]:
        """The mirrored point for odd `iters`, otherwise x and y as they came."""
        if iters % 2 == 0:
            return x, y
        if self.mirror_x is not None:
            x = 2 * self.mirror_x - x
        if self.mirror_y is not None:
            y = 2 * self.mirror_y - y
        return _whole(x), _whole(y)

    def _iter_range(self, grid_shape: tuple[int, ...]) -> tuple[int, int]:
        return 0, 2

    def __repr__(self) -> str:
        return f"MirrorSymmetry(mirror_x={self.mirror_x}, mirror_y={self.mirror_y})"


class RotationalSymmetry(Symmetry):
    """Quarter turns round a centre; both coordinates are whole, or both end in .5."""

    def __init__(self, center_x: float, center_y: float) -> None:
        self.center_x = center_x
        self.center_y = center_y

    def apply(self, x: Coordinate, y: Coordinate, iters: int = 1) -> tuple[Coordinate, Coordinate]:
        """The point after `iters` quarter turns; a negative count does not turn back but stays."""
        dx, dy = x - self.center_x, y - self.center_y
        for _ in range(iters):
            dx, dy = dy, -dx
        return _whole(self.center_x + dx), _whole(self.center_y + dy)

    def _iter_range(self, grid_shape: tuple[int, ...]) -> tuple[int, int]:
        return 0, 4


def _whole(value: Coordinate) -> Coordinate:
    """Arrays truncated to ints, floats rounded half to even, ints as they are."""
    if isinstance(value, np.ndarray):
        return value.astype(int)
    return round(value) if isinstance(value, float) else value


def orbit(grid: Grid, x: int, y: int, symmetries: Sequence[_Mover]) -> list[tuple[Any, Any]]:
    """The points that (x, y) reaches by all combinations of the symmetries, in order, without leaving the grid.

    In the iteration order of the set that they were put into. Of the grid, only the shape matters.
    """
    n, m = grid.shape
    points = set()
    for counts in product(*(range(*symmetry._iter_range(grid.shape)) for symmetry in symmetries)):
        at_x, at_y = x, y
        for symmetry, count in zip(symmetries, counts, strict=True):
            at_x, at_y = symmetry.apply(at_x, at_y, count)
            if not (0 <= at_x < n and 0 <= at_y < m):
                break
        else:
            points.add((at_x, at_y))
    return list(points)


class _Fit(NamedTuple):
    """How many occupied cells a symmetry takes to an equal cell, outside the grid, and to an unequal one.

    Arrays of numbers where the symmetry stands for several, by having an array for a coordinate.
    """

    perfect: Any
    off: Any
    conflict: Any


def _fitter(grid: Grid, ignore_colors: Sequence[int], background: int | None) -> Callable[[_Mover], _Fit]:
    """A function that measures candidates on this grid; neither ignored colours nor background are occupied."""
    ignored = np.isin(grid, ignore_colors)
    occupied = ~ignored if background is None else ~ignored & (grid != background)
    xs, ys = np.nonzero(occupied)
    colors = grid[xs, ys]
    margin = sum(grid.shape)  # no symmetry takes a cell further out
    outside = grid.max(initial=0) + 1
    framed = np.pad(grid, margin, constant_values=outside)
    framed_ignored = np.pad(ignored, margin)

    def fit(symmetry: _Mover) -> _Fit:
        to_xs, to_ys = symmetry.apply(xs, ys)
        to = to_xs + margin, to_ys + margin
        target = framed[to]
        equal, off = target == colors, target == outside
        conflict = ~(equal | off | framed_ignored[to])
        return _Fit(*(cells.sum(axis=-1) for cells in (equal, off, conflict)))

    return fit


def _fits_of_centers(
    shape: tuple[int, int], kind: Callable[[Any, Any], _Mover], fit: Callable[[_Mover], _Fit]
) -> Iterator[tuple[tuple[float, float], _Fit]]:
    """Every centre on a cell, or between four of them, with the fit of the symmetry that has it."""
    n, m = shape
    xs, ys = np.arange(n)[:, None, None], np.arange(m)[:, None]  # the last axis is that of the cells
    on_cells, between = (np.stack(fit(kind(xs + half, ys + half)), axis=-1).tolist() for half in (0, 0.5))
    for x, y in product(range(n), range(m)):
        yield (x, y), _Fit(*on_cells[x][y])
        yield (x + 0.5, y + 0.5), _Fit(*between[x][y])


def detect_translational_symmetry(
    grid: Grid, ignore_colors: Sequence[int] = (0,), background: int | None = None
) -> list[TranslationalSymmetry]:
    """The best shift along x and the best along y, where there is one; a diagonal one only if there is neither.

    Among equal scores the most negative shift wins.
    """
    n, m = grid.shape
    fit = _fitter(grid, ignore_colors, background)

    def best(shifts: Iterable[tuple[int, int]]) -> list[TranslationalSymmetry]:
        listed = list(shifts)
        shifts_of_all: Any = np.array(listed, dtype=int).reshape(-1, 2, 1)
        perfect, off, conflict = fit(TranslationalSymmetry(shifts_of_all[:, 0], shifts_of_all[:, 1]))
        scores = (perfect - 0.01 * off - 100000 * conflict).tolist()
        scored = [(score, -dx - dy, (dx, dy)) for score, (dx, dy) in zip(scores, listed, strict=True) if score > 0]
        return [TranslationalSymmetry(*max(scored, key=lambda entry: entry[:2])[2])] if scored else []

    along_x = best((dx, 0) for dx in chain(range(1, n), range(-1, -n, -1)))
    along_y = best((0, dy) for dy in chain(range(1, m), range(-1, -m, -1)))
    return along_x + along_y or best(product(range(1, n), range(1, m)))


def detect_mirror_symmetry(
    grid: Grid, ignore_colors: Sequence[int] = (0,), background: int | None = None
) -> list[MirrorSymmetry]:
    """All reflections that tie for the best score, across x, then y, then both; none that has a conflict."""
    n, m = grid.shape
    fit = _fitter(grid, ignore_colors, background)
    across_x = ((x + half, None) for x in range(n) for half in (0, 0.5))
    across_y = ((None, y + half) for y in range(m) for half in (0, 0.5))
    across_one = ((mirrors, fit(MirrorSymmetry(*mirrors))) for mirrors in chain(across_x, across_y))
    best: float = 0
    found: list[tuple[float | None, float | None]] = []
    for mirrors, (perfect, off, conflict) in chain(across_one, _fits_of_centers((n, m), MirrorSymmetry, fit)):
        if conflict > 0 or perfect == 0:
            continue
        score = perfect - 0.01 * off
        if score > best:
            best, found = score, [mirrors]
        elif score == best:
            found.append(mirrors)
    return [MirrorSymmetry(*mirrors) for mirrors in found]


def detect_rotational_symmetry(
    grid: Grid, ignore_colors: Sequence[int] = (0,), background: int | None = None
) -> RotationalSymmetry | None:
    """The centre that fits one quarter turn best (the first of equals), or None; not a list."""
    n, m = grid.shape
    fit = _fitter(grid, ignore_colors, background)
    best: float = 0
    found = None
    for center, (perfect, off, conflict) in _fits_of_centers((n, m), RotationalSymmetry, fit):
        score = perfect - 5 * off - 1000 * conflict
        if score > best:
            best, found = score, center
    return None if found is None else RotationalSymmetry(*found)


def apply_symmetry(sprite: Grid, symmetry_type: str, background: int | None = 0) -> Grid:
    """Make the sprite symmetric in place and return it: "horizontal" mirrors x, "vertical" mirrors y.

    Of two mirrored cells the one with the smaller coordinate wins, unless it is background.
    """
    if symmetry_type == "horizontal":
        lines = sprite
    elif symmetry_type == "vertical":
        lines = sprite.T
    else:
        raise ValueError(f"symmetry_type must be 'horizontal' or 'vertical', not {symmetry_type!r}")
    n, _ = lines.shape
    near, far = lines[: n // 2], lines[::-1][: n // 2]
    near[:] = far[:] = np.where(near != background, near, far)
    return sprite


def apply_diagonal_symmetry(sprite: Grid, background: int | None = 0) -> Grid:
    """Make a square sprite symmetric across x = y, in place, and return it.

    Of two mirrored cells the one with x < y wins, unless it is background.
    """
    n, m = sprite.shape
    if n != m:
        raise ValueError(f"the sprite must be square, not {n} x {m}")
    xs, ys = np.triu_indices(n, k=1)
    near, far = sprite[xs, ys], sprite[ys, xs]
    sprite[xs, ys] = sprite[ys, xs] = np.where(near != background, near, far)
    return sprite
