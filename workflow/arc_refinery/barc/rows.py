"""Read BARC rows from a file in blocks, as problems whose grids are in flat arrays.

A block of rows is checked and converted at once. A block with anything unusual in it is read row by row: this is slow,
but errors then name the row and the field.

BARC's own check accepts grids that ARC does not allow: of any size, of booleans, of fractions. Whole numbers and
booleans are read as cells; pairs with other grids are left out and counted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from arc_refinery.arc.arrow_grids import FlatGrids, are_lists, lengths_of
from arc_refinery.arc.grids import MAX_SIDE, N_COLORS, Grid, GridError, as_grid
from arc_refinery.barc.json_examples import UnusualFormError, cut, read_examples
from arc_refinery.errors import InputError
from arc_refinery.files import decode_json, open_binary, reading
from arc_refinery.rows import check_columns

JSON_BLOCK = 8 * 2**20  # bytes
PARQUET_BLOCK = 500  # rows
FIELDS = ("source", "examples")

# Reasons why a grid of a BARC row is not an ARC grid
EMPTY = "a grid without cells"
TOO_LARGE = f"a grid with a side over {MAX_SIDE}"
FRACTIONS = "a grid of fractions"
OTHER_COLORS = f"a grid with cells outside 0..{N_COLORS - 1}"


Rows: TypeAlias = list[bytes] | pa.RecordBatch  # lines of JSON, or rows of a Parquet file


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive rows of a file, not yet parsed: cheap to send to another process, which reads a plain file itself."""

    path: Path
    first: int  # number of the first row, from 1
    content: Rows | tuple[int, int]  # bytes (from, to) of a .jsonl file

    def read(self) -> Rows:
        if isinstance(self.content, tuple):
            start, end = self.content
            with self.path.open("rb") as file:
                file.seek(start)
                return _without_blank(BytesIO(file.read(end - start)).readlines())
        return self.content


@dataclass(frozen=True, slots=True)
class ProblemBlock:
    """Some problems; problem i has ``n_pairs[i]`` pairs."""

    problem_ids: list[str]
    sources: list[str]
    n_pairs: NDArray[np.int64]
    grids: FlatGrids  # of all pairs: input, output, input, output, ...


def row_blocks(path: Path) -> Iterator[RowBlock]:
    """Yield the rows of a .jsonl, .jsonl.gz or .parquet file of BARC rows; blank lines are not counted.

    Raises `InputError` if the file cannot be read.
    """
    if not path.name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        raise InputError(f"{path}: ends in {path.suffix!r}; expected a .jsonl, .jsonl.gz or .parquet file of BARC rows")
    n_before = 0
    with reading(path):
        for n_rows, content in _parquet_blocks(path) if path.suffix == ".parquet" else _json_blocks(path):
            yield RowBlock(path, n_before + 1, content)
            n_before += n_rows


def _parquet_blocks(path: Path) -> Iterator[tuple[int, pa.RecordBatch]]:
    with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as table:
        check_columns(table.schema_arrow.names, path)
        columns = [name for name in FIELDS if name in table.schema_arrow.names]
        for batch in table.iter_batches(PARQUET_BLOCK, columns=columns):
            yield len(batch), batch


def _json_blocks(path: Path) -> Iterator[tuple[int, list[bytes] | tuple[int, int]]]:
    end = 0
    with open_binary(path, JSON_BLOCK) as file:
        while lines := file.readlines(JSON_BLOCK):
            start, end = end, end + sum(map(len, lines))
            if rows := _without_blank(lines):
                yield len(rows), rows if path.suffix == ".gz" else (start, end)


def _without_blank(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.isspace()]


def read_block(block: RowBlock) -> tuple[ProblemBlock, Counter[str]]:
    """Return the problems of a block, named after file and row, and how many pairs were left out, by reason.

    Fields: `source` and `examples` ([input grid, output grid] pairs); others are ignored. Raises `InputError` for
    anything that is not a BARC row.
    """
    rows = block.read()
    numbers = range(block.first, block.first + len(rows))
    stem = Path(block.path.name.removesuffix(".gz")).stem
    left_out: Counter[str] = Counter()
    try:
        heads, n_pairs, grids = _heads_and_pairs(rows)
        sources = [_source(head, "") for head in heads]
    except ValueError:  # row by row, it is converted or named in an error
        sources, n_pairs, grids = _row_by_row(rows, [f"{block.path}: row {number}" for number in numbers], left_out)
    problem_ids = [f"{stem}-{number:06d}" for number in numbers]
    return ProblemBlock(problem_ids, sources, np.asarray(n_pairs, np.int64), grids), left_out


def _heads_and_pairs(rows: Rows) -> tuple[list[Any], Any, FlatGrids]:
    """Return the rows without examples, the number of pairs in each, and their grids: input, output, input, ..."""
    if isinstance(rows, pa.RecordBatch):
        if "examples" not in rows.schema.names:
            raise UnusualFormError
        examples = rows["examples"]
        if not are_lists(examples) or not are_lists(pairs := examples.flatten()) or (lengths_of(pairs) != 2).any():
            raise UnusualFormError
        heads = rows.drop_columns("examples").to_pylist()
        return heads, lengths_of(examples), FlatGrids.from_arrow(pairs.flatten())
    cuts = [cut(line) for line in rows]
    heads = [decode_json(head, "", "") for head, _ in cuts]
    if not all(isinstance(head, dict) and head.get("examples", "") is None for head in heads):
        raise UnusualFormError
    return heads, *read_examples(text for _, text in cuts)


def _row_by_row(rows: Rows, names: list[str], left_out: Counter[str]) -> tuple[list[str], list[int], FlatGrids]:
    """As `_heads_and_pairs`, with the sources of the rows; `names`: what to call them in errors."""
    sources: list[str] = []
    n_pairs: list[int] = []
    grids: list[Grid] = []
    for row, name in zip(rows.to_pylist() if isinstance(rows, pa.RecordBatch) else rows, names, strict=True):
        fields = decode_json(row, name, "one BARC row per line") if isinstance(row, bytes) else row
        sources.append(_source(fields, name))
        examples = _examples(fields, name, left_out)
        n_pairs.append(len(examples) // 2)
        grids += examples
    return sources, n_pairs, FlatGrids.from_grids(grids)


def _field(row: Any, name: str, kind: type, where: str) -> Any:
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, kind):
        raise InputError(f"{where}: field {name!r} is missing or not a {kind.__name__}")
    return value


def _source(row: Any, where: str) -> str:
    source: str = _field(row, "source", str, where)
    if not source.strip():
        raise InputError(f"{where}: field 'source' is empty; expected a program")
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: field 'source' is not valid Unicode ({error})") from None
    return source


def _examples(row: Any, where: str, left_out: Counter[str]) -> list[Grid]:
    """Return the grids of a row's pairs: input, output, input, ..."""
    grids: list[Grid] = []
    for number, example in enumerate(_field(row, "examples", list, where)):
        try:
            input_grid, output = map(_grid, example)
            if isinstance(input_grid, str) or isinstance(output, str):
                reasons = {side for side in (input_grid, output) if isinstance(side, str)}
                left_out[" and ".join(sorted(reasons))] += 1
            else:
                grids += [input_grid, output]
        except (GridError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: field 'examples', pair {number}: {error}; expected [input grid, output grid]"
            ) from None
    return grids


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
