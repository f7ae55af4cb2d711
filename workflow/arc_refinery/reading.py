"""Read text and JSON strictly, and hash files."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from arc_refinery.errors import InputError


def check_regular(path: Path) -> None:
    """Raise an error for anything but a file: a folder cannot be read, and a pipe may never end."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise InputError(f"{path}: is {what}; expected a regular file")


def read_text(path: Path, expected: str) -> str:
    """Read a text file, unzipped if it ends in .gz; raise an error that names it and what is expected.

    Windows editors begin UTF-8 with a byte order mark, which is not a part of the text.
    """
    check_regular(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read().decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as reason:
        raise InputError(f"{path}: cannot be read as text ({reason}); expected {expected}") from None


def read_json(path: Path, expected: str) -> Any:
    """Read a JSON file, unzipped if it ends in .gz; see `decode_json`."""
    return decode_json(read_text(path, expected), f"{path}: the file", expected)


def decode_json(text: str | bytes, where: str, expected: str) -> Any:
    """Parse JSON; raise an error also for a key that comes twice and for text that cannot be written as UTF-8."""
    try:
        content = json.loads(text, object_pairs_hook=_without_doubles)
        if _SURROGATE.search(text if isinstance(text, str) else text.decode()):
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as fault:  # ValueError: also not UTF-8, or an integer of too many digits
        reason = "it is nested too deeply" if isinstance(fault, RecursionError) else fault
        raise InputError(f"{where} is not valid JSON ({reason}); expected {expected}") from None
    return content


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
            return f"a {type(value).__name__}"  # of YAML: a date


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return content


def content_hash(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of files, in order; raise `InputError` if one cannot be read."""
    digest = sha256()
    for path in paths:
        check_regular(path)
        try:
            with path.open("rb") as file:
                digest.update(file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); make it with the previous stage") from None
    return digest.hexdigest()
