"""Functions that programs may rely on when they do `from common import *`.

Expected values were worked out by hand or printed by the published library; random ones are its draws for that seed.
Grids are written by columns, the way the library indexes them: `g("110 022")[0]` is 1, 1, 0.
"""

import os
import random
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arc_refinery.barc import common

NAMES = """
Color MirrorSymmetry Symmetry TranslationalSymmetry apply_diagonal_symmetry apply_symmetry blit blit_object blit_sprite
bounding_box bounding_box_mask check_between_objects collision contact crop detect_mirror_symmetry detect_objects
detect_rotational_symmetry detect_translational_symmetry draw_line find_connected_components flood_fill generate_sprite
is_contiguous object_boundary object_colors object_interior object_neighbors object_position orbit
random_free_location_for_object random_free_location_for_sprite random_sprite randomly_scatter_points
randomly_spaced_indices scale_pattern scale_sprite show_colored_grid translate visualize np random
"""


def g(columns: str) -> NDArray[Any]:
    """A grid from its columns, a word for each x, a digit for each y."""
    return np.array([[int(cell) for cell in column] for column in columns.split()])


def words(grid: NDArray[Any]) -> str:
    """The inverse of `g`; True is 1."""
    return " ".join("".join(str(int(cell)) for cell in column) for column in grid)


def all_words(objects: list[NDArray[Any]]) -> list[str]:
    return [words(obj) for obj in objects]


def zeros(n: int, m: int) -> NDArray[Any]:
    return np.zeros((n, m), dtype=int)


# The module


def test_star_import_brings_exactly_the_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "common", common)
    program = tmp_path / "program.py"
    program.write_text("from common import *\n")
    brought = [name for name in runpy.run_path(str(program)) if not name.startswith("__")]
    assert sorted(brought) == sorted(NAMES.split())
    assert len(NAMES.split()) == 42


def test_star_import_brings_numpy_and_standard_random() -> None:
    assert common.np is np
    assert common.random is random


def test_import_leaves_matplotlib_alone() -> None:
    code = "import sys, arc_refinery.barc.common; sys.exit('matplotlib' in sys.modules)"
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True)


# Color


def test_colors_are_the_ints_0_to_9() -> None:
    names = ["BLACK", "BLUE", "RED", "GREEN", "YELLOW", "GREY", "PINK", "ORANGE", "TEAL", "MAROON"]
    assert [getattr(common.Color, name) for name in names] == list(range(10))
    assert type(common.Color.TEAL) is int


def test_color_aliases() -> None:
    assert (common.Color.GRAY, common.Color.TRANSPARENT, common.Color.BACKGROUND) == (5, 0, 0)


def test_color_lists_are_all_words() -> None:
    assert common.Color.ALL_COLORS == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert common.Color.NOT_BLACK == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("name", ["ALL_COLORS", "NOT_BLACK"])
def test_color_lists_are_shared_and_mutable(name: str) -> None:
    getattr(common.Color, name).append(10)
    assert getattr(common.Color, name).pop() == 10


@pytest.mark.parametrize("name", ["PURPLE", "CYAN", "WHITE", "BROWN"])
def test_unknown_colors_are_attribute_errors(name: str) -> None:
    with pytest.raises(AttributeError):
        getattr(common.Color, name)


# flood_fill


def test_flood_fill_recolours_the_region_and_returns_none() -> None:
    grid = g("001 101 010")
    assert common.flood_fill(grid, 0, 0, 5) is None  # type: ignore[func-returns-value]
    assert words(grid) == "551 151 010"


def test_flood_fill_with_diagonals() -> None:
    grid = g("001 101 010")
    common.flood_fill(grid, 0, 0, 5, connectivity=8)
    assert words(grid) == "551 151 515"


def test_flood_fill_from_a_negative_row_goes_on_to_row_0() -> None:
    grid = g("012 312 002")
    common.flood_fill(grid, -1, 0, 7)
    assert words(grid) == "712 312 772"


def test_flood_fill_from_a_negative_row_never_steps_to_the_row_before() -> None:
    grid = g("1 0 0")
    common.flood_fill(grid, -1, 0, 7)
    assert words(grid) == "1 0 7"


def test_flood_fill_depends_on_which_address_of_a_cell_comes_first() -> None:
    # x comes before y: the last row is entered from (1, 1) as row 2, so that (2, 3) may step back to (1, 3).
    grid = g("0099 9090 0000")
    common.flood_fill(grid, -1, 0, 7)
    assert words(grid) == "7799 9797 7777"


def test_flood_fill_with_the_same_colour_changes_nothing() -> None:
    grid = zeros(2, 2)
    common.flood_fill(grid, 0, 0, 0)
    assert words(grid) == "00 00"


def test_flood_fill_has_no_recursion_limit() -> None:
    grid = zeros(60, 60)
    common.flood_fill(grid, 0, 0, 1)
    assert grid.min() == 1


