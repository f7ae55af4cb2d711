"""Files that stages exchange: Parquet with fixed schemas, written atomically, read lazily and checked strictly.

Each file's metadata contain its kind, the schema version, the package version, the seed, and hashes: of the settings
that made it, of the files whose rows its rows answer, and of the ids of its own rows. No measurements (times, memory)
are stored, so equal settings give equal bytes.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from arc_refinery.arc.arrow_grids import SIDES, FlatGrids, lengths_of, list_array, pair_array
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import GridError
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write
from arc_refinery.reading import check_regular, content_hash
from arc_refinery.records.questions import Asserts, Question
from arc_refinery.records.refining import Attempt, Demonstration, Overlap, Prompt, Verdict
from arc_refinery.records.schemas import GRIDS, PAIRS, RecordKind, schema
from arc_refinery.records.transcripts import Conversation, Episode, Segment

SCHEMA_VERSION = 1
ROWS_PER_GROUP = 2000
MAY_BE_NULL = {"asserts"}  # columns
Record = TypeVar("Record")


class RecordError(InputError):
    """A file of records cannot be used; the message names file and column, what was expected and what to do."""


def settings_hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def tables(kind: RecordKind, records: Iterable[Any]) -> Iterator[pa.Table]:
    """Yield records as tables of `ROWS_PER_GROUP` rows; the last one may be shorter."""
    remaining = iter(records)
    while group := list(islice(remaining, ROWS_PER_GROUP)):
        columns = [_column([getattr(record, field.name) for record in group], field.type) for field in schema(kind)]
        yield pa.table(columns, schema(kind))


@contextmanager
def writer(
    path: Path,
    kind: RecordKind,
    seed: int,
    settings: Mapping[str, Any],
    notes: Callable[[], dict[str, Any]] = dict,
    made_from: Sequence[Path] = (),
) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends a table to the file; the file appears at `path` only if all goes well.

    Row groups have `ROWS_PER_GROUP` rows, whatever the size of the tables.

    `settings` are the stage's settings that affect the content. `notes` is called at the end and returns short facts
    about the file, such as how many rows were dropped. `made_from` are the files whose rows this one's rows answer:
    `check_made_from` later refuses others with the same ids.
    """
    metadata = {
        "kind": kind,
        "schema_version": str(SCHEMA_VERSION),
        "package_version": version("arc-refinery"),
        "seed": str(seed),
        "settings": settings_hash(settings),
        **({"made_from": content_hash(made_from)} if made_from else {}),
    }
    columns = schema(kind).with_metadata(metadata)
    with atomic_write(path) as unfinished, pq.ParquetWriter(unfinished, columns, **_encodings(kind)) as file:
        waiting = schema(kind).empty_table()
        ids = hashlib.sha256()

        def add(table: pa.Table) -> None:
            nonlocal waiting
            _add_ids(ids, table[_id_column(kind)].to_pylist())
            waiting = pa.concat_tables([waiting, table.replace_schema_metadata(None)])
            n_whole = len(waiting) // ROWS_PER_GROUP * ROWS_PER_GROUP
            write_groups(waiting.slice(0, n_whole))
            waiting = waiting.slice(n_whole)

        def write_groups(table: pa.Table) -> None:
            if len(table):
                file.write_table(table.replace_schema_metadata(metadata), ROWS_PER_GROUP)

        yield add
        write_groups(waiting)
        file.add_key_value_metadata({"notes": json.dumps(notes(), sort_keys=True), "ids": ids.hexdigest()})


def _encodings(kind: RecordKind) -> dict[str, Any]:
    """Encode cells as byte streams, three quarters of them zeros: cheaper than a dictionary of ten colours."""
    pairs, grids = ([field.name for field in schema(kind) if field.type == one] for one in (PAIRS, GRIDS))
    lists = [f"{name}.list.element.{side}" for name in pairs for side in SIDES]
    lists += [f"{name}.list.element" for name in grids]
    return {
        "compression": "lz4",
        "write_page_checksum": True,
        "use_dictionary": [field.name for field in schema(kind) if pa.types.is_string(field.type)],
        "column_encoding": {f"{name}.list.element.list.element": "BYTE_STREAM_SPLIT" for name in lists},
    }


def write(
    path: Path,
    kind: RecordKind,
    records: Iterable[Any],
    seed: int,
    settings: Mapping[str, Any],
    notes: Callable[[], dict[str, Any]] = dict,
    made_from: Sequence[Path] = (),
) -> None:
    """Write records to a file; see `writer`."""
    with writer(path, kind, seed, settings, notes, made_from) as add:
        for table in tables(kind, records):
            add(table)


def read_tasks(path: Path) -> Iterator[Task]:
    return (Task(**row) for row in _rows(path, "tasks"))


def read_prompts(path: Path) -> Iterator[Prompt]:
    for row in _rows(path, "prompts"):
        changed = {
            "augmentation": _augmentation(row["augmentation"]),
            "train_order": tuple(row["train_order"]),
            "messages": tuple(row["messages"]),
        }
        yield Prompt(**{**row, **changed})


