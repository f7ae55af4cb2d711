"""Augmentation of tasks: one of the eight symmetries of the square and a permutation of the colours."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from arc_refinery.arc.grids import N_COLORS, Grid

KEEP_BLACK_PROBABILITY = 0.9  # black is the background of most tasks, so it is rarely recoloured


@dataclass(frozen=True, slots=True)
class Augmentation:
    """`n_rotations` quarter turns counter-clockwise after an optional transposition, then ``colors[old] = new``."""

    n_rotations: Annotated[int, "int8"] = 0
    transpose: bool = False
    colors: tuple[Annotated[int, "int8"], ...] = tuple(range(N_COLORS))

    def fault(self) -> str:
        is_valid = sorted(self.colors) == list(range(N_COLORS))
        return "" if is_valid else f"column 'colors' is {[*self.colors]}, expected a permutation of 0..{N_COLORS - 1}"

    def apply(self, grid: Grid) -> Grid:
        return np.array(self.colors, dtype=np.uint8)[_turned(grid.T if self.transpose else grid, self.n_rotations)]

    def undo(self, grid: Grid) -> Grid:
        """Undo `apply`."""
        turned = _turned(np.argsort(self.colors).astype(np.uint8)[grid], -self.n_rotations)
        return np.ascontiguousarray(turned.T if self.transpose else turned)


IDENTITY = Augmentation()


def _turned(grid: Grid, n_rotations: int) -> Grid:
    """`np.rot90` for the common axes only: its generality would dominate the cost of grading small grids."""
    match n_rotations % 4:
        case 1:
            return grid.T[::-1]
        case 2:
            return grid[::-1, ::-1]
        case 3:
            return grid.T[:, ::-1]
        case _:
            return grid


def random_augmentation(rng: np.random.Generator) -> Augmentation:
    """Draw one of the 8 symmetries, uniformly, and a colour permutation that keeps black with probability 0.9."""
    n_rotations, transpose = int(rng.integers(4)), bool(rng.integers(2))
    if rng.random() < KEEP_BLACK_PROBABILITY:
        colors = [0, *rng.permutation(np.arange(1, N_COLORS)).tolist()]
    else:
        colors = rng.permutation(N_COLORS).tolist()
    return Augmentation(n_rotations, transpose, tuple(colors))
