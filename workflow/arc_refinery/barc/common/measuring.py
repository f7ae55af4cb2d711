"""Reading grids and objects: neighbours, boxes, positions, colours, outlines, and relative positions of two objects.

A grid is a 2-D array of colour numbers, indexed `grid[x, y]`: x is axis 0, y is axis 1, so `grid.shape` is
(size in x, size in y). Nothing here validates a grid; an array that is not 2-D fails where its shape is unpacked.

Nothing here changes its arguments. Every cell that is `!= background` counts as part of the object, whatever its
colour; with background None that is every cell.
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


def bounding_box(grid: Grid, background: int | None = 0) -> tuple[int, int, int, int]:
    """(x, y, width, height) of the smallest box round the object; (n, m, -n, -m) for an empty n x m grid."""
    n, m = grid.shape
    xs, ys = np.nonzero(grid != background)
    if len(xs) == 0:
        return n, m, -n, -m
    x, y = int(xs.min()), int(ys.min())
    return x, y, int(xs.max()) - x + 1, int(ys.max()) - y + 1


def bounding_box_mask(grid: Grid, background: int | None = 0) -> Mask:
    """True inside the bounding box; all False for an empty grid."""
    mask = np.zeros(grid.shape, dtype=bool)
    mask[_box_slices(grid, background)] = True
    return mask


def crop(grid: Grid, background: int | None = 0) -> Grid:
    """The part of the grid inside the bounding box, as a view; shape (0, 0) for an empty grid."""
    return grid[_box_slices(grid, background)]


def _box_slices(grid: Grid, background: int | None) -> tuple[slice, slice]:
    x, y, width, height = bounding_box(grid, background)
    return slice(x, x + width), slice(y, y + height)


# Anchor -> its position between the box's first (0) and last (1) cell, in x and in y.
_ANCHORS = {
    "upperleft": (0.0, 0.0),
    "upperright": (1.0, 0.0),
    "lowerleft": (0.0, 1.0),
    "lowerright": (1.0, 1.0),
    "center": (0.5, 0.5),
    "uppercenter": (0.5, 0.0),
    "lowercenter": (0.5, 1.0),
    "leftcenter": (0.0, 0.5),
    "rightcenter": (1.0, 0.5),
}


def object_position(obj: Grid, background: int | None = 0, anchor: str = "upper left") -> tuple[float, float]:
    """(x, y) of a point of the bounding box; ints where whole, floats at halves.

    Anchors: "upper left", "lower center", "center", ... ("top" and "bottom" work too, case and spaces do not matter).
    """
    key = anchor.lower().replace(" ", "").replace("top", "upper").replace("bottom", "lower")
    assert key in _ANCHORS, f"unknown anchor {anchor!r}"
    along_x, along_y = _ANCHORS[key]
    x, y, width, height = bounding_box(obj, background)
    return _int_if_whole(x + along_x * (width - 1)), _int_if_whole(y + along_y * (height - 1))


def _int_if_whole(value: float) -> float:
    return int(value) if value.is_integer() else value


def object_colors(obj: Grid, background: int | None = 0) -> list[Any]:
    """The distinct colours as NumPy scalars, in the iteration order of a set difference (8 may precede 1)."""
    return list(set(obj.flatten()) - {background})


def is_contiguous(bitmask: Grid, background: int | None = 0, connectivity: int = 4) -> bool:
    """Whether the object is one component; an empty grid is not connected."""
    _, count = label_components(bitmask != background, neighborhood(connectivity))
    return count == 1


def _edge(shape: tuple[int, ...]) -> Mask:
    """The outermost cells; a side of 0 has none, which is an IndexError."""
    edge = np.zeros(shape, dtype=bool)
    edge[[0, -1], :] = True
    edge[:, [0, -1]] = True
    return edge


def object_interior(grid: Grid, background: int | None = 0) -> Mask:
    """The object and the holes it closes: all but the background that is 4-connected to the array's edge.

    An array with just one side of 0 is an IndexError.
    """
    n, m = grid.shape
    if n == m == 0:
        return np.zeros((0, 0), dtype=bool)
    labels, _ = label_components(~(grid != background), neighborhood(4))
    outside = labels[_edge(grid.shape)]
    return ~np.isin(labels, outside[outside != 0])


def object_boundary(grid: Grid, background: int | None = 0) -> Mask:
    """Cells of the object on the array's edge or 4-adjacent to the outside; the rim of a closed hole is not meant.

    An array of zero size is an IndexError.
    """
    outside = ~object_interior(grid, background)
    exposed: Mask = (grow(outside, neighborhood(4)) | _edge(grid.shape)) & (grid != background)
    return exposed


def object_neighbors(grid: Grid, background: int | None = 0, connectivity: int = 4) -> Mask:
    """Background cells beside a cell of the boundary, so also those in a hole behind a wall of one cell."""
    boundary = object_boundary(grid, background)
    neighbors: Mask = grow(boundary, neighborhood(connectivity)) & ~(grid != background)
    return neighbors


def _cells(obj: Any, background: int | None, dx: int = 0, dy: int = 0) -> set[tuple[int, int]]:
    xs, ys = (obj != background).nonzero()
    return {(x + dx, y + dy) for x, y in zip(xs.tolist(), ys.tolist(), strict=True)}


def collision(
    _: object = None,
    object1: Any = None,
    object2: Any = None,
    x1: float = 0,
    y1: float = 0,
    x2: float = 0,
    y2: float = 0,
    background: int | None = 0,
) -> bool:
    """Whether some cell of object1 placed at (x1, y1) coincides with one of object2 placed at (x2, y2).

    The first positional parameter is ignored. Differences of position are truncated to ints.
    """
    cells1 = _cells(object1, background)
    cells2 = _cells(object2, background, int(x2 - x1), int(y2 - y1))
    return not cells1.isdisjoint(cells2)


def contact(
    _: object = None,
    object1: Any = None,
    object2: Any = None,
    x1: float = 0,
    y1: float = 0,
    x2: float = 0,
    y2: float = 0,
    background: int | None = 0,
    connectivity: int = 4,
) -> bool:
    """Like `collision`, but cells that are neighbours (4 or 8) are enough."""
    cells1 = _cells(object1, background)
    cells2 = _cells(object2, background, int(x2 - x1), int(y2 - y1))
    reach = ((0, 0), *neighbor_steps(connectivity))
    return any((x + dx, y + dy) in cells1 for x, y in cells2 for dx, dy in reach)


def check_between_objects(
    obj1: Grid, obj2: Grid, x: float, y: float, padding: float = 0, background: int | None = 0
) -> bool:
    """Whether (x, y) lies in the gap between the two bounding boxes, along x or along y, and in both's shadow.

    `padding` narrows the shadow at both sides.
    """
    x1, y1, width1, height1 = bounding_box(obj1, background)
    x2, y2, width2, height2 = bounding_box(obj2, background)
    span_x1, span_x2 = (x1, x1 + width1), (x2, x2 + width2)
    span_y1, span_y2 = (y1, y1 + height1), (y2, y2 + height2)
    return (_in_gap(x, span_x1, span_x2) and _in_shadow(y, padding, span_y1, span_y2)) or (
        _in_gap(y, span_y1, span_y2) and _in_shadow(x, padding, span_x1, span_x2)
    )


def _in_gap(value: float, span1: tuple[int, int], span2: tuple[int, int]) -> bool:
    return bool(span1[1] <= value < span2[0] or span2[1] <= value < span1[0])


def _in_shadow(value: float, padding: float, span1: tuple[int, int], span2: tuple[int, int]) -> bool:
    return bool(value - padding >= max(span1[0], span2[0]) and value + padding < min(span1[1], span2[1]))
