"""Read BARC rows from a file in blocks, as problems.

BARC's own check accepts grids that ARC does not allow: of any size, of booleans, of fractions. Whole numbers and
booleans are read as cells; pairs with other grids are left out and counted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery.arc.grids import MAX_SIDE, N_COLORS, Grid, GridError, as_grid
from arc_refinery.arc.tasks import Pair, Problem
from arc_refinery.errors import InputError
from arc_refinery.files import decode_json, open_binary, reading
from arc_refinery.rows import check_columns, numbered, text_field

JSON_BLOCK = 8 * 2**20  # bytes
PARQUET_BLOCK = 500  # rows
FIELDS = ("source", "examples")

# Reasons why a grid of a BARC row is not an ARC grid
EMPTY = "a grid without cells"
TOO_LARGE = f"a grid with a side over {MAX_SIDE}"
FRACTIONS = "a grid of fractions"
OTHER_COLORS = f"a grid with cells outside 0..{N_COLORS - 1}"


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive rows of a file, not yet parsed."""

    path: Path
    first: int  # number of the first row, from 1
    rows: list[bytes] | pa.RecordBatch  # lines of JSON, or rows of a Parquet file


def row_blocks(path: Path) -> Iterator[RowBlock]:
    """Yield the rows of a .jsonl, .jsonl.gz or .parquet file of BARC rows; blank lines are not counted.

    Raises `InputError` if the file cannot be read.
    """
    if not path.name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        raise InputError(f"{path}: ends in {path.suffix!r}; expected a .jsonl, .jsonl.gz or .parquet file of BARC rows")
    n_before = 0
    with reading(path):
        for rows in _parquet_blocks(path) if path.suffix == ".parquet" else _json_blocks(path):
            yield RowBlock(path, n_before + 1, rows)
            n_before += len(rows)


def _parquet_blocks(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as table:
        check_columns(table.schema_arrow.names, path)
        columns = [name for name in FIELDS if name in table.schema_arrow.names]
        yield from table.iter_batches(PARQUET_BLOCK, columns=columns)


def _json_blocks(path: Path) -> Iterator[list[bytes]]:
    with open_binary(path, JSON_BLOCK) as file:
        while lines := file.readlines(JSON_BLOCK):
            yield [line for line in lines if not line.isspace()]


def read_block(block: RowBlock) -> tuple[list[Problem], Counter[str]]:
    """Return the problems of a block, named after file and row, and how many pairs were left out, by reason.

    Fields: `source` and `examples` ([input grid, output grid] pairs); others are ignored. Raises `InputError` for
    anything that is not a BARC row.
    """
    rows = block.rows
    stem = Path(block.path.name.removesuffix(".gz")).stem
    problems: list[Problem] = []
    left_out: Counter[str] = Counter()
    for number, row in enumerate(rows.to_pylist() if isinstance(rows, pa.RecordBatch) else rows, block.first):
        where = f"{block.path}: row {number}"
        fields = decode_json(row, where, "one BARC row per line") if isinstance(row, bytes) else row
        text_field(fields, "source", where)  # it keeps its line ends
        examples = _examples(fields, where, left_out)
        problems.append(Problem(numbered(stem, number), fields["source"], examples, seeds=(), origin="barc"))
    return problems, left_out


def _examples(row: dict[str, Any], where: str, left_out: Counter[str]) -> tuple[Pair, ...]:
    if not isinstance(row.get("examples"), list):
        raise InputError(f"{where}: field 'examples' is missing or not a list")
    pairs: list[Pair] = []
    for number, example in enumerate(row["examples"]):
        try:
            input_grid, output = map(_grid, example)
            if isinstance(input_grid, str) or isinstance(output, str):
                reasons = {side for side in (input_grid, output) if isinstance(side, str)}
                left_out[" and ".join(sorted(reasons))] += 1
            else:
                pairs.append(Pair(input_grid, output))
        except (GridError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: field 'examples', pair {number}: {error}; expected [input grid, output grid]"
            ) from None
    return tuple(pairs)


def _grid(value: Any) -> Grid | str:
    """Return a grid, or the reason why it is not an ARC grid; raise `GridError` if it is not a BARC grid either."""
    try:
        array = np.array(value)
    except ValueError:
        raise GridError("rows of different lengths, expected a rectangle") from None
    if array.size == 0 and isinstance(value, list) and all(row == [] for row in value):
        return EMPTY
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        return as_grid(value)  # raises an error that says what is wrong
    if max(array.shape) > MAX_SIDE:
        return TOO_LARGE
    if not np.array_equal(array, np.rint(array.astype(float))):
        return FRACTIONS
    if array.min() < 0 or array.max() >= N_COLORS:
        return OTHER_COLORS
    return array.astype(np.uint8)
