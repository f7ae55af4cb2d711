"""Grids in Arrow, as lists of rows of cells: checked and converted many at a time."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arc_refinery.arc.grids import MAX_SIDE, N_COLORS, UNKNOWN, Grid, GridError, as_grid


def to_arrow(grids: Sequence[Grid]) -> pa.Array:
    heights, widths = np.array([grid.shape for grid in grids], np.int64).reshape(-1, 2).T
    cells = np.concatenate([grid.ravel() for grid in [*grids, UNKNOWN]]).astype(np.uint8, copy=False)
    return _lists(heights, _lists(np.repeat(widths, heights), pa.array(cells.view(np.int8))))


def from_arrow(grids: pa.Array, may_be_unknown: bool = False) -> list[Grid]:
    """Read grids, each into its own memory; raise `GridError` for the first that is not one."""
    if not _is_plain(grids, may_be_unknown):
        for grid in grids.to_pylist():
            if grid != [] or not may_be_unknown:
                as_grid(grid)
        raise GridError("not a list of lists of integers")
    cells = grids.flatten().flatten().to_numpy().astype(np.uint8, copy=False)
    heights, widths = _lengths(grids), _widths(grids)
    ends = np.cumsum(heights * widths).tolist()
    sides = zip([0, *ends], ends, heights.tolist(), widths.tolist(), strict=False)
    return [cells[start:end].reshape(height, width).copy() for start, end, height, width in sides]


def _lists(lengths: NDArray[np.int64], elements: pa.Array) -> pa.Array:
    """Split the elements into an array of lists of these lengths."""
    return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), elements)


def _lengths(array: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = array.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _widths(grids: pa.Array) -> NDArray[np.int64]:
    """Return the length of each grid's first row; 0 if it has no row."""
    heights = _lengths(grids)
    has_rows = heights > 0
    widths = np.zeros_like(heights)
    widths[has_rows] = _lengths(grids.flatten())[(np.cumsum(heights) - heights)[has_rows]]
    return widths


def _is_plain(grids: pa.Array, may_be_unknown: bool) -> bool:
    def are_lists(array: pa.Array) -> bool:
        return pa.types.is_list(array.type) and not array.null_count

    if not are_lists(grids) or not are_lists(rows := grids.flatten()):
        return False
    cells = rows.flatten()
    if not pa.types.is_integer(cells.type) or cells.null_count:
        return False
    heights, widths, values = _lengths(grids), _widths(grids), cells.to_numpy()
    is_grid = (heights > 0) | (not may_be_unknown)
    sides = np.concatenate([heights[is_grid], widths[is_grid]])
    return (
        not sides.size
        or bool(sides.min() >= 1 and sides.max() <= MAX_SIDE and values.min() >= 0 and values.max() < N_COLORS)
    ) and np.array_equal(_lengths(rows), np.repeat(widths, heights))
