"""Scores in files of any evaluation: how they are read, and that the comparison is that of the report."""

import csv
import gzip
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from messages import Wording
from scipy.stats import t

from arc_refinery.cli.results import Compare
from arc_refinery.errors import InputError
from arc_refinery.evaluation.score_files import Columns, read_scores
from arc_refinery.reporting.scores import scores_page

REPORTED = ROOT / "docs/sample-report/results/code-untrained"
TASKS = REPORTED / "report/mbpp-test-tasks.csv"


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def cells(page: str, first: str) -> list[list[str]]:
    """The rows of a page's tables that begin so."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0].startswith(first)]


def test_numbers_are_those_of_the_report():
    page = scores_page([TASKS], Columns(side="arm", score="is_correct"))
    report = (REPORTED.with_suffix(".md")).read_text()
    (row,) = (row for row in cells(report, "`refine` − `independent`") if len(row) == 9)
    _, solved, points, interval, only, p, *_, detectable, supported = row
    assert (solved, supported) == ("323 − 336 of 447", "no")
    (own,) = cells(page, "`independent` − `refine`")
    low, high = interval.strip("[]").split(", ")
    opposite = str.maketrans("+−", "−+")
    assert own[1:4] == ["447", points.translate(opposite), f"[{high}, {low}]".translate(opposite)]
    assert own[4] == " / ".join(reversed(only.split(" / ")))
    assert (own[5], own[7], own[8]) == (p, detectable, supported)
    assert [row[4] for row in cells(page, "`independent`") if len(row) == 5] == ["75.2 % [71.0, 78.9]"]


def test_an_interval_over_tasks_is_that_of_a_paired_t_test():
    page = scores_page([TASKS], Columns(side="arm", score="pass_rate"))
    with TASKS.open(newline="") as table:
        rates = {(row["arm"], row["task_id"]): float(row["pass_rate"]) for row in csv.DictReader(table)}
    tasks = [task for arm, task in rates if arm == "refine"]
    gaps = np.array([rates["refine", task] - rates["other-task", task] for task in tasks])
    half = t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5
    (row,) = cells(page, "`refine` − `other-task`")
    shown = [100 * value for value in (gaps.mean(), gaps.mean() - half, gaps.mean() + half)]
    read = [float(text.replace("−", "-")) for text in [row[2], *row[3].strip("[]").split(", ")]]
    assert read == pytest.approx(shown, abs=0.051)


LM_EVAL: list[dict[str, Any]] = [
    {"doc_id": number, "filter": name, "metrics": ["exact_match"], "exact_match": number % 2, "doc": {}}
    for number in range(4)
    for name in ("strict", "flexible")
]
INSPECT: list[dict[str, Any]] = [
    {"id": f"q{number}", "epoch": epoch, "scores": {"match": {"value": "C" if number < epoch else "I"}}}
    for number in range(3)
    for epoch in (1, 2)
]
VERIFIERS = [
    {"id": f"{n}", "task": {"data": {"idx": n // 2}}, "rewards": {"solved": {"score": n / 4, "weight": 2.0}}}
    for n in range(3)
]


def test_files_of_other_tools_are_read_without_naming_a_column(tmp_path: Path):
    (side,) = read_scores([lines(tmp_path / "samples.jsonl", LM_EVAL)], Columns(where=(("filter", "strict"),)))
    assert side.runs == {"": {"0": 0.0, "1": 1.0, "2": 0.0, "3": 1.0}}
    expected = {"": {"q0": 1.0, "q1": 0.5, "q2": 0.0}}  # means over epochs
    whole = tmp_path / "log.json"
    whole.write_text(json.dumps({"version": 2, "samples": INSPECT}))
    with ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", "{}")
        for sample in INSPECT:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    for name in ("log.json", "log.eval"):
        assert read_scores([tmp_path / name], Columns())[0].runs == expected
    (side,) = read_scores([lines(tmp_path / "traces.jsonl", VERIFIERS)], Columns())
    assert (side.runs, side.n_rows) == ({"": {"0": 0.125, "1": 0.5}}, 3)


def test_an_archive_that_is_packed_with_zstandard_is_read(tmp_path: Path):
    """As inspect_ai writes it, in frames; Python's zipfile cannot before 3.14."""
    path, name, sample = tmp_path / "log.eval", b"samples/a_epoch_1.json", json.dumps(INSPECT[0]).encode()
    packed = b"".join(pa.compress(part, "zstd", asbytes=True) for part in (sample[:20], sample[20:]))
    numbers = (0, 93, 0, 0x21, zlib.crc32(sample), len(packed), len(sample), len(name), 4)
    local = struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 63, *numbers) + name + b"\1\2\0\0" + packed
    central = struct.pack("<4sHHHHHHLLLHHHHHLL", b"PK\1\2", 63, 63, *numbers[:-1], 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    path.write_bytes(local + central + end)
    (side,) = read_scores([path], Columns())
    assert side.runs == {"": {"q0": 1.0}}


def test_forms_of_files_give_the_same_scores(tmp_path: Path):
    rows = [{"question": f"q{n % 3}", "score": float(n % 2), "seed": n // 3} for n in range(6)]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as packed:
        packed.writelines(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "a.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with (tmp_path / "a.csv").open("w", newline="") as table:
        writer = csv.DictWriter(table, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines(tmp_path / "a.jsonl", rows)
    for name in ("a.jsonl", "a.jsonl.gz", "a.json", "a.csv", "a.parquet"):
        (side,) = read_scores([tmp_path / name], Columns(task="question", run="seed"))
        assert side.runs == {"0": {"q0": 0.0, "q1": 1.0, "q2": 0.0}, "1": {"q0": 1.0, "q1": 0.0, "q2": 1.0}}


def test_runs_are_paired_and_what_one_side_lacks_is_left_out(tmp_path: Path):
    def side(name: str, scores: Mapping[tuple[int, str], float]) -> Path:
        return lines(tmp_path / name, [{"id": task, "seed": seed, "score": s} for (seed, task), s in scores.items()])

    first = side("a.jsonl", {(0, "x"): 3, (1, "x"): 5, (0, "y"): 1, (1, "y"): 3, (0, "z"): 9, (1, "z"): 9, (0, "w"): 1})
    second = side("b.jsonl", {(1, "y"): 1, (1, "x"): 3, (0, "x"): 1, (0, "y"): 1})
    page = scores_page([first, second], Columns(run="seed"), tmp_path / "page.png")
    assert f"1 tasks of `{first}` are left out: `{second}` does not have them." in page
    assert f"1 tasks of `{first}` are left out: not all of its runs have them." in page
    (row,) = cells(page, f"`{first}` − `{second}`")
    assert row[1:3] == ["2", "+1.500"]  # (2 + 2 + 0 + 2) / 4
    assert {path.name for path in tmp_path.glob("page.*")} == {"page.png", "page.svg"}
    other = side("c.jsonl", {(seed, task): 1 for seed in (5, 6) for task in ("x", "y")})
    assert "have other runs, so their means are compared" in scores_page([first, other], Columns(run="seed"))


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ('{"id": 1, "acc": 1, "reward": 0}\n', Columns(), "acc reward --score"),
        ('{"id": 1, "speed": 1}\n', Columns(), "--score speed"),
        ('{"name": 1, "score": 1}\n', Columns(), "--task name"),
        ('{"id": 1, "score": "yes"}\n', Columns(), "row 1 score 'yes'"),
        ('{"id": 1, "score": NaN}\n', Columns(), "row 1 score nan"),
        ('{"id": 1, "score": 1}\n{"id": 2}\n', Columns(), "row 2 score"),
        ('{"id": 1, "score": 1}\n{"id": 2\n', Columns(), "line 2 JSON"),
        ("[1]\n", Columns(), "row 1 task score"),
        ('{"id": 1, "score": 1}\n', Columns(where=(("id", "2"),)), "id = 2 --where"),
        ("", Columns(), "no rows"),
    ],
)
def test_what_is_no_score_is_refused(tmp_path: Path, content: str, columns: Columns, expected: str, wording: Wording):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        read_scores([path], columns)
    assert str(path) in str(error.value)
    assert all(word in str(error.value) for word in expected.split())
    wording(error.value)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"sides": ("a.csv", "results/demo")}, "results/demo files"),
        ({"sides": ("a.csv", "b.csv"), "set": ("heldout",)}, "--set --where"),
        ({"sides": ("a.csv", "b.csv"), "where": ("filter",)}, "--where filter"),
        ({"sides": ("results/demo", "results/other"), "score": "acc"}, "--score results/demo"),
        ({"sides": ("missing.csv",)}, "missing.csv"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: dict[str, Any], expected: str, wording: Wording):
    with pytest.raises(InputError) as error:
        Compare(**flags).run()
    assert all(word in str(error.value) for word in expected.split())
    wording(error.value)