@pytest.mark.parametrize(
    ("x", "connectivity", "error"), [(0, 6, AssertionError), (3, 6, IndexError), (0.0, 4, IndexError)]
)
def test_flood_fill_checks_the_cell_then_the_connectivity(x: Any, connectivity: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        common.flood_fill(zeros(3, 3), x, 0, 5, connectivity)


# draw_line


def test_draw_line_along_a_direction() -> None:
    grid = zeros(3, 4)
    assert common.draw_line(grid, 0, 0, length=2, direction=(1, 1), color=3) == (1, 1)
    assert words(grid) == "3000 0300 0000"


def test_draw_line_to_a_slanted_end_keeps_to_the_diagonal() -> None:
    grid = zeros(3, 4)
    assert common.draw_line(grid, 0, 0, end_x=1, end_y=3, color=3) == (2, 2)
    assert words(grid) == "3000 0300 0030"


def test_draw_line_end_overrides_length_and_direction() -> None:
    grid = zeros(1, 4)
    assert common.draw_line(grid, 0, 3, end_x=0, end_y=2, length=9, direction=(0, 1), color=3) == (0, 2)
    assert words(grid) == "0033"


def test_draw_line_stops_before_a_colour() -> None:
    grid = g("00080")
    assert common.draw_line(grid, 0, 0, direction=(0, 1), color=3, stop_at_color=[8]) == (0, 2)
    assert words(grid) == "33380"


def test_draw_line_may_stop_at_its_start() -> None:
    grid = g("50")
    assert common.draw_line(grid, 0, 0, direction=(0, 1), color=3, stop_at_color=[5]) == (0, 0)
    assert words(grid) == "50"


def test_draw_line_enters_from_outside_and_uses_only_the_sign() -> None:
    grid = zeros(3, 2)
    assert common.draw_line(grid, -2, 0, direction=(9, 0), color=1) == (2, 0)
    assert words(grid) == "10 10 10"


def test_draw_line_default_length_is_twice_the_larger_side() -> None:
    grid = zeros(1, 3)
    assert common.draw_line(grid, 0, -5, direction=(0, 1), color=1) == (0, 0)
    assert words(grid) == "100"


def test_draw_line_without_a_direction_to_go_paints_the_start() -> None:
    grid = zeros(1, 3)
    assert common.draw_line(grid, 0, 1, direction=(0, 0), color=1) == (0, 1)
    assert words(grid) == "010"


def test_draw_line_outside_returns_the_start() -> None:
    assert common.draw_line(zeros(3, 3), 9, 9, color=1, direction=(1, 0)) == (9, 9)


@pytest.mark.parametrize("length", [0, -1])
def test_draw_line_of_no_length_paints_nothing(length: int) -> None:
    grid = zeros(2, 2)
    assert common.draw_line(grid, 0, 0, length=length, direction=(1, 0), color=1) == (0, 0)
    assert not grid.any()


def test_draw_line_takes_a_whole_float_start() -> None:
    start: Any = 1.0
    end = common.draw_line(zeros(2, 2), start, start, length=1, direction=(1, 0), color=1)
    assert end == (1, 1)
    assert [type(value) for value in end] == [int, int]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"end_x": 1}, AssertionError),
        ({"x": 0.5, "direction": (0, 1)}, AssertionError),
        ({"x": None, "direction": (0, 1)}, TypeError),
        ({"end_x": 2.0, "end_y": 0}, TypeError),
        ({"direction": None}, TypeError),
        ({"direction": (1, 0, 0)}, ValueError),
        ({"direction": (1.0, 0)}, IndexError),
        ({"direction": (0, 1), "length": 2.0}, TypeError),
        ({"direction": (0, 1), "stop_at_color": None}, TypeError),
        ({"direction": (0, 1), "stop_at_color": 8}, TypeError),
        ({"direction": (0, 1), "color": None}, TypeError),
    ],
)
def test_draw_line_errors(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        common.draw_line(zeros(3, 3), **{"x": 0, "y": 0, "color": 1, **arguments})


# blit


def test_blit_copies_everything_by_default() -> None:
    assert words(common.blit(g("77 77"), g("10 02"))) == "10 02"


def test_blit_with_a_background_is_transparent_there() -> None:
    assert words(common.blit(g("77 77"), g("10 02"), background=0)) == "17 72"


def test_blit_drops_what_hangs_over() -> None:
    assert words(common.blit(zeros(3, 3), g("10 23"), x=-1, y=1)) == "023 000 000"


def test_blit_goes_cell_by_cell_so_a_view_reads_what_was_written() -> None:
    grid = g("12 34")
    assert words(common.blit(grid, np.rot90(grid))) == "24 22"


def test_blit_casts_to_the_dtype_of_the_grid() -> None:
    assert words(common.blit(zeros(1, 1), np.array([[2.7]]))) == "2"


def test_blit_sprite_works_in_place_and_truncates_the_place() -> None:
    grid = zeros(3, 3)
    index: Any = (1.9, -0.9)
    assert common.blit_sprite(grid, g("10 23"), *index) is grid
    assert words(grid) == "000 100 230"


def test_blit_sprite_skips_black_unless_told_otherwise() -> None:
    assert words(common.blit_sprite(g("777"), g("10"), 0, 1)) == "717"
    assert words(common.blit_sprite(g("777"), g("10"), x=0, y=2, background=1)) == "777"


def test_blit_sprite_needs_a_place() -> None:
    with pytest.raises(TypeError):
        common.blit_sprite(zeros(2, 2), g("1"))  # type: ignore[call-arg]


def test_blit_object_takes_objects_of_another_size() -> None:
    assert words(common.blit_object(g("55 55"), g("104 024"))) == "15 52"


@pytest.mark.parametrize(("background", "expected"), [(2, "10 05"), (None, "10 02")])
def test_blit_object_background(background: int | None, expected: str) -> None:
    assert words(common.blit_object(g("55 55"), g("10 02"), background=background)) == expected


# scale_sprite, scale_pattern, translate


def test_scale_sprite_repeats_each_cell() -> None:
    assert words(common.scale_sprite(g("12"), 2)) == "1122 1122"


@pytest.mark.parametrize("dtype", ["bool", "int8", "float64"])
def test_scale_sprite_keeps_the_dtype(dtype: str) -> None:
    assert common.scale_sprite(np.ones((1, 2), dtype=dtype), 2).dtype == dtype


def test_scale_sprite_by_0_is_empty() -> None:
    assert common.scale_sprite(g("12"), factor=0).shape == (0, 0)


@pytest.mark.parametrize(("factor", "error"), [(2.0, TypeError), ((2, 2), TypeError), (-1, ValueError)])
def test_scale_sprite_wants_a_count(factor: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        common.scale_sprite(g("12"), factor)


def test_scale_pattern_says_that_it_is_deprecated(capsys: pytest.CaptureFixture[str]) -> None:
    assert words(common.scale_pattern(g("1 2"), scale_factor=2)) == "11 11 22 22"
    assert capsys.readouterr().out == "scale_pattern: DEPRECATED, switch to scale_sprite\n"


def test_translate_loses_what_leaves() -> None:
    assert words(common.translate(g("12 34"), 1, 1)) == "00 01"


def test_translate_fills_with_background() -> None:
    assert words(common.translate(g("12 34"), x=-1, y=0, background=7)) == "34 77"


def test_translate_keeps_its_argument_and_the_dtype() -> None:
    obj = g("12").astype("int8")
    assert common.translate(obj, 0, 1).dtype == "int8"
    assert words(obj) == "12"


def test_translate_by_a_float_fails_once_a_cell_lands_inside() -> None:
    one: Any = 1.0
    far: Any = 5.5
    with pytest.raises(IndexError):
        common.translate(g("12"), 0, one)
    assert words(common.translate(g("12"), far, 0)) == "00"


def test_translate_cannot_write_none() -> None:
    nothing: Any = None
    with pytest.raises(TypeError):
        common.translate(g("12"), 0, 1, nothing)


# bounding_box, bounding_box_mask, crop, object_position, object_colors

OBJECT = g("0000 0110 0020 0000 0000")


@pytest.mark.parametrize(
    ("grid", "background", "box"),
    [
        (OBJECT, 0, (1, 1, 2, 2)),
        (zeros(3, 4), 0, (3, 4, -3, -4)),
        (OBJECT, None, (0, 0, 5, 4)),
        (g("55 50"), 5, (1, 1, 1, 1)),
    ],
)
def test_bounding_box(grid: NDArray[Any], background: int | None, box: tuple[int, ...]) -> None:
    bounds = common.bounding_box(grid, background)
    assert bounds == box
    assert {type(value) for value in bounds} == {int}


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2)])
def test_bounding_box_wants_two_dimensions(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        common.bounding_box(np.ones(shape, dtype=int))


def test_bounding_box_mask() -> None:
    assert words(common.bounding_box_mask(g("010 002"))) == "011 011"


def test_bounding_box_mask_of_nothing_is_false() -> None:
    assert words(common.bounding_box_mask(zeros(2, 2))) == "00 00"


def test_crop_is_a_view() -> None:
    grid = OBJECT.copy()
    cropped = common.crop(grid)
    assert words(cropped) == "11 02"
    cropped[0, 0] = 9
    assert grid[1, 1] == 9


def test_crop_of_nothing_is_empty() -> None:
    assert common.crop(zeros(3, 4)).shape == (0, 0)


@pytest.mark.parametrize(
    ("anchor", "position"),
    [
        ("upper left", (1, 1)),
        ("UPPER RIGHT", (2, 1)),
        ("bottom left", (1, 2)),
        ("lowerright", (2, 2)),
        ("center", (1.5, 1.5)),
        ("top center", (1.5, 1)),
        ("lower center", (1.5, 2)),
        ("left center", (1, 1.5)),
        ("right center", (2, 1.5)),
    ],
)
def test_object_position_anchors(anchor: str, position: tuple[float, float]) -> None:
    assert common.object_position(OBJECT, anchor=anchor) == position


def test_object_position_is_int_where_whole() -> None:
    x, y = common.object_position(g("111 111"), anchor="center")
    assert (x, y) == (0.5, 1)
    assert (type(x), type(y)) == (float, int)


@pytest.mark.parametrize(
    ("anchor", "position"), [("upper left", (3, 4)), ("lower right", (-1, -1)), ("center", (1, 1.5))]
)
def test_object_position_of_nothing_follows_its_box(anchor: str, position: tuple[float, float]) -> None:
    assert common.object_position(zeros(3, 4), anchor=anchor) == position


@pytest.mark.parametrize("anchor", ["middle", "left", "center left", "upper-left", ""])
def test_object_position_refuses_other_anchors(anchor: str) -> None:
    with pytest.raises(AssertionError):
        common.object_position(OBJECT, anchor=anchor)


def test_object_position_anchor_none_is_an_attribute_error() -> None:
    anchor: Any = None
    with pytest.raises(AttributeError):
        common.object_position(OBJECT, anchor=anchor)


def test_object_colors_leaves_the_background_out() -> None:
    assert common.object_colors(OBJECT) == [1, 2]
    assert common.object_colors(OBJECT, background=1) == [0, 2]
    assert common.object_colors(zeros(2, 2)) == []


def test_object_colors_are_numpy_scalars() -> None:
    assert type(common.object_colors(OBJECT)[0]) is np.int64


@pytest.mark.parametrize(("background", "colors"), [(5, [0, 1, 2, 8, 9]), (0, [8, 1, 2, 9])])
def test_object_colors_come_in_set_order(background: int, colors: list[int]) -> None:
    assert common.object_colors(g("89102"), background=background) == colors


@pytest.mark.parametrize(
    "mask", [common.bounding_box_mask, common.object_interior, common.object_boundary, common.object_neighbors]
)
def test_masks_are_bool(mask: Callable[..., NDArray[Any]]) -> None:
    assert mask(OBJECT).dtype == bool


# is_contiguous, object_interior, object_boundary, object_neighbors

RING = g("00000 01110 01010 01110 00000")
DIAMOND = g("010 101 010")
CUP = g("111 100 111")


@pytest.mark.parametrize(
    ("grid", "arguments", "expected"),
    [
        (g("10 01"), {}, False),
        (g("10 01"), {"connectivity": 8}, True),
        (g("12"), {}, True),
        (zeros(2, 2), {}, False),
        (zeros(2, 2), {"background": 3}, True),
        (zeros(0, 0), {}, False),
    ],
)
def test_is_contiguous(grid: NDArray[Any], arguments: dict[str, int], expected: bool) -> None:
    assert common.is_contiguous(grid, **arguments) is expected


def test_is_contiguous_checks_the_connectivity() -> None:
    with pytest.raises(ValueError):
        common.is_contiguous(zeros(2, 2), connectivity=5)


def test_interior_boundary_and_neighbors_of_a_ring() -> None:
    filled = "00000 01110 01110 01110 00000"
    beside = "01110 10001 10101 10001 01110"
    assert words(common.object_interior(RING)) == filled
    assert words(common.object_boundary(RING)) == words(RING)
    assert words(common.object_neighbors(RING)) == beside


def test_a_diagonal_gap_closes_a_hole() -> None:
    assert words(common.object_interior(DIAMOND)) == "010 111 010"
    assert words(common.object_boundary(DIAMOND)) == words(DIAMOND)
    assert words(common.object_neighbors(DIAMOND)) == "101 010 101"


def test_an_open_bay_is_outside() -> None:
    assert words(common.object_interior(CUP)) == words(CUP)
    assert words(common.object_boundary(CUP)) == words(CUP)
    assert words(common.object_neighbors(CUP)) == "000 011 000"


def test_the_rim_of_a_hole_behind_a_thick_wall_is_no_boundary() -> None:
    thick = np.ones((7, 7), dtype=int)
    thick[3, 3] = 0
    assert words(common.object_boundary(thick)) == "1111111 1000001 1000001 1000001 1000001 1000001 1111111"
    assert not common.object_neighbors(thick)[3, 3]


def test_object_interior_with_another_background() -> None:
    assert words(common.object_interior(g("333 303 333"), background=3)) == "000 010 000"


def test_object_neighbors_with_diagonals() -> None:
    dot = g("000 010 000")
    assert words(common.object_neighbors(dot, connectivity=8)) == "111 101 111"


def test_object_interior_of_an_empty_array_is_empty() -> None:
    assert common.object_interior(zeros(0, 0)).shape == (0, 0)


@pytest.mark.parametrize(
    ("function", "grid"),
    [
        (common.object_interior, zeros(2, 0)),
        (common.object_boundary, zeros(0, 0)),
        (common.object_neighbors, zeros(0, 0)),
    ],
)
def test_zero_size_is_an_index_error(function: Callable[..., Any], grid: NDArray[Any]) -> None:
    with pytest.raises(IndexError):
        function(grid)


def test_object_neighbors_checks_the_connectivity() -> None:
    with pytest.raises(ValueError):
        common.object_neighbors(RING, connectivity=6)


# collision, contact, check_between_objects

DOT = g("1")


@pytest.mark.parametrize(("x2", "expected"), [(0, True), (0.9, True), (-0.9, True), (1, False), (10**9, False)])
def test_collision_truncates_the_difference(x2: float, expected: bool) -> None:
    assert common.collision(object1=DOT, object2=DOT, x2=x2) is expected


def test_collision_sees_only_the_cells_and_the_difference() -> None:
    assert common.collision(None, g("10 02"), DOT, x2=1, y2=1)
    assert not common.collision(None, g("10 02"), DOT, x2=1, y2=0)
    assert common.collision(object1=DOT, object2=DOT, x1=3, x2=3)
    assert not common.collision(object1=DOT, object2=DOT, background=1)


@pytest.mark.parametrize("function", [common.collision, common.contact])
def test_the_first_positional_parameter_is_a_dummy(function: Callable[..., bool]) -> None:
    with pytest.raises(AttributeError):
        function(DOT, DOT)


@pytest.mark.parametrize(
    ("x2", "y2", "connectivity", "expected"),
    [(1, 0, 4, True), (1, 1, 4, False), (1, 1, 8, True), (1.9, 0, 4, True), (2, 0, 4, False), (0, 0, 4, True)],
)
def test_contact(x2: float, y2: float, connectivity: int, expected: bool) -> None:
    assert common.contact(object1=DOT, object2=DOT, x2=x2, y2=y2, connectivity=connectivity) is expected


def test_nothing_has_no_contact() -> None:
    assert not common.contact(object1=DOT, object2=zeros(2, 2))


def test_contact_checks_the_connectivity() -> None:
    with pytest.raises(ValueError):
        common.contact(object1=DOT, object2=DOT, connectivity=5)


def between(a: NDArray[Any], b: NDArray[Any], **arguments: int) -> list[tuple[int, int]]:
    return [(x, y) for x in range(7) for y in range(7) if common.check_between_objects(a, b, x, y, **arguments)]


@pytest.fixture
def left_and_right() -> tuple[NDArray[Any], NDArray[Any]]:
    left, right = zeros(7, 7), zeros(7, 7)
    left[0:2, 1:5] = 1
    right[4:6, 2:6] = 2
    return left, right


def test_between_is_the_gap_in_the_shadow_of_both(left_and_right: tuple[NDArray[Any], NDArray[Any]]) -> None:
    left, right = left_and_right
    assert between(left, right) == [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4)]
    assert between(left.T, right.T) == [(2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3)]


