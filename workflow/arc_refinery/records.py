"""What passes between stages: Parquet files with fixed schemas, written atomically, read lazily and strictly.

Each file's metadata say its kind, the schema version, the package version, the seed and a hash of the settings that
made it; nothing measured (times, memory) is stored, so equal settings give equal bytes.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery.augment import Augmentation
from arc_refinery.barc.problems import Problem
from arc_refinery.errors import InputError
from arc_refinery.files import written_as_a_whole
from arc_refinery.grids import Grid, GridError, as_grid
from arc_refinery.prompts import Message
from arc_refinery.tasks import Pair, Task

SCHEMA_VERSION = 1
ROWS_PER_GROUP = 2000

logger = logging.getLogger(__name__)

Kind = Literal["problems", "tasks", "prompts", "attempts", "verdicts"]


class RecordError(InputError):
    """A file of records cannot be used; the message names file and column, what was expected and what to do."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation that waits for an answer, and the task as the model sees it (augmented, reordered)."""

    prompt_id: str
    task_id: str
    turn: int
    parent_id: str  # attempt that is refined; empty in turn 1
    augmentation: Augmentation
    train_order: tuple[int, ...]
    messages: tuple[Message, ...]
    text: str  # the messages rendered by the model's chat template
    n_tokens: int
    n_predictions: int  # completions to draw
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One completion with its lineage."""

    attempt_id: str
    prompt_id: str
    task_id: str
    turn: int
    parent_id: str
    model: str
    adapter: str  # empty: the model as it is
    seed: int
    temperature: float
    top_p: float
    augmentation: Augmentation
    train_order: tuple[int, ...]
    completion: str
    n_prompt_tokens: int
    n_tokens: int
    finish_reason: str  # stop, or length where the completion was cut
    logprob: float  # sum over the completion's tokens, natural logarithm, temperature 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What executing one attempt's program gave. Outputs have augmentation and order undone; empty unless status is ok.

    Scores compare them with the task's grids (0 where there are none); see metrics.py.
    """

    attempt_id: str
    prompt_id: str
    task_id: str
    turn: int
    program_hash: str  # empty: no program could be taken out of the completion
    status: str  # no_code, or the sandbox's verdict
    error: str
    train_outputs: tuple[Grid, ...]
    test_outputs: tuple[Grid, ...]
    fingerprint: str  # of all outputs; empty unless status is ok
    train_pixel_score: float
    train_correct_grids: float
    test_pixel_score: float
    test_correct_grids: float

    @property
    def train_is_correct(self) -> bool:
        return self.train_correct_grids == 1.0

    @property
    def test_is_correct(self) -> bool:
        return self.test_correct_grids == 1.0


_GRID = pa.list_(pa.list_(pa.int8()))
_PAIRS = pa.list_(pa.struct([("input", _GRID), ("output", _GRID)]))
_AUGMENTATION = pa.struct([("n_rotations", pa.int8()), ("transpose", pa.bool_()), ("colors", pa.list_(pa.int8()))])
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TYPES: dict[str, pa.DataType] = {
    "seeds": pa.list_(pa.string()),
    "examples": _PAIRS,
    "train": _PAIRS,
    "test": _PAIRS,
    "augmentation": _AUGMENTATION,
    "train_order": pa.list_(pa.int8()),
    "messages": _MESSAGES,
    "train_outputs": pa.list_(_GRID),
    "test_outputs": pa.list_(_GRID),
}
_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_CLASSES: dict[Kind, type] = {
    "problems": Problem,
    "tasks": Task,
    "prompts": Prompt,
    "attempts": Attempt,
    "verdicts": Verdict,
}


def schema(kind: Kind) -> pa.Schema:
    """The columns of a kind of file: the fields of its record class, in order."""
    return pa.schema([(f.name, _TYPES.get(f.name) or _SCALARS[f.type]) for f in fields(_CLASSES[kind])])  # type: ignore[index]


def settings_hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def write(
    path: Path,
    kind: Kind,
    records: Iterable[Any],
    seed: int,
    settings: Mapping[str, Any],
    notes: Callable[[], dict[str, int]] = dict,
) -> None:
    """Write records to a temporary file, then rename it to `path`.

    `settings` are those of the stage that change the content. `notes` is called at the end for short facts that belong
    to the file, such as how many rows were dropped.
    """
    metadata = {
        "kind": kind,
        "schema_version": str(SCHEMA_VERSION),
        "package_version": version("arc-refinery"),
        "seed": str(seed),
        "settings": settings_hash(settings),
    }
    columns = schema(kind).with_metadata(metadata)
    with written_as_a_whole(path) as unfinished, pq.ParquetWriter(unfinished, columns) as writer:
        group: list[dict[str, Any]] = []
        for record in records:
            group.append(_plain(record))
            if len(group) == ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(group, columns))
                group = []
        writer.write_table(pa.Table.from_pylist(group, columns))
        writer.add_key_value_metadata({"notes": json.dumps(notes(), sort_keys=True)})


