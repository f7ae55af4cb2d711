"""Read rows of external files: JSON lines, a JSON list (both may be gzipped) or Parquet."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from arc_refinery.errors import InputError
from arc_refinery.files import decode_json, in_words, open_binary, read_json, reading

_ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
ROWS_AT_ONCE = 500  # for Parquet files


def read_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a file unchanged, in order; blank lines are skipped. Raises `InputError`.

    `columns` are the needed ones: from Parquet files, only these are read.
    """
    if not path.name.endswith(_ENDINGS):
        raise InputError(f"{path}: ends in {path.suffix!r}; expected a file that ends in {', '.join(_ENDINGS)}")
    with reading(path):
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as table:
                names = table.schema_arrow.names
                check_columns(names, path)
                wanted = None if columns is None else [name for name in columns if name in names]
                for batch in table.iter_batches(ROWS_AT_ONCE, columns=wanted):
                    yield from batch.to_pylist()
        elif path.name.endswith((".json", ".json.gz")):
            yield from read_json(path, "a list of rows", list[Any])
        else:
            with open_binary(path) as file:
                for number, line in enumerate((line for line in file if not line.isspace()), 1):
                    yield decode_json(line, f"{path}: row {number}", "one object per line")


def check_columns(names: Sequence[str], path: Path) -> None:
    """Raise `InputError` if a Parquet file has two columns of one name: which one is meant is not known."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{path}: has two columns {twice!r}; expected one, rename or remove the other")


def row_id(row: Any, name: str, where: str) -> str:
    """Return the `task_id` of a row, or `name` if it has none; it may be the name of a folder. Raises `InputError`."""
    if not isinstance(row, dict):
        raise InputError(f"{where} is {in_words(row)}; expected an object")
    value = row.get("task_id", name)
    if isinstance(value, bool) or not isinstance(value, int | str) or not re.fullmatch(r"[\w.-]+", str(value)):
        raise InputError(f"{where}: field 'task_id' is {value!r:.60}; expected a number, or letters, digits, - . _")
    return str(value)


def numbered(stem: str, number: int) -> str:
    """Return the name of a row without an id of its own."""
    return f"{stem}-{number:06d}"


def is_numbered(task_id: str) -> bool:
    """Return whether a task has a row's number for an id, which says nothing about rows of other files."""
    return bool(re.search(r"(?:-|^)\d{6}$|^\d+$", task_id, re.ASCII))


def text_field(row: Any, field: str, where: str, or_empty: bool = False) -> str:
    """Return a text of a row, with normal line ends. Raises `InputError`."""
    if not isinstance(row, dict):
        raise InputError(f"{where} is {in_words(row)}; expected an object with a field {field!r}")
    if field not in row:
        raise InputError(f"{where}: field {field!r} is missing; expected a text")
    value = row[field]
    if not isinstance(value, str) or not (or_empty or value.strip()):
        raise InputError(f"{where}: field {field!r} is {value!r:.60}; expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: field {field!r} is not valid Unicode text ({error})") from None
    return _with_unix_line_ends(value)


def texts_field(row: Any, field: str, where: str, or_none: bool = False) -> tuple[str, ...]:
    """Return a list of texts of a row, with normal line ends. Raises `InputError`."""
    if or_none and row.get(field) is None:
        return ()
    if field not in row:
        raise InputError(f"{where}: field {field!r} is missing; expected a list of texts")
    value = row[field]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{where}: field {field!r} is {value!r:.60}; expected a list of texts")
    return tuple(map(_with_unix_line_ends, value))


def _with_unix_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n")