def test_between_takes_either_order_and_narrows_by_padding(left_and_right: tuple[NDArray[Any], NDArray[Any]]) -> None:
    left, right = left_and_right
    assert between(right, left, padding=1) == [(2, 3), (3, 3)]


def test_between_takes_floats(left_and_right: tuple[NDArray[Any], NDArray[Any]]) -> None:
    assert common.check_between_objects(*left_and_right, 2.5, 3) is True


def test_nothing_is_between_empty_objects() -> None:
    assert common.check_between_objects(zeros(3, 3), zeros(3, 3), 1, 1) is False


# find_connected_components

PARTS = g("110 022 301")


def test_components_come_by_colour_then_by_first_cell() -> None:
    assert all_words(common.find_connected_components(PARTS)) == [
        "110 000 000",
        "000 000 001",
        "000 022 000",
        "000 000 300",
    ]


def test_components_of_any_colour_come_by_first_cell() -> None:
    assert all_words(common.find_connected_components(PARTS, monochromatic=False)) == ["110 022 001", "000 000 300"]
    assert len(common.find_connected_components(PARTS, monochromatic=False, connectivity=8)) == 1


def test_the_first_cell_is_row_major_in_any_memory_layout() -> None:
    # The top of the U is met first; its arms join only in the last row.
    grid = np.asfortranarray(g("0101 2001 0111"))
    firsts = [
        tuple(np.argwhere(obj)[0].tolist()) for obj in common.find_connected_components(grid, monochromatic=False)
    ]
    assert firsts == [(0, 1), (0, 3), (1, 0)]


