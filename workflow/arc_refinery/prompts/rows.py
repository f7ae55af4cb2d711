"""First turns of training rows in `messages` form."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_refinery.errors import InputError
from arc_refinery.rows import read_rows


@dataclass(frozen=True, slots=True)
class FirstTurnRow:
    """The first turn of one row."""

    number: int  # from 1
    system: str  # empty: no system message
    user: str
    assistant: str


def read_first_turns(path: Path) -> Iterator[FirstTurnRow]:
    """Yield the first turns of a file whose rows are {"messages": [{"role", "content"}, ...]}; raises `InputError`.

    For a folder, reads all its files except hidden ones, sorted by name.
    """
    if path.is_dir():
        for file in sorted(path.rglob("[!.]*")):
            if file.is_file():
                yield from read_first_turns(file)
        return
    for number, row in enumerate(read_rows(path, ["messages"]), 1):
        yield _row(row, number, path)


def _row(row: Any, number: int, path: Path) -> FirstTurnRow:
    try:
        messages = [(message["role"], message["content"]) for message in row["messages"]]
        first = dict(reversed(messages))  # the first message of each role
        texts = first.get("system") or "", first["user"], first["assistant"]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        return FirstTurnRow(number, *texts)
    except (KeyError, TypeError):
        raise InputError(
            f'{path}: row {number}: expected {{"messages": [{{"role", "content"}}, ...]}} with the roles user and '
            "assistant, optionally preceded by system"
        ) from None
