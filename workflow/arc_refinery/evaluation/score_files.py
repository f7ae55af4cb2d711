"""Scores of tasks in files of any evaluation: one row per attempt, with a task and a number.

    {"doc_id": 17, "exact_match": 1.0, "seed": 3}    read_scores([path], ScoreColumns("doc_id", "exact_match", "seed"))

Read are JSON lines, JSON (a list of rows, or an object with one), CSV, Parquet, and the .eval files of inspect_ai.
Columns inside others have names with dots: `scores.match.value`.
"""

import csv
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from math import fsum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias
from zipfile import ZipFile, ZipInfo

import numpy as np
import pyarrow as pa

from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Values
from arc_refinery.files import decode_json, in_words, read_json, read_text, reading
from arc_refinery.rows import read_rows

# Columns that are taken if none is named. lm-evaluation-harness 0.4.13: doc_id; inspect_ai 0.3.285: id
TASKS = ("task_id", "doc_id", "question_id", "example_id", "problem_id", "id")
SCORES = ("solved", "is_correct", "correct", "right", "score", "reward", "exact_match", "acc", "pass@1")
GRADES = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "true": 1.0, "false": 0.0}  # letters: those of inspect_ai
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".parquet", ".eval")
MAX_LISTED = 20
SideFiles: TypeAlias = Path | Sequence[Path]
ZSTANDARD = 93  # a compression of zip files
MOST_OF_A_CELL = 2**30  # characters of a cell of CSV
LARGEST = 1e100  # score, with which sums of squares are still numbers


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """Columns to read; empty: found by name."""

    task: str = ""
    score: str = ""
    run: str = ""  # empty: all rows are of one run
    side: str = ""  # empty: each file is a side
    where: tuple[tuple[str, str], ...] = ()  # columns and values that a row must have


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a side, by run and by task: means over the rows of a task in a run."""

    name: str
    runs: Mapping[str, Mapping[str, float]]
    n_rows: tuple[int, ...]  # numbers of rows that tasks have in a run, without repetitions
    filter: str = ""  # of lm-evaluation-harness: how an answer was taken out of a text

    @property
    def tasks(self) -> list[str]:
        """Tasks that all runs have, in the order of the first."""
        first, *others = self.runs.values()
        return [task for task in first if all(task in other for other in others)]

    def of(self, runs: Iterable[str]) -> "Scores":
        return replace(self, runs={run: self.runs[run] for run in runs})

    def table(self, tasks: Sequence[str]) -> dict[str, Values]:
        return {run: np.array([values[task] for task in tasks]) for run, values in self.runs.items()}


def is_score_file(text: str) -> bool:
    return text.endswith(SUFFIXES) and not Path(text).is_dir()


def read_scores(sides: Sequence[SideFiles], columns: ScoreColumns) -> tuple[list[Scores], ScoreColumns]:
    """Return the sides in these files, in the order in which they appear, and the columns that were read.

    Several files of one side are its runs. Raises `InputError` for what is not a score, and where files would be read
    by different columns.
    """
    sums: dict[str, dict[str, dict[str, list[float]]]] = {}
    read: dict[Path, ScoreColumns] = {}
    filters: dict[str, set[str]] = {}
    documents: dict[str, Any] = {}
    files_of_sides = [(side,) if isinstance(side, Path) else tuple(side) for side in sides]
    if columns.run and max(map(len, files_of_sides)) > 1:
        raise InputError(
            f"--runs is {columns.run}, but files separated by commas are runs already; leave one of them out"
        )
    is_named = len({files[0].name for files in files_of_sides}) == len(files_of_sides)  # without their folders
    for files in files_of_sides:
        for number, path in enumerate(files, 1):
            for row in _score_rows(path, columns, read):
                side = row.side or _name_of(files, is_named)
                run = row.run or (str(number) if len(files) > 1 else "")
                sums.setdefault(side, {}).setdefault(run, {}).setdefault(row.task, []).append(row.score)
                filters.setdefault(side, set()).update({row.filter} - {""})
                if row.document is not None and documents.setdefault(row.task, row.document) != row.document:
                    raise InputError(
                        f"{path}: task {row.task} has another doc_hash than in a row before; expected files of the "
                        "same data"
                    )
    for side, names in filters.items():
        if len(names) > 1:  # lm-evaluation-harness scores each answer once for each
            first, second, *_ = sorted(names)
            raise InputError(
                f"{side}: filter is {first} and {second}; choose one, such as --where filter={first}, or compare "
                "them with --side filter"
            )
    if len(ways := {(of_file.task, of_file.score) for of_file in read.values()}) > 1:
        found = "; ".join(f"{path}: {of_file.task}, {of_file.score}" for path, of_file in read.items())
        raise InputError(
            f"{len(ways)} ways to read the task and the score ({found}); name them with --task and --score, and "
            "rename columns that not all files have"
        )
    scores = [
        Scores(
            side,
            {run: {task: fsum(v) / len(v) for task, v in tasks.items()} for run, tasks in runs.items()},
            tuple(sorted({len(v) for tasks in runs.values() for v in tasks.values()})),
            min(filters[side], default=""),
        )
        for side, runs in sums.items()
    ]
    return scores, next(iter(read.values()))


class _ScoreRow(NamedTuple):
    task: str
    side: str
    run: str
    score: float
    filter: str  # of lm-evaluation-harness
    document: Any  # its hash of the question


def _score_rows(path: Path, columns: ScoreColumns, read: dict[Path, ScoreColumns]) -> Iterator[_ScoreRow]:
    """Yield the wanted rows of a file; `read` gets the columns that they are read by."""
    is_any = False
    for number, row in enumerate(_rows(path), 1):
        where = f"{path}: row {number}"
        if not all(_text(_value(row, column, where)) == value for column, value in columns.where):
            continue
        if path not in read:
            named = columns.task or _task_column(row, path), columns.score or _score_column(row, path)
            read[path] = replace(columns, task=named[0], score=named[1])
        of_file = read[path]
        task, side, run = (
            _name(_value(row, column, where), f"{where}: {column}") if column else ""
            for column in (of_file.task, columns.side, columns.run)
        )
        value = _value(row, of_file.score, where)
        if of_file.score.startswith("scores.") and (value is None or value != value):
            continue  # a sample that this scorer of inspect_ai left unscored: nan is not equal to itself
        score, is_any = _number(value, f"{where}: {of_file.score}"), True
        document = row.get("doc_hash") if of_file.task == "doc_id" else None
        yield _ScoreRow(task, side, run, score, _text(row.get("filter", "")), document)
    if path in read and not is_any:
        raise InputError(f"{path}: no row has a score in {read[path].score}")
    if path not in read:
        wanted = " and ".join(f"{column} = {value}" for column, value in columns.where)
        raise InputError(f"{path}: has no rows{f' with {wanted} (--where)' if wanted else ''}")


def _name_of(paths: Sequence[Path], is_named: bool) -> str:
    if not is_named:
        return ",".join(map(str, paths))
    return paths[0].name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    readers = {".csv": _of_csv, ".json": _of_json, ".eval": _of_archive}
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    for number, row in enumerate(readers.get(suffix, read_rows)(path), 1):
        if not isinstance(row, Mapping):
            raise InputError(f"{path}: row {number} is {in_words(row)}; expected an object with a task and a score")
        yield row


def _of_csv(path: Path) -> Iterator[Any]:
    csv.field_size_limit(MOST_OF_A_CELL)
    rows = csv.DictReader(StringIO(read_text(path, "CSV"), newline=""), strict=True)
    with reading(path, form="CSV"):
        names = list(rows.fieldnames or ())
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"{path}: has the column {twice[0]} twice; rename one")
        for number, row in enumerate(rows, 1):
            if None in row:  # the key of what is beyond the header
                raise InputError(f"{path}: row {number} has more cells than the header has columns")
            yield row


def _of_json(path: Path) -> list[Any]:
    content = read_json(path, "a list of rows, or an object with one")
    lists = [content] if isinstance(content, list) else []
    if isinstance(content, Mapping) and isinstance(content.get("samples"), list):  # a log of inspect_ai
        return list(_scored(content["samples"], path))
    if isinstance(content, Mapping):
        lists = [
            value for value in content.values() if isinstance(value, list) and value and isinstance(value[0], dict)
        ]
    if len(lists) != 1:
        raise InputError(
            f"{path}: holds {len(lists)} lists of objects; expected a list of rows, or an object with one list"
        )
    return list(lists[0])


def _of_archive(path: Path) -> Iterator[Any]:
    return _scored(_samples(path), path)


def _samples(path: Path) -> Iterator[Any]:
    """Yield the samples of a log of inspect_ai, in the order of their names."""
    with reading(path, form="a log of inspect_ai"), ZipFile(path) as archive, path.open("rb") as packed:
        samples = (member for member in archive.infolist() if re.fullmatch(r"samples/.*\.json", member.filename))
        for sample in sorted(samples, key=lambda member: member.filename):
            is_zstandard = sample.compress_type == ZSTANDARD  # which Python's zipfile reads from 3.14 on
            content = _decompressed(packed, sample) if is_zstandard else archive.read(sample)
            yield decode_json(content, f"{path}: {sample.filename}", "a sample of inspect_ai")


def _decompressed(packed: BinaryIO, member: ZipInfo) -> bytes:
    packed.seek(member.header_offset + 26)
    name_and_extra = sum(struct.unpack("<HH", packed.read(4)))
    packed.seek(member.header_offset + 30 + name_and_extra)
    raw = pa.BufferReader(packed.read(member.compress_size))
    content: bytes = pa.CompressedInputStream(raw, "zstd").read()
    return content


def _scored(samples: Iterable[Any], path: Path) -> Iterator[Any]:
    """Yield the samples of inspect_ai but those that ended with an error, or that their scorer left unscored."""
    n_left_out, is_any = 0, False
    for sample in samples:
        if not isinstance(sample, Mapping) or _has_score(sample.get("scores", True)):
            is_any = True
            yield sample
        else:
            n_left_out += 1
    if n_left_out and not is_any:
        raise InputError(f"{path}: none of its {n_left_out} samples was scored")


def _has_score(scores: Any) -> bool:
    values = scores.values() if isinstance(scores, Mapping) else [scores]
    grades = [score.get("value") if isinstance(score, Mapping) else score for score in values]
    return not all(grade is None or grade != grade for grade in grades)  # nan: not equal to itself


def _task_column(row: Mapping[str, Any], path: Path) -> str:
    if isinstance(task := row.get("task"), Mapping) and isinstance(task.get("data"), Mapping):
        return "task.data.idx"  # a trace of verifiers 0.4
    for name in TASKS:
        if name in row:
            return name
    raise InputError(f"{path}: which column names the task? Give --task, one of {_listed(row)}")


def _score_column(row: Mapping[str, Any], path: Path) -> str:
    """Return the metric, score or reward of other tools if there is one, or a known name."""
    if isinstance(metrics := row.get("metrics"), list):
        if len(metrics) != 1:
            names = ", ".join(map(str, metrics)) or _listed(row)
            raise InputError(f"{path}: has {len(metrics)} metrics; give --score, one of {names}")
        return str(metrics[0])
    if isinstance(scores := row.get("scores"), Mapping) and len(scores) == 1:
        return f"scores.{next(iter(scores))}.value"
    if isinstance(rewards := row.get("rewards"), Mapping) and len(rewards) == 1:
        return f"rewards.{next(iter(rewards))}.score"
    known = [name for name in SCORES if name in row]
    if len(known) != 1:
        which = f"{' or '.join(known)}?" if known else "which column is it?"
        scores = {f"scores.{name}.value": 0 for name in row.get("scores") or () if isinstance(row["scores"], Mapping)}
        raise InputError(f"{path}: the score: {which} Give --score, one of {_listed(scores or row)}")
    return known[0]


def _listed(row: Mapping[str, Any]) -> str:
    names = [str(name) for name in row]
    return ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")


def _value(row: Mapping[str, Any], column: str, where: str) -> Any:
    """Return a value by its column, or by its place in columns: `scores.match.value`."""
    if column in row:
        return row[column]
    first, _, rest = column.partition(".")
    if rest and isinstance(inner := row.get(first), Mapping):
        return _value(inner, rest, where)
    raise InputError(f"{where}: has no column {column}; it has {_listed(row)}")


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list) or value is None else str(value)


def _name(value: Any, where: str) -> str:
    text = _text(value)
    if value is None or value != value or not text.strip():  # nan is not equal to itself
        raise InputError(f"{where} is empty; expected a name or a number")
    return text


def _number(value: Any, where: str) -> float:
    if isinstance(value, str):
        value = GRADES.get(value.lower(), value)
    try:
        number = float("nan" if "_" in str(value) else value)  # Python would read 1_000
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) <= LARGEST:
        raise InputError(f"{where} is {value!r:.60}; expected a number, true or false, or one of C, I, P, N")
    return number