def test_components_are_on_their_background() -> None:
    assert all_words(common.find_connected_components(PARTS, background=1)) == [
        "110 111 111",
        "111 011 111",
        "111 111 101",
        "111 122 111",
        "111 111 311",
    ]


@pytest.mark.parametrize(("row", "order"), [("8091", [8, 9, 1]), ("9815670", [1, 5, 6, 7, 8, 9])])
def test_components_come_in_set_order(row: str, order: list[int]) -> None:
    assert [obj.max() for obj in common.find_connected_components(g(row))] == order


@pytest.mark.parametrize(
    ("dtype", "result"), [("int8", "int64"), ("uint8", "int64"), ("bool", "int64"), ("float64", "float64")]
)
def test_components_dtype(dtype: str, result: str) -> None:
    assert common.find_connected_components(np.ones((1, 1), dtype=dtype))[0].dtype == result


@pytest.mark.parametrize("grid", [zeros(2, 2), zeros(0, 0)])
def test_nothing_has_no_components(grid: NDArray[Any]) -> None:
    assert common.find_connected_components(grid) == []


def test_components_check_the_connectivity_even_of_nothing() -> None:
    with pytest.raises(ValueError):
        common.find_connected_components(zeros(0, 0), connectivity=6)


def test_components_cannot_write_none() -> None:
    nothing: Any = None
    with pytest.raises(TypeError):
        common.find_connected_components(PARTS, background=nothing)


# detect_objects

SCENE = g("3000 0002 1022 1100")
RED_PART = "0000 0002 0022 0000"
BLUE_PART = "0000 0000 1000 1100"
GREEN_PART = "3000 0000 0000 0000"


def test_detect_objects_guesses_nothing() -> None:
    assert common.detect_objects(SCENE) == []


