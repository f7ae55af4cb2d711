"""The tool `search`: which passages are found, in which order, and what is wrong with a corpus."""

import json
from pathlib import Path
from typing import Any

import pytest

from arc_refinery.errors import InputError
from arc_refinery.tool_use.config import ToolChoice
from arc_refinery.tool_use.tools.toolbox import CallResult, Toolbox

CORPUS: list[dict[str, Any]] = [
    {"title": "Lighthouse", "text": "The tower was built in 1871. It is 30 m high.", "source": "ignored"},
    {"title": "Harbour", "text": "Boats and more boats."},
    {"text": "The harbour has a tower."},
    {"title": "Café", "text": "It opens at nine OR ten."},
    {"text": "same words"},
    {"text": "same words"},
]


def search(folder: Path, query: str, rows: list[Any] = CORPUS, **settings: Any) -> CallResult:
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    choice = ToolChoice.model_validate({"tool": "search", "corpus": str(path), **settings})
    return Toolbox([choice]).run("search", {"query": query})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            "When was it built?",
            "[1] Lighthouse\nThe tower was built in 1871. It is 30 m high.\n\n[2] Café\nIt opens at nine OR ten.",
        ),
        ("cafe", "[1] Café\nIt opens at nine OR ten."),  # accents do not matter
        ("boat", "[1] Harbour\nBoats and more boats."),  # nor do endings
        ("zebra", "(nothing was found)"),
        ('1871" OR title:tower NEAR(', "[1] Lighthouse\nThe tower was built in 1871. It is 30 m high."),
    ],
)
def test_passages_with_the_words_are_found(tmp_path: Path, query: str, text: str):
    assert search(tmp_path, query, passages=2 if query.startswith("When") else 1).text == text


def test_the_passage_with_more_and_rarer_words_comes_first(tmp_path: Path):
    """`harbour` and `tower` are in two passages each; one has both. Of the others, the shorter one is better."""
    assert search(tmp_path, "harbour tower").text == (
        "[1] The harbour has a tower.\n\n[2] Harbour\nBoats and more boats.\n\n"
        "[3] Lighthouse\nThe tower was built in 1871. It is 30 m high."
    )


def test_of_equally_good_passages_the_first_in_the_file_comes_first(tmp_path: Path):
    rows = [{"text": "other"}] * 30 + [{"title": str(n), "text": "same words"} for n in range(9)]
    assert search(tmp_path, "words", rows, passages=9).text == "\n\n".join(
        f"[{n + 1}] {n}\nsame words" for n in range(9)
    )


def test_a_result_has_no_marks(tmp_path: Path):
    assert search(tmp_path, "end", [{"text": "the end<|im_end|>"}]).text == "[1] the end< |im_end|>"


def test_a_long_result_is_cut(tmp_path: Path):
    assert search(tmp_path, "boats", max_result_chars=5).text == "[1] H\n... (cut after 5 characters)"


@pytest.mark.parametrize("query", ["", "?!", "\ud800"])
def test_a_query_without_words_is_a_faulty_call(tmp_path: Path, query: str):
    result = search(tmp_path, query)
    assert (result.text, result.fault) == ("Error: the query has no words.", "failed")


def test_a_query_of_thousands_of_words_is_answered(tmp_path: Path):
    assert search(tmp_path, "boats " + " ".join(map(str, range(10**5)))).text.startswith("[1] Harbour\n")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty; expected rows with `text` and optionally `title`"),
        ([{"text": "a"}, "b"], "row 2 is a text; expected an object with a field 'text'"),
        ([{"title": "a"}], "row 1: field 'text' is None; expected a text"),
        ([{"text": " "}], "row 1: field 'text' is ' '; expected a text"),
        ([{"text": "a", "title": 3}], "row 1: field 'title' is 3; expected a text"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_named_with_its_row(tmp_path: Path, rows: list[Any], message: str):
    with pytest.raises(InputError) as raised:
        search(tmp_path, "a", rows)
    assert str(raised.value) == f"{tmp_path / 'corpus.jsonl'}: {message}"
