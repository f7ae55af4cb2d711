"""First turns of training rows in `messages` form."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_refinery.rows import RowError, read_rows


@dataclass(frozen=True, slots=True)
class Row:
    """The first turn of one row."""

    number: int  # from 1
    system: str  # empty: no system message
    user: str
    assistant: str


def read_first_turns(path: Path) -> Iterator[Row]:
    """The first turns of a file whose rows hold {"messages": [{"role", "content"}, ...]}, in order; raises `RowError`.

    Of a folder, those of all its files but hidden ones, by name.
    """
    if path.is_dir():
        for file in sorted(path.rglob("[!.]*")):
            if file.is_file():
                yield from read_first_turns(file)
        return
    for number, row in enumerate(read_rows(path, ["messages"]), 1):
        yield _row(row, number, path)


def _row(row: Any, number: int, path: Path) -> Row:
    try:
        messages = [(message["role"], message["content"]) for message in row["messages"]]
        said = dict(reversed(messages))  # the first of each role
        texts = said.get("system") or "", said["user"], said["assistant"]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        return Row(number, *texts)
    except (KeyError, TypeError):
        raise RowError(
            f'{path}: row {number}: expected {{"messages": [{{"role", "content"}}, ...]}} with the roles user and '
            "assistant, and perhaps system before them"
        ) from None
