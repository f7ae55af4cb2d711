"""Files that stages exchange: Parquet with fixed schemas, written atomically, read lazily and checked strictly.

Each file's metadata contain its kind, the schema version, the package version, the seed, and hashes: of the settings
that made it, of the files whose rows its rows answer, and of the ids of its own rows; what a model wrote has the
versions of all packages. No measurements (times, memory) are stored, so equal settings give equal bytes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, content_hash, reading
from arc_refinery.records.schemas import (
    Record,
    RecordClass,
    fault_of,
    field_types,
    from_arrow,
    non_null_type,
    schema,
    to_arrow,
)

SCHEMA_VERSION = 2
# Kinds that a model wrote or scored, with packages that the file names
SAMPLED = {"attempts", "episodes", "training samples", "reference log-probabilities"}
ROWS_PER_GROUP = 2000
# Packages that results depend on
PACKAGES = ("arc-refinery", "snakemake", "torch", "transformers", "trl", "peft", "vllm", "unsloth", "numpy", "scipy")


class RecordError(InputError):
    """A file of records cannot be used; the message names file and column, what was expected and what to do."""


@cache
def installed_versions() -> Mapping[str, str]:
    """Return the versions of those of `PACKAGES` that this environment has; the report's may have others."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def settings_hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def tables(cls: type[Record], records: Iterable[Record]) -> Iterator[pa.Table]:
    """Yield records as tables of `ROWS_PER_GROUP` rows; the last one may be shorter."""
    remaining = iter(records)
    while group := list(islice(remaining, ROWS_PER_GROUP)):
        columns = [
            to_arrow([getattr(record, name) for record in group], hint) for name, hint in field_types(cls).items()
        ]
        yield pa.table(columns, schema(cls))


@contextmanager
def writer(
    path: Path,
    cls: type[RecordClass],
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
        "kind": cls.KIND,
        "schema_version": str(SCHEMA_VERSION),
        "package_version": version("arc-refinery"),
        **({"packages": json.dumps(dict(installed_versions()))} if cls.KIND in SAMPLED else {}),
        "seed": str(seed),
        "settings": settings_hash(settings),
        **({"made_from": content_hash(made_from)} if made_from else {}),
    }
    columns = schema(cls).with_metadata(metadata)
    with atomic_write(path) as unfinished, pq.ParquetWriter(unfinished, columns, **_encodings(cls)) as file:
        waiting = schema(cls).empty_table()
        ids = hashlib.sha256()

        def add(table: pa.Table) -> None:
            nonlocal waiting
            _add_ids(ids, table[_id_column(cls)].to_pylist())
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


def _encodings(cls: type[RecordClass]) -> dict[str, Any]:
    """Encode cells as byte streams, three quarters of them zeros: cheaper than a dictionary of ten colours."""
    return {
        "compression": "lz4",
        "write_page_checksum": True,
        "use_dictionary": [field.name for field in schema(cls) if pa.types.is_string(field.type)],
        "column_encoding": {
            cells: "BYTE_STREAM_SPLIT" for field in schema(cls) for cells in _cells(field.name, field.type)
        },
    }