def read_attempts(path: Path) -> Iterator[Attempt]:
    for row in _rows(path, "attempts"):
        lineage = {"augmentation": _augmentation(row["augmentation"]), "train_order": tuple(row["train_order"])}
        yield Attempt(**{**row, **lineage})


def read_verdicts(path: Path, chosen: NDArray[np.bool_] | None = None) -> Iterator[Verdict]:
    """Yield verdicts; `chosen`, one value for each in the file, leaves out those where it is false."""
    return (Verdict(**row) for row in _rows(path, "verdicts", chosen))


def read_demonstrations(path: Path) -> Iterator[Demonstration]:
    return (Demonstration(**row) for row in _rows(path, "demonstrations"))


def read_overlaps(path: Path) -> Iterator[Overlap]:
    return (Overlap(**row) for row in _rows(path, "overlaps"))


def read_questions(path: Path) -> Iterator[Question]:
    for row in _rows(path, "questions"):
        asserts = row["asserts"] and _asserts(row["asserts"])
        yield Question(**{**row, "asserts": asserts})


def read_conversations(path: Path) -> Iterator[Conversation]:
    for row in _rows(path, "conversations"):
        yield Conversation(**{**row, "segments": tuple(Segment(**one) for one in row["segments"])})


def read_episodes(path: Path) -> Iterator[Episode]:
    return (Episode.of(row) for row in _rows(path, "episodes"))


def read_all(read: Callable[[Path], Iterable[Record]], paths: Iterable[Path]) -> Iterator[tuple[Path, Record]]:
    """Yield the records of several files; raise `RecordError` if two have the same id, as if a file was copied."""
    owners: dict[str, Path] = {}
    for path in paths:
        for record in read(path):
            name = getattr(record, fields(record)[0].name)  # type: ignore[arg-type]
            if name in owners:
                raise RecordError(f"{path}: {name} is also in {owners[name]}; give each file once")
            owners[name] = path
            yield path, record


def kind_of(path: Path) -> str:
    """Return the kind of a file's records, from its metadata."""
    return _metadata(path)["kind"]


def columns(path: Path, kind: RecordKind, names: Sequence[str], ids: Collection[str] | None = None) -> pa.Table:
    """Return some columns of a file, checked as by the readers of records; with `ids`, only of the rows with these."""
    check(path, kind)
    wanted = list(dict.fromkeys([_id_column(kind), *names]))
    batches = _checked(path, kind, wanted)
    if ids is not None:
        chosen = pa.array(list(ids), pa.string())
        batches = (batch.filter(pc.is_in(batch[_id_column(kind)], chosen)) for batch in batches)
    return pa.Table.from_batches(batches, pa.schema([schema(kind).field(name) for name in wanted])).select(list(names))


def texts(path: Path, kind: RecordKind, column: str) -> list[str]:
    """Return a column of texts; other columns are not read."""
    values: list[str] = columns(path, kind, [column])[column].to_pylist()
    return values


def count(path: Path) -> int:
    """Return the number of records in a file."""
    n_rows: int = _footer(path).num_rows
    return n_rows


def check_made_from(path: Path, sources: Sequence[Path]) -> None:
    """Raise `RecordError` if a file was made from other contents than those of the files `sources`.

    Files of earlier versions do not say what they were made from.
    """
    given = _metadata(path).get("made_from")
    if given not in (None, content_hash(sources)):
        names = ", ".join(map(str, sources[:2])) + (f" and {len(sources) - 2} more" if len(sources) > 2 else "")
        raise RecordError(f"{path}: was made from other files than {names}. {remake(path)}")


def settings_of(path: Path) -> str:
    """Return the hash of the settings that made a file."""
    return _metadata(path).get("settings", "")


def notes(path: Path) -> dict[str, Any]:
    """Return the short facts that were written with the file."""
    try:
        content = json.loads(_metadata(path).get("notes", "{}"))
    except ValueError as error:
        raise RecordError(f"{path}: its notes are not valid JSON ({error}). {remake(path)}") from None
    return dict(content)


def check(path: Path, kind: RecordKind) -> None:
    """Raise `RecordError` unless the file is readable, has this kind and schema version, and has all columns."""
    metadata = _metadata(path)
    if metadata["kind"] != kind:
        raise RecordError(f"{path}: holds {metadata['kind']}, expected {kind}; give another file")
    if metadata["schema_version"] != str(SCHEMA_VERSION):
        raise RecordError(
            f"{path}: has schema {metadata['schema_version']}, this version reads {SCHEMA_VERSION}. {remake(path)}"
        )
    found = pq.read_schema(path)
    for column in schema(kind):
        if column.name not in found.names:
            raise RecordError(f"{path}: column {column.name!r} is missing. {remake(path)}")
        if found.field(column.name).type != column.type:
            given = found.field(column.name).type
            raise RecordError(f"{path}: column {column.name!r} is {given}, expected {column.type}. {remake(path)}")