def test_detect_objects_sorts_by_size_and_keeps_the_order_of_equals() -> None:
    assert all_words(common.detect_objects(SCENE, connectivity=4)) == [RED_PART, BLUE_PART, GREEN_PART]


def test_detect_objects_sorts_by_box_before_cells() -> None:
    # A diagonal of 3 cells has a box of 9; a full 2 x 2 square one of 4.
    grid = g("300011 030011 003000")
    assert [obj.max() for obj in common.detect_objects(grid, connectivity=8)] == [3, 1]


@pytest.mark.parametrize(("monochromatic", "order"), [(True, [1, 2, 3]), (False, [3, 2, 1])])
def test_detect_objects_that_can_overlap_stay_as_found(monochromatic: bool, order: list[int]) -> None:
    objects = common.detect_objects(SCENE, connectivity=4, monochromatic=monochromatic, can_overlap=True)
    assert [obj.max() for obj in objects] == order


def test_detect_objects_by_colors() -> None:
    assert all_words(common.detect_objects(SCENE, connectivity=4, colors=[1, 3])) == [BLUE_PART, GREEN_PART]


def test_detect_objects_predicate_sees_the_cropped_component() -> None:
    objects = common.detect_objects(SCENE, connectivity=4, predicate=lambda sprite: sprite.shape == (1, 1))
    assert all_words(objects) == [GREEN_PART]


def test_detect_objects_second_positional_parameter_is_a_dummy() -> None:
    assert len(common.detect_objects(SCENE, lambda sprite: False, connectivity=4)) == 3


@pytest.mark.parametrize("connectivity", [None, 0])
def test_detect_objects_without_a_connectivity(connectivity: int | None) -> None:
    assert common.detect_objects(SCENE, connectivity=connectivity) == []


def test_detect_objects_checks_the_connectivity() -> None:
    with pytest.raises(ValueError):
        common.detect_objects(SCENE, connectivity=3)


def test_detect_objects_scans_windows() -> None:
    # The window at (1, 2) covers the most; three others hold red cells and background only.
    assert all_words(common.detect_objects(SCENE, allowed_dimensions=[(2, 2)], colors=[2])) == [RED_PART]
    assert len(common.detect_objects(SCENE, allowed_dimensions=[(2, 2)], colors=[2], can_overlap=True)) == 4


def test_detect_objects_predicate_sees_the_window_as_it_is() -> None:
    objects = common.detect_objects(
        SCENE, allowed_dimensions=[(2, 1)], predicate=lambda window: bool((window == 1).all())
    )
    assert all_words(objects) == ["0000 0000 1000 1000"]


def test_detect_objects_drops_components_unless_the_grid_has_an_allowed_shape() -> None:
    objects = common.detect_objects(SCENE, connectivity=4, allowed_dimensions=[(1, 1)], colors=[3])
    assert all_words(objects) == [GREEN_PART]
    assert len(common.detect_objects(SCENE, connectivity=4, allowed_dimensions=[(4, 4)])) == 1


def test_detect_objects_does_not_add_a_window_that_is_a_component() -> None:
    grid = g("11 11")
    objects = common.detect_objects(grid, connectivity=4, allowed_dimensions=[(2, 2)], can_overlap=True)
    assert all_words(objects) == ["11 11"]


def test_detect_objects_keeps_equal_windows() -> None:
    objects = common.detect_objects(g("010"), allowed_dimensions=[(1, 2)], can_overlap=True)
    assert all_words(objects) == ["010", "010"]


def test_detect_objects_empty_colors_mean_nothing_for_windows_and_anything_for_components() -> None:
    assert common.detect_objects(SCENE, allowed_dimensions=[(2, 2)], colors=[]) == []
    assert len(common.detect_objects(SCENE, connectivity=4, colors=[])) == 3


@pytest.mark.parametrize(
    ("cells", "dimensions", "expected"),
    [
        (4, [(1, 2)], ["1100", "0011"]),
        (4, [(1, 3)], ["0111"]),
        (5, [(1, 2)], ["01100", "00011"]),
        (4, [(1, 2), (1, 3)], ["1100", "0011"]),
    ],
)
def test_detect_objects_choice_among_overlapping_windows(
    cells: int, dimensions: list[tuple[int, int]], expected: list[str]
) -> None:
    grid = np.ones((1, cells), dtype=int)
    assert all_words(common.detect_objects(grid, allowed_dimensions=dimensions)) == expected


# Symmetry objects and orbit


def test_symmetry_does_nothing() -> None:
    assert common.Symmetry().apply(1, 2) is None


def test_mirror_symmetry_is_no_symmetry() -> None:
    assert issubclass(common.TranslationalSymmetry, common.Symmetry)
    assert not issubclass(common.MirrorSymmetry, common.Symmetry)


@pytest.mark.parametrize(("iters", "point"), [(1, (3, 1)), (-1, (-1, 1)), (3, (7, 1)), (0, (1, 1))])
def test_translational_symmetry_apply(iters: int, point: tuple[int, int]) -> None:
    assert common.TranslationalSymmetry(2, 0).apply(1, 1, iters) == point


def test_translational_symmetry_text() -> None:
    symmetry = common.TranslationalSymmetry(2, 0)
    assert repr(symmetry) == str(symmetry) == "TranslationalSymmetry(translate_x=2, translate_y=0)"
    assert (symmetry.translate_x, symmetry.translate_y) == (2, 0)


@pytest.mark.parametrize(("shift", "iters"), [((2, 0), (-3, 4)), ((-2, 3), (-3, 4)), ((0, 0), (0, 1))])
def test_translational_symmetry_iterations(shift: tuple[int, int], iters: tuple[int, int]) -> None:
    assert common.TranslationalSymmetry(*shift)._iter_range((5, 5)) == iters


def test_results_are_rounded_half_to_even_and_arrays_truncated() -> None:
    symmetry = common.TranslationalSymmetry(0.5, 1.5)
    assert symmetry.apply(0, 1) == (0, 2)
    xs, ys = symmetry.apply(np.array([0, 1]), np.array([0, 1]))
    assert (xs.tolist(), ys.tolist()) == ([0, 1], [1, 2])


@pytest.mark.parametrize(("iters", "point"), [(1, (3, 3)), (2, (0, 3)), (-1, (3, 3)), (0, (0, 3))])
def test_mirror_symmetry_apply(iters: int, point: tuple[int, int]) -> None:
    assert common.MirrorSymmetry(1.5, None).apply(0, 3, iters) == point


