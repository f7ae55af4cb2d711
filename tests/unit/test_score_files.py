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
from hall import wider_ends
from messages import Wording
from scipy.stats import t

from arc_refinery import cli
from arc_refinery.cli.results import Compare
from arc_refinery.errors import InputError
from arc_refinery.evaluation.score_files import ScoreColumns, read_scores
from arc_refinery.reporting.publish import is_drawable
from arc_refinery.reporting.scores import scores_page

REPORTED = ROOT / "docs/sample-report/results/code-trained"
UNTRAINED = ("independent", "refine", "other-task", "verdict-only")  # arms


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def cells(page: str, first: str) -> list[list[str]]:
    """The rows of a page's tables that begin so."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0].startswith(first)]


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The tasks of the report, with the untrained arms only."""
    header, *rows = (REPORTED / "report/mbpp-test-tasks.csv").read_text().splitlines(True)
    path = tmp_path / "tasks.csv"
    path.write_text(header + "".join(row for row in rows if row.partition(",")[0] in UNTRAINED))
    return path


def test_numbers_are_those_of_the_report(tasks: Path):
    page = scores_page([tasks], ScoreColumns(side="arm"))
    report = (REPORTED.with_suffix(".md")).read_text()
    (row,) = (row for row in cells(report, "`refine` − `independent`") if len(row) == 9 and "of 447" in row[1])
    _, solved, points, interval, only, p, *_, detectable, supported = row
    assert (solved, supported) == ("313 − 331 of 447", "yes")
    (own,) = cells(page, "`independent` − `refine`")
    low, high = interval.strip("[]").split(", ")
    opposite = str.maketrans("+−", "−+")
    assert own[1:4] == ["447", points.translate(opposite), f"[{high}, {low}]".translate(opposite)]
    assert own[4] == " / ".join(reversed(only.split(" / ")))
    assert (own[5], own[7], own[8]) == (p, detectable, supported)
    assert [row[4] for row in cells(page, "`independent`") if len(row) == 5] == ["74.0 % [69.8, 77.9]"]


def test_an_interval_over_tasks_has_the_wider_ends_of_student_and_hall(tasks: Path):
    page = scores_page([tasks], ScoreColumns(side="arm", score="pass_rate"))
    with tasks.open(newline="") as table:
        rates = {(row["arm"], row["task_id"]): float(row["pass_rate"]) for row in csv.DictReader(table)}
    names = [task for arm, task in rates if arm == "refine"]
    gaps = np.array([rates["refine", task] - rates["other-task", task] for task in names])
    (row,) = cells(page, "`refine` − `other-task`")
    shown = [100 * value for value in (gaps.mean(), *wider_ends(gaps))]
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
    (side,), read = read_scores(
        [lines(tmp_path / "samples.jsonl", LM_EVAL)], ScoreColumns(where=(("filter", "strict"),))
    )
    assert (read.task, read.score) == ("doc_id", "exact_match")
    assert side.runs == {"": {"0": 0.0, "1": 1.0, "2": 0.0, "3": 1.0}}
    expected = {"": {"q0": 1.0, "q1": 0.5, "q2": 0.0}}  # means over epochs
    whole = tmp_path / "log.json"
    failed = {"id": "q9", "epoch": 1, "scores": None, "error": {"message": "no answer"}}
    unscored = {"id": "q8", "epoch": 1, "scores": {"match": {"value": float("nan")}}}
    whole.write_text(
        json.dumps({"version": 2, "samples": [*INSPECT, failed, unscored], "reductions": [{"scorer": "match"}]})
    )
    with ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", "{}")
        for sample in [*INSPECT, failed, unscored]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    for name in ("log.json", "log.eval"):
        assert read_scores([tmp_path / name], ScoreColumns())[0][0].runs == expected
    (side,), _ = read_scores([lines(tmp_path / "traces.jsonl", VERIFIERS)], ScoreColumns())
    assert (side.runs, side.n_rows) == ({"": {"0": 0.125, "1": 0.5}}, (1, 2))


