"""Statements of generated programs: general grid operations, each with the kind of input it makes sense on.

The table was made without ARC tasks: it lists common ways to change a grid (turn, crop, recolour, mirror, drop, extend,
combine halves, select objects, ...). A program is one to three operations in a row, each reading and writing the
variable `grid`.
"""

from dataclasses import dataclass, field
from math import prod

_COLORS = tuple(str(color) for color in range(1, 10))
_COLORS_AND_BLACK = tuple(str(color) for color in range(10))
BETWEEN_COLUMNS = (
    "np.minimum(np.maximum.accumulate(grid, axis=1), np.maximum.accumulate(grid[:, ::-1], axis=1)[:, ::-1])"
)
BETWEEN_ROWS = "np.minimum(np.maximum.accumulate(grid, axis=0), np.maximum.accumulate(grid[::-1], axis=0)[::-1])"
OBJECTS = "find_connected_components(grid, connectivity=8, monochromatic=False)"


@dataclass(frozen=True, slots=True)
class Operation:
    """One or more source lines with placeholders such as ``{a}``.

    `parameters` maps each placeholder to its possible values; `reads` names the colour parameters that the input must
    contain for the operation to have an effect; `canvas` is the kind of input to use (see canvases.py).
    """

    family: str
    code: str
    canvas: str = "any"
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def n_fillings(self) -> int:
        return prod(map(len, self.parameters.values()))


def _variants(family: str, canvas: str, *codes: str, **parameters: tuple[str, ...]) -> list[Operation]:
    return [Operation(family, code, canvas, dict(parameters)) for code in codes]


def _recolors(family: str, canvas: str, *codes: str, black: bool = False) -> list[Operation]:
    """Return operations that paint with the colour ``{c}``."""
    return _variants(family, canvas, *codes, c=_COLORS_AND_BLACK if black else _COLORS)


