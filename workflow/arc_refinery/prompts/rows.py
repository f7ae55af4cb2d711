"""Training rows in `messages` form, from JSON lines, JSON or Parquet; the first two may be gzipped."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery.errors import InputError

ROWS_AT_ONCE = 500


class RowsError(InputError):
    """Rows cannot be read; the message names file and row, and what was expected."""


@dataclass(frozen=True, slots=True)
class Row:
    """The first turn of one row."""

    number: int  # from 1
    system: str  # empty: no system message
    user: str
    assistant: str


def read_rows(path: Path) -> Iterator[Row]:
    """The first turns of a file whose rows hold {"messages": [{"role", "content"}, ...]}, in order.

    Of a folder, those of all its files but hidden ones, by name.
    """
    if path.is_dir():
        for file in sorted(path.rglob("[!.]*")):
            if file.is_file():
                yield from read_rows(file)
        return
    match path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]:
        case [".jsonl"] | [".jsonl", ".gz"]:
            rows = _json_lines(path)
        case [".json"] | [".json", ".gz"]:
            rows = _json_list(path)
        case [".parquet"]:
            rows = _parquet(path)
        case _:
            raise RowsError(f"{path}: expected a file that ends in .jsonl, .json (or these with .gz) or .parquet")
    try:
        for number, row in enumerate(rows, 1):
            yield _row(row, number, path)
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError, pa.ArrowInvalid) as error:
        raise RowsError(f"{path}: cannot be read: {error}") from None


def _json_lines(path: Path) -> Iterator[Any]:
    with _open(path) as file:
        yield from (json.loads(line) for line in file if line.strip())


def _json_list(path: Path) -> Iterator[Any]:
    with _open(path) as file:
        content = json.load(file)
    if not isinstance(content, list):
        raise RowsError(f"{path}: holds one {type(content).__name__}; expected a list of rows")
    yield from content


def _parquet(path: Path) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        if "messages" not in file.schema_arrow.names:
            raise RowsError(f"{path}: has no column `messages`, but {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=["messages"]):
            yield from batch.to_pylist()


def _open(path: Path) -> Any:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _row(row: Any, number: int, path: Path) -> Row:
    try:
        messages = [(message["role"], message["content"]) for message in row["messages"]]
        said = dict(reversed(messages))  # the first of each role
        texts = said.get("system") or "", said["user"], said["assistant"]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        return Row(number, *texts)
    except (KeyError, TypeError):
        raise RowsError(
            f'{path}: row {number}: expected {{"messages": [{{"role", "content"}}, ...]}} with the roles user and '
            "assistant, and perhaps system before them"
        ) from None