def trace(number: int, **changes: Any) -> dict[str, Any]:
    return {"task": {"type": "S", "data": {"idx": number // 2}}, "rewards": {"a": {"score": number / 4}}, **changes}


@pytest.mark.parametrize("is_first", [True, False])
def test_each_trace_of_an_episode_is_a_row_and_what_has_no_score_is_counted(tmp_path: Path, is_first: bool):
    """verifiers since #1939: episodes with traces. Failed ones have no rewards, or no trace."""
    scored = [{"id": "e", "env": {"id": "s"}, "errors": [], "traces": [trace(0), trace(1)]}, trace(2)]
    failed = [{"id": "f", "errors": ["refused"], "traces": []}, trace(3, rewards={}), trace(3, rewards=None)]
    rows = [*failed, *scored] if is_first else [*scored, *failed]
    path = lines(tmp_path / "a.jsonl", rows)
    (side,), read = read_scores([path], ScoreColumns())
    assert (read.task, read.score, side.runs) == ("task.data.idx", "rewards.a.score", {"": {"0": 0.125, "1": 0.5}})
    assert dict(side.left_out) == {"they ended with an error": 1, "they have no score": 2}
    page = scores_page([path, lines(tmp_path / "b.jsonl", scored)], ScoreColumns())
    assert "Left out of `a.jsonl`, because they have no score: 2 rows." in page
    lines(path, failed)
    with pytest.raises(InputError, match="none of its 3 samples has a score"):
        read_scores([path], ScoreColumns())


@pytest.mark.parametrize("is_archive", [True, False])
def test_a_log_says_what_is_wrong_with_it_and_its_samples(tmp_path: Path, is_archive: bool):
    header = {"status": "cancelled", "eval": {"dataset": {"samples": 5}, "config": {"epochs": 2}}}
    samples = [
        {"id": "a", "epoch": 1, "scores": {"m": {"value": "yes"}}},
        {"id": "b", "epoch": 1, "scores": {"m": {"value": 1}}, "invalidation": {"author": "x"}},
        {"id": "c", "epoch": 1, "scores": {}, "error": {"message": "m"}},
    ]
    path = tmp_path / ("log.eval" if is_archive else "log.json")
    if is_archive:
        with ZipFile(path, "w") as archive:
            archive.writestr("header.json", json.dumps(header))
            for sample in samples:
                archive.writestr(f"samples/{sample['id']}_epoch_1/sample.json", json.dumps(sample))
                archive.writestr(f"samples/{sample['id']}_epoch_1/events/0.json", "[]")
    else:
        path.write_text(json.dumps({**header, "samples": samples}))
    page = scores_page([path, lines(tmp_path / "b.jsonl", samples[:1])], ScoreColumns())
    assert "The log `log.{}` is cancelled: it holds 3 of 10 samples.".format("eval" if is_archive else "json") in page
    assert page.count(": 1 rows.") == 2 and "invalidated" in page and "ended with an error" in page


ROWS_BY_ID: dict[str, tuple[Any, str, dict[str, float]]] = {
    "EvalPlus": (
        {
            "eval": {
                f"H/{n}": [{"task_id": f"H/{n}", "base_status": "pass", "plus_status": status}]
                for n, status in enumerate(("pass", "fail", "timeout"))
            },
            "pass_at_k": {"base": {"pass@1": 1.0}, "plus": {"pass@1": 0.3}},
        },
        "plus_status",
        {"H/0": 1.0, "H/1": 0.0, "H/2": 0.0},
    ),
    "BigCodeBench": (
        {"date": "today", "eval": {"B/0": [{"status": "pass"}, {"status": "fail"}], "B/1": [{"status": "timeout"}]}},
        "",
        {"B/0": 0.5, "B/1": 0.0},
    ),
    "lists by id": (
        {"H/0": [{"task_id": "H/0", "passed": True}], "H/1": [{"task_id": "H/1", "passed": False}]},
        "",
        {"H/0": 1.0, "H/1": 0.0},
    ),
    "SWE-bench": ({"a": {"resolved": True}, "b": {"resolved": False}}, "", {"a": 1.0, "b": 0.0}),
    "OpenCompass": (
        {"accuracy": 50.0, "details": {"0": {"correct": True}, "1": {"correct": False}, "type": "GEN"}},
        "",
        {"0": 1.0, "1": 0.0},
    ),
}


@pytest.mark.parametrize("tool", ROWS_BY_ID)
def test_ids_that_are_keys_are_read(tmp_path: Path, tool: str):
    content, score, expected = ROWS_BY_ID[tool]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    assert read_scores([path], ScoreColumns(score=score))[0][0].runs == {"": expected}


@pytest.mark.parametrize(
    "row",
    [{"task_id": 1, "passed": True}, {"instance_id": 1, "is_resolved": True}, {"sample_id": 1, "resolved": "yes"}],
)
def test_more_names_are_known(tmp_path: Path, row: dict[str, Any]):
    assert read_scores([lines(tmp_path / "a.jsonl", [row])], ScoreColumns())[0][0].runs == {"": {"1": 1.0}}


@pytest.mark.parametrize(
    "text",
    ["task_id;score\na;1\n", "sep=;\ntask_id;score\na;1\n", "task_id\tscore\na\t1\n", "task_id , score\n a , 1\n"],
)
def test_other_separators_and_spaces_are_read(tmp_path: Path, text: str):
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).write_text(text)
        assert read_scores([tmp_path / name], ScoreColumns())[0][0].runs == {"": {"a": 1.0}}


OTHER_QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "task": [{"task": "arc", "id": 0}, {"task": "mmlu", "id": 0}],
    "subject": [{"subject": name, "question_id": n} for name in ("law", "physics") for n in range(3)],
    "fach": [{"fach": name, "id": n, "epoch": e} for n in range(3) for name in ("Recht", "Mathe") for e in range(2)],
    "level": [{"level": level, "id": n} for n in range(4) for level in (1, 2)],
    "env.id": [{"env": {"id": name}, "task": {"data": {"idx": n}}} for name in ("x", "y") for n in range(2)],
    "unequal": [{"unequal": name, "id": n} for name, size in (("x", 4), ("y", 2)) for n in range(size)],
    "course_code": [{"course_code": name, "id": n} for name in ("CS1", "CS2") for n in range(3)],
    "contentArea": [{"contentArea": name, "id": n} for name in ("Law", "Art") for n in range(3)],
    "year": [{"id": n, "year": year} for year in (2023, 2024) for n in range(2)],
    "passage": [{"id": n, "passage": f"{name} {n} {'word ' * 20}"} for name in ("Once", "Then") for n in range(9)],
    "question": [{"id": n, "question": f"{name} {n}?"} for name in ("Who", "Where") for n in range(9)],
}


@pytest.mark.parametrize("column", OTHER_QUESTIONS)
def test_ids_that_start_again_are_never_averaged_in_silence(tmp_path: Path, column: str, wording: Wording):
    path = lines(tmp_path / "a.jsonl", [{**row, "score": 1} for row in OTHER_QUESTIONS[column]])
    with pytest.raises(InputError, match=f"differ in {column}") as error:
        read_scores([path], ScoreColumns())
    wording(error.value)
    task = next(name for name in ("question_id", "id", "task.data.idx") if f"the {name} 0" in str(error.value))
    (whole,), _ = read_scores([path], ScoreColumns(task=task))
    assert f"differ in {column}" in whole.logs[0]
    (split,), _ = read_scores([path], ScoreColumns(task=f"{column},{task}"))
    assert len(split.tasks) > len(whole.tasks)


@pytest.mark.parametrize(
    "more",
    [
        {"seed": ["0", "1"]},
        {"completion": ["A", "B"], "uuid": ["a", "b"]},
        {"model_answer": ["4", "5"], "finish_reason": ["stop", "length"]},
        {"metadata": [{"id": "x/1"}, {"id": "x/2"}]},
        {"subject": ["law", "law"], "created_at": ["today", "then"]},
        {"epoch": [1, 2], "rewards": [0.0, 1.0]},
        {"grade": ["I", "C"], "n_tokens": [3, 4], "is_valid": [True, False], "k": [0, 1], "sampleIndex": [0, 1]},
    ],
)
def test_repeated_attempts_at_one_question_are_averaged(tmp_path: Path, more: dict[str, list[Any]]):
    def unique(value: Any, task: int) -> Any:
        return {"id": f"{value['id']}/{task}"} if isinstance(value, dict) else value

    rows = [
        {"id": task, "score": attempt, **{name: unique(values[attempt], task) for name, values in more.items()}}
        for task in range(3)
        for attempt in range(2)
    ]
    columns = ScoreColumns(score="rewards" if "rewards" in more else "score")
    (side,), _ = read_scores([lines(tmp_path / "a.jsonl", rows)], columns)
    assert side.runs == {"": {"0": 0.5, "1": 0.5, "2": 0.5}}


@pytest.mark.parametrize(
    ("failed", "scored"),
    [
        ({"score": None, "error": "timeout"}, {"score": "incorrect"}),
        ({"error": {"message": "no answer"}}, {"scores": {"match": {"value": "I"}}}),
    ],
)
def test_a_row_that_ended_with_an_error_is_left_out_wherever_it_stands(
    tmp_path: Path, failed: dict[str, Any], scored: dict[str, Any]
):
    (side,), _ = read_scores([lines(tmp_path / "a.jsonl", [{"id": 0, **failed}, {"id": 1, **scored}])], ScoreColumns())
    assert (side.runs, side.left_out) == ({"": {"1": 0.0}}, (("they ended with an error", 1),))


def test_sides_with_other_questions_of_the_same_ids_are_refused(tmp_path: Path):
    paths = [
        lines(tmp_path / f"{name}.jsonl", [{"id": n, "score": 1, "problem": f"{name} {n}?"} for n in range(3)])
        for name in ("who", "where", "who ")
    ]
    with pytest.raises(InputError, match=r"where\.jsonl: rows with the id 0 differ in problem"):
        read_scores(paths[:2], ScoreColumns())
    assert (
        len(read_scores(paths[:2], ScoreColumns(task="id"))[0]) == len(read_scores(paths[::2], ScoreColumns())[0]) == 2
    )


def test_a_side_without_any_score_is_named(tmp_path: Path):
    rows = [{"id": 1, "model": name, "scores": {"m": {"value": score}}} for name, score in (("a", 1), ("b", None))]
    with pytest.raises(InputError, match="b: none of its 1 samples"):
        read_scores([lines(tmp_path / "a.jsonl", rows)], ScoreColumns(side="model"))


def test_an_archive_that_is_packed_with_zstandard_is_read(tmp_path: Path):
    """As inspect_ai writes it, in frames; Python's zipfile cannot before 3.14."""
    path, name, sample = tmp_path / "log.eval", b"samples/a_epoch_1.json", json.dumps(INSPECT[0]).encode()
    packed = b"".join(pa.compress(part, "zstd", asbytes=True) for part in (sample[:20], sample[20:]))
    numbers = (0, 93, 0, 0x21, zlib.crc32(sample), len(packed), len(sample), len(name), 4)
    local = struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 63, *numbers) + name + b"\1\2\0\0" + packed
    central = struct.pack("<4sHHHHHHLLLHHHHHLL", b"PK\1\2", 63, 63, *numbers[:-1], 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    path.write_bytes(local + central + end)
    (side,), _ = read_scores([path], ScoreColumns())
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
    with gzip.open(tmp_path / "a.json.gz", "wt") as packed:
        json.dump(rows, packed)
    for name in ("a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz", "a.csv", "a.parquet"):
        (side,), _ = read_scores([tmp_path / name], ScoreColumns(task="question", run="seed"))
        assert side.runs == {"0": {"q0": 0.0, "q1": 1.0, "q2": 0.0}, "1": {"q0": 1.0, "q1": 0.0, "q2": 1.0}}


def test_runs_are_paired_and_what_one_side_lacks_is_left_out(tmp_path: Path):
    def side(name: str, scores: Mapping[tuple[int, str], float]) -> Path:
        return lines(tmp_path / name, [{"id": task, "seed": seed, "score": s} for (seed, task), s in scores.items()])

    first = side("a.jsonl", {(0, "x"): 3, (1, "x"): 5, (0, "y"): 1, (1, "y"): 3, (0, "z"): 9, (1, "z"): 9, (0, "w"): 1})
    second = side("b.jsonl", {(1, "y"): 1, (1, "x"): 3, (0, "x"): 1, (0, "y"): 1})
    page = scores_page([first, second], ScoreColumns(run="seed"), tmp_path / "page.png")
    assert "Left out of `a.jsonl`, because `b.jsonl` lacks them: 1 tasks." in page
    assert "Left out of `a.jsonl`, because not all of its runs have them: 1 tasks." in page
    (row,) = cells(page, "`a.jsonl` − `b.jsonl`")
    assert row[1:3] == ["2", "+1.500"]  # (2 + 2 + 0 + 2) / 4
    assert {path.name for path in tmp_path.glob("page.*")} == {"page.png", "page.svg"}
    more = side("c.jsonl", {(seed, task): seed for seed in (2, 1, 0) for task in ("x", "y")})
    page = scores_page([more, first], ScoreColumns(run="seed"))
    row = cells(page, "`c.jsonl` − `a.jsonl`")[0]
    assert (row[2], row[3], row[5]) == ("−2.500", "–", "–")  # (0 + 1) / 2 - (3 + 5 + 1 + 3) / 4; two runs are compared
    part = side("d.jsonl", {(seed, task): 1 for seed in (0, 1) for task in ("x", "y")} | {(2, "x"): 0})
    page = scores_page([part, first], ScoreColumns(run="seed"))
    assert cells(page, "`d.jsonl` − `a.jsonl`")[0][1] == "2"  # run 2, which is not compared, costs no task


def test_the_order_of_rows_and_sums_of_floats_make_no_difference(tmp_path: Path):
    scores = [0.1, 0.2, 0.3, 0.7, 0.1, 0.9]
    rows = [{"id": task, "score": score} for task in range(9) for score in scores]
    page = scores_page([lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", rows[::-1])], ScoreColumns())
    (row,) = cells(page, "`a.jsonl` −")
    assert row[2:6] == ["+0.0", "[−17.8, +17.8]", "0 / 0", "1.000"]  # 1.96 / 11: as cautious as for scores of 0 and 1
    more = [{"id": task, "score": task / 20 + shift} for shift in (0, 0.1) for task in range(9)]
    files = [lines(tmp_path / f"{name}.jsonl", part) for name, part in (("c", more[9:]), ("d", more[:9]))]
    (row,) = cells(scores_page(files, ScoreColumns()), "`c.jsonl` −")
    assert row[4:6] == ["9 / 0", "0.004"] and row[-1] == "yes"  # all alike: a sign test, 2 / 2^9


def test_one_task_has_no_interval_no_p_and_no_verdict(tmp_path: Path):
    a, b = (lines(tmp_path / f"{name}.jsonl", [{"id": "x", "score": score}]) for name, score in (("a", 1), ("b", 0)))
    page = scores_page([a, b], ScoreColumns(), tmp_path / "page.png")
    assert [row[-1] for row in cells(page, "`a.jsonl`") if len(row) == 5] == ["100.0 %"]
    assert cells(page, "`a.jsonl` −")[0][2:] == ["+100.0", "–", "1 / 0", "–", "–", "–", "–"]


def test_no_interval_and_no_detectable_difference_of_shares_is_beyond_what_they_can_be(tmp_path: Path):
    a, b = (
        lines(tmp_path / f"{name}.jsonl", [{"id": n, "score": 0.01 if n % 2 == side else 1} for n in range(6)])
        for side, name in enumerate("ab")
    )
    (row,) = cells(scores_page([a, b], ScoreColumns()), "`a.jsonl` −")
    assert row[3:5] == ["[−100.0, +100.0]", "3 / 3"] and row[7] == "–"  # 3.49 standard errors of 0.44: 155 points


def test_runs_that_are_all_alike_are_tested_as_one(tmp_path: Path):
    def page(n_runs: int) -> list[str]:
        paths = [
            lines(
                tmp_path / f"{name}.jsonl",
                [{"id": n, "seed": seed, "score": int(n < right)} for seed in range(n_runs) for n in range(10)],
            )
            for name, right in (("a", 5), ("b", 0))
        ]
        (row,) = cells(scores_page(paths, ScoreColumns(run="seed")), "`a.jsonl` −")
        return row

    assert page(1)[1:] == page(3)[1:]
    assert page(3)[5] == "0.062"  # 2 / 2^5


@pytest.mark.parametrize("scores", [(2, 3), (-1, 0)])
def test_ratings_whose_differences_are_one_are_no_shares(tmp_path: Path, scores: tuple[int, int]):
    """Student's t of 1, 1, 1, 0: 0.75 ± 3.182 x 0.25, and a lower end by Hall's correction (skewness -0.5)."""
    low, high = scores
    a = lines(tmp_path / "a.jsonl", [{"id": n, "score": high if n else low} for n in range(4)])
    b = lines(tmp_path / "b.jsonl", [{"id": n, "score": low} for n in range(4)])
    (row,) = cells(scores_page([a, b], ScoreColumns()), "`a.jsonl` −")
    low_end, high_end = (float(end.replace("−", "-")) for end in row[3].strip("[]").split(", "))
    assert low_end < -0.046 and high_end == 1.546 and row[-1] == "no"


def test_different_filters_are_named_and_one_file_may_hold_both(tmp_path: Path):
    rows = [{"doc_id": n, "filter": name, "acc": n % 2} for name in ("strict", "flexible") for n in range(4)]
    whole = lines(tmp_path / "both.jsonl", rows)
    assert "Different filters" not in scores_page([whole], ScoreColumns(side="filter"))
    parts = [
        lines(tmp_path / f"{name}.jsonl", [row for row in rows if row["filter"] == name])
        for name in ("strict", "flexible")
    ]
    page = scores_page(parts, ScoreColumns())
    assert "Different filters: `strict` of `strict.jsonl`, `flexible` of `flexible.jsonl`." in page


def test_rows_of_other_documents_may_be_averaged_under_another_name(tmp_path: Path):
    rows = [{"doc_id": n, "doc": {"subject": f"s{n % 2}"}, "doc_hash": f"{n}", "acc": 1} for n in range(4)]
    (side,), _ = read_scores([lines(tmp_path / "a.jsonl", rows)], ScoreColumns(task="doc.subject"))
    assert (side.runs, side.n_rows) == ({"": {"s0": 1.0, "s1": 1.0}}, (2,))


def test_a_sample_that_one_of_its_scorers_left_unscored_is_left_out(tmp_path: Path):
    scores = [{"a": {"value": value}, "b": {"value": 1}} for value in (1, float("nan"), None)]
    path = tmp_path / "log.json.gz"
    with gzip.open(path, "wt") as packed:
        json.dump({"samples": [{"id": n, "scores": score} for n, score in enumerate(scores)]}, packed)
    assert [read_scores([path], ScoreColumns(score=f"scores.{name}.value"))[0][0].tasks for name in "ab"] == [
        ["0"],
        ["0", "1", "2"],
    ]


def test_sides_that_share_their_first_file_are_two(tmp_path: Path):
    a, b, c = (lines(tmp_path / f"{name}.jsonl", [{"id": 1, "score": n}]) for n, name in enumerate("abc"))
    sides, _ = read_scores([(a, b), (a, c)], ScoreColumns())
    assert [side.name for side in sides] == [f"{a},{b}", f"{a},{c}"]


def test_a_column_of_runs_that_differs_in_each_row_is_named(tmp_path: Path, wording: Wording):
    path = lines(tmp_path / "a.jsonl", [{"id": n % 2, "model": n // 2, "ts": n, "score": 1} for n in range(4)])
    with pytest.raises(InputError, match="--runs") as error:
        scores_page([path], ScoreColumns(run="ts", side="model"))
    wording(error.value)


def test_files_of_one_side_are_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.chdir(tmp_path)
    for name, scores in {"a1": (3, 1), "a2": (5, 3), "b1": (1, 1), "b2": (3, 1)}.items():
        lines(
            tmp_path / f"{name}.jsonl", [{"id": task, "score": score} for task, score in zip("xy", scores, strict=True)]
        )
    cli.parse(["compare", "a1.jsonl,a2.jsonl", "b1.jsonl,b2.jsonl"]).run()
    page = capsys.readouterr().out
    assert cells(page, "`a1.jsonl and 1 more`")[0][1:4] == ["2", "2", "1"]  # tasks, runs, rows per task
    assert cells(page, "`a1.jsonl and 1 more` −")[0][2] == "+1.500"  # (2 + 2 + 0 + 2) / 4
    for words in (
        ["a1.jsonl,a2.jsonl", "b1.jsonl", "--runs", "seed"],
        ["a1.jsonl,lost.jsonl", "b1.jsonl"],
        ["a1.jsonl,,a2.jsonl", "b1.jsonl"],
    ):
        with pytest.raises(InputError, match=r"--runs|lost\.jsonl|comma"):
            cli.parse(["compare", *words]).run()


def test_runs_that_cannot_be_paired_are_two_samples(tmp_path: Path):
    """Both sides vary from run to run, so the interval is far wider than that of paired runs without differences."""
    scores = np.random.default_rng(0).random(20)
    paths = [
        lines(
            tmp_path / f"{first}.jsonl",
            [{"id": n, "seed": first + run, "score": s + run} for run in range(3) for n, s in enumerate(scores)],
        )
        for first in (0, 5)
    ]
    (row,) = cells(scores_page(paths, ScoreColumns(run="seed")), "`0.jsonl` −")
    # the runs' variance is 1, so the error sqrt(1 / 3 + 1 / 3), with 4 degrees of freedom
    half = t.ppf(0.975, 4) * (2 / 3) ** 0.5
    assert row[2:4] == ["+0.000", f"[−{half:.3f}, +{half:.3f}]"]


def test_shares_stay_in_their_range(tmp_path: Path):
    a, b = (lines(tmp_path / f"{n}.jsonl", [{"id": task, "score": n} for task in range(12)]) for n in (1, 0))
    (row,) = cells(scores_page([a, b], ScoreColumns()), "`1.jsonl` −")
    assert row[2] == "+100.0" and row[3].endswith(", +100.0]")


def test_names_stay_in_their_cells(tmp_path: Path):
    rows = [{"id": n, "model": name, "score": 1} for n in range(2) for name in ("a|`b`", "c\nd")]
    page = scores_page([lines(tmp_path / "a.jsonl", rows)], ScoreColumns(side="model"))
    assert [len(row) for row in cells(page, "`a/'b'`")] == [5, 9]
    assert cells(page, "`c d`")


def test_files_that_would_be_read_by_different_columns_are_refused(tmp_path: Path, wording: Wording):
    paths = [
        lines(tmp_path / "a.jsonl", [{"task_id": 1, "correct": 1}]),
        lines(tmp_path / "b.jsonl", [{"id": 1, "reward": 2}]),
    ]
    with pytest.raises(InputError, match="--task and --score") as error:
        read_scores(paths, ScoreColumns())
    wording(error.value)


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ('{"id": 1, "acc": 1, "reward": 0}\n', ScoreColumns(), "acc reward --score"),
        ('{"id": 1, "speed": 1}\n', ScoreColumns(), "--score speed"),
        ('{"name": 1, "score": 1}\n', ScoreColumns(), "--task name"),
        ('{"id": 1, "score": "maybe"}\n', ScoreColumns(), "row 1 score 'maybe'"),
        ('{"id": 1, "score": NaN}\n', ScoreColumns(), "row 1 score nan"),
        ('{"id": 1, "score": 1}\n{"id": 2}\n', ScoreColumns(), "row 2 score"),
        ('{"id": 1, "score": 1}\n{"id": 2\n', ScoreColumns(), "row 2 JSON"),
        ("[1]\n", ScoreColumns(), "row 1 task score"),
        ('{"id": 1, "score": 1}\n', ScoreColumns(where=(("id", "2"),)), "id = 2 --where"),
        ("", ScoreColumns(), "no rows"),
        ('{"id": "", "score": 1}\n', ScoreColumns(), "row 1 id empty"),
        ('{"id": null, "score": 1}\n', ScoreColumns(), "row 1 id empty"),
        ('{"id": 1, "score": 1, "seed": ""}\n', ScoreColumns(run="seed"), "row 1 seed empty"),
        (f'{{"id": 1, "score": 1{"0" * 400}}}\n', ScoreColumns(), "row 1 score"),
        (
            "".join(f'{{"doc_id": 1, "filter": "{name}", "acc": 1}}\n' for name in ("flexible", "strict")),
            ScoreColumns(),
            "flexible and strict --where --side",
        ),
        ('{"doc_id": 1, "metrics": ["acc", "acc_norm"], "acc": 1}\n', ScoreColumns(), "--score acc, acc_norm"),
        ('{"id": 1, "score": "1_000"}\n', ScoreColumns(), "row 1 score '1_000'"),
        ('{"id": 1, "score": 1e200}\n', ScoreColumns(), "row 1 score 1e+200"),
        ('{"id": 1, "scores": {"a": {"value": {"x": 1, "y": 0}}}}\n', ScoreColumns(), "--score scores.a.value.x"),
        ('{"id": 1, "rewards": {"a": {"score": 1}, "b": {"score": 0}}}\n', ScoreColumns(), "--score rewards.a.score"),
        (
            "".join(f'{{"doc_id": 1, "resps": [["r"]], "filtered_resps": ["{n}"], "acc": {n}}}\n' for n in (0, 1)),
            ScoreColumns(),
            "row 2 task 1 resps filters",
        ),
        ('{"id": NaN, "score": 1}\n', ScoreColumns(), "row 1 id empty"),
        ('{"id": 1, "scores": {"a": {"value": 1}, "b": {"value": 0}}}\n', ScoreColumns(), "--score scores.a.value"),
        (
            '{"doc_id": 1, "acc": 1, "doc_hash": "a"}\n{"doc_id": 1, "acc": 1, "doc_hash": "b"}\n',
            ScoreColumns(task="doc_id"),
            "task 1 doc_hash",
        ),
    ],
)
def test_what_is_no_score_is_refused(
    tmp_path: Path, content: str, columns: ScoreColumns, expected: str, wording: Wording
):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        read_scores([path], columns)
    assert path.name in str(error.value)
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
        ({"sides": (f"{ROOT}/README.md", "results/demo")}, "README.md .jsonl"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: dict[str, Any], expected: str, wording: Wording):
    with pytest.raises(InputError) as error:
        Compare(**flags).run()
    assert all(word in str(error.value) for word in expected.split())
    wording(error.value)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"id,score,score\n1,1,0\n", "score twice"),
        ("a.csv", b"id,score\n1,1,0\n", "row 1 cells"),
        ("a.csv", b"id,score\n,1\n", "row 1 id empty"),
        ("a.csv", b",id,score\n0,q,0,5\n", "row 1 cells"),
        ("a.json", b'{"samples": [{"id": 1, "scores": {"s": {"value": NaN}}}]}', "none of its 1 samples"),
        ("a.jsonl.gz", gzip.compress(b'{"id": 1, "score": 1}\n' * 99, mtime=0)[:-20], "cannot be read"),
        ("a.parquet", b"PAR1", "cannot be read"),
        ("a.eval", b"PK", "cannot be read"),
        ("a.json", b'{"a": [{}], "b": [{}]}', "2 lists"),
        ("a.json", b'{"status": "started", "eval": {}}', "has no samples"),
        ("a.json", b'{"version": 2, "samples": []}', "has no samples"),
        ("a.eval", b"PK\5\6" + bytes(18), "has no samples"),
    ],
    ids=[
        *("two columns", "more cells", "no name", "index", "unscored", "gzip", "parquet", "zip", "lists"),
        *("no samples", "empty samples", "empty zip"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, content: bytes, expected: str):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_scores([path], ScoreColumns())
    assert all(word in str(error.value) for word in [str(path), *expected.split()])


def test_what_spreadsheets_and_pandas_write_is_read(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("task_id,solved,text\n1,True,{}\n2,FALSE,\n".format("x" * 200_000), encoding="utf-8-sig")
    (side,), _ = read_scores([path], ScoreColumns())
    assert side.runs == {"": {"1": 1.0, "2": 0.0}}


@pytest.mark.filterwarnings("error")
def test_names_that_the_font_cannot_draw_are_numbers_in_the_picture(tmp_path: Path):
    names = ("日本", "a$\\frac$", "é")
    paths = [lines(tmp_path / f"{name}.jsonl", [{"id": n, "score": n % 2} for n in range(8)]) for name in names]
    page = scores_page(paths, ScoreColumns(), tmp_path / "page.png")
    assert cells(page, "`日本.jsonl` − `é.jsonl`")
    assert is_drawable("é − 1") and not is_drawable("é日")
