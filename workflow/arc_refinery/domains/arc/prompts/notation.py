"""Write grids as text, and find them in text.

>>> print(Notation().write(np.array([[0, 1], [2, 0]])))
Black Blue
Red Black
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arc_refinery.arc.grids import N_COLORS, Grid
from arc_refinery.errors import InputError

COLOR_WORDS = ("Black", "Blue", "Red", "Green", "Yellow", "Gray", "Pink", "Orange", "Purple", "Brown")
DIGITS = tuple(map(str, range(N_COLORS)))


@dataclass(frozen=True)
class Notation:
    """Way to write a grid: one word per cell, and the text around cells and rows.

    `{height}` and `{width}` in `start`, and `{row}` (from 1) in `row_start`, are replaced by their numbers.
    """

    colors: tuple[str, ...] = COLOR_WORDS  # for 0..9
    start: str = ""
    row_start: str = ""
    between_cells: str = " "
    row_end: str = ""
    between_rows: str = "\n"
    end: str = ""

    def __post_init__(self) -> None:
        if len(self.colors) != N_COLORS or len(set(self.colors)) != N_COLORS:
            raise InputError(f"{' '.join(self.colors)}: expected {N_COLORS} different words, for the numbers 0 to 9")
        if wrong := [word for word in self.colors if word.split() != [word]]:
            raise InputError(f"{wrong[0]!r} is not a word for a color: expected one without white space")

    @property
    def shows_shape(self) -> bool:
        return "{height}" in self.start and "{width}" in self.start

    def write(self, grid: Grid) -> str:
        rows = (
            self.row_start.replace("{row}", str(number))
            + self.between_cells.join([self.colors[cell] for cell in row])
            + self.row_end
            for number, row in enumerate(grid.tolist(), 1)
        )
        start = self.start.replace("{height}", str(grid.shape[0])).replace("{width}", str(grid.shape[1]))
        return start + self.between_rows.join(rows) + self.end

    def find(self, text: str) -> tuple[list[str], list[Grid]]:
        """Return the n + 1 texts around the n grids of a text, and the grids; for notations without `{...}` numbers.

        If nothing marks the ends of rows, a grid is the longest run of consecutive whole lines. Rows of different
        lengths are not a grid.
        """
        around, grids, end = [], [], 0
        for match in self._pattern.finditer(text):
            grid = self._read(match.group())
            if grid is not None:
                around.append(text[end : match.start()])
                grids.append(grid)
                end = match.end()
        return [*around, text[end:]], grids

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.colors)}

    @cached_property
    def _word(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.colors, key=len, reverse=True))))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        start, row_start, between_cells, row_end, between_rows, end = map(
            re.escape, (self.start, self.row_start, self.between_cells, self.row_end, self.between_rows, self.end)
        )
        word = f"(?:{self._word.pattern})"
        row = f"{row_start}{word}(?:{between_cells}{word})*{row_end}"
        whole = f"{start}{row}(?:{between_rows}{row})*{end}"
        return re.compile(whole if self.start else f"^{whole}$", re.MULTILINE)

    def _read(self, text: str) -> Grid | None:
        inner = text.removeprefix(self.start + self.row_start).removesuffix(self.row_end + self.end)
        rows = [self._word.findall(row) for row in inner.split(self.row_end + self.between_rows + self.row_start)]
        if len({len(row) for row in rows}) > 1:
            return None
        return np.array([[self._numbers[word] for word in row] for row in rows], np.uint8)
