"""The examples of BARC rows, straight out of their JSON text.

A JSON parser makes an object of each of the cells, which are nearly all of the text. But the text of a grid, with 0 in
place of every digit, is one of only 900: finding it among them proves that it is a grid and tells its sides. What is
written in any other way (an empty list, a cell of two digits, null, ...) is refused: it is for a JSON parser to judge.
"""

import re
from collections.abc import Iterable
from functools import cache

import numpy as np

from arc_refinery.arrow_grids import FlatGrids
from arc_refinery.grids import MAX_SIDE

BLANK = b" \t\r\n"

_KEY = b'"examples"'
_VALUE = re.compile(_KEY + rb"[ \t]*:[ \t]*")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_SHAPES = np.argwhere(np.ones((MAX_SIDE, MAX_SIDE))) + 1  # (900, 2): height and width
_BETWEEN = b"]],[["  # the two grids of a pair; with one bracket more on either side, two pairs


class NotPlainError(ValueError):
    """The text is not of the plain form that is read here."""


def cut(line: bytes) -> tuple[bytes, bytes]:
    """A line of JSON with null for its examples, and the text of the examples."""
    place = line.find(_KEY)  # quotes inside strings are escaped, so this is a key, or a string of its own
    found = _VALUE.match(line, place) if place >= 0 else None
    if not found or line[place - 1 : place] == b"\\":
        raise NotPlainError
    start = found.end()
    quote = line.find(b'"', start) % (len(line) + 1)  # the end where there is none
    brace = line.find(b"}", start, quote)
    text = line[start : brace if brace >= 0 else quote].rstrip(BLANK + b",")
    rest = line[start + len(text) :]
    if _KEY in rest:
        raise NotPlainError
    return line[:start] + b"null" + rest, text


def read_examples(texts: Iterable[bytes]) -> tuple[list[int], FlatGrids]:
    """How many pairs there are in each of the texts from `cut`, and their grids: input, output, input, output, ..."""
    known_inputs, known_outputs = _grid_texts()
    n_pairs: list[int] = []
    inputs: list[int | None] = []
    outputs: list[int | None] = []
    cells: list[bytes] = []
    for text in texts:
        zeros = text.translate(_ZEROS, BLANK)
        grids = zeros[3:-3].split(_BETWEEN)  # [1],[2 and 3],[4] for a pair [[1],[2]],[[3],[4]]
        if zeros[:3] != b"[[[" or zeros[-3:] != b"]]]" or len(grids) % 2:
            raise NotPlainError
        n_pairs.append(len(grids) // 2)
        inputs += map(known_inputs.get, grids[::2])
        outputs += map(known_outputs.get, grids[1::2])
        cells.append(text.translate(None, b"[]," + BLANK))
    if None in inputs or None in outputs:
        raise NotPlainError
    heights, widths = _SHAPES[np.array([inputs, outputs], np.int64).T.ravel()].T
    return n_pairs, FlatGrids(heights, widths, np.frombuffer(b"".join(cells), np.uint8) - ord("0"))


@cache
def _grid_texts() -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Places in `_SHAPES` by what `read_examples` leaves of the text of a grid of zeros, for inputs and outputs."""
    rows = [b"],[".join([b",".join([b"0"] * width)] * height) for height, width in _SHAPES.tolist()]
    places = range(len(rows))
    return {b"[" + rows[place]: place for place in places}, {rows[place] + b"]": place for place in places}
