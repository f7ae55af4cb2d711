"""Read the examples of BARC rows directly from their JSON text.

    text      [[[[1, 2]], [[2], [1]]]]           one pair: input 1x2, output 2x1
    zeros     [[[[0,0]],[[0],[0]]]]              each grid becomes one of 900 texts, which gives its shape

A JSON parser creates an object for each cell, and nearly all of the text is cells. But the text of a grid, with 0
instead of every digit, is one of only 900: a lookup proves that it is a grid and gives its shape. Other text (an empty
list, a cell of two digits, null, ...) is refused and left to a JSON parser.
"""

import re
from collections.abc import Iterable
from functools import cache

import numpy as np

from arc_refinery.arc.arrow_grids import FlatGrids
from arc_refinery.arc.grids import MAX_SIDE

BLANK = b" \t\r\n"

_KEY = b'"examples"'
_VALUE = re.compile(_KEY + rb"[ \t]*:[ \t]*")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_SHAPES = np.argwhere(np.ones((MAX_SIDE, MAX_SIDE))) + 1  # (900, 2): height and width
_BETWEEN = b"]],[["  # the two grids of a pair; with one bracket more on either side, two pairs


class UnusualFormError(ValueError):
    """The text does not have the form that this module reads."""


def cut(line: bytes) -> tuple[bytes, bytes]:
    """Return a line of JSON with its examples replaced by null, and the text of the examples."""
    position = line.find(_KEY)  # quotes inside strings are escaped, so this is a key or a whole string
    match = _VALUE.match(line, position) if position >= 0 else None
    if not match or line[position - 1 : position] == b"\\":
        raise UnusualFormError
    start = match.end()
    quote = line.find(b'"', start) % (len(line) + 1)  # the end if there is none
    brace = line.find(b"}", start, quote)
    text = line[start : brace if brace >= 0 else quote].rstrip(BLANK + b",")
    rest = line[start + len(text) :]
    if _KEY in rest:
        raise UnusualFormError
    return line[:start] + b"null" + rest, text


def read_examples(texts: Iterable[bytes]) -> tuple[list[int], FlatGrids]:
    """Return the number of pairs in each text from `cut`, and their grids: input, output, input, output, ..."""
    known_inputs, known_outputs = _grid_texts()
    n_pairs: list[int] = []
    inputs: list[int | None] = []
    outputs: list[int | None] = []
    cells: list[bytes] = []
    for text in texts:
        zeros = text.translate(_ZEROS, BLANK)
        grids = zeros[3:-3].split(_BETWEEN)  # [1],[2 and 3],[4] for a pair [[1],[2]],[[3],[4]]
        if zeros[:3] != b"[[[" or zeros[-3:] != b"]]]" or len(grids) % 2:
            raise UnusualFormError
        n_pairs.append(len(grids) // 2)
        inputs += map(known_inputs.get, grids[::2])
        outputs += map(known_outputs.get, grids[1::2])
        cells.append(text.translate(None, b"[]," + BLANK))
    if None in inputs or None in outputs:
        raise UnusualFormError
    heights, widths = _SHAPES[np.array([inputs, outputs], np.int64).T.ravel()].T
    return n_pairs, FlatGrids(heights, widths, np.frombuffer(b"".join(cells), np.uint8) - ord("0"))


@cache
def _grid_texts() -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Map texts of grids of zeros, as `read_examples` splits them, to indices in `_SHAPES`: for inputs, for outputs."""
    rows = [b"],[".join([b",".join([b"0"] * width)] * height) for height, width in _SHAPES.tolist()]
    return {b"[" + row: i for i, row in enumerate(rows)}, {row + b"]": i for i, row in enumerate(rows)}
