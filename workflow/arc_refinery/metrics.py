"""How good grids are: the pixel score, and the figures of one verdict (the published tables' definitions)."""

from collections.abc import Sequence

import numpy as np

from arc_refinery.grids import Grid


def pixel_score(guess: Grid, truth: Grid) -> float:
    """Share of equal cells, 0..1.

    For unequal shapes: the most equal cells over all offsets at which one grid lies inside or overlaps the other such
    that their common bounding box is as small as it can be, divided by the area of that box (max of the two sides).
    """
    guess, truth = np.asarray(guess), np.asarray(truth)
    if guess.shape == truth.shape:
        return float((guess == truth).mean())
    height, width = np.maximum(guess.shape, truth.shape)
    best = 0
    for down in range(abs(guess.shape[0] - truth.shape[0]) + 1):
        for right in range(abs(guess.shape[1] - truth.shape[1]) + 1):
            best = max(best, _overlap(guess, truth, down, right))
    return best / int(height * width)


def _overlap(guess: Grid, truth: Grid, down: int, right: int) -> int:
    """Equal cells when, along each axis, the shorter grid is moved by the offset inside the longer one."""
    rows, columns = np.minimum(guess.shape, truth.shape)
    guess_row, truth_row = (down, 0) if guess.shape[0] > truth.shape[0] else (0, down)
    guess_column, truth_column = (right, 0) if guess.shape[1] > truth.shape[1] else (0, right)
    return int(
        (
            guess[guess_row : guess_row + rows, guess_column : guess_column + columns]
            == truth[truth_row : truth_row + rows, truth_column : truth_column + columns]
        ).sum()
    )


def mean_pixel_score(guesses: Sequence[Grid], truths: Sequence[Grid]) -> float:
    return float(np.mean([pixel_score(guess, truth) for guess, truth in zip(guesses, truths, strict=True)]))


def correct_grids(guesses: Sequence[Grid], truths: Sequence[Grid]) -> float:
    """Share of grids that are equal in every cell, 0..1."""
    pairs = zip(guesses, truths, strict=True)
    return float(np.mean([np.array_equal(guess, truth) for guess, truth in pairs]))
