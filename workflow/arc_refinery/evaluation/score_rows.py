"""Rows of files of scores, whatever tool wrote them: one object per attempt.

{"traces": [{"rewards": {}}, {"rewards": {}}]}    two rows: an episode of verifiers
{"details": {"0": {"correct": true}}}             {"task_id": "0", "correct": true}
"""

import csv
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from zipfile import ZipFile, ZipInfo

import pyarrow as pa

from arc_refinery.errors import InputError
from arc_refinery.files import decode_json, in_words, read_json, read_text, reading
from arc_refinery.rows import read_rows

Row: TypeAlias = Mapping[str, Any]
SEPARATORS = (",", ";", "\t")  # of CSV
SAMPLES = re.compile(
    r"samples/(?:[^/]*|.*_epoch_\d+(?:/sample)?)\.json"
)  # in a log of inspect_ai, in one file or parts
ZSTANDARD = 93  # a compression of zip files
MOST_OF_A_CELL = 2**30  # characters of a cell of CSV


def score_rows(path: Path, is_scored: Callable[[Row], bool], log: list[str]) -> Iterator[Row]:
    """Yield the rows of a file; `log` gets sentences about the file, such as that its run was cancelled.

    `is_scored`: whether an object looks like a row, where ids of tasks are keys.
    """
    match path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix:
        case ".csv" | ".tsv":
            rows = _of_csv(path)
        case ".json":
            rows = _of_json(path, is_scored, log)
        case ".eval":
            rows = _of_archive(path, log)
        case _:
            rows = read_rows(path)
    number = 0
    for row in rows:
        is_episode = isinstance(row, Mapping) and isinstance(row.get("traces"), list)
        # an episode that ended before its first trace is one without a score
        for part in (row["traces"] or [{"rewards": {}}]) if is_episode else [row]:
            number += 1
            if not isinstance(part, Mapping):
                raise InputError(
                    f"{path}: row {number} is {in_words(part)}; expected an object with a task and a score"
                )
            yield {**row, **part} if is_episode else part


def _of_csv(path: Path) -> Iterator[Any]:
    csv.field_size_limit(MOST_OF_A_CELL)
    text = read_text(path, "CSV")
    with reading(path, form="CSV"):
        text = re.sub(r"\Asep=.\r?\n", "", text)  # as Excel names the separator
        header = text.splitlines()[:1]
        separator = max(SEPARATORS, key=lambda sign: len(next(csv.reader(header, delimiter=sign), [])))
        rows = csv.DictReader(StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
        rows.fieldnames = names = [name.strip() for name in rows.fieldnames or ()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"{path}: has the column {twice[0]} twice; rename one")
        for number, row in enumerate(rows, 1):
            if None in row:  # the key of what is beyond the header
                raise InputError(f"{path}: row {number} has more cells than the header has columns")
            yield {name: cell and cell.strip() for name, cell in row.items()}


def _of_json(path: Path, is_scored: Callable[[Row], bool], log: list[str]) -> Iterator[Any]:
    content = read_json(path, "a list of rows, or an object with one")
    if isinstance(content, list):
        return iter(content)
    tables: list[list[Any]] = []
    if isinstance(content, Mapping):
        samples = content.get("samples")
        if not samples and ("samples" in content or ("status" in content and isinstance(content.get("eval"), Mapping))):
            raise InputError(f"{path}: has no samples; expected a log of inspect_ai with its samples")
        if isinstance(samples, list):
            log += _on_log(path, content, len(samples))
            return iter(samples)
        values = list(content.values())
        tables = [value for value in values if isinstance(value, list) and value and isinstance(value[0], dict)]
        if len(tables) != 1:
            of_tasks = {
                key: value for key, value in content.items() if isinstance(value, Mapping) or _repeat(key, value)
            }
            by_id = [_by_id(value, is_scored) for value in (*values, of_tasks) if isinstance(value, Mapping)]
            tables = list(filter(None, by_id)) or tables
    if len(tables) != 1:
        raise InputError(
            f"{path}: holds {len(tables)} lists of objects; expected a list of rows, an object with one list, or rows "
            "by the ids of their tasks"
        )
    return iter(tables[0])


def _repeat(key: str, value: Any) -> bool:
    """Return whether a list has rows that name the key that they are at, and not rows of another kind."""
    return isinstance(value, list) and all(isinstance(row, Mapping) and key in row.values() for row in value)


def _by_id(content: Mapping[str, Any], is_scored: Callable[[Row], bool]) -> list[Row]:
    """Return the rows of an object whose keys are tasks, each with a row or a list of them; none, if it is another."""
    of_tasks = {key: value if isinstance(value, list) else [value] for key, value in content.items()}
    rows: list[Row] = [
        {"task_id": key, **row} for key, rows in of_tasks.items() for row in rows if isinstance(row, Mapping)
    ]
    return rows if all(map(is_scored, rows)) else []


def _of_archive(path: Path, log: list[str]) -> Iterator[Any]:
    """Yield the samples of a log of inspect_ai, in the order of their names."""
    with reading(path, form="a log of inspect_ai"), ZipFile(path) as archive, path.open("rb") as packed:

        def read(member: ZipInfo) -> Any:
            is_zstandard = member.compress_type == ZSTANDARD  # which Python's zipfile reads from 3.14 on
            content = _decompressed(packed, member) if is_zstandard else archive.read(member)
            return decode_json(content, f"{path}: {member.filename}", "a part of a log of inspect_ai")

        members = {member.filename: member for member in archive.infolist()}
        names = sorted(filter(SAMPLES.fullmatch, members))
        if not names:
            raise InputError(f"{path}: has no samples; expected a log of inspect_ai with its samples")
        # the header is written at the end
        header = read(members["header.json"]) if "header.json" in members else {"status": "not finished"}
        log += _on_log(path, header, len(names))
        yield from (read(members[name]) for name in names)


def _decompressed(packed: BinaryIO, member: ZipInfo) -> bytes:
    packed.seek(member.header_offset + 26)
    name_and_extra = sum(struct.unpack("<HH", packed.read(4)))
    packed.seek(member.header_offset + 30 + name_and_extra)
    raw = pa.BufferReader(packed.read(member.compress_size))
    content: bytes = pa.CompressedInputStream(raw, "zstd").read()
    return content


def _on_log(path: Path, header: Any, n_samples: int) -> list[str]:
    """Return a sentence if a log of inspect_ai says that not all is well with it."""
    states = {"error": "ended by an error", "started": "not finished"}
    status = header.get("status") or "success"
    words = [states.get(status, str(status))] * (status != "success") + ["invalidated"] * bool(
        header.get("invalidated")
    )
    settings = header.get("eval") or {}
    dataset, epochs = settings.get("dataset") or {}, (settings.get("config") or {}).get("epochs") or 1
    total = len(dataset.get("sample_ids") or ()) or dataset.get("samples")
    of = f" of {total * epochs}" if total else ""
    return [f"The log `{path.name}` is {' and '.join(words)}: it holds {n_samples}{of} samples."] if words else []