def test_mirror_symmetry_apply_to_arrays() -> None:
    xs, ys = common.MirrorSymmetry(1, 1).apply(np.array([0, 1]), np.array([0, 2]))
    assert (xs.tolist(), ys.tolist()) == ([2, 1], [2, 0])


def test_mirror_symmetry_needs_both_arguments() -> None:
    with pytest.raises(TypeError):
        common.MirrorSymmetry(1)  # type: ignore[call-arg]


def test_mirror_symmetry_text_and_iterations() -> None:
    symmetry = common.MirrorSymmetry(1.5, None)
    assert repr(symmetry) == str(symmetry) == "MirrorSymmetry(mirror_x=1.5, mirror_y=None)"
    assert symmetry._iter_range((9, 9)) == (0, 2)


PLUS = g("010 121 010")


@pytest.mark.parametrize(("iters", "point"), [(1, (1, 2)), (2, (2, 1)), (3, (1, 0)), (0, (0, 1)), (-1, (0, 1))])
def test_rotational_symmetry_apply(iters: int, point: tuple[int, int]) -> None:
    symmetry = common.detect_rotational_symmetry(PLUS)
    assert symmetry is not None
    assert symmetry.apply(0, 1, iters) == point


def test_rotational_symmetry_round_a_corner() -> None:
    symmetry = common.detect_rotational_symmetry(g("33 33"))
    assert isinstance(symmetry, common.Symmetry)
    assert vars(symmetry) == {"center_x": 0.5, "center_y": 0.5}
    assert symmetry.apply(0, 0) == (0, 1)
    xs, ys = symmetry.apply(np.array([0, 0]), np.array([0, 1]))
    assert (xs.tolist(), ys.tolist()) == ([0, 1], [1, 1])


def test_orbit_of_a_translation() -> None:
    assert common.orbit(zeros(6, 6), 1, 1, [common.TranslationalSymmetry(2, 0)]) == [(3, 1), (1, 1), (5, 1)]


def test_orbit_of_two_mirrors() -> None:
    mirrors = [common.MirrorSymmetry(1.5, None), common.MirrorSymmetry(None, 1.5)]
    assert common.orbit(zeros(4, 4), 0, 1, mirrors) == [(0, 1), (0, 2), (3, 1), (3, 2)]


def test_orbit_of_a_rotation() -> None:
    symmetry = common.detect_rotational_symmetry(PLUS)
    assert symmetry is not None
    assert sorted(common.orbit(PLUS, 0, 1, [symmetry])) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_orbit_without_symmetries_is_the_point_even_outside() -> None:
    assert common.orbit(zeros(3, 3), 9, 9, []) == [(9, 9)]


def test_orbit_drops_what_leaves_the_grid_on_the_way() -> None:
    assert common.orbit(zeros(3, 3), 5, 5, [common.MirrorSymmetry(1, None)]) == []
    assert common.orbit(zeros(3, 3), 0, 0, [common.MirrorSymmetry(5, None)]) == [(0, 0)]
    there_and_back = [common.MirrorSymmetry(5, None), common.MirrorSymmetry(5, None)]
    assert common.orbit(zeros(3, 3), 0, 0, there_and_back) == [(0, 0)]


@pytest.mark.parametrize("symmetries", [common.MirrorSymmetry(1, 1), None])
def test_orbit_wants_a_list(symmetries: Any) -> None:
    with pytest.raises(TypeError):
        common.orbit(zeros(3, 3), 1, 1, symmetries)


# Detecting symmetries


@pytest.mark.parametrize(
    ("grid", "shifts"),
    [
        (g("1212 3434"), [(0, -2)]),
        (g("12312312"), [(0, -3)]),
        (g("111 111"), [(-1, 0), (0, -1)]),
        (g("1200 1212"), [(-1, 0), (0, 2)]),
        (g("100 010 001"), [(1, 1)]),
        (zeros(3, 3), []),
        (g("12 34"), []),
    ],
)
def test_detect_translational_symmetry(grid: NDArray[Any], shifts: list[tuple[int, int]]) -> None:
    symmetries = common.detect_translational_symmetry(grid)
    assert [(symmetry.translate_x, symmetry.translate_y) for symmetry in symmetries] == shifts


def test_detect_translational_symmetry_with_a_background_that_counts() -> None:
    symmetries = common.detect_translational_symmetry(g("505050"), ignore_colors=[], background=0)
    assert [(symmetry.translate_x, symmetry.translate_y) for symmetry in symmetries] == [(0, -2)]


@pytest.mark.parametrize(
    ("grid", "arguments", "mirrors"),
    [
        (PLUS, {}, [(1, None), (None, 1), (1, 1)]),
        (zeros(3, 3), {}, []),
        (g("12 34"), {}, [(0, None), (1, None), (None, 0), (None, 1)]),
        (g("11 22"), {"ignore_colors": []}, [(None, 0.5)]),
        (g("1299 3499 3443 1221"), {"ignore_colors": [9]}, [(1.5, None), (None, 1.5), (1.5, 1.5)]),
        (g("0110 0000"), {"ignore_colors": [], "background": 0}, [(0, None), (None, 1.5)]),
    ],
)
def test_detect_mirror_symmetry(grid: NDArray[Any], arguments: dict[str, Any], mirrors: list[Any]) -> None:
    symmetries = common.detect_mirror_symmetry(grid, **arguments)
    assert [(symmetry.mirror_x, symmetry.mirror_y) for symmetry in symmetries] == mirrors


def test_detected_centres_are_ints_where_whole() -> None:
    assert repr(common.detect_mirror_symmetry(PLUS)[0]) == "MirrorSymmetry(mirror_x=1, mirror_y=None)"


@pytest.mark.parametrize("grid", [zeros(3, 3), g("12 34")])
def test_detect_rotational_symmetry_may_be_none(grid: NDArray[Any]) -> None:
    assert common.detect_rotational_symmetry(grid) is None


@pytest.mark.parametrize(
    ("grid", "ignored", "center"),
    [(g("10 00"), [0], 0), (g("121 232 121"), [9], 1), (PLUS, [0], 1)],
)
def test_detect_rotational_symmetry(grid: NDArray[Any], ignored: list[int], center: int) -> None:
    symmetry = common.detect_rotational_symmetry(grid, ignore_colors=ignored)
    assert symmetry is not None
    assert vars(symmetry) == {"center_x": center, "center_y": center}
    assert type(symmetry.center_x) is int