OPERATIONS: tuple[Operation, ...] = (
    # whole-grid geometry
    *_variants("turn", "any", "grid = np.flipud(grid)", "grid = np.fliplr(grid)", "grid = grid.T"),
    *_variants("turn", "any", "grid = np.rot90(grid.T, 2)"),
    *_variants("turn", "any", "grid = np.rot90(grid, {k})", k=("1", "2", "3")),
    *_variants(
        "shift", "any", "grid = np.roll(grid, {k}, axis=0)", "grid = np.roll(grid, {k}, axis=1)", k=("1", "-1", "2")
    ),
    *_variants(
        "shift", "sparse", "grid = translate(grid, {k}, 0)", "grid = translate(grid, 0, {k})", k=("1", "-1", "2")
    ),
    # larger outputs
    *_variants("tile", "small", "grid = np.tile(grid, ({m}, {n}))", m=("1", "2", "3"), n=("2", "3")),
    *_variants("tile", "small", "grid = np.tile(grid, ({m}, 1))", m=("2", "3")),
    *_variants(
        "mirror", "small", "grid = np.hstack([grid, np.fliplr(grid)])", "grid = np.hstack([np.fliplr(grid), grid])"
    ),
    *_variants(
        "mirror", "small", "grid = np.vstack([grid, np.flipud(grid)])", "grid = np.vstack([np.flipud(grid), grid])"
    ),
    *_variants("mirror", "small", "grid = np.block([[grid, np.fliplr(grid)], [np.flipud(grid), np.rot90(grid, 2)]])"),
    *_variants("mirror", "small", "grid = np.block([[np.rot90(grid, 2), np.flipud(grid)], [np.fliplr(grid), grid]])"),
    *_variants(
        "mirror", "square", "grid = np.block([[grid, np.rot90(grid, 3)], [np.rot90(grid, 1), np.rot90(grid, 2)]])"
    ),
    *_variants("scale", "small", "grid = scale_sprite(grid, {k})", k=("2", "3", "4")),
    *_variants(
        "scale", "small", "grid = np.repeat(grid, {k}, axis=0)", "grid = np.repeat(grid, {k}, axis=1)", k=("2", "3")
    ),
    *_variants("scale", "upscaled", "grid = grid[::{k}, ::{k}]", k=("2", "3")),
    *_variants("scale", "tiny", "grid = np.kron(grid != 0, grid)", "grid = np.kron(grid == 0, grid)"),
    *_recolors("frame", "any", "grid = np.pad(grid, 1, constant_values={c})", black=True),
    *_variants("frame", "any", "grid = np.pad(grid, 1, mode='edge')", "grid = grid[1:-1, 1:-1]"),
    *_recolors("frame", "any", "grid[[0, -1]] = {c}", "grid[:, [0, -1]] = {c}"),
    *_recolors("frame", "any", "grid = np.pad(grid[1:-1, 1:-1], 1, constant_values={c})"),
    # smaller outputs
    *_variants("crop", "block", "grid = crop(grid)"),
    Operation("crop", "grid = crop(np.where(grid == {a}, grid, 0))", "noisy block", {"a": _COLORS}, reads=("a",)),
    *_variants("crop", "any", "grid = grid[:len(grid) // 2]", "grid = grid[-(len(grid) // 2):]"),
    *_variants("crop", "any", "grid = grid[:, :grid.shape[1] // 2]", "grid = grid[:, -(grid.shape[1] // 2):]"),
    *_variants("crop", "any", "grid = grid[:1]", "grid = grid[-1:]", "grid = grid[:, :1]", "grid = grid[:, -1:]"),
    *_variants("crop", "any", "grid = grid[:{k}, :{k}]", "grid = grid[-{k}:, -{k}:]", k=("2", "3")),
    *_variants("crop", "any", "grid = grid[:{k}, -{k}:]", "grid = grid[-{k}:, :{k}]", k=("2", "3")),
    *_variants("crop", "objects", f"grid = crop(max({OBJECTS}, key=np.count_nonzero))"),
    *_variants("crop", "objects", f"grid = crop(min({OBJECTS}, key=np.count_nonzero))"),
    *_variants("crop", "objects", f"grid = crop(max({OBJECTS}, key=lambda part: len(object_colors(part))))"),
    *_variants(
        "squeeze", "stretched", "grid = grid[[i == 0 or (grid[i] != grid[i - 1]).any() for i in range(len(grid))]]"
    ),
    *_variants(
        "squeeze",
        "stretched",
        "grid = grid[:, [i == 0 or (grid[:, i] != grid[:, i - 1]).any() for i in range(grid.shape[1])]]",
    ),
    *_variants("squeeze", "sparse", "grid = grid[grid.any(axis=1)]", "grid = grid[:, grid.any(axis=0)]"),
    # colours
    Operation(
        "recolor",
        "grid = np.where(grid == {a}, {b}, grid)",
        "any",
        {"a": _COLORS_AND_BLACK, "b": _COLORS_AND_BLACK},
        reads=("a",),
    ),
    Operation(
        "recolor",
        "grid = np.select([grid == {a}, grid == {b}], [{b}, {a}], grid)",
        "any",
        {"a": _COLORS, "b": _COLORS},
        reads=("a", "b"),
    ),
    Operation("select", "grid = np.where(grid == {a}, grid, 0)", "any", {"a": _COLORS}, reads=("a",)),
    *_recolors("recolor", "any", "grid = np.where(grid != 0, {c}, 0)", "grid = np.where(grid == 0, {c}, 0)"),
    *_variants("recolor", "one color", "grid = np.where(grid == 0, grid.max(), 0)"),
    *_variants("count", "any", "grid = np.full_like(grid, np.bincount(grid.ravel()).argmax())"),
    *_variants("count", "any", "grid = np.full((1, 1), np.bincount(grid.ravel()).argmax())"),
    *_variants("count", "sparse", "grid = np.full((1, 1), np.bincount(grid[grid != 0]).argmax())"),
    *_variants(
        "select",
        "any",
        "grid = np.where(grid == max(object_colors(grid), key=lambda c: (grid == c).sum()), grid, 0)",
        "grid = np.where(grid == min(object_colors(grid), key=lambda c: (grid == c).sum()), grid, 0)",
    ),
    *_variants("count", "objects", f"grid = np.full((1, len({OBJECTS})), grid.max())"),
    *_variants("count", "objects", f"grid = np.diag([grid.max()] * len({OBJECTS}))"),
    *_variants("count", "sparse", "grid = np.sort(grid, axis=1)", "grid = np.sort(grid, axis=0)"),
    # the two halves of a grid, with or without a line between them
    *[
        Operation("halves", f"{split}\n{combine}", canvas, {"c": _COLORS} if "{c}" in combine else {})
        for split, canvas in (
            ("a, b = grid[:, :grid.shape[1] // 2], grid[:, -(grid.shape[1] // 2):]", "left and right"),
            ("a, b = grid[:len(grid) // 2], grid[-(len(grid) // 2):]", "top and bottom"),
        )
        for combine in (
            "grid = np.where((a != 0) & (b != 0), {c}, 0)",
            "grid = np.where((a != 0) | (b != 0), {c}, 0)",
            "grid = np.where((a != 0) ^ (b != 0), {c}, 0)",
            "grid = np.where((a == 0) & (b == 0), {c}, 0)",
            "grid = np.where((a != 0) & (b == 0), {c}, 0)",
            "grid = np.where((a == 0) & (b != 0), {c}, 0)",
            "grid = np.where(a != 0, a, b)",
            "grid = np.where(b != 0, b, a)",
        )
    ],
    # falling cells
    *_variants(
        "fall",
        "sparse",
        "grid = np.array([sorted(line, key=lambda cell: cell != 0) for line in grid.T]).T",
        "grid = np.array([sorted(line, key=lambda cell: cell == 0) for line in grid.T]).T",
        "grid = np.array([sorted(line, key=lambda cell: cell != 0) for line in grid])",
        "grid = np.array([sorted(line, key=lambda cell: cell == 0) for line in grid])",
    ),
    # lines
    *_variants("line", "dots", "grid = np.where(grid == 0, grid.max(axis=1, keepdims=True), grid)"),
    *_variants("line", "dots", "grid = np.where(grid == 0, grid.max(axis=0, keepdims=True), grid)"),
    *_variants("line", "dots", "grid = np.maximum(grid.max(axis=0, keepdims=True), grid.max(axis=1, keepdims=True))"),
    *_variants(
        "line", "dots", "grid = np.maximum.accumulate(grid, axis=0)", "grid = np.maximum.accumulate(grid, axis=1)"
    ),
    *_variants("line", "dots", "grid = np.maximum.accumulate(grid[::-1], axis=0)[::-1]"),
    *_variants("line", "dots", "grid = np.maximum.accumulate(grid[:, ::-1], axis=1)[:, ::-1]"),
    *_variants(
        "ray",
        "dots",
        "for x, y in np.argwhere(grid):\n    draw_line(grid, x, y, direction=({dx}, {dy}), color=grid[x, y])",
        dx=("1", "-1"),
        dy=("1", "-1"),
    ),
    *_variants(
        "ray",
        "dots",
        "for x, y in np.argwhere(grid):\n    draw_line(grid, x, y, direction=(1, {dy}), color=grid[x, y])\n"
        "    draw_line(grid, x, y, direction=(-1, {dy}), color=grid[x, y])",
        dy=("1", "-1"),
    ),
    *_variants(
        "connect",
        "pairs",
        f"grid = {BETWEEN_COLUMNS}",
        f"grid = {BETWEEN_ROWS}",
    ),
    *_recolors(
        "connect",
        "pairs",
        f"between = {BETWEEN_COLUMNS}\ngrid = np.where((grid == 0) & (between != 0), {{c}}, grid)",
        f"between = {BETWEEN_ROWS}\ngrid = np.where((grid == 0) & (between != 0), {{c}}, grid)",
    ),
    # objects
    *_recolors("fill", "rings", "grid = np.where(object_interior(grid) & (grid == 0), {c}, grid)"),
    *_recolors("fill", "rings", "flood_fill(grid, 0, 0, {c})"),
    *_recolors("fill", "objects", "grid = np.where(bounding_box_mask(grid) & (grid == 0), {c}, grid)"),
    *_recolors(
        "fill",
        "objects",
        f"for part in {OBJECTS}:\n    grid[bounding_box_mask(part) & (grid == 0)] = {{c}}",
    ),
    *_recolors("outline", "objects", "grid = np.where(object_neighbors(grid, connectivity=8), {c}, grid)"),
    *_recolors("outline", "dots", "grid = np.where(object_neighbors(grid, connectivity=8), {c}, grid)"),
    *_recolors("outline", "dots", "grid = np.where(object_neighbors(grid, connectivity=4), {c}, grid)"),
    *_recolors("outline", "slabs", "grid = np.where(object_boundary(grid), {c}, grid)", black=True),
    *_recolors(
        "outline", "slabs", "grid = np.where(object_interior(grid) & ~object_boundary(grid), {c}, grid)", black=True
    ),
    *_variants("select", "objects", f"grid = max({OBJECTS}, key=np.count_nonzero)"),
    *_variants("select", "objects", f"grid = min({OBJECTS}, key=np.count_nonzero)"),
    *_recolors(
        "mark",
        "objects",
        f"grid[max({OBJECTS}, key=np.count_nonzero) != 0] = {{c}}",
        f"grid[min({OBJECTS}, key=np.count_nonzero) != 0] = {{c}}",
        black=True,
    ),
    *_variants(
        "mark",
        "objects",
        f"for part in {OBJECTS}:\n    if np.count_nonzero(part) == {{n}}:\n        grid[part != 0] = {{c}}",
        n=("1", "2", "3", "4"),
        c=_COLORS_AND_BLACK,
    ),
    # symmetry
    *_variants(
        "complete", "sparse", "grid = np.maximum(grid, np.fliplr(grid))", "grid = np.maximum(grid, np.flipud(grid))"
    ),
    *_variants("complete", "sparse", "grid = np.maximum(grid, np.rot90(grid, 2))"),
    *_variants("complete", "square", "grid = np.maximum(grid, grid.T)"),
    # stripes
    *_recolors(
        "stripe", "any", "grid[::2] = {c}", "grid[1::2] = {c}", "grid[:, ::2] = {c}", "grid[:, 1::2] = {c}", black=True
    ),
    *_recolors(
        "stripe",
        "one color",
        "grid[1::2] = np.where(grid[1::2] != 0, {c}, 0)",
        "grid[:, 1::2] = np.where(grid[:, 1::2] != 0, {c}, 0)",
        "grid[::2] = np.where(grid[::2] != 0, {c}, 0)",
        "grid[:, ::2] = np.where(grid[:, ::2] != 0, {c}, 0)",
    ),
    *_variants("stripe", "noisy rows", "grid = np.array([[np.bincount(line).argmax()] * len(line) for line in grid])"),
    *_variants(
        "stripe", "noisy columns", "grid = np.array([[np.bincount(line).argmax()] * len(line) for line in grid.T]).T"
    ),
    *_recolors(
        "diagonal", "square", "np.fill_diagonal(grid, {c})", "np.fill_diagonal(np.fliplr(grid), {c})", black=True
    ),
    *_variants(
        "order",
        "sparse",
        "grid = grid[:, np.argsort((grid != 0).sum(axis=0), kind='stable')]",
        "grid = grid[:, np.argsort((grid == 0).sum(axis=0), kind='stable')]",
        "grid = grid[np.argsort((grid != 0).sum(axis=1), kind='stable')]",
        "grid = grid[np.argsort((grid == 0).sum(axis=1), kind='stable')]",
    ),
)

# Operations that make sense after any other: they turn the result, recolour it or cut it.
FOLLOWING_FAMILIES = frozenset(
    {"turn", "recolor", "crop", "mirror", "tile", "scale", "frame", "select", "count", "fall", "shift"}
)
