"""Scores of grids: the pixel score by hand and against a direct loop over all placements."""

from typing import Any

import numpy as np
import pytest

from arc_refinery.arc.grids import Grid, as_grid
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score, pixel_score


def equal_cells(guess: Grid, truth: Grid, down: int, right: int) -> int:
    """Draw both grids into one frame, the guess's corner at (down, right) of the truth's; count the equal cells."""
    height, width = np.add(guess.shape, truth.shape) * 2
    drawings = []
    for grid, row, column, empty in ((guess, down, right, 10), (truth, 0, 0, 11)):
        drawing = np.full((height, width), empty)
        top, left = row + guess.shape[0], column + guess.shape[1]
        drawing[top : top + grid.shape[0], left : left + grid.shape[1]] = grid
        drawings.append(drawing)
    return int((drawings[0] == drawings[1]).sum())


def best_placement(guess: Grid, truth: Grid) -> float:
    """The score of grids of unequal shape by its definition."""
    best = 0
    for down in range(-guess.shape[0] + 1, truth.shape[0]):
        for right in range(-guess.shape[1] + 1, truth.shape[1]):
            best = max(best, equal_cells(guess, truth, down, right))
    (height, width), (other_height, other_width) = guess.shape, truth.shape
    return best / float(max(height, other_height) * max(width, other_width))


def test_equal_grids_score_one():
    assert pixel_score(as_grid([[1, 2], [3, 4]]), as_grid([[1, 2], [3, 4]])) == 1.0


def test_equal_shapes_score_the_share_of_equal_cells():
    # 3 of the 4 cells are equal; that a shifted copy would match elsewhere does not count
    assert pixel_score(as_grid([[1, 2], [3, 4]]), as_grid([[1, 2], [3, 5]])) == 3 / 4
    assert pixel_score(as_grid([[1, 2, 3]]), as_grid([[2, 3, 1]])) == 0.0