@pytest.mark.parametrize(("kind", "expected"), [("horizontal", "10 02 10"), ("vertical", "11 22 33")])
def test_apply_symmetry_works_in_place(kind: str, expected: str) -> None:
    sprite = g("10 02 30")
    assert common.apply_symmetry(sprite, kind) is sprite
    assert words(sprite) == expected


def test_apply_symmetry_takes_the_far_cell_where_the_near_one_is_background() -> None:
    assert words(common.apply_symmetry(g("51 23"), "horizontal", background=5)) == "21 21"


def test_apply_symmetry_knows_two_types() -> None:
    with pytest.raises(ValueError):
        common.apply_symmetry(zeros(2, 2), "diagonal")


def test_apply_diagonal_symmetry_works_in_place() -> None:
    sprite = g("120 500 789")
    assert common.apply_diagonal_symmetry(sprite) is sprite
    assert words(sprite) == "127 208 789"


def test_apply_diagonal_symmetry_wants_a_square() -> None:
    with pytest.raises(ValueError):
        common.apply_diagonal_symmetry(zeros(3, 2))


# Random points and places


def test_randomly_scatter_points_draws_from_numpy() -> None:
    np.random.seed(0)
    assert words(common.randomly_scatter_points(zeros(3, 4), 2, density=0.4)) == "0002 2022 2000"


def test_randomly_scatter_points_fills_a_share_of_the_whole_grid_in_place() -> None:
    grid = zeros(4, 5)
    grid[0] = 7
    assert common.randomly_scatter_points(grid, 3, density=0.3) is grid
    assert np.count_nonzero(grid == 3) == 6
    assert grid[0].tolist() == [7, 7, 7, 7, 7]


@pytest.mark.parametrize(("grid", "density"), [(zeros(1, 2), 0), (zeros(0, 3), 0.5)])
def test_randomly_scatter_points_may_have_nothing_to_do(grid: NDArray[Any], density: float) -> None:
    np.random.seed(0)
    first_draw = np.random.random()
    np.random.seed(0)
    assert not common.randomly_scatter_points(grid, 3, density).any()
    assert np.random.random() == first_draw


def test_randomly_spaced_indices_draws() -> None:
    random.seed(0)
    assert common.randomly_spaced_indices(10, 2).tolist() == [4, 7]
    assert common.randomly_spaced_indices(10, 4, border_size=0).tolist() == [0, 4, 6, 9]
    assert common.randomly_spaced_indices(4, 1).tolist() == [1]


def test_randomly_spaced_indices_are_an_int64_array() -> None:
    assert common.randomly_spaced_indices(10, 2).dtype == np.int64
    assert common.randomly_spaced_indices(10, 0).tolist() == []


def test_randomly_spaced_indices_are_more_than_the_padding_apart() -> None:
    gaps = [int(np.diff(common.randomly_spaced_indices(20, 3, padding=2)).min()) for _ in range(50)]
    assert min(gaps) == 3


def test_randomly_spaced_indices_border_is_not_symmetric() -> None:
    assert {int(common.randomly_spaced_indices(10, 1)[0]) for _ in range(500)} == {1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_len": 3, "n_indices": 1}, IndexError),
        ({"max_len": 10, "n_indices": 6, "border_size": 0}, IndexError),
        ({"max_len": 10.0, "n_indices": 1}, TypeError),
        ({"max_len": 10, "n_indices": 2, "padding": 1.0}, AssertionError),
    ],
)
def test_randomly_spaced_indices_errors(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        common.randomly_spaced_indices(**arguments)


ROOM = g("0000 0200 0000 0000")
CORNER = g("11 10")


def test_free_locations_are_all_places_where_the_cells_are_free() -> None:
    indices = {common.random_free_location_for_sprite(ROOM, CORNER) for _ in range(500)}
    assert indices == {(0, 0), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)}


def test_free_location_padding_grows_the_grid() -> None:
    spots = {common.random_free_location_for_sprite(ROOM, CORNER, padding=1, padding_connectivity=4) for _ in range(50)}
    assert spots == {(2, 2)}


def test_free_location_border_keeps_off_the_edges() -> None:
    assert {common.random_free_location_for_sprite(zeros(5, 4), g("1"), border_size=1) for _ in range(200)} == {
        (x, y) for x in (1, 2, 3) for y in (1, 2)
    }


def test_free_location_background_may_hang_over_a_negative_border() -> None:
    sprite = g("000 010 000")
    indices = {common.random_free_location_for_sprite(zeros(1, 1), sprite, border_size=-1) for _ in range(20)}
    assert indices == {(-1, -1)}


def test_free_location_draws() -> None:
    random.seed(0)
    assert common.random_free_location_for_sprite(zeros(3, 3), g("1")) == (2, 0)
    assert common.random_free_location_for_object(ROOM, zeros(2, 2), padding=0) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"border_size": 1}, ValueError),
        ({"padding": 1}, ValueError),
        ({"padding": 1, "padding_connectivity": 5}, ValueError),
        ({"padding": 1.0, "padding_connectivity": 4}, TypeError),
    ],
)
def test_free_location_errors(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        common.random_free_location_for_sprite(ROOM, CORNER, **arguments)


def test_free_location_checks_the_connectivity_only_where_it_pads() -> None:
    assert common.random_free_location_for_sprite(zeros(1, 1), g("1"), padding_connectivity=5) == (0, 0)


def test_free_location_for_object_is_the_same_function() -> None:
    with pytest.raises(ValueError):
        common.random_free_location_for_object(zeros(1, 1), CORNER)


# generate_sprite


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("not_symmetric", "3330 3330 3000 3000"), ("vertical", "3333 3333 3333 0000")],
)
def test_generate_sprite_draws(kind: str, expected: str) -> None:
    random.seed(7)
    assert words(common.generate_sprite(4, 4, kind)) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("horizontal", "43343 43333 43440 43333 43343"),
        ("diagonal", "04433 03433 33444 44334 04300"),
        ("radial", "03300 03333 33433 33330 00330"),
    ],
)
def test_generate_sprite_draws_from_a_palette(kind: str, expected: str) -> None:
    random.seed(8)
    sprite = common.generate_sprite(5, 5, kind, fill_percentage=0.6, color_palate=[3, 4], connectivity=8)
    assert words(sprite) == expected


