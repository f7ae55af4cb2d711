"""Augmentations: what they do to a grid, that they can be undone, and how often each is drawn."""

import itertools
from collections import Counter

import numpy as np
import pytest

from arc_refinery.arc.augment import IDENTITY, Augmentation, random_augmentation
from arc_refinery.arc.grids import Grid, as_grid

SYMMETRIES = list(itertools.product(range(4), (False, True)))
COLORINGS = [
    tuple(range(10)),
    (0, 9, 8, 7, 6, 5, 4, 3, 2, 1),  # its own inverse
    (0, 2, 3, 1, 5, 6, 7, 8, 9, 4),  # cycles of three and six: not its own inverse
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 0),  # black changes too
]
ALL = [
    Augmentation(turns, transpose, colors) for (turns, transpose), colors in itertools.product(SYMMETRIES, COLORINGS)
]
N_DRAWS = 20_000


@pytest.fixture(scope="module")
def draws() -> list[Augmentation]:
    rng = np.random.default_rng(0)
    return [random_augmentation(rng) for _ in range(N_DRAWS)]


def by_lists(augmentation: Augmentation, grid: Grid) -> list[list[int]]:
    """Do what `apply` promises, with plain lists: transpose, turn counter-clockwise, rename."""
    rows = grid.tolist()
    if augmentation.transpose:
        rows = list(zip(*rows, strict=True))
    for _ in range(augmentation.n_rotations):
        rows = list(zip(*rows, strict=True))[::-1]  # the last column becomes the first row
    return [[augmentation.colors[cell] for cell in row] for row in rows]


def test_one_rotation_is_a_quarter_turn_counter_clockwise():
    # the right column, read downwards, becomes the top row
    assert Augmentation(1).apply(as_grid([[1, 2, 3], [4, 5, 6]])).tolist() == [[3, 6], [2, 5], [1, 4]]


def test_the_transposition_comes_before_the_rotation():
    # transposed: 14/25/36; then its right column 4 5 6 is the top row
    assert Augmentation(1, True).apply(as_grid([[1, 2, 3], [4, 5, 6]])).tolist() == [[4, 5, 6], [1, 2, 3]]


def test_a_colour_becomes_the_entry_at_its_own_place():
    assert Augmentation(colors=(1, 2, 3, 4, 5, 6, 7, 8, 9, 0)).apply(as_grid([[0, 8, 9]])).tolist() == [[1, 9, 0]]


def test_the_identity_changes_nothing():
    assert IDENTITY.apply(as_grid([[0, 1, 2], [3, 4, 5]])).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_apply_agrees_with_plain_lists(augmentation: Augmentation):
    grid = as_grid(np.random.default_rng(1).integers(10, size=(3, 5)))
    assert augmentation.apply(grid).tolist() == by_lists(augmentation, grid)


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_undo_is_the_inverse_of_apply_on_both_sides(augmentation: Augmentation):
    grid = as_grid(np.random.default_rng(2).integers(10, size=(4, 7)))
    assert augmentation.undo(augmentation.apply(grid)).tolist() == grid.tolist()
    assert augmentation.apply(augmentation.undo(grid)).tolist() == grid.tolist()


def test_results_are_uint8():
    augmentation = Augmentation(3, True, COLORINGS[2])
    grid = as_grid([[1, 2], [3, 4]])
    assert augmentation.apply(grid).dtype == augmentation.undo(grid).dtype == np.uint8


def test_the_eight_symmetries_are_the_eight_of_the_square():
    # the corners of a square, read row by row: four turns of 12/34 and of its mirror image 21/43
    turns = {"1234", "2413", "4321", "3142"}
    mirrored = {"2143", "1324", "3412", "4231"}
    square = as_grid([[1, 2], [3, 4]])
    seen = ["".join(map(str, Augmentation(*symmetry).apply(square).ravel())) for symmetry in SYMMETRIES]
    assert len(seen) == 8
    assert set(seen) == turns | mirrored


def test_every_symmetry_is_drawn_equally_often(draws: list[Augmentation]):
    # 1/8 each; a share of 20000 draws has a standard error of 0.0023
    counts = Counter((draw.n_rotations, draw.transpose) for draw in draws)
    assert set(counts) == set(SYMMETRIES)
    assert all(abs(count / N_DRAWS - 1 / 8) < 0.01 for count in counts.values())


def test_black_is_kept_with_a_probability_of_about_nine_tenths(draws: list[Augmentation]):
    # the standard error of the share is 0.002
    assert sum(draw.colors[0] == 0 for draw in draws) / N_DRAWS == pytest.approx(0.9, abs=0.02)


def test_colours_are_always_a_permutation(draws: list[Augmentation]):
    assert all(sorted(draw.colors) == list(range(10)) for draw in draws)


def test_the_other_colours_are_drawn_equally_often(draws: list[Augmentation]):
    # where black is kept, colour 1 becomes each of 1..9 in one ninth of about 18000 draws: standard error 0.0023
    counts = Counter(draw.colors[1] for draw in draws if draw.colors[0] == 0)
    assert set(counts) == set(range(1, 10))
    assert all(abs(count / counts.total() - 1 / 9) < 0.01 for count in counts.values())


def test_equal_seeds_draw_equal_augmentations():
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    assert [random_augmentation(one) for _ in range(20)] == [random_augmentation(other) for _ in range(20)]
