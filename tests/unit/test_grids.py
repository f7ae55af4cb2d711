"""Checks of grids, their messages, and the differences that a fingerprint sees."""

from typing import Any

import numpy as np
import pytest

from arc_refinery.arc.grids import GridError, as_grid, fingerprint


def test_nested_lists_become_a_uint8_grid_of_rows():
    grid = as_grid([[1, 2, 3], [4, 5, 6]])
    assert grid.dtype == np.uint8
    assert grid.shape == (2, 3)
    assert grid.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_an_array_is_copied_not_shared():
    array = np.array([[1, 2]], np.uint8)
    grid = as_grid(array)
    array[0, 0] = 9
    assert grid.tolist() == [[1, 2]]


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (30, 1), (30, 30)])
def test_sides_of_1_to_30_are_grids(shape: tuple[int, int]):
    assert as_grid(np.full(shape, 9)).shape == shape


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1, 2], [3]], "rows of different lengths, expected a rectangle"),
        (5, "0-D, expected 2-D rows of cells"),
        (None, "0-D, expected 2-D rows of cells"),
        ("12\n34", "0-D, expected 2-D rows of cells"),
        ([], "1-D, expected 2-D rows of cells"),
        ([1, 2], "1-D, expected 2-D rows of cells"),
        ([[[1]]], "3-D, expected 2-D rows of cells"),
        ([[]], "shape 1x0, expected sides of 1..30"),
        (np.zeros((31, 2), int), "shape 31x2, expected sides of 1..30"),
        (np.zeros((2, 31), int), "shape 2x31, expected sides of 1..30"),
        ([[1.0, 2.0]], "cells of type float64, expected integers"),
        ([[True, False]], "cells of type bool, expected integers"),
        ([[2, True]], "cells of type bool, expected integers"),
        ([["1", "2"]], "cells of type <U1, expected integers"),
        ([[1, None]], "cells of type object, expected integers"),
        ([[10**30]], "cells of type object, expected integers"),
        ([[-1, 3]], "cells -1..3, expected 0..9"),
        ([[0, 10]], "cells 0..10, expected 0..9"),
        ([[256]], "cells 256..256, expected 0..9"),  # 0 if it were cast to uint8 first
    ],
)
def test_what_is_no_grid_is_refused_with_the_reason(value: Any, message: str):
    with pytest.raises(GridError) as caught:
        as_grid(value)
    assert str(caught.value) == message


def test_a_fingerprint_is_the_start_of_the_sha256_of_shape_and_cells():
    # printf '\x01\x02\x03\x04' | sha256sum: one row, two columns, cells 3 and 4
    assert fingerprint([as_grid([[3, 4]])]) == "9f64a747e1b97f13"


def test_a_fingerprint_does_not_depend_on_the_layout_in_memory():
    grid = as_grid([[1, 2, 3], [4, 5, 6]])
    assert fingerprint([grid.T]) == fingerprint([as_grid([[1, 4], [2, 5], [3, 6]])])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[[1, 2]]], [[[1, 3]]]),  # another cell
        ([[[1, 2]]], [[[1], [2]]]),  # same cells, another shape
        ([[[1, 2]]], [[[1]], [[2]]]),  # same cells, in two grids
        ([[[1]], [[2]]], [[[2]], [[1]]]),  # another order
        ([[[1]]], [[[1]], [[1]]]),  # a grid more
    ],
)
def test_different_lists_of_grids_have_different_fingerprints(one: list[Any], other: list[Any]):
    assert fingerprint([as_grid(grid) for grid in one]) != fingerprint([as_grid(grid) for grid in other])
