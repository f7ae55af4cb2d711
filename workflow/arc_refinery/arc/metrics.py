"""Metrics of grids: the pixel score and the share of correct grids.

pixel_score([[1, 0]], [[1, 2]]) = 0.5    pixel_score([[1, 0]], [[1], [0]]) = 0.25    (one cell of 2 x 2)
"""

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from arc_refinery.arc.grids import Grid

NO_COLOR = 255


def pixel_score(guess: Grid, truth: Grid) -> float:
    """Return the share of equal cells, 0..1; 1 only for equal grids, and symmetric in guess and truth.

    Equal shapes: equal cells / all cells. Unequal shapes: the most cells that are equal at any offset of the two grids
    / (larger height x larger width), as in the published runs.
    """
    if guess.shape == truth.shape:
        return np.count_nonzero(guess == truth) / guess.size
    small, large = (guess, truth) if guess.size <= truth.size else (truth, guess)
    if not small.size:  # UNKNOWN: similar to no grid
        return 0.0
    height, width = map(max, small.shape, large.shape)
    return float(_equal_cells(small, large).max() / (height * width))


def mean_pixel_score(guesses: Sequence[Grid], truths: Sequence[Grid]) -> float:
    return fmean([pixel_score(guess, truth) for guess, truth in zip(guesses, truths, strict=True)])


def correct_grids(guesses: Sequence[Grid], truths: Sequence[Grid]) -> float:
    """Return the share of grids that are equal in shape and in every cell, 0..1."""
    pairs = zip(guesses, truths, strict=True)
    return fmean([guess.shape == truth.shape and not np.count_nonzero(guess != truth) for guess, truth in pairs])


def _equal_cells(small: Grid, large: Grid) -> NDArray[np.uint16]:
    """Count equal cells at each offset of the small grid, (n_downs * n_rights,), from upper left to lower right.

    At the first and the last offset only corner cells of the two grids meet. The large grid is in the rightmost columns
    of a frame as wide as the number of offsets to the right: a small grid that extends beyond the frame wraps into the
    empty left margin of the next row. So the cells that one cell of the small grid meets at all offsets are contiguous
    in memory, and one comparison covers them all.
    """
    height, width = small.shape
    n_downs, n_rights = height + large.shape[0] - 1, width + large.shape[1] - 1
    # small grids cost the overhead of each call: a third more with np.full and as_strided here
    frame = np.empty((n_downs + height, n_rights), np.uint8)
    frame.fill(NO_COLOR)
    frame[height - 1 : n_downs, width - 1 :] = large
    n_offsets = n_downs * n_rights
    met: NDArray[np.uint8] = np.ndarray((height, width, n_offsets), np.uint8, frame, strides=(n_rights, 1, 1))
    equal = (small[:, :, np.newaxis] == met).reshape(-1, n_offsets)
    n_equal: NDArray[np.uint16] = np.add.reduce(equal, axis=0, dtype=np.uint16)
    return n_equal
