"""Write files atomically, and hash files."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from arc_refinery.errors import InputError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; it replaces `path` if all goes well and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_regular(path: Path) -> None:
    """Raise `InputError` for anything but a file: a folder cannot be read, and a pipe may never end."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise InputError(f"{path}: is {what}; expected a regular file")


def content_hash(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of files, in order; raise `InputError` if one cannot be read."""
    digest = hashlib.sha256()
    for path in paths:
        check_regular(path)
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); make it with the previous stage") from None
    return digest.hexdigest()
