"""Tasks from rows of GSM8K and of short texts, and what is said of rows that cannot be used."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import row_files
from messages import Wording
from row_files import each_format

from arc_refinery.domains.gsm8k.domain import Problem
from arc_refinery.domains.text.domain import Asked
from arc_refinery.errors import InputError
from arc_refinery.tool_use.grading.domains import domain_of

SUM = {"question": "Ann has 2 hats and buys 1,000. How many?", "answer": "2+1000=<<2+1000=1002>>1002\n#### 1,002"}


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) + "\n" for row in rows))  # with blank lines between
    return path


def tasks_of(path: Path, form: str) -> list[Any]:
    return list(domain_of(form).tasks_of_file(path, Counter()))


WRITERS = row_files.WRITERS | {".jsonl": write_jsonl}


@each_format
def test_gsm8k_rows(tmp_path: Path, suffix: str):
    path = WRITERS[suffix](tmp_path / f"train{suffix}", [SUM, SUM | {"answer": "no steps\n####  -3.5 "}])
    first, second = tasks_of(path, "gsm8k")
    assert first == Problem("train-000001", SUM["question"], "1,002", "2+1000=<<2+1000=1002>>1002")
    assert (second.task_id, second.number, second.solution) == ("train-000002", "-3.5", "no steps")


def test_rows_of_text(tmp_path: Path):
    (only,) = tasks_of(write_jsonl(tmp_path / "a.jsonl", [{"question": "Where?", "answer": "Here"}]), "text")
    assert only == Asked("a-000001", "Where?", "Here")


@pytest.mark.parametrize(
    ("form", "row", "field"),
    [
        ("text", {"question": "Which?", "answer": "b", "choices": ["a", "b"]}, "'choices'"),
        ("gsm8k", SUM | {"context": "Hats are blue."}, "'context'"),
    ],
)
def test_a_field_that_matters_and_is_not_used_is_logged_once(
    tmp_path: Path, form: str, row: Any, field: str, caplog: pytest.LogCaptureFixture, wording: Wording
):
    rows = [row | {"task_id": number} for number in range(3)] + [row | {field.strip("'"): None}]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert len(tasks_of(path, form)) == 4
    (message,) = caplog.messages
    assert message.startswith(f"{path}: ")
    assert field in message
    wording(message)


def test_fields_that_say_nothing_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert len(tasks_of(write_jsonl(tmp_path / "rows.jsonl", [SUM, SUM]), "gsm8k")) == 2
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("form", "row", "field", "symptom"),
    [
        ("gsm8k", {"answer": "#### 1"}, "'question'", ""),
        ("gsm8k", SUM | {"question": " "}, "'question'", " ' ';"),
        ("gsm8k", SUM | {"question": "\ud800"}, "", "utf-8"),
        ("gsm8k", SUM | {"answer": 3}, "'answer'", " 3;"),
        ("gsm8k", SUM | {"answer": "it is\nthree"}, "'answer'", " 'three';"),
        ("gsm8k", SUM | {"answer": "#### three"}, "'answer'", " '#### three';"),
        ("gsm8k", [1], "", " list;"),
        ("text", {"question": "q"}, "'answer'", " missing;"),
        ("text", {"question": "q", "answer": "..."}, "'answer'", " '...';"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(
    tmp_path: Path, form: str, row: Any, field: str, symptom: str, wording: Wording
):
    good = {"gsm8k": SUM, "text": {"question": "q", "answer": "a"}}[form]
    path = write_jsonl(tmp_path / "rows.jsonl", [good, row])
    with pytest.raises(InputError) as error:
        tasks_of(path, form)
    said = str(error.value).removeprefix(f"{path}: row 2")
    assert said != str(error.value)
    assert field in said
    assert symptom in said
    wording(error.value)


@pytest.mark.parametrize("line", [pytest.param("{", id="no end"), pytest.param("[" * 100_000, id="deep")])
def test_a_line_that_is_no_json_is_named(tmp_path: Path, line: str, wording: Wording):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(SUM)}\n{line}\n")
    with pytest.raises(InputError, match=r"rows\.jsonl: row 2 .*JSON") as error:
        tasks_of(path, "gsm8k")
    wording(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("rows.csv", b"", id="another kind"),
        pytest.param("rows.parquet", b"PAR1", id="no Parquet"),
        pytest.param("rows.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], id="cut off"),
        pytest.param("rows.jsonl.gz", b"{}", id="not compressed"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, wording: Wording):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        tasks_of(path, "gsm8k")
    assert str(error.value).startswith(f"{path}: ")
    wording(error.value)


def test_a_missing_file_is_named(tmp_path: Path, wording: Wording):
    with pytest.raises(InputError) as error:
        tasks_of(tmp_path / "none.jsonl", "gsm8k")
    assert str(error.value).startswith(f"{tmp_path}/none.jsonl: ")
    wording(error.value)
