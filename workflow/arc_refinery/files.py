"""Read text and JSON strictly, write files atomically, and explain failed writes."""

import errno
import gzip
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from glob import escape
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter, ValidationError

from arc_refinery.errors import InputError


def check_regular(path: Path) -> None:
    """Raise an error for anything but a file: a folder cannot be read, and a pipe may never end."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise InputError(f"{path}: is {what}; expected a regular file")


@contextmanager
def reading(path: Path, advice: str = "", form: str = "", kind: type[InputError] = InputError) -> Iterator[None]:
    """Raise one `InputError` that names the file for whatever a library raises while it reads a file of the user.

    Each library has errors of its own, and damaged bytes end in others still, so no list of them is complete.
    """
    check_regular(path)
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001
        how, then = f" as {form}" if form else "", f"{'. ' if advice[:1].isupper() else '; '}{advice}" if advice else ""
        reason = " ".join(str(error).split())[:300]
        if not reason or isinstance(error, LookupError):  # a KeyError's text is the key alone
            reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
        raise kind(f"{path}: cannot be read{how} ({reason}){then}") from None


def read_text(path: Path, expected: str) -> str:
    """Read a text file, unzipped if it ends in .gz; raise an error that names it and what is expected.

    Windows editors begin UTF-8 with a byte order mark, which is not a part of the text.
    """
    with reading(path, f"expected {expected}", "text"), open_binary(path) as file:
        return file.read().decode("utf-8-sig")


def open_binary(path: Path, buffering: int = -1) -> gzip.GzipFile | BinaryIO:
    """Open a file to read, unzipped if it ends in .gz."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb", buffering)


def read_json(path: Path, expected: str, kind: Any = Any) -> Any:
    """Read a JSON file of this type, unzipped if it ends in .gz; see `decode_json` and `checked`."""
    return checked(kind, decode_json(read_text(path, expected), f"{path}: the file", expected), str(path), expected)


def checked(kind: Any, content: Any, where: str, expected: str) -> Any:
    """Return what was read if it has this type, as pydantic checks it; raise an error that names the field."""
    try:
        _adapter(kind).validate_python(content, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        field = _field(fault["loc"], content)
        if fault["type"] == "missing":
            raise InputError(f"{where}: field {field!r} is missing; expected {expected}") from None
        value = f"field {field!r} is {fault['input']!r:.60}" if field else f"is {in_words(fault['input'])}"
        # Of a wrong type, the value says enough; pydantic's words name types of Python
        reason = "" if fault["type"].endswith("_type") else f" ({fault['msg']})"
        raise InputError(f"{where}: {value}{reason}; expected {expected}") from None
    return content


def _field(location: Iterable[int | str], content: Any) -> str:
    """Return the keys that lead to a fault; pydantic also lists the member of a union that it tried."""
    keys = []
    for key in location:
        if isinstance(content, dict):
            content = content.get(key)
        elif isinstance(content, list) and isinstance(key, int):
            content = content[key]
        else:
            continue
        keys.append(str(key))
    return ".".join(keys)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def decode_json(text: str | bytes, where: str, expected: str, kind: Any = Any) -> Any:
    """Parse JSON of this type; raise an error also for a key that comes twice and for text that UTF-8 cannot hold."""
    try:
        content = json.loads(text, object_pairs_hook=_without_doubles)
        if _SURROGATE.search(text if isinstance(text, str) else text.decode()):
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as fault:  # ValueError: also not UTF-8, or an integer of too many digits
        reason = "it is nested too deeply" if isinstance(fault, RecursionError) else fault
        raise InputError(f"{where} is not valid JSON ({reason}); expected {expected}") from None
    return content if kind is Any else checked(kind, content, where, expected)


def in_words(value: Any) -> str:
    """Return what a value read from JSON or YAML is, for messages: `a list`.

    >>> in_words(None), in_words(7.5), in_words({"a": 1})
    ('null', 'a number', 'an object')
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"  # YAML has dates


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return content


def content_hash(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of files, in order; raise `InputError` if one cannot be read."""
    digest = sha256()
    for path in paths:
        with reading(path, "make it with the previous stage"), path.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()


_KEPT = "Then type the same command again: finished work is kept"
_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space (`df` shows it)",
    errno.EDQUOT: "the disk quota is used up; free space, or have the quota raised",
    errno.EFBIG: "the file would exceed the limit on file sizes; raise it (`ulimit -f`)",
    errno.EROFS: "the file system is read-only; mount it writable, or write elsewhere",
}
_IN_THE_WAY = "a file is where a folder is needed, or a folder where a file is; move it away"
_REMEDIES_OF_A_PATH = {
    errno.EACCES: "permission is denied; make the folder writable, or write elsewhere",
    errno.EPERM: "permission is denied; make the folder writable, or write elsewhere",
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}
# Libraries that write without Python's files raise errors of their own
_RUST = re.compile(r"\(os error (\d+)\)")
_TORCH = re.compile(r"PytorchStreamWriter|inline_container")


@contextmanager
def writing(path: Path, *others: type[Exception]) -> Iterator[None]:
    """Raise `InputError` where `path`, or a file in this folder, cannot be written; other errors pass.

    `others` are errors of libraries that raise no OSError: safetensors, torch.
    """
    failures: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except failures as error:
        if (cause := _cause(error, path)) is None:
            raise
        raise InputError(f"{path}: cannot be written: {cause}. {_KEPT}") from None


def _cause(error: Exception, path: Path) -> str | None:
    """Return why a write failed; None if it was something else that failed."""
    if not isinstance(error, OSError):
        if match := _RUST.search(str(error)):
            number = int(match[1])
            return _REMEDIES.get(number) or _REMEDIES_OF_A_PATH.get(number) or os.strerror(number)
        if _TORCH.search(str(error)):
            return "is the disk full (`df`), or file sizes limited (`ulimit -f`)?"
        return None
    number = error.errno or 0
    if number in _REMEDIES:
        return _REMEDIES[number]
    named = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    folder = path.parent.absolute()
    if any(name.absolute().is_relative_to(folder) or folder.is_relative_to(name.absolute()) for name in named):
        return _REMEDIES_OF_A_PATH.get(number) or (error.strerror or str(error))
    return None


@contextmanager
def atomic_write(path: Path, *others: type[Exception]) -> Iterator[Path]:
    """Yield a temporary path next to `path`, for a file or a folder; it replaces `path` if all goes well.

    Its name belongs to this process: a job that a killed run has left may still be writing. Raises `InputError`, also
    for `others` as in `writing`; before anything is computed in the block, if the folder is not writable.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path}: is a pipe or a device; name another output")
    temporary = path.with_name(f"{_prefix(path)}{os.getpid()}.tmp")
    former = path.with_name(f"{_prefix(path)}{os.getpid()}.former.tmp")
    with writing(path, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(path)
        temporary.touch()
        temporary.unlink()
        try:
            yield temporary
            if temporary.is_dir() and path.is_dir():
                os.rename(path, former)  # never half of it: it would not be known for what it is
            os.replace(temporary, path)
            _remove(former)
        finally:
            _remove(temporary)


def append(path: Path, text: str) -> None:
    """Write to the end of a file; raises `InputError`."""
    with writing(path), path.open("a") as file:
        file.write(text)


def _prefix(path: Path) -> str:
    return f".{path.name}.{socket.gethostname()}-"


def _remove_left_overs(path: Path) -> None:
    """Remove temporary files of processes of this machine that were killed."""
    for left in path.parent.glob(f"{escape(_prefix(path))}*.tmp"):
        pid = left.name.removeprefix(_prefix(path)).partition(".")[0]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