def _rows(path: Path, kind: RecordKind, chosen: NDArray[np.bool_] | None = None) -> Iterator[dict[str, Any]]:
    check(path, kind)
    names = schema(kind).names
    for batch in _checked(path, kind, names, chosen):
        columns = [_values(batch[name], name, path) for name in names]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _checked(
    path: Path, kind: RecordKind, names: list[str], chosen: NDArray[np.bool_] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file, the id among them; raise `RecordError` if values or rows are not as they were written.

    That is, for a missing value, an id that comes again, and, if all rows are read, other ids or another order.
    """
    seen: set[str] = set()
    digest = hashlib.sha256()
    for batch in _batches(path, names, chosen):
        for name in names:
            if name not in MAY_BE_NULL and _has_nulls(batch[name]):
                raise RecordError(f"{path}: a value is missing in column {name!r}. {remake(path)}")
        ids = batch[_id_column(kind)].to_pylist()
        if twice := next((one for one in ids if one in seen or seen.add(one)), None):  # type: ignore[func-returns-value]
            raise RecordError(f"{path}: {_id_column(kind)} {twice} is there twice. {remake(path)}")
        _add_ids(digest, ids)
        yield batch
    written = _metadata(path).get("ids")  # files of earlier versions have none
    if chosen is None and written not in (None, digest.hexdigest()):
        raise RecordError(f"{path}: its rows are not those that were written, or in another order. {remake(path)}")


def _add_ids(digest: "hashlib._Hash", ids: Iterable[str]) -> None:
    digest.update("".join(f"{one}\n" for one in ids).encode())


def _id_column(kind: RecordKind) -> str:
    return schema(kind).names[0]  # type: ignore[no-any-return]


def _has_nulls(array: pa.Array) -> bool:
    """Whether a value is missing, at any depth."""
    if array.null_count:
        return True
    if pa.types.is_struct(array.type):
        return any(map(_has_nulls, array.flatten()))
    return pa.types.is_list(array.type) and _has_nulls(array.flatten())


def _batches(path: Path, columns: list[str], chosen: NDArray[np.bool_] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows, by default all; row groups without any are not read."""
    try:
        # with pre_buffer, everything that was read stays in memory
        with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            start = 0
            for number in range(file.num_row_groups):
                end = start + file.metadata.row_group(number).num_rows
                if chosen is None or chosen[start:end].any():
                    for batch in file.iter_batches(ROWS_PER_GROUP, [number], columns):
                        some = slice(start, start := start + len(batch))
                        yield batch if chosen is None else batch.filter(pa.array(chosen[some]))
                start = end
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{path}: cannot be read ({error}). {remake(path)}") from None


def _metadata(path: Path) -> dict[str, str]:
    raw = _footer(path).metadata or {}
    metadata = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in raw.items()}
    if "kind" not in metadata or "schema_version" not in metadata:
        raise RecordError(f"{path}: was not written by arc-refinery (its metadata have no kind). {remake(path)}")
    return metadata


def _footer(path: Path) -> pq.FileMetaData:
    if not path.exists():
        raise RecordError(f"{path}: no such file. Make it: snakemake {path}")
    check_regular(path)
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{path}: not a readable Parquet file ({error}). {remake(path)}") from None


def remake(path: Path) -> str:
    """Return what to do about an unusable file, for messages."""
    return f"Re-make it: delete it, then run snakemake {path}"


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind not in (PAIRS, GRIDS):
        return pa.array([_plain(value) for value in values], kind)
    items = [item for value in values for item in value]
    if kind == PAIRS:
        nested = pair_array(*(FlatGrids.from_grids([getattr(pair, side) for pair in items]) for side in SIDES))
    else:
        nested = FlatGrids.from_grids(items).to_arrow()
    return list_array(np.array([len(value) for value in values], np.int64), nested)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return asdict(value) if is_dataclass(value) else value  # type: ignore[arg-type]


def _values(column: pa.Array, name: str, path: Path) -> list[Any]:
    """Return one value per row, grids and pairs as tuples. Only the output of a test pair may be `UNKNOWN`."""
    if column.type not in (PAIRS, GRIDS):
        values: list[Any] = column.to_pylist()
        return values
    if column.type == GRIDS:
        items: list[Any] = _flat_grids(column.flatten(), path).to_grids()
    else:
        items = list(map(Pair, *(side.to_grids() for side in _sides(column, name, path))))
    ends = np.cumsum(lengths_of(column)).tolist()
    return [tuple(items[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _sides(column: pa.Array, name: str, path: Path) -> tuple[FlatGrids, FlatGrids]:
    """Return the inputs and the outputs of a column of pairs."""
    pairs = column.flatten()
    inputs = _flat_grids(pairs.field("input"), path)
    return inputs, _flat_grids(pairs.field("output"), path, may_be_unknown=name == "test")


def _flat_grids(grids: pa.Array, path: Path, may_be_unknown: bool = False) -> FlatGrids:
    try:
        return FlatGrids.from_arrow(grids, may_be_unknown)
    except GridError as error:
        raise RecordError(f"{path}: a grid is {error}. {remake(path)}") from None


def _asserts(row: dict[str, Any]) -> Asserts:
    return Asserts(tuple(row["statements"]), tuple(row["imports"]), row["setup"])


def _augmentation(row: dict[str, Any]) -> Augmentation:
    return Augmentation(row["n_rotations"], row["transpose"], tuple(row["colors"]))