def test_unequal_shapes_score_the_best_overlap_over_the_longer_sides():
    # 2x2 inside 3x3, all four cells match at offset (1, 1)
    truth = as_grid([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert pixel_score(as_grid([[5, 6], [8, 9]]), truth) == pytest.approx(4 / 9)


def test_crossing_shapes_count_by_the_longer_side_of_each():
    # 2x4 across 4x2: 4x4. The tall grid's top half matches columns 1 and 2: four cells
    wide = as_grid([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert pixel_score(wide, as_grid([[2, 3], [6, 7], [9, 9], [9, 9]])) == 4 / 16
    # its bottom half matches the last two columns when the wide grid is two rows lower
    assert pixel_score(wide, as_grid([[9, 9], [9, 9], [3, 4], [7, 8]])) == 4 / 16
    assert pixel_score(as_grid([[9, 9], [9, 9], [3, 4], [7, 8]]), wide) == 4 / 16


@pytest.mark.parametrize(
    ("guess", "truth", "expected"),
    [  # cases with their scores from the published repository's own tests (ironbar/arc25, tests/test_metrics.py)
        ((1, 1), (2, 2), 1 / 4),
        ((2, 1), (2, 2), 1 / 2),
        ((2, 1), (1, 2), 1 / 4),
        ((2, 3), (3, 2), 4 / 9),
    ],
)
def test_grids_of_ones_score_as_published(guess: tuple[int, int], truth: tuple[int, int], expected: float):
    one, other = as_grid(np.ones(guess, int)), as_grid(np.ones(truth, int))
    assert pixel_score(one, other) == pixel_score(other, one) == pytest.approx(expected)


def test_one_right_cell_in_the_largest_grid_scores_one_of_900():
    truth = np.zeros((30, 30), np.uint8)
    truth[17, 4] = 5
    assert pixel_score(as_grid([[5]]), truth) == pytest.approx(1 / 900)


def test_a_partial_overlap_can_beat_all_placements_inside():
    # inside the truth, nothing matches; one column to the left of it, 2 is on 2
    assert pixel_score(as_grid([[1, 2]]), as_grid([[2, 9, 9]])) == 1 / 3
    # inside, one 1 matches; two rows higher, 3 4 is on 3 4
    truth = as_grid([[3, 4, 9], [9, 9, 9], [9, 1, 9]])
    assert pixel_score(as_grid([[1, 2], [3, 4]]), truth) == 2 / 9


def test_a_shared_corner_counts_as_one_cell():
    # 4 is on 4 with the guess's lower right on the truth's upper left
    truth = as_grid([[4, 9, 9], [9, 9, 9], [9, 9, 9]])
    assert pixel_score(as_grid([[1, 2], [3, 4]]), truth) == 1 / 9
    # and the other way: the guess's upper left on the truth's lower right
    assert pixel_score(as_grid([[1, 2], [3, 4]]), as_grid([[9, 9, 9], [9, 9, 9], [9, 9, 1]])) == 1 / 9
    # upper right on lower left
    assert pixel_score(as_grid([[1, 2], [3, 4]]), as_grid([[9, 9, 9], [9, 9, 9], [2, 9, 9]])) == 1 / 9


def test_the_most_equal_cells_count_wherever_they_are():
    # 1 2 3 is on 1 2 3 with the guess six columns to the left; inside, only two 0 match
    guess, truth = as_grid([[7, 8, 0, 0, 0, 0, 1, 2, 3]]), as_grid([[1, 2, 3, 9, 0, 0, 9, 9, 9, 9]])
    assert pixel_score(guess, truth) == 3 / 10


def test_what_sticks_out_on_the_right_does_not_meet_the_next_row():
    # with 1 on 1, the guess's 2 is beside the truth: one cell, though a 2 starts the next row
    assert pixel_score(as_grid([[1, 2]]), as_grid([[9, 9, 1], [2, 9, 9], [9, 9, 9]])) == 1 / 9


def test_grids_without_a_common_colour_score_zero():
    assert pixel_score(as_grid([[1, 2], [1, 2]]), as_grid([[3, 4, 0]])) == 0.0


def test_unequal_shapes_never_score_one():
    # all 2 cells of the guess match, of 3
    assert pixel_score(as_grid([[4, 4]]), as_grid([[4, 4, 4]])) == pytest.approx(2 / 3)


CELL, ROW, COLUMN, LARGEST = ((1, 1), (1, 1)), ((1, 1), (1, 30)), ((1, 30), (1, 1)), ((30, 30), (30, 30))
SMALL, ANY = ((1, 6), (1, 6)), ((1, 30), (1, 30))  # least and most rows, least and most columns


@pytest.mark.parametrize("n_colors", [1, 2, 4, 10])
@pytest.mark.parametrize(
    ("one_sides", "other_sides", "n_pairs"),
    [
        (SMALL, SMALL, 60),
        (ANY, ANY, 8),
        (ROW, ROW, 10),
        (ROW, COLUMN, 10),
        (COLUMN, COLUMN, 10),
        (ROW, ANY, 5),
        (COLUMN, ANY, 5),
        (CELL, ANY, 5),
        (CELL, LARGEST, 1),
        (SMALL, LARGEST, 3),
        (((29, 29), (30, 30)), LARGEST, 1),
    ],
)
def test_random_pairs_score_as_the_best_of_all_placements(
    one_sides: tuple[Any, Any], other_sides: tuple[Any, Any], n_pairs: int, n_colors: int
):
    rng = np.random.default_rng(n_colors)
    for _ in range(n_pairs):
        one, other = (
            as_grid(
                rng.integers(
                    10 - n_colors, 10, size=[int(rng.integers(low, high, endpoint=True)) for low, high in sides]
                )
            )
            for sides in (one_sides, other_sides)
        )
        expected = (one == other).mean() if one.shape == other.shape else best_placement(one, other)
        assert pixel_score(one, other) == expected, (one, other)
        assert pixel_score(other, one) == expected, (one, other)


def test_a_noisy_part_of_a_grid_scores_as_the_best_of_all_placements():
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth = as_grid(rng.integers(10, size=rng.integers(2, 16, size=2)))
        top, left = rng.integers(truth.shape)
        guess = truth[top:, left:].copy()
        guess[rng.random(guess.shape) < 0.2] = 0
        if guess.shape != truth.shape:
            assert pixel_score(guess, truth) == best_placement(guess, truth), (guess, truth)


def test_the_score_does_not_change_when_both_grids_are_turned_or_mirrored():
    rng = np.random.default_rng(1)
    for _ in range(50):
        one, other = (as_grid(rng.integers(3, size=rng.integers(1, 9, size=2))) for _ in range(2))
        score = pixel_score(one, other)
        # views that do not lie in memory row by row
        assert pixel_score(one.T, other.T) == score
        assert pixel_score(one[::-1], other[::-1]) == score
        assert pixel_score(np.rot90(one), np.rot90(other)) == score


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
