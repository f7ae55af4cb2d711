"""The tool `search`: the passages of a local corpus that fit a query best, by BM25 (SQLite's FTS5).

    search({"query": "When was the lighthouse built?"}) ==
        "[1] The lighthouse\\nIt was built in 1871.\\n\\n[2] Towers\\n..."

A row of the corpus is an object with `text`, and optionally `title`; other fields are ignored. The index is in memory,
one for all episodes of a job. A query finds passages with any of its words; word endings are ignored, as English has
them. Of equally good passages, the first in the file comes first.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from arc_refinery.errors import InputError
from arc_refinery.files import in_words
from arc_refinery.rows import read_rows
from arc_refinery.tool_use.calls.tool import DirectTool, FaultyCall
from arc_refinery.tool_use.config import ToolChoice
from arc_refinery.tool_use.config.tool_signatures import text_signature

MAX_WORDS = 64  # in a query
_WORD = re.compile(r"\w+")


class Search(DirectTool):
    signature = text_signature(
        "search",
        "Search a collection of texts; gives the passages that fit best.",
        "query",
        "Words to look for",
        "height of the lighthouse",
    )

    def __init__(self, choice: ToolChoice) -> None:
        self.max_result_chars = choice.max_result_chars
        self._n_passages = choice.passages
        self._corpus = open_corpus(str(choice.corpus))

    def begin(self, arguments: dict[str, Any]) -> str:
        return best_passages(self._corpus, arguments["query"], self._n_passages)


def best_passages(corpus: sqlite3.Connection, query: str, n: int) -> str:
    """Return the result of a call; raises `FaultyCall` for a query without words."""
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]
    if not words:
        raise FaultyCall("failed", "the query has no words.")
    quoted = " OR ".join(f'"{word}"' for word in words)  # OR, AND and NEAR are words, too
    rows = corpus.execute(
        "SELECT title, text FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?", (quoted, n)
    )
    passages = ["\n".join(part for part in row if part) for row in rows]
    return "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, 1)) or "(nothing was found)"


@cache
def open_corpus(corpus: str) -> sqlite3.Connection:
    """Index a file of passages; raises `InputError`."""
    path = Path(corpus)
    index = indexed(_passages(path))
    if not index.execute("SELECT 1 FROM passages LIMIT 1").fetchone():
        raise InputError(f"{path}: is empty; expected rows with `text` and optionally `title`")
    return index


def indexed(passages: Iterable[tuple[str, str]]) -> sqlite3.Connection:
    """Index passages `(title, text)`; raises `InputError`."""
    corpus = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        corpus.execute("CREATE VIRTUAL TABLE passages USING fts5(title, text, tokenize='porter unicode61')")
    except sqlite3.OperationalError as error:
        raise InputError(f"`search` needs SQLite with FTS5, which this Python lacks ({error}); use another") from None
    with corpus:
        corpus.executemany("INSERT INTO passages VALUES (?, ?)", passages)
    return corpus


def _passages(path: Path) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(read_rows(path, ("title", "text")), 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}: row {number} is {in_words(row)}; expected an object with a field 'text'")
        title, text = row.get("title") or "", row.get("text")
        for field, value in (("title", title), ("text", text)):
            if not isinstance(value, str) or (field == "text" and not value.strip()):
                raise InputError(f"{path}: row {number}: field {field!r} is {value!r:.60}; expected a text")
        yield title.strip(), str(text).strip()
