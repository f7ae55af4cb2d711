"""How good grids are: the pixel score by hand and against an implementation that tries every placement."""

import itertools
from typing import Any

import numpy as np
import pytest

from arc_refinery.grids import Grid, as_grid
from arc_refinery.metrics import correct_grids, mean_pixel_score, pixel_score


def best_placement(guess: Grid, truth: Grid) -> float:
    """The score by its definition: put both grids at every place inside the smallest box that can hold both."""
    height = max(guess.shape[0], truth.shape[0])
    width = max(guess.shape[1], truth.shape[1])

    def placements(grid: Grid) -> list[set[tuple[int, int, int]]]:
        downs, rights = range(height - grid.shape[0] + 1), range(width - grid.shape[1] + 1)
        return [
            {(row + down, column + right, int(cell)) for (row, column), cell in np.ndenumerate(grid)}
            for down, right in itertools.product(downs, rights)
        ]

    return max(len(a & b) for a in placements(guess) for b in placements(truth)) / (height * width)


def test_equal_grids_score_one():
    assert pixel_score(as_grid([[1, 2], [3, 4]]), as_grid([[1, 2], [3, 4]])) == 1.0


def test_equal_shapes_score_the_share_of_equal_cells():
    # 3 of the 4 cells are equal; that a shifted copy would match elsewhere does not count
    assert pixel_score(as_grid([[1, 2], [3, 4]]), as_grid([[1, 2], [3, 5]])) == 3 / 4
    assert pixel_score(as_grid([[1, 2, 3]]), as_grid([[2, 3, 1]])) == 0.0


def test_unequal_shapes_score_the_best_overlap_over_the_common_box():
    # 2x2 inside 3x3, all four cells match at offset (1, 1); the box that holds both has 9 cells
    truth = as_grid([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert pixel_score(as_grid([[5, 6], [8, 9]]), truth) == pytest.approx(4 / 9)


def test_crossing_shapes_share_a_box_of_the_longer_sides():
    # 2x4 across 4x2: the box is 4x4. The tall grid's top half matches columns 1 and 2: four cells
    wide = as_grid([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert pixel_score(wide, as_grid([[2, 3], [6, 7], [9, 9], [9, 9]])) == 4 / 16
    # its bottom half matches the last two columns when the wide grid lies two rows lower
    assert pixel_score(wide, as_grid([[9, 9], [9, 9], [3, 4], [7, 8]])) == 4 / 16
    assert pixel_score(as_grid([[9, 9], [9, 9], [3, 4], [7, 8]]), wide) == 4 / 16


def test_one_right_cell_in_the_largest_grid_scores_one_of_900():
    truth = np.zeros((30, 30), np.uint8)
    truth[17, 4] = 5
    assert pixel_score(as_grid([[5]]), truth) == pytest.approx(1 / 900)


def test_a_grid_never_sticks_out_of_the_box():
    # 2 would match 2 if the guess were moved one column to the left of the truth; inside it, nothing matches
    assert pixel_score(as_grid([[1, 2]]), as_grid([[2, 9, 9]])) == 0.0


def test_unequal_shapes_never_score_one():
    # all 2 cells of the guess match, the box has 3
    assert pixel_score(as_grid([[4, 4]]), as_grid([[4, 4, 4]])) == pytest.approx(2 / 3)


def test_random_pairs_score_as_the_best_of_all_placements():
    rng = np.random.default_rng(0)
    for _ in range(400):
        guess, truth = (as_grid(rng.integers(3, size=rng.integers(1, 7, size=2))) for _ in range(2))
        assert pixel_score(guess, truth) == pytest.approx(best_placement(guess, truth)), (guess, truth)


def test_the_score_is_symmetric():
    rng = np.random.default_rng(1)
    for _ in range(100):
        one, other = (as_grid(rng.integers(3, size=rng.integers(1, 9, size=2))) for _ in range(2))
        assert pixel_score(one, other) == pixel_score(other, one)


@pytest.fixture
def three() -> tuple[list[Grid], list[Grid]]:
    """Guesses and truths: all of 2 cells equal, 1 of 2 equal, 2 of the 4 cells of the common box equal."""
    guesses: list[Any] = [[[1, 2]], [[1, 2]], [[3, 4]]]
    truths: list[Any] = [[[1, 2]], [[1, 9]], [[3, 4], [5, 6]]]
    return [as_grid(grid) for grid in guesses], [as_grid(grid) for grid in truths]


def test_the_mean_pixel_score_weighs_grids_equally(three: tuple[list[Grid], list[Grid]]):
    assert mean_pixel_score(*three) == pytest.approx((1 + 1 / 2 + 2 / 4) / 3)


def test_correct_grids_are_those_equal_in_shape_and_every_cell(three: tuple[list[Grid], list[Grid]]):
    assert correct_grids(*three) == pytest.approx(1 / 3)


def test_grids_of_one_colour_and_other_shapes_are_not_correct():
    # broadcasting must not make them equal
    assert correct_grids([as_grid([[4]])], [as_grid([[4, 4], [4, 4]])]) == 0.0


@pytest.mark.parametrize("figure", [mean_pixel_score, correct_grids])
def test_a_missing_guess_is_an_error(figure: Any):
    with pytest.raises(ValueError, match="argument 2 is longer"):
        figure([as_grid([[1]])], [as_grid([[1]]), as_grid([[2]])])
