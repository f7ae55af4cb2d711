"""Grids: 2-D uint8 arrays of colours 0..9 with sides of 1..30, as ARC defines them (Chollet 2019)."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class _GridColumn:
    """Storage of grids in files of records: lists of rows of cells."""

    def arrow_type(self) -> "pa.DataType":
        import pyarrow as pa

        return pa.list_(pa.list_(pa.int8()))

    def to_arrow(self, grids: "Sequence[Grid]") -> "pa.Array":
        from arc_refinery.arc.arrow_grids import to_arrow

        return to_arrow(grids)

    def from_arrow(self, array: "pa.Array", path: str) -> "list[Grid]":
        """Return checked grids. Only the output of a test pair may be `UNKNOWN`."""
        from arc_refinery.arc.arrow_grids import from_arrow

        try:
            return from_arrow(array, may_be_unknown=path in ("test.output", "detail.test.output"))
        except GridError as error:
            raise GridError(f"a grid is {error}") from None


Grid = Annotated[NDArray[np.uint8], _GridColumn()]

N_COLORS = 10
MAX_SIDE = 30
UNKNOWN: Grid = np.empty((0, 0), np.uint8)  # output of a test pair with an unpublished solution: equals no grid


class GridError(ValueError):
    """A value is not a grid; the message says why."""


class TooLargeError(GridError):
    """A grid has a longer side than ARC's grids have."""


def as_grid(value: Any) -> Grid:
    """Convert nested lists or an array of integers to a grid; raise `GridError` if it is not an ARC grid."""
    try:
        array = np.array(value)
    except ValueError:
        raise GridError("rows of different lengths, expected a rectangle") from None
    if array.ndim != 2:
        raise GridError(f"{array.ndim}-D, expected 2-D rows of cells")
    if not all(1 <= side <= MAX_SIDE for side in array.shape):
        raise (TooLargeError if array.size else GridError)(
            f"shape {array.shape[0]}x{array.shape[1]}, expected sides of 1..{MAX_SIDE}"
        )
    if isinstance(value, list) and any(isinstance(cell, bool) for row in value for cell in row):
        raise GridError("cells of type bool, expected integers")  # numpy reads them as 0 and 1
    if array.dtype.kind not in "iu":
        raise GridError(f"cells of type {array.dtype}, expected integers")
    if array.min() < 0 or array.max() >= N_COLORS:
        raise GridError(f"cells {array.min()}..{array.max()}, expected 0..{N_COLORS - 1}")
    return array.astype(np.uint8)


def fingerprint(grids: Sequence[Grid]) -> str:
    """Return a hash of a list of grids: 16 hexadecimal digits of SHA-256."""
    digest = hashlib.sha256()
    for grid in grids:
        digest.update(bytes(grid.shape) + grid.tobytes())
    return digest.hexdigest()[:16]
