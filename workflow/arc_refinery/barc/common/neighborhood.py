"""Shared by the other modules: the types of arrays, and which cells are neighbours.

A grid is a 2-D array of colour numbers, indexed `grid[x, y]`: x is axis 0, y is axis 1, so `grid.shape` is
(size in x, size in y). Nothing here validates a grid; an array that is not 2-D fails where its shape is unpacked.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Grid: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]

AXIS_STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))
DIAGONAL_STEPS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def neighbor_steps(connectivity: int) -> tuple[tuple[int, int], ...]:
    """The (dx, dy) to each neighbour of a cell: 4 or 8 of them; any other connectivity is a ValueError."""
    if connectivity == 4:
        return AXIS_STEPS
    if connectivity == 8:
        return AXIS_STEPS + DIAGONAL_STEPS
    raise ValueError(f"connectivity must be 4 or 8, not {connectivity!r}")


def neighborhood(connectivity: int) -> Mask:
    """A 3 x 3 mask of a cell and its neighbours, as SciPy wants it."""
    mask = np.zeros((3, 3), dtype=bool)
    mask[1, 1] = True
    for dx, dy in neighbor_steps(connectivity):
        mask[1 + dx, 1 + dy] = True
    return mask


def label_components(mask: Mask, neighbors: Mask) -> tuple[NDArray[np.int_], int]:
    """Number the components of the True cells 1, 2, ... by their first cell in row-major order; 0 elsewhere."""
    labels, count = ndimage.label(mask, structure=neighbors)
    return labels, count


def grow(mask: Mask, neighbors: Mask, times: int = 1) -> Mask:
    """The mask with its neighbours added, `times` times over; cells beyond the edge add nothing."""
    grown: Mask = ndimage.binary_dilation(mask, structure=neighbors, iterations=times)
    return grown
