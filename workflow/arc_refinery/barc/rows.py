"""BARC rows from a file or from the Hugging Face hub, as problems."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery.barc.problems import Problem
from arc_refinery.errors import InputError
from arc_refinery.grids import GridError, as_grid
from arc_refinery.tasks import Pair


class RowError(InputError):
    """A BARC row cannot be used; the message names file, row and field."""


def read_barc_rows(path: Path) -> Iterator[Problem]:
    """Problems of a .jsonl or .parquet file with the fields `source`, `examples` (input/output pairs) and `seeds`."""
    match path.suffix:
        case ".jsonl":
            rows = _json_lines(path)
        case ".parquet":
            rows = _parquet_rows(path)
        case _:
            raise RowError(f"{path}: ends in {path.suffix!r}; expected a .jsonl or .parquet file of BARC rows")
    for number, row in enumerate(rows, 1):
        yield _problem(row, f"{path}: row {number}", f"{path.stem}-{number:06d}")


def download_barc_rows(repository: str, filename: str) -> Path:
    """The file of a hub data set, from the local cache or downloaded."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, filename, repo_type="dataset"))


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open(errors="strict") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise RowError(f"{path}: row {number} is no JSON ({error}); expected one BARC row a line") from None


def _parquet_rows(path: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise RowError(f"{path}: no readable Parquet file ({error})") from None


def _problem(row: Any, where: str, problem_id: str) -> Problem:
    for field, expected in (("source", str), ("examples", list)):
        if not isinstance(row, dict) or not isinstance(row.get(field), expected):
            raise RowError(f"{where}: field {field!r} is missing or no {expected.__name__}")
    seeds = row.get("seeds") or []
    if not isinstance(seeds, list):
        raise RowError(f"{where}: field 'seeds' is {seeds!r}, expected a list")
    examples = []
    for number, example in enumerate(row["examples"]):
        try:
            given, wanted = example
            examples.append(Pair(as_grid(given), as_grid(wanted)))
        except (GridError, TypeError, ValueError) as error:
            raise RowError(
                f"{where}: field 'examples', pair {number}: {error}; expected [input grid, output grid]"
            ) from None
    return Problem(problem_id, row["source"], tuple(examples), tuple(map(str, seeds)), "barc")
