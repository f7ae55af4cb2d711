"""Questions from files of GSM8K and MBPP rows, and what is said of rows that cannot be used."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from row_files import write_gzip, write_parquet

from arc_refinery.config.tool_use import Form
from arc_refinery.records.questions import Asserts, Question
from arc_refinery.rows import RowError
from arc_refinery.tool_use.data import questions_from_file

SUM = {"question": "Ann has 2 hats and buys 1,000. How many?", "answer": "2+1000=<<2+1000=1002>>1002\n#### 1,002"}
MBPP = {
    "text": "Write a function to double a number.",
    "code": "def double(n):\r\n    return 2 * n",
    "task_id": 7,
    "test_setup_code": "x = 3\r\n",
    "test_list": ["assert double(2) == 4", "assert double(x) == 6"],
    "challenge_test_list": ["assert double(-1) == -2"],
}
SANITIZED = {
    "source_file": "a.txt",
    "task_id": 8,
    "prompt": "Write a function to halve a number.",
    "code": "def half(n): return n / 2",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(half(3), 1.5)"],
}


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) + "\n" for row in rows))  # with blank lines between
    return path


WRITERS: dict[str, Callable[[Path, list[Any]], Path]] = {
    ".jsonl": write_jsonl,
    ".jsonl.gz": write_gzip,
    ".parquet": write_parquet,
}
each_format = pytest.mark.parametrize("suffix", WRITERS)


@each_format
def test_gsm8k_rows(tmp_path: Path, suffix: str):
    path = WRITERS[suffix](tmp_path / f"train{suffix}", [SUM, SUM | {"answer": "no steps\n####  -3.5 "}])
    first, second = questions_from_file(path, "gsm8k")
    assert first == Question("train-000001", SUM["question"], "gsm8k", "1,002", solution="2+1000=<<2+1000=1002>>1002")
    assert (second.question_id, second.reference, second.solution) == ("train-000002", "-3.5", "no steps")


@each_format
def test_mbpp_rows(tmp_path: Path, suffix: str):
    (only,) = questions_from_file(WRITERS[suffix](tmp_path / f"full{suffix}", [MBPP]), "mbpp")
    assert only == Question(
        "mbpp-7",
        "Write a function to double a number.\nOne of its tests: assert double(2) == 4",
        "code_exec",
        "def double(n):\n    return 2 * n",
        asserts=Asserts(("assert double(2) == 4", "assert double(x) == 6", "assert double(-1) == -2"), setup="x = 3\n"),
    )


@each_format
def test_sanitized_mbpp_rows(tmp_path: Path, suffix: str):
    (only,) = questions_from_file(WRITERS[suffix](tmp_path / f"test{suffix}", [SANITIZED]), "mbpp")
    assert only.text.startswith("Write a function to halve a number.\n")
    assert only.asserts == Asserts(("assert math.isclose(half(3), 1.5)",), ("import math",))


def test_rows_of_text(tmp_path: Path):
    (only,) = questions_from_file(write_jsonl(tmp_path / "a.jsonl", [{"question": "Where?", "answer": "Here"}]), "text")
    assert only == Question("a-000001", "Where?", "exact_match", "Here")


@pytest.mark.parametrize(
    ("form", "row", "message"),
    [
        ("gsm8k", {"answer": "#### 1"}, "field 'question' is missing; expected a text"),
        ("gsm8k", SUM | {"question": " "}, "field 'question' is ' '; expected a text"),
        ("gsm8k", SUM | {"question": "\ud800"}, "is not valid JSON ('utf-8' codec can't encode"),
        ("gsm8k", SUM | {"answer": 3}, "field 'answer' is 3; expected a text"),
        (
            "gsm8k",
            SUM | {"answer": "it is\nthree"},
            "field 'answer' ends in 'three'; expected a last line like '#### 72'",
        ),
        ("gsm8k", SUM | {"answer": "#### three"}, "field 'answer' ends in '#### three'"),
        ("gsm8k", [1], "is a list; expected an object with a field 'question'"),
        ("mbpp", MBPP | {"code": None}, "field 'code' is None; expected a text"),
        ("mbpp", MBPP | {"test_list": []}, "field 'test_list' is empty; expected at least one assert"),
        ("mbpp", MBPP | {"test_list": "assert"}, "field 'test_list' is 'assert'; expected a list of texts"),
        ("mbpp", {"text": "t", "code": "c"}, "field 'test_list' is missing; expected a list of texts"),
        ("mbpp", MBPP | {"challenge_test_list": [1]}, "field 'challenge_test_list' is"),
        ("mbpp", MBPP | {"test_setup_code": 1}, "field 'test_setup_code' is 1"),
        ("mbpp", MBPP | {"task_id": None}, "field 'task_id' is None"),
        ("mbpp", SANITIZED | {"test_imports": "import math"}, "field 'test_imports' is 'import math'"),
        ("text", {"question": "q"}, "field 'answer' is missing"),
        ("text", {"question": "q", "answer": "..."}, "field 'answer' is '...'; expected letters or digits"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, form: Form, row: Any, message: str):
    good = {"gsm8k": SUM, "mbpp": MBPP, "text": {"question": "q", "answer": "a"}}[form]
    path = write_jsonl(tmp_path / "rows.jsonl", [good, row])
    with pytest.raises(RowError) as error:
        list(questions_from_file(path, form))
    assert str(error.value).startswith(f"{path}: row 2")
    assert message in str(error.value)


@pytest.mark.parametrize("line", ["{", "[" * 100_000])
def test_a_line_that_is_no_json_is_named(tmp_path: Path, line: str):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(SUM)}\n{line}\n")
    with pytest.raises(RowError, match=r"rows\.jsonl: row 2 is not valid JSON .*; expected one object per line"):
        list(questions_from_file(path, "gsm8k"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"", r"rows\.csv: ends in '\.csv'; expected a file that ends in \.jsonl, \.jsonl\.gz, "),
        ("rows.parquet", b"PAR1", r"rows\.parquet: cannot be read"),
        ("rows.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], r"rows\.jsonl\.gz: cannot be read"),
        ("rows.jsonl.gz", b"{}", r"rows\.jsonl\.gz: cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, message: str):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RowError, match=message):
        list(questions_from_file(path, "gsm8k"))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(RowError, match=r"none\.jsonl: cannot be read"):
        list(questions_from_file(tmp_path / "none.jsonl", "gsm8k"))
