"""Corrupt one input of a command, run the command, and say how that ended.

A command must refuse the input with one message that names it, or give what it gives with the whole input.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery import cli, stages
from arc_refinery.errors import InputError

LONGEST = 20.0  # CPU seconds of one command in this process: others may share its core

Corrupt = Callable[[Path], None]


@dataclass(frozen=True)
class Stage:
    """A command or a job, and the files that it reads, in `folder`; its results go to `folder`/out."""

    words: Sequence[str]  # {}/ is the folder
    inputs: Mapping[str, Mapping[str, Corrupt]]  # by path in the folder: corruptions by name


def sweep(stage: Stage, whole: Path, tmp_path: Path) -> tuple[int, list[str]]:
    """Run the command once for each corruption, and fail unless it is refused by name or does no harm.

    Returns the number of refused ones, and the harmless ones.
    """
    folder = tmp_path / "case"
    shutil.copytree(whole, folder)
    command = command_of([word.replace("{}/", f"{folder}/") for word in stage.words])
    refusal, printed = ending_of(command)
    assert refusal is None
    wanted = printed, _results(folder)
    n_refused, harmless, wrong = 0, [], []
    for name, corruptions in stage.inputs.items():
        for what, corrupt in corruptions.items():
            _remove_new_files(folder, whole)
            corrupt(folder / name)
            refusal, printed = ending_of(command)
            # a folder may be named instead of its file
            if refusal and "Traceback" not in refusal and (name in refusal or Path(name).stem in refusal):
                n_refused += 1
            elif refusal is None and (printed, _results(folder)) == wanted:
                harmless.append(f"{name}, {what}")
            else:
                wrong.append(f"{name}, {what}: {'accepted' if refusal is None else refusal[-300:]}")
            _restore(folder / name, whole / name)
    assert not wrong, f"{len(wrong)}, beside {n_refused} refused:\n" + "\n".join(wrong)
    _remove_new_files(folder, whole)
    assert _files(folder) == _files(whole), "a command changes none of its inputs"
    return n_refused, harmless


def command_of(words: Sequence[str]) -> Callable[[], None]:
    """What a command line does, or the job of a stage."""
    if words[0] == "stage":
        return partial(stages.run, words[1:])
    run: Callable[[], None] = cli.parse(words).run
    return run


def ending_of(command: Callable[[], None]) -> tuple[str | None, str]:
    """Return the message, or the end of the traceback that the terminal would show, if any; and what is printed."""
    started = time.process_time()
    refusal = None
    with redirect_stdout(StringIO()) as printed:
        try:
            command()
        except InputError as error:
            refusal = str(error)
        except SystemExit as error:
            refusal = str(error.code) if error.code else None
        except Exception as error:  # noqa: BLE001  # whatever it is, the user would see a traceback
            refusal = f"Traceback: {type(error).__name__}: {error}"
    seconds = time.process_time() - started
    return (refusal if seconds < LONGEST else f"Traceback: took {seconds:.0f} s"), printed.getvalue()


def _remove_new_files(folder: Path, whole: Path) -> None:
    for path in list(folder.rglob("*")):
        if path.is_file() and not (whole / path.relative_to(folder)).exists():
            path.unlink()


def _restore(path: Path, whole: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    shutil.copy2(whole, path)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _results(folder: Path) -> dict[str, bytes]:
    return _files(folder / "out")


# Corruptions of any file


def _rewritten(change: Callable[[bytes], bytes]) -> Corrupt:
    def corrupt(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return corrupt


def _replaced(make: Callable[[Path], object]) -> Corrupt:
    def corrupt(path: Path) -> None:
        path.unlink()
        make(path)

    return corrupt


def copied_from(other: str) -> Corrupt:
    """The content of another file of the same folder, or of one above it."""

    def corrupt(path: Path) -> None:
        path.write_bytes((path.parent / other).read_bytes())

    return corrupt


ANY: dict[str, Corrupt] = {
    "missing": Path.unlink,
    "empty": _rewritten(lambda _: b""),
    "garbage": _rewritten(lambda _: bytes(range(256)) * 8),
    "zeros": _rewritten(lambda content: bytes(len(content))),
    "text": _rewritten(lambda _: b"<html>404 not found</html>\n"),
    "Git LFS pointer": _rewritten(lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    "cut in half": _rewritten(lambda content: content[: len(content) // 2]),
    "without its last byte": _rewritten(lambda content: content[:-1]),
    "folder": _replaced(Path.mkdir),
    "pipe": _replaced(os.mkfifo),
    "link to nothing": _replaced(lambda path: path.symlink_to("nowhere")),
}


# Corruptions of our Parquet files


def _table(change: Callable[[pa.Table], pa.Table]) -> Corrupt:
    """Change the rows; the metadata stay as they were."""

    def corrupt(path: Path) -> None:
        with pq.ParquetFile(path) as file:
            table, metadata = file.read(), file.metadata.metadata
        other_metadata = {key: value for key, value in metadata.items() if key != b"ARROW:schema"}
        pq.write_table(change(table).replace_schema_metadata(other_metadata), path)

    return corrupt


def _forged(change: Callable[[pa.Table], pa.Table]) -> Corrupt:
    """Change the rows and the hash of their ids; the file names no sources."""

    def corrupt(path: Path) -> None:
        with pq.ParquetFile(path) as file:
            table, metadata = change(file.read()), file.metadata.metadata
        other_metadata = {key: value for key, value in metadata.items() if key not in (b"ARROW:schema", b"made_from")}
        ids = "".join(f"{row_id}\n" for row_id in table[0].to_pylist())
        other_metadata[b"ids"] = hashlib.sha256(ids.encode()).hexdigest().encode()
        pq.write_table(table.replace_schema_metadata(other_metadata), path)

    return corrupt


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(0)
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def _null(column: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = [None, *table[column].to_pylist()[1:]]
        return table.set_column(table.column_names.index(column), column, pa.array(values, table[column].type))

    return change


def _of_another_type(column: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        other = pa.array([0.5] * len(table), pa.float32())
        return table.set_column(table.column_names.index(column), column, other)

    return change


ROWS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "reordered": lambda table: table.take(list(reversed(range(len(table))))),
    "first row dropped": lambda table: table.slice(1),
    "last row dropped": lambda table: table.slice(0, len(table) - 1),
    "row doubled": lambda table: pa.concat_tables([table, table.slice(0, 1)]),
    "no rows": lambda table: table.slice(0, 0),
}


def record_faults(
    columns: Iterable[str], joined: bool = True, others: Mapping[str, Corrupt] | None = None
) -> dict[str, Corrupt]:
    """Corruptions of a file of records; `joined`: also with a hash of the changed rows."""

    def all_of_them() -> Iterator[tuple[str, Corrupt]]:
        yield from ANY.items()
        yield "of another schema version", _with_metadata("schema_version", "0")
        yield "of another kind", _with_metadata("kind", "curves")
        yield "flipped byte", _flipped
        for name, change in ROWS.items():
            yield name, _table(change)
            if joined:
                yield f"{name}, with their hash", _forged(change)
        for column in columns:
            yield f"{column} missing", _table(partial(pa.Table.drop_columns, columns=column))
            yield f"{column} null", _table(_null(column))
            yield f"{column} of another type", _table(_of_another_type(column))
        yield from (others or {}).items()

    return dict(all_of_them())


def _with_metadata(key: str, value: str) -> Corrupt:
    def corrupt(path: Path) -> None:
        table = pq.read_table(path)
        metadata = {**pq.read_metadata(path).metadata, key.encode(): value.encode()}
        pq.write_table(table.replace_schema_metadata(metadata), path)

    return corrupt


# Corruptions of JSON


def text_faults(others: Mapping[str, bytes]) -> dict[str, Corrupt]:
    """Corruptions of a text file; `others` replace the content."""
    return {**ANY, **{what: partial(_write, content=content) for what, content in others.items()}}


def json_faults(
    paths: Sequence[Sequence[str | int]], others: Mapping[str, Any] | None = None, valid: Collection[str] = ()
) -> dict[str, Corrupt]:
    """Corruptions of a JSON file: values at `paths` missing, null or of another type; `others` replace the content.

    Without those that are `valid`: other inputs, but good ones.
    """

    def changed(where: Sequence[str | int], change: Callable[[Any, str | int], None]) -> Corrupt:
        def corrupt(path: Path) -> None:
            content = json.loads(path.read_bytes())
            *parents, last = where
            inner = content
            for key in parents:
                inner = inner[key]
            change(inner, last)
            path.write_text(json.dumps(content))

        return corrupt

    def put(value: Any) -> Callable[[Any, str | int], None]:
        def change(inner: Any, last: str | int) -> None:
            inner[last] = value

        return change

    def all_of_them() -> Iterator[tuple[str, Corrupt]]:
        yield from ANY.items()
        yield "nested 100,000 deep", _rewritten(lambda _: b"[" * 100_000)
        yield "huge integer", _rewritten(lambda _: b"1" * 5000)
        yield "not UTF-8", _rewritten(lambda content: content.replace(b"{", b'{"\xff": 1, ', 1))
        yield "doubled key", _rewritten(_doubled_key)
        for where in paths:
            name = ".".join(map(str, where))
            yield f"{name} missing", changed(where, lambda inner, last: inner.__delitem__(last))
            for what, value in (("null", None), ("a number", 7.5), ("a text", "x"), ("a list", []), ("an object", {})):
                yield f"{name} {what}", changed(where, put(value))
        for what, content in (others or {}).items():
            yield what, partial(_write, content=content)

    return {name: corrupt for name, corrupt in all_of_them() if name not in valid}


def _write(path: Path, content: Any) -> None:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def _doubled_key(content: bytes) -> bytes:
    """The first key of the first object, once more."""
    key = content[content.index(b'"') + 1 :].partition(b'"')[0]
    return content.replace(b"{", b'{"' + key + b'": 1, ', 1)
