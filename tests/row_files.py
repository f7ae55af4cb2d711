"""Files of rows in the formats that the readers take."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_gzip(path: Path, rows: list[Any]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def write_parquet(path: Path, rows: list[Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


WRITERS: dict[str, Callable[[Path, list[Any]], Path]] = {
    ".jsonl": write_jsonl,
    ".jsonl.gz": write_gzip,
    ".parquet": write_parquet,
}
each_format = pytest.mark.parametrize("suffix", WRITERS)
