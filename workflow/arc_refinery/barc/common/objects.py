"""Finding objects in a grid, each as a full-size array with background everywhere else.

Nothing is guessed: neither the background nor, in `detect_objects`, the connectivity.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import product

import numpy as np

from .measuring import Grid, bounding_box, crop, label_components, neighborhood, object_colors


def find_connected_components(
    grid: Grid, background: int = 0, connectivity: int = 4, monochromatic: bool = True
) -> list[Grid]:
    """The components of equal colour (or of any colours), in the order of their first cells, row-major.

    Monochromatic ones come colour by colour, in the order of `object_colors`. Integer grids give int64 objects.
    """
    neighbors = neighborhood(connectivity)
    masks = [grid == color for color in object_colors(grid, background)] if monochromatic else [grid != background]
    components = []
    for mask in masks:
        labels, count = label_components(mask, neighbors)
        for number in range(1, count + 1):
            here = labels == number
            components.append(np.where(here, grid, background * ~here))
    return components


def detect_objects(
    grid: Grid,
    _: object = None,
    predicate: Callable[[Grid], object] | None = None,
    background: int = 0,
    monochromatic: bool = False,
    connectivity: int | None = None,
    allowed_dimensions: Collection[tuple[int, int]] | None = None,
    colors: Collection[int] | None = None,
    can_overlap: bool = False,
) -> list[Grid]:
    """Objects found as components (if connectivity is given) and as windows of allowed dimensions (if those are).

    Without either: none. `predicate` sees the cropped component, but the window as it is. Allowed dimensions are
    also compared with the components' array shape, which is the whole grid's: in practice they drop all of them.
    Unless objects can overlap, they are sorted largest first and thinned out; see `_without_overlaps`.
    """
    objects: list[Grid] = []
    if connectivity:
        objects = find_connected_components(grid, background, connectivity, monochromatic)
        if colors:
            objects = [obj for obj in objects if _only_colors(obj, colors, background)]
        if predicate:
            objects = [obj for obj in objects if predicate(crop(obj, background))]
    if allowed_dimensions:
        objects = [obj for obj in objects if obj.shape in allowed_dimensions]
        objects += [
            candidate
            for candidate in _scan(grid, predicate, background, allowed_dimensions, colors)
            if not any(np.array_equal(candidate, obj) for obj in objects)
        ]
    return objects if can_overlap else _without_overlaps(objects, background)


def _only_colors(cells: Grid, colors: Collection[int], background: int) -> bool:
    return all(cell in colors or cell == background for cell in np.unique(cells))


def _scan(
    grid: Grid,
    predicate: Callable[[Grid], object] | None,
    background: int,
    allowed_dimensions: Collection[tuple[int, int]],
    colors: Collection[int] | None,
) -> Iterator[Grid]:
    """Yield every matching window, alone on a background of the grid's size; x outer and y inner for each dimension.

    An empty list of colours lets nothing pass.
    """
    n, m = grid.shape
    for width, height in allowed_dimensions:
        for x, y in product(range(n - width + 1), range(m - height + 1)):
            window = grid[x : x + width, y : y + height]
            if (
                np.any(window != background)
                and (colors is None or _only_colors(window, colors, background))
                and (predicate is None or predicate(window))
            ):
                candidate = np.full(grid.shape, background)
                candidate[x : x + width, y : y + height] = window
                yield candidate


def _without_overlaps(objects: list[Grid], background: int) -> list[Grid]:
    """First every object that overlaps no other, then a choice among the rest that covers the most cells.

    Both parts run from large to small: by area of the bounding box, then by number of cells.
    """

    def size(obj: Grid) -> tuple[int, int]:
        _, _, width, height = bounding_box(obj, background)
        return width * height, int(np.count_nonzero(obj != background))

    objects = sorted(objects, key=size, reverse=True)
    # One bit per cell, so that shared cells are an `&` and coverage is a bit count.
    covers = [int.from_bytes(np.packbits(obj != background).tobytes()) for obj in objects]
    clear = [
        not any(cover & other for k, other in enumerate(covers) if k != index) for index, cover in enumerate(covers)
    ]
    contested = [index for index, is_clear in enumerate(clear) if not is_clear]
    chosen = _best_cover([covers[index] for index in contested])
    return [obj for obj, is_clear in zip(objects, clear, strict=True) if is_clear] + [
        objects[contested[k]] for k in chosen
    ]


def _best_cover(covers: list[int]) -> list[int]:
    """Indices of disjoint bit sets that cover the most bits; exponential in the worst case.

    Each set is tried with, then without; without wins a tie, unless everything coverable is covered with.
    """
    everything = 0
    for cover in covers:
        everything |= cover

    def search(index: int, covered: int) -> tuple[int, list[int]]:
        while index < len(covers) and covers[index] & covered:
            index += 1
        if index == len(covers):
            return covered, []
        covered_with, rest = search(index + 1, covered | covers[index])
        if covered_with != everything:
            covered_without, rest_without = search(index + 1, covered)
            if covered_with.bit_count() <= covered_without.bit_count():
                return covered_without, rest_without
        return covered_with, [index, *rest]

    return search(0, 0)[1]
