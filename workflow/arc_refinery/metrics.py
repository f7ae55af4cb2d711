"""How good grids are: the pixel score and the share of correct grids."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from arc_refinery.grids import Grid

NO_COLOR = 255


def pixel_score(guess: Grid, truth: Grid) -> float:
    """Share of equal cells, 0..1; 1 only for equal grids, and the same when guess and truth are swapped.

    Equal shapes: equal cells in place / all cells. Unequal shapes: the best, over all offsets at which the two grids
    overlap in a cell or more, of equal cells / area of the bounding box that holds both grids at that offset.
    """
    if guess.shape == truth.shape:
        return np.count_nonzero(guess == truth) / guess.size
    small, large = (guess, truth) if guess.size <= truth.size else (truth, guess)
    if not small.size:  # nothing is like a grid that is UNKNOWN
        return 0.0
    return float((_equal_cells(small, large) / _box_areas(small.shape, large.shape)).max())


def mean_pixel_score(guesses: Sequence[Grid], truths: Sequence[Grid]) -> float:
    return fmean([pixel_score(guess, truth) for guess, truth in zip(guesses, truths, strict=True)])


def correct_grids(guesses: Sequence[Grid], truths: Sequence[Grid]) -> float:
    """Share of grids that are equal in shape and in every cell, 0..1."""
    pairs = zip(guesses, truths, strict=True)
    return fmean([guess.shape == truth.shape and not np.count_nonzero(guess != truth) for guess, truth in pairs])


def _equal_cells(small: Grid, large: Grid) -> NDArray[np.uint16]:
    """Number of equal cells at each offset, (n_downs * n_rights,), from the small grid at the upper left to the lower
    right; the corner cells of the two grids meet at the first and the last offset.

    The large grid lies in a frame that is as wide as there are offsets to the right, its columns at the right end: a
    small grid that sticks out there goes on in the empty left margin of the next row. Thus the frame's cells that one
    cell of the small grid meets at all offsets follow each other in memory, and one comparison does for all of them.
    """
    height, width = small.shape
    n_downs, n_rights = height + large.shape[0] - 1, width + large.shape[1] - 1
    # small grids take the fixed time of each call, a third more of it with np.full and as_strided in this place
    frame = np.empty((n_downs + height, n_rights), np.uint8)
    frame.fill(NO_COLOR)
    frame[height - 1 : n_downs, width - 1 :] = large
    n_offsets = n_downs * n_rights
    met: NDArray[np.uint8] = np.ndarray((height, width, n_offsets), np.uint8, frame, strides=(n_rights, 1, 1))
    equal = (small[:, :, np.newaxis] == met).reshape(-1, n_offsets)
    n_equal: NDArray[np.uint16] = np.add.reduce(equal, axis=0, dtype=np.uint16)
    return n_equal


@lru_cache(maxsize=512)  # 28 kB or less each
def _box_areas(small: tuple[int, int], large: tuple[int, int]) -> NDArray[np.float64]:
    """Cells of the box that holds two grids of these shapes at each offset, (n_downs * n_rights,) as `_equal_cells`."""
    heights, widths = (_spans(*lengths) for lengths in zip(small, large, strict=True))
    areas: NDArray[np.float64] = np.multiply.outer(heights, widths).ravel()
    return areas


def _spans(small: int, large: int) -> NDArray[np.float64]:
    """What two stretches of these lengths cover from end to end, for all starts of the first at which they overlap."""
    starts = np.arange(1.0 - small, large)
    spans: NDArray[np.float64] = np.maximum(starts + small, large) - np.minimum(starts, 0)
    return spans
