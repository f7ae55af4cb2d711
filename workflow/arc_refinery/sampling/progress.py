"""Progress of a job, kept for when it is interrupted: JSON lines in a file that no Snakemake rule declares.

Snakemake deletes the outputs of failed jobs, so progress cannot be kept in them.
"""

import json
import logging
from pathlib import Path
from typing import Any

from arc_refinery.files import append, atomic_write

logger = logging.getLogger(__name__)


class Progress:
    """The finished entries of one job; each is on disk as soon as it is added.

    `identity` is a hash of everything that affects the entries: progress with another identity is discarded. So are
    the entries from the first damaged line on, such as the zeros that some file systems leave after a power failure.
    """

    def __init__(self, output: Path, identity: str) -> None:
        self.path = progress_path(output)
        content = self.path.read_bytes() if self.path.exists() else b""
        header, *self.entries = self._whole(content) or [None]
        if header != {"settings": identity}:
            header, self.entries = {"settings": identity}, []
        kept = "".join(f"{json.dumps(one)}\n" for one in (header, *self.entries)).encode()
        if kept != content:
            with atomic_write(self.path) as unfinished:
                unfinished.write_bytes(kept)

    def _whole(self, content: bytes) -> list[Any]:
        """Return the values of the lines before the first damaged one; a half-written last line is dropped."""
        lines = content.split(b"\n")[:-1]
        values: list[Any] = []
        for line in lines:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                logger.warning(
                    "%s: line %d of %d is damaged; it and what follows are computed again",
                    self.path, len(values) + 1, len(lines),
                )  # fmt: skip
                break
            values.append(value)
        return values

    def add(self, entry: dict[str, Any]) -> None:
        append(self.path, json.dumps(entry) + "\n")


def progress_path(output: Path) -> Path:
    return output.parent / ".progress" / f"{output.stem}.jsonl"
