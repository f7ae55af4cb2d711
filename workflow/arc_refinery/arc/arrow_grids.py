"""Grids in Arrow, as lists of rows of cells: checked and converted many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arc_refinery.arc.grids import MAX_SIDE, N_COLORS, UNKNOWN, Grid, GridError, as_grid

SIDES = ("input", "output")  # the grids of a pair


@dataclass(frozen=True, slots=True)
class FlatGrids:
    """n grids in flat arrays."""

    heights: NDArray[np.int64]  # (n,)
    widths: NDArray[np.int64]  # (n,)
    cells: NDArray[np.uint8]  # (sum of heights * widths,), row by row

    @classmethod
    def from_grids(cls, grids: Sequence[Grid]) -> "FlatGrids":
        shapes = np.array([grid.shape for grid in grids], np.int64).reshape(-1, 2)
        cells = np.concatenate([grid.ravel() for grid in [*grids, UNKNOWN]]).astype(np.uint8, copy=False)
        return cls(shapes[:, 0], shapes[:, 1], cells)

    @classmethod
    def from_arrow(cls, grids: pa.Array, may_be_unknown: bool = False) -> "FlatGrids":
        """Read grids from an array of lists of lists of integers; raise `GridError` for the first that is not one."""
        if not _is_plain(grids, may_be_unknown):
            for grid in grids.to_pylist():
                if grid != [] or not may_be_unknown:
                    as_grid(grid)
            raise GridError("not a list of lists of integers")
        cells = grids.flatten().flatten().to_numpy().astype(np.uint8, copy=False)
        return cls(lengths_of(grids), _widths(grids), cells)

    def select(self, is_selected: NDArray[np.bool_]) -> "FlatGrids":
        """Return the grids i for which ``chosen[i]`` is true."""
        in_selected = np.repeat(is_selected, self.heights * self.widths)
        return FlatGrids(self.heights[is_selected], self.widths[is_selected], self.cells[in_selected])

    def to_arrow(self) -> pa.Array:
        rows = list_array(np.repeat(self.widths, self.heights), pa.array(self.cells.view(np.int8)))
        return list_array(self.heights, rows)

    def to_grids(self) -> list[Grid]:
        """Return the grids, each in its own memory."""
        ends = np.cumsum(self.heights * self.widths).tolist()
        sides = zip([0, *ends], ends, self.heights.tolist(), self.widths.tolist(), strict=False)
        return [self.cells[start:end].reshape(height, width).copy() for start, end, height, width in sides]


def pair_array(inputs: FlatGrids, outputs: FlatGrids) -> pa.Array:
    return pa.StructArray.from_arrays([inputs.to_arrow(), outputs.to_arrow()], SIDES)


def list_array(lengths: NDArray[np.int64], elements: pa.Array) -> pa.Array:
    """Split the elements into an array of lists of these lengths."""
    return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), elements)


def lengths_of(array: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = array.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def are_lists(array: pa.Array) -> bool:
    return (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)) and not array.null_count


def _widths(grids: pa.Array) -> NDArray[np.int64]:
    """Return the length of each grid's first row; 0 if it has no row."""
    heights = lengths_of(grids)
    has_rows = heights > 0
    widths = np.zeros_like(heights)
    widths[has_rows] = lengths_of(grids.flatten())[(np.cumsum(heights) - heights)[has_rows]]
    return widths


def _is_plain(grids: pa.Array, may_be_unknown: bool) -> bool:
    if not are_lists(grids) or not are_lists(rows := grids.flatten()):
        return False
    cells = rows.flatten()
    if not pa.types.is_integer(cells.type) or cells.null_count:
        return False
    heights, widths, values = lengths_of(grids), _widths(grids), cells.to_numpy()
    is_grid = (heights > 0) | (not may_be_unknown)
    sides = np.concatenate([heights[is_grid], widths[is_grid]])
    return (
        not sides.size
        or bool(sides.min() >= 1 and sides.max() <= MAX_SIDE and values.min() >= 0 and values.max() < N_COLORS)
    ) and np.array_equal(lengths_of(rows), np.repeat(widths, heights))