def test_generate_sprite_mirror_draws() -> None:
    random.seed(3)
    sprite = common.generate_sprite(5, 4, "mirror", background=9, max_colors=2)
    assert words(sprite) == "9999 8998 8888 8998 9999"
    assert random.random() == 0.15939993976228117


@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 5), (4, 5), (1, 3)])
def test_generate_sprite_mirror_is_symmetric_and_contiguous(n: int, m: int) -> None:
    for _ in range(20):
        sprite = common.generate_sprite(n, m, "mirror")
        assert sprite.shape == (n, m)
        assert np.array_equal(sprite, sprite[::-1])
        assert np.array_equal(sprite, sprite[:, ::-1])
        assert common.is_contiguous(sprite)


def test_generate_sprite_fills_its_share() -> None:
    for _ in range(20):
        assert np.count_nonzero(common.generate_sprite(6, 5, "not_symmetric", fill_percentage=0.3)) == 9


def test_generate_sprite_limits_the_colours() -> None:
    assert all(len(common.object_colors(common.generate_sprite(6, 6, "mirror", max_colors=1))) == 1 for _ in range(50))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((4, 3, "radial"), AssertionError),
        ((4, 3, "x"), ValueError),
        ((3, 4, "diagonal", 0), ValueError),
        ((3, 3, "radial", 0.5, 9, None, 3), ValueError),
    ],
)
def test_generate_sprite_errors(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        common.generate_sprite(*arguments)


# random_sprite


def test_random_sprite_draws() -> None:
    random.seed(11)
    assert words(common.random_sprite(3, 3)) == "111 101 111"
    assert words(common.random_sprite([3, 4], [4, 5])) == "3333 3333 3303 3330"
    assert words(common.random_sprite(range(2, 5), 3)) == "040 444 040"


def test_random_sprite_draws_for_small_sides() -> None:
    random.seed(11)
    assert words(common.random_sprite(4, 4, symmetry="radial", color_palette=[2])) == "2202 0222 2220 2022"
    assert words(common.random_sprite(1, 3)) == "171"
    assert words(common.random_sprite(2, 2, density=1)) == "55 55"


def test_random_sprite_starts_anew_until_it_touches_all_edges() -> None:
    random.seed(11)
    sprite = common.random_sprite(6, 6, density=0.2, background=5)
    assert words(sprite) == "000000 000000 555500 555500 000000 000000"
    assert random.random() == 0.9008359393303789


@pytest.mark.parametrize("kind", ["not_symmetric", "horizontal", "vertical", "mirror", "diagonal", "radial"])
def test_random_sprite_is_contiguous_and_touches_all_edges(kind: str) -> None:
    random.seed(1)
    for _ in range(20):
        sprite = common.random_sprite([3, 4, 5], [5, 3], symmetry=kind)
        assert common.is_contiguous(sprite)
        assert common.bounding_box(sprite) == (0, 0, *sprite.shape)


def test_random_sprite_side_of_1_is_full() -> None:
    assert all(common.random_sprite(1, 6, density=0.1).all() for _ in range(20))


def test_random_sprite_of_density_1_is_full() -> None:
    assert all(common.random_sprite(5, 4, density=1).all() for _ in range(20))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n": 3, "m": 4, "symmetry": "radial"}, IndexError),
        ({"n": 3, "m": 3, "symmetry": "foo"}, ValueError),
        ({"n": (3, 4), "m": 3}, TypeError),
        ({"n": 3, "m": 3, "color_palette": []}, IndexError),
        ({"n": 0, "m": 3}, ValueError),
        ({"n": 3, "m": 0}, ValueError),
    ],
)
def test_random_sprite_errors(arguments: dict[str, Any], error: type[Exception]) -> None:
    for _ in range(10):
        with pytest.raises(error):
            common.random_sprite(**arguments)


# Showing


def test_show_colored_grid_prints_a_line_for_each_y(capsys: pytest.CaptureFixture[str]) -> None:
    common.show_colored_grid(g("01 39"))
    assert capsys.readouterr().out == (
        "\x1b[38;5;0m0\x1b[0m\x1b[38;5;2m3\x1b[0m\n\x1b[38;5;4m1\x1b[0m\x1b[38;5;196m9\x1b[0m\n"
    )


def test_show_colored_grid_counts_negative_colours_from_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    common.show_colored_grid(np.array([[2], [4], [5], [6], [7], [8], [-1]]))
    codes = [1, 3, 7, 13, 202, 6, 196]
    cells = [2, 4, 5, 6, 7, 8, -1]
    line = "".join(f"\x1b[38;5;{code}m{cell}\x1b[0m" for code, cell in zip(codes, cells, strict=True))
    assert capsys.readouterr().out == line + "\n"


@pytest.mark.parametrize(("cell", "error"), [(10, IndexError), (True, TypeError), (1.0, TypeError)])
def test_show_colored_grid_refuses_other_cells(cell: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        common.show_colored_grid(np.array([[cell]]))


def test_show_colored_grid_draws_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    windows: list[Any] = []
    monkeypatch.setattr(plt, "show", lambda: windows.append(plt.gca()))
    common.show_colored_grid(g("123 456"), text=False)
    (axes,) = windows
    assert words(axes.collections[0].get_array()) == "14 25 36"
    assert axes.yaxis_inverted()
    plt.close("all")


def test_visualize_prints_inputs_and_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    def clear(grid: NDArray[Any]) -> NDArray[Any]:
        grid[:] = 0
        return grid

    common.visualize(lambda: g("1"), clear, n_examples=2)
    one = "Input:\n\x1b[38;5;4m1\x1b[0m\nOutput:\n\x1b[38;5;0m0\x1b[0m\n\n\n---------------------\n\n\n"
    assert capsys.readouterr().out == f"Example 0\n{one}Example 1\n{one}"


def test_visualize_tells_how_many_attempts_failed(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = iter([g("1"), g("2"), g("1"), g("1")])

    def transform(grid: NDArray[Any]) -> NDArray[Any]:
        if grid[0, 0] == 2:
            raise RuntimeError("no twos")
        return grid

    common.visualize(lambda: next(inputs), transform, n_examples=3)
    out = capsys.readouterr().out
    assert out.count("Example ") == 3
    assert "1/4 failures (0.25). For example:\nTraceback" in out
    assert "RuntimeError: no twos" in out


def test_visualize_gives_up_after_the_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    common.visualize(lambda: zeros(1, 1), lambda grid: grid[1], n_attempts=3)
    assert capsys.readouterr().out.startswith("3/3 failures (1.0). For example:\n")