def _cells(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of cells of grids, in Parquet's words, such as `train.list.element.input.list.element...`."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _cells(f"{path}.{field.name}", field.type)
    elif kind == pa.list_(pa.list_(pa.int8())):
        yield f"{path}.list.element.list.element"
    elif pa.types.is_list(kind):
        yield from _cells(f"{path}.list.element", kind.value_type)


def write(
    path: Path,
    cls: type[Record],
    records: Iterable[Record],
    seed: int,
    settings: Mapping[str, Any],
    notes: Callable[[], dict[str, Any]] = dict,
    made_from: Sequence[Path] = (),
) -> None:
    """Write records to a file; see `writer`."""
    with writer(path, cls, seed, settings, notes, made_from) as add:
        for table in tables(cls, records):
            add(table)


def read(path: Path, cls: type[Record], is_wanted: NDArray[np.bool_] | None = None) -> Iterator[Record]:
    """Yield the records of a file; `is_wanted`, one value per record, leaves out those where it is false."""
    check(path, cls)
    for batch in _checked(path, cls, schema(cls).names, is_wanted):
        with reading(path, remake(path), kind=RecordError):
            records = list(_records(cls, batch))
        for record in records:
            if fault := fault_of(record):
                raise RecordError(f"{path}: {getattr(record, _id_column(cls))}: {fault}. {remake(path)}")
            yield record


def from_rows(cls: type[Record], rows: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Return records from rows of plain lists and mappings, as `dataclasses.asdict` makes them."""
    return list(_records(cls, pa.RecordBatch.from_pylist(rows, schema(cls))))


def _records(cls: type[Record], batch: pa.RecordBatch) -> Iterator[Record]:
    return map(cls, *(from_arrow(batch[name], hint, name) for name, hint in field_types(cls).items()))


def read_all(paths: Iterable[Path], cls: type[Record]) -> Iterator[tuple[Path, Record]]:
    """Yield the records of several files, which have no id in common; see `distinct`."""
    return distinct((path, record) for path in paths for record in read(path, cls))


def distinct(records: Iterable[tuple[Path, Record]]) -> Iterator[tuple[Path, Record]]:
    """Yield records and their files; raise `RecordError` if two have the same id, as if a file was copied."""
    owners: dict[str, Path] = {}
    for path, record in records:
        row_id = getattr(record, _id_column(type(record)))
        if row_id in owners:
            raise RecordError(f"{path}: {row_id} is also in {owners[row_id]}; give each file once")
        owners[row_id] = path
        yield path, record


def kind_of(path: Path) -> str:
    """Return the kind of a file's records, from its metadata."""
    return _metadata(path)["kind"]


def columns(path: Path, cls: type[RecordClass], names: Sequence[str], ids: Collection[str] | None = None) -> pa.Table:
    """Return some columns of a file, checked as by `read`; with `ids`, only of the rows with these.

    A column `detail.score` is a field of a struct; other fields of it are not read.
    """
    check(path, cls)
    id_column = _id_column(cls)
    wanted = list(dict.fromkeys([id_column, *names]))
    batches = _checked(path, cls, wanted)
    if ids is not None:
        wanted_ids = pa.array(list(ids), pa.string())
        batches = (batch.filter(pc.is_in(batch[id_column], wanted_ids)) for batch in batches)
    fields = pa.schema([pa.field(name, _type_of(cls, name)) for name in names])
    flat = (pa.RecordBatch.from_arrays([_values(batch, name) for name in names], schema=fields) for batch in batches)
    return pa.Table.from_batches(flat, fields)


def texts(path: Path, cls: type[RecordClass], column: str) -> list[str]:
    """Return a column of texts; other columns are not read."""
    values: list[str] = columns(path, cls, [column])[column].to_pylist()
    return values


def count(path: Path) -> int:
    """Return the number of records in a file."""
    n_rows: int = _footer(path).num_rows
    return n_rows


def check_made_from(path: Path, sources: Sequence[Path]) -> None:
    """Raise `RecordError` if a file was made from other contents than those of the files `sources`.

    Imported predictions, for example, name no sources.
    """
    if _metadata(path).get("made_from") not in (None, content_hash(sources)):
        names = ", ".join(map(str, sources[:2])) + (f" and {len(sources) - 2} more" if len(sources) > 2 else "")
        raise RecordError(f"{path}: was made from other files than {names}. {remake(path)}")


def settings_of(path: Path) -> str:
    """Return the hash of the settings that made a file."""
    return _metadata(path).get("settings", "")


def notes(path: Path) -> dict[str, Any]:
    """Return the short facts that were written with the file."""
    return _json(path, "notes")


def packages_of(path: Path) -> dict[str, str]:
    """Return the versions of the packages with which a file was written; empty if it does not say them."""
    return _json(path, "packages")


def check(path: Path, cls: type[RecordClass]) -> None:
    """Raise `RecordError` unless the file is readable, has this kind and schema version, and has all columns."""
    metadata = _metadata(path)
    if metadata["kind"] != cls.KIND:
        raise RecordError(f"{path}: holds {metadata['kind']}, expected {cls.KIND}; give another file")
    if metadata["schema_version"] != str(SCHEMA_VERSION):
        raise RecordError(
            f"{path}: has schema {metadata['schema_version']}, this version reads {SCHEMA_VERSION}. {remake(path)}"
        )
    in_file = pq.read_schema(path)
    for column in schema(cls):
        if column.name not in in_file.names:
            raise RecordError(f"{path}: column {column.name!r} is missing. {remake(path)}")
        if in_file.names.count(column.name) > 1:
            raise RecordError(f"{path}: column {column.name!r} is there twice. {remake(path)}")
        if (other := in_file.field(column.name).type) != column.type:
            raise RecordError(f"{path}: column {column.name!r} is {other}, expected {column.type}. {remake(path)}")


def _checked(
    path: Path, cls: type[RecordClass], names: Sequence[str], is_wanted: NDArray[np.bool_] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file, the id among them; raise `RecordError` if values or rows are not as they were written.

    That is, for a missing value, an id that comes again, and, if all rows are read, other ids or another order.
    """
    id_column, hints = _id_column(cls), field_types(cls)
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()
    for batch in _batches(path, names, is_wanted):
        for name in names:
            values = _values(batch, name)
            values = values.drop_null() if non_null_type(hints.get(name)) else values
            if _has_nulls(values):
                raise RecordError(f"{path}: a value is missing in column {name!r}. {remake(path)}")
        ids = batch[id_column].to_pylist()
        counts.update(ids)
        if doubled := next((row_id for row_id in ids if counts[row_id] > 1), None):
            raise RecordError(f"{path}: {id_column} {doubled} appears twice. {remake(path)}")
        _add_ids(digest, ids)
        yield batch
    if is_wanted is None and _metadata(path).get("ids") != digest.hexdigest():
        raise RecordError(f"{path}: its rows are not those that were written, or in another order. {remake(path)}")


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    column, *fields = name.split(".")
    return pc.struct_field(batch[column], fields) if fields else batch[column]


def _type_of(cls: type[RecordClass], name: str) -> pa.DataType:
    column, *fields = name.split(".")
    kind = schema(cls).field(column).type
    for field in fields:
        kind = kind.field(field).type
    return kind


def _add_ids(digest: "hashlib._Hash", ids: Iterable[str]) -> None:
    digest.update("".join(f"{row_id}\n" for row_id in ids).encode())


def _id_column(cls: type[RecordClass]) -> str:
    return schema(cls).names[0]  # type: ignore[no-any-return]


def _has_nulls(array: pa.Array) -> bool:
    """Return whether a value is missing, at any depth."""
    if array.null_count:
        return True
    if pa.types.is_struct(array.type):
        return any(map(_has_nulls, array.flatten()))
    return pa.types.is_list(array.type) and _has_nulls(array.flatten())


def _batches(
    path: Path, columns: Sequence[str], is_wanted: NDArray[np.bool_] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows, by default all; row groups without any are not read."""
    with (
        reading(path, remake(path), kind=RecordError),
        # with pre_buffer, everything that was read stays in memory
        pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file,
    ):
        start = 0
        for number in range(file.num_row_groups):
            end = start + file.metadata.row_group(number).num_rows
            if is_wanted is None or is_wanted[start:end].any():
                for batch in file.iter_batches(ROWS_PER_GROUP, [number], columns):
                    rows = slice(start, start := start + len(batch))
                    yield batch if is_wanted is None else batch.filter(pa.array(is_wanted[rows]))
            start = end


def _json(path: Path, name: str) -> dict[str, Any]:
    with reading(path, remake(path), kind=RecordError):
        return dict(json.loads(_metadata(path).get(name, "{}")))


def _metadata(path: Path) -> dict[str, str]:
    raw = _footer(path).metadata or {}
    metadata = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in raw.items()}
    if "kind" not in metadata or "schema_version" not in metadata:
        raise RecordError(f"{path}: was not written by arc-refinery (its metadata have no kind). {remake(path)}")
    return metadata


def _footer(path: Path) -> pq.FileMetaData:
    if not path.exists():
        raise RecordError(f"{path}: no such file. Make it: snakemake {path}")
    with reading(path, remake(path), "a Parquet file", RecordError):
        return pq.read_metadata(path)


def remake(path: Path) -> str:
    """Return what to do about an unusable file, for messages."""
    return f"Re-make it: delete it, then run snakemake {path}"
