"""Read BARC rows from a file as tables of problems.

A block of rows is checked and converted at once. A block with anything unusual in it is read row by row: this is slow,
but errors then name the row and the field.

BARC's own check accepts grids that ARC does not allow: of any size, of booleans, of fractions. Whole numbers and
booleans are read as cells; pairs with other grids are left out and counted.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery import records
from arc_refinery.arrow_grids import FlatGrids, are_lists, lengths_of, list_array, pair_array
from arc_refinery.barc.json_examples import UnusualFormError, cut, read_examples
from arc_refinery.grids import MAX_SIDE, N_COLORS, Grid, GridError, as_grid
from arc_refinery.problems import Problem
from arc_refinery.rows import READ_ERRORS, RowError, open_binary, parse_json
from arc_refinery.tasks import Pair

JSON_BLOCK = 8 * 2**20  # bytes
PARQUET_BLOCK = 500  # rows
FIELDS = ("source", "examples", "seeds")

# Reasons why a grid of a BARC row is not an ARC grid
EMPTY = "a grid without cells"
TOO_LARGE = f"a grid with a side over {MAX_SIDE}"
FRACTIONS = "a grid of fractions"
OTHER_COLORS = f"a grid with cells outside 0..{N_COLORS - 1}"


def read_barc_rows(path: Path, left_out: Counter[str]) -> Iterator[pa.Table]:
    """Yield tables of problems from a .jsonl, .jsonl.gz or .parquet file of BARC rows, named after file and row.

    Fields: `source`, `examples` ([input grid, output grid] pairs) and optionally `seeds`. Other fields and blank
    lines are ignored. `left_out` counts the pairs that are not ARC grids, by reason. Raises `RowError` for anything
    that is not a BARC row.
    """
    tables = _tables(path, left_out)
    with ThreadPoolExecutor(1) as thread:  # reads the next block while this one is used
        ahead = thread.submit(next, tables, None)
        while (table := ahead.result()) is not None:
            ahead = thread.submit(next, tables, None)
            yield table


Block: TypeAlias = list[bytes] | pa.RecordBatch  # lines of JSON, or rows of a Parquet file


def _blocks(path: Path) -> Iterator[Block]:
    if not path.name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        raise RowError(f"{path}: ends in {path.suffix!r}; expected a .jsonl, .jsonl.gz or .parquet file of BARC rows")
    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as table:
                yield from table.iter_batches(PARQUET_BLOCK, columns=[*{*FIELDS} & {*table.schema_arrow.names}])
        else:
            with open_binary(path, JSON_BLOCK) as file:
                while lines := file.readlines(JSON_BLOCK):
                    if rows := [line for line in lines if not line.isspace()]:
                        yield rows
    except READ_ERRORS as error:
        raise RowError(f"{path}: cannot be read ({error})") from None


def _tables(path: Path, left_out: Counter[str]) -> Iterator[pa.Table]:
    stem, n_before = Path(path.name.removesuffix(".gz")).stem, 0
    for block in _blocks(path):
        names = [f"{stem}-{number:06d}" for number in range(n_before + 1, n_before + len(block) + 1)]
        try:
            table = _table(*_heads_and_pairs(block), names)
        except ValueError:  # row by row, it is converted or named in an error
            table = pa.concat_tables(records.tables("problems", _problems(block, names, path, n_before + 1, left_out)))
        yield table
        n_before += len(block)


def _heads_and_pairs(block: Block) -> tuple[list[Any], Any, FlatGrids]:
    """Return the rows without examples, the number of pairs in each, and their grids: input, output, input, ..."""
    if isinstance(block, pa.RecordBatch):
        if "examples" not in block.schema.names:
            raise UnusualFormError
        examples = block["examples"]
        if not are_lists(examples) or not are_lists(pairs := examples.flatten()) or (lengths_of(pairs) != 2).any():
            raise UnusualFormError
        heads = block.drop_columns("examples").to_pylist()
        return heads, lengths_of(examples), FlatGrids.from_arrow(pairs.flatten())
    cuts = [cut(line) for line in block]
    heads = [json.loads(head) for head, _ in cuts]
    if not all(isinstance(head, dict) and head.get("examples", "") is None for head in heads):
        raise UnusualFormError
    return heads, *read_examples(text for _, text in cuts)


def _table(heads: list[Any], n_pairs: Any, grids: FlatGrids, names: list[str]) -> pa.Table:
    is_input = np.arange(grids.heights.size) % 2 == 0
    pairs = pair_array(grids.select(is_input), grids.select(~is_input))
    columns = {
        "problem_id": names,
        "source": [_source(head, "") for head in heads],
        "examples": list_array(np.asarray(n_pairs), pairs),
        "seeds": [_seeds(head, "") for head in heads],
        "origin": ["barc"] * len(heads),
    }
    return pa.table(columns, records.schema("problems"))


def _problems(block: Block, names: list[str], path: Path, first: int, left_out: Counter[str]) -> Iterator[Problem]:
    rows = block.to_pylist() if isinstance(block, pa.RecordBatch) else _parse_lines(block, path, first)
    for number, (name, row) in enumerate(zip(names, rows, strict=True), first):
        where = f"{path}: row {number}"
        source, examples = _source(row, where), _examples(row, where, left_out)
        yield Problem(name, source, examples, tuple(_seeds(row, where)), "barc")


def _parse_lines(lines: Iterable[bytes], path: Path, first: int) -> Iterator[Any]:
    for number, line in enumerate(lines, first):
        yield parse_json(line, f"{path}: row {number}", "one BARC row per line")


def _field(row: Any, name: str, kind: type, where: str) -> Any:
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, kind):
        raise RowError(f"{where}: field {name!r} is missing or not a {kind.__name__}")
    return value


def _source(row: Any, where: str) -> str:
    source: str = _field(row, "source", str, where)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"{where}: field 'source' is not valid Unicode ({error})") from None
    return source


def _seeds(row: dict[str, Any], where: str) -> list[str]:
    seeds = row.get("seeds") or []
    if not isinstance(seeds, list):
        raise RowError(f"{where}: field 'seeds' is {seeds!r}, expected a list")
    return [str(seed) for seed in seeds]


def _examples(row: Any, where: str, left_out: Counter[str]) -> tuple[Pair, ...]:
    pairs = []
    for number, example in enumerate(_field(row, "examples", list, where)):
        try:
            given, wanted = map(_grid, example)
            if isinstance(given, str) or isinstance(wanted, str):
                reasons = {side for side in (given, wanted) if isinstance(side, str)}
                left_out[" and ".join(sorted(reasons))] += 1
            else:
                pairs.append(Pair(given, wanted))
        except (GridError, TypeError, ValueError) as error:
            raise RowError(
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