def write_prompts(path: Path, prompts: Iterable[Prompt], longest: int, seed: int, settings: Mapping[str, Any]) -> None:
    """Write the prompts of at most `longest` tokens; how many were longer is logged and kept in the file's notes."""
    lengths: list[int] = []

    def fitting() -> Iterator[Prompt]:
        for prompt in prompts:
            lengths.append(prompt.n_tokens)
            if prompt.n_tokens <= longest:
                yield prompt

    write(path, "prompts", fitting(), seed, settings, lambda: {"n_dropped": sum(n > longest for n in lengths)})
    if lengths:
        percentiles = ", ".join(f"{share} %: {int(np.percentile(lengths, share))}" for share in (50, 95, 100))
        logger.info("tokens of %d prompts: %s; longest allowed: %d", len(lengths), percentiles, longest)


def read_problems(path: Path) -> Iterator[Problem]:
    for row in _rows(path, "problems"):
        yield Problem(
            row["problem_id"], row["source"], _pairs(row["examples"], path), tuple(row["seeds"] or ()), row["origin"]
        )


def read_tasks(path: Path) -> Iterator[Task]:
    for row in _rows(path, "tasks"):
        yield Task(**{**row, "train": _pairs(row["train"], path), "test": _pairs(row["test"], path)})


def read_prompts(path: Path) -> Iterator[Prompt]:
    for row in _rows(path, "prompts"):
        changed = {
            "augmentation": _augmentation(row["augmentation"]),
            "train_order": tuple(row["train_order"]),
            "messages": tuple(row["messages"]),
            "train": _pairs(row["train"], path),
            "test": _pairs(row["test"], path),
        }
        yield Prompt(**{**row, **changed})


def read_attempts(path: Path) -> Iterator[Attempt]:
    for row in _rows(path, "attempts"):
        lineage = {"augmentation": _augmentation(row["augmentation"]), "train_order": tuple(row["train_order"])}
        yield Attempt(**{**row, **lineage})


def read_verdicts(path: Path) -> Iterator[Verdict]:
    for row in _rows(path, "verdicts"):
        outputs = {name: tuple(_grid(grid, path) for grid in row[name]) for name in ("train_outputs", "test_outputs")}
        yield Verdict(**{**row, **outputs})


def kind_of(path: Path) -> str:
    """What a file holds, from its metadata."""
    return _metadata(path)["kind"]


def count(path: Path) -> int:
    """Number of records in a file."""
    n_rows: int = pq.read_metadata(path).num_rows
    return n_rows


def notes(path: Path) -> dict[str, Any]:
    """The short facts that were written with the file."""
    content: dict[str, Any] = json.loads(_metadata(path).get("notes", "{}"))
    return content


def check(path: Path, kind: Kind) -> None:
    """Raise `RecordError` unless the file is readable, of this kind, of this version and has all columns."""
    metadata = _metadata(path)
    if metadata["kind"] != kind:
        raise RecordError(f"{path}: holds {metadata['kind']}, expected {kind}; give another file")
    if metadata["schema_version"] != str(SCHEMA_VERSION):
        raise RecordError(
            f"{path}: has schema {metadata['schema_version']}, this version reads {SCHEMA_VERSION}. {_remake(path)}"
        )
    found = pq.read_schema(path)
    for column in schema(kind):
        if column.name not in found.names:
            raise RecordError(f"{path}: column {column.name!r} is missing. {_remake(path)}")
        if found.field(column.name).type != column.type:
            given = found.field(column.name).type
            raise RecordError(f"{path}: column {column.name!r} is {given}, expected {column.type}. {_remake(path)}")


def _rows(path: Path, kind: Kind) -> Iterator[dict[str, Any]]:
    check(path, kind)
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_PER_GROUP, columns=schema(kind).names):
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise RecordError(f"{path}: cannot be read ({error}). {_remake(path)}") from None


def _metadata(path: Path) -> dict[str, str]:
    try:
        raw = pq.read_metadata(path).metadata or {}
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file. Make it: snakemake {path}") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise RecordError(f"{path}: no readable Parquet file ({error}). {_remake(path)}") from None
    metadata = {key.decode(): value.decode() for key, value in raw.items()}
    if "kind" not in metadata or "schema_version" not in metadata:
        raise RecordError(f"{path}: was not written by arc-refinery (its metadata name no kind). {_remake(path)}")
    return metadata


def _remake(path: Path) -> str:
    return f"Re-make it: delete it, then run snakemake {path}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return list(value.astype(np.int8))  # its rows: pyarrow takes arrays much faster than lists
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _pairs(rows: list[dict[str, Any]], path: Path) -> tuple[Pair, ...]:
    return tuple(Pair(_grid(row["input"], path), _grid(row["output"], path)) for row in rows)


def _grid(rows: Any, path: Path) -> Grid:
    try:
        return as_grid(rows)
    except GridError as error:
        raise RecordError(f"{path}: a grid is {error}. {_remake(path)}") from None


def _augmentation(row: dict[str, Any]) -> Augmentation:
    return Augmentation(row["n_rotations"], row["transpose"], tuple(row["colors"]))
