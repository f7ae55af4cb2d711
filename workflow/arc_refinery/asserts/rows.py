"""Rows of MBPP, and the rule that says which tasks of data sets are the same.

Two tasks are one if they have the same id of their data set (MBPP's full and sanitized rows have one, and different
words), the same text except for case, white space and punctuation, or the same asserts, or some of them.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from arc_refinery.asserts.split import canonical_form
from arc_refinery.rows import is_numbered, row_id, text_field, texts_field

MBPP_ID = "mbpp-"  # before a row's `task_id`
# why the field `test`, which MBPP+ has, is not used
TEST_IS_UNUSED = "answers are graded by test_list and challenge_test_list only; add its asserts there"
_DASHES = re.compile("[‐‑‒–—−]")
# marks beside a digit may be part of a number, and hyphens between digits of a calculation
_PUNCTUATION = re.compile(r"""[.,:](?!\d)|(?<!\d)[.,:]|[;!?"'`“”‘’«»´]|(?<=[^\W\d])-(?=[^\W\d])""")

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class MbppRow:
    """A row of MBPP, in its full or its sanitized form."""

    task_id: str
    text: str
    code: str
    tests: tuple[str, ...]
    imports: tuple[str, ...]
    setup: str


def mbpp_row(row: Any, name: str, where: str) -> MbppRow:
    """Read a row; `name` is its id if it has none. Raises `InputError`."""
    is_sanitized = isinstance(row, dict) and "prompt" in row
    text, code = text_field(row, "prompt" if is_sanitized else "text", where), text_field(row, "code", where)
    tests = texts_field(row, "test_list", where) + texts_field(row, "challenge_test_list", where, or_none=True)
    imports = texts_field(row, "test_imports", where, or_none=True)
    setup = "" if row.get("test_setup_code") is None else text_field(row, "test_setup_code", where, or_empty=True)
    return MbppRow(f"{MBPP_ID}{row_id(row, name, where)}", text.strip(), code, tests, imports, setup)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a task is recognized by."""

    task_id: str  # empty without an id of its own
    words: str  # of its text
    asserts: frozenset[str]

    @classmethod
    def of(cls, task_id: str, text: str, statements: Iterable[str]) -> "Identity":
        """`task_id` is an id of `mbpp_row` or the like: that of a row without one ends in the row's number."""
        own_id = "" if is_numbered(task_id) else task_id
        return cls(own_id, plain_words(text), frozenset(map(canonical_form, statements)))


class KnownTasks(Generic[K]):
    """Tasks to be recognized among others, under keys."""

    def __init__(self, tasks: Iterable[tuple[K, Identity]]) -> None:
        self._by_id: dict[str, list[K]] = {}
        self._by_words: dict[str, list[K]] = {}
        self._by_assert: dict[str, list[tuple[K, frozenset[str]]]] = {}
        for key, identity in tasks:
            self._by_id.setdefault(identity.task_id, []).append(key)
            self._by_words.setdefault(identity.words, []).append(key)
            for statement in identity.asserts:
                self._by_assert.setdefault(statement, []).append((key, identity.asserts))
        self._by_id.pop("", None)

    def same_as(self, task: Identity) -> dict[K, str]:
        """Return by `task_id`, `text` or `asserts`, by key, the known tasks that a task is."""
        asserts = task.asserts
        others = [other for statement in asserts for other in self._by_assert.get(statement, ())]
        return {
            **{
                key: "asserts"
                for key, other in others
                if asserts == other or len(asserts & other) == min(len(asserts), len(other)) > 1
            },
            **dict.fromkeys(self._by_words.get(task.words, ()), "text"),
            **dict.fromkeys(self._by_id.get(task.task_id, ()), "task_id"),
        }


def plain_words(text: str) -> str:
    """Return a text without differences in case, white space and punctuation; what calculates is kept.

    Characters that cannot be seen are not a part of it.
    """
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    text = _DASHES.sub("-", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_PUNCTUATION.sub(" ", text).split())
