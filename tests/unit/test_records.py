"""Files between stages: what is written comes back, equal inputs give equal bytes, and bad files are named."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import (
    make_attempt,
    make_demonstration,
    make_grid,
    make_prompt,
    make_task,
    make_verdict,
    with_detail,
)

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.records import Outputs, Prompt, Verdict
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.records import Conversation, RecordError, Segment
from arc_refinery.refining.prompt_files import write_prompts

PAIR = Pair(make_grid("123"), make_grid("0", "9"))
OTHER = Pair(make_grid("4"), make_grid("56", "78"))
TURNED = Augmentation(3, True, (0, 2, 3, 1, 5, 6, 7, 8, 9, 4))

TASK = make_task("t1", train=(PAIR, OTHER), test=(PAIR,), source="source with ünicode\n")
PROMPT = make_prompt(
    TASK,
    prompt_id="t1/turn2-000",
    turn=2,
    parent_id="t1/turn1-000/3",
    augmentation=TURNED,
    train_order=(1, 0),
    messages=({"role": "user", "content": "\ninput "}, {"role": "assistant", "content": ""}),
    text="<s>\ninput </s>",
    n_predictions=8,
    train=(OTHER, PAIR),
)
ATTEMPT = make_attempt(
    make_prompt(TASK, augmentation=TURNED, train_order=(1, 0)),
    seed=2**63 - 1,  # the largest that stream_seed gives
    top_p=0.95,
    completion="```python\nx = 1\n```",
    logprob=-1.5e-3,
)
VERDICT = make_verdict(
    ATTEMPT,
    train_outputs=(PAIR.output, OTHER.input),
    test_outputs=(PAIR.output,),
    train_pixel_score=0.1 + 0.2,
    train_correct_grids=0.5,
    test_pixel_score=1.0,
    test_correct_grids=1.0,
)
DEMONSTRATION = make_demonstration(text="<s>\ninput </s>", completion="```python\nx = 1\n```")
RECORDS: list[Any] = [TASK, PROMPT, ATTEMPT, VERDICT, DEMONSTRATION]
each_record = pytest.mark.parametrize("record", RECORDS, ids=[type(record).KIND for record in RECORDS])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.parquet"


def content(record: Any) -> str:
    """All fields as text, since records that hold arrays cannot be compared with ==."""
    return json.dumps(dataclasses.asdict(record), default=np.ndarray.tolist)


def forge(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None, **metadata: str) -> None:
    """A file of tasks as another program, or another version of this one, might write it."""
    ids = hashlib.sha256("".join(f"{row['task_id']}\n" for row in rows).encode()).hexdigest()
    columns = (schema or records.schema(Task)).with_metadata(
        {"kind": "tasks", "schema_version": str(records.SCHEMA_VERSION), "ids": ids} | metadata
    )
    pq.write_table(pa.Table.from_pylist(rows, columns), path)


def task_row(**changes: Any) -> dict[str, Any]:
    pairs = [{"input": [[1]], "output": [[2]]}]
    return {"task_id": "t", "train": pairs, "test": pairs, "origin": "", "source": "", "hidden": []} | changes


def message(action: Callable[[], Any]) -> str:
    with pytest.raises(RecordError) as caught:
        action()
    assert isinstance(caught.value, InputError)  # so that the command line shows it without a traceback
    return str(caught.value)


# what is written comes back


@each_record
def test_a_record_comes_back_as_it_was(path: Path, record: Any):
    records.write(path, type(record), [record], 0, {})
    (restored,) = records.read(path, type(record))
    assert type(restored) is type(record)
    assert content(restored) == content(record)


@each_record
def test_a_file_without_records_is_read_as_none(path: Path, record: Any):
    records.write(path, type(record), [], 0, {})
    assert list(records.read(path, type(record))) == []


def test_what_is_read_again_has_the_types_of_the_record_classes(path: Path):
    records.write(path, Prompt, [PROMPT], 0, {})
    (prompt,) = records.read(path, Prompt)
    assert prompt.detail.augmentation == TURNED  # a dataclass of hashable fields: lists in it would not be equal
    assert prompt.detail.train_order == (1, 0)
    assert prompt.messages == PROMPT.messages
    assert prompt.detail.train[0].output.dtype == np.uint8


def test_a_verdict_without_outputs_comes_back(path: Path):
    crashed = dataclasses.replace(VERDICT, status="crash", fingerprint="", detail=Outputs())
    records.write(path, Verdict, [crashed], 0, {})
    (restored,) = records.read(path, Verdict)
    assert (restored.status, restored.detail.train_outputs, restored.detail.test_outputs) == ("crash", (), ())


def test_records_keep_their_order_over_row_groups(path: Path):
    n_records = 2 * records.ROWS_PER_GROUP + 1
    verdicts = (dataclasses.replace(VERDICT, attempt_id=str(number)) for number in range(n_records))
    records.write(path, Verdict, verdicts, 0, {})
    assert [record.attempt_id for record in records.read(path, Verdict)] == [str(number) for number in range(n_records)]
    assert pq.ParquetFile(path).num_row_groups == 3


def test_missing_folders_are_made(tmp_path: Path):
    records.write(tmp_path / "a" / "b" / "c.parquet", Task, [TASK], 0, {})
    assert len(list(records.read(tmp_path / "a" / "b" / "c.parquet", Task))) == 1


@dataclass(frozen=True)
class Note:
    text: str
    lines: tuple[Annotated[int, "int8"], ...] = ()


@dataclass(frozen=True)
class Review:
    """A record of no kind that the package knows."""

    KIND: ClassVar = "reviews"
    review_id: str
    state: Literal["open", "closed"]
    notes: tuple[Note, ...]
    picture: Grid
    author: Message | None = None
    answer: Note | None = None


def test_a_record_class_of_ones_own_is_written_and_read(path: Path):
    author: Message = {"role": "user", "content": "me"}
    answered = Review("a", "open", (Note("x", (1, 2)), Note("y")), make_grid("12"), author, Note("z", (3,)))
    reviews = [answered, Review("b", "closed", (), make_grid("3", "4"))]
    records.write(path, Review, reviews, 0, {})
    assert list(map(content, records.read(path, Review))) == list(map(content, reviews))
    assert records.texts(path, Review, "state") == ["open", "closed"]
    assert records.schema(Review).field("notes").type == pa.list_(
        pa.struct([("text", pa.string()), ("lines", pa.list_(pa.int8()))])
    )


def test_a_column_may_be_a_field_of_a_detail(path: Path):
    other = with_detail(dataclasses.replace(VERDICT, attempt_id="b"), train_correct_grids=0.25)
    records.write(path, Verdict, [VERDICT, other], 0, {})
    names = ["detail.train_correct_grids", "attempt_id"]
    assert records.columns(path, Verdict, names).to_pydict() == {
        "detail.train_correct_grids": [0.5, 0.25],
        "attempt_id": [VERDICT.attempt_id, "b"],
    }
    assert records.columns(path, Verdict, names[:1], ids={"b"}).to_pylist() == [{"detail.train_correct_grids": 0.25}]
    assert records.columns(path, Verdict, names[:1]).schema.types == [pa.float64()]


def test_records_of_a_domain_that_adds_nothing_have_no_detail(path: Path):
    plain = records.Verdict(*(getattr(VERDICT, field.name) for field in dataclasses.fields(records.Verdict)))
    records.write(path, records.Verdict, [plain], 0, {})
    assert list(records.read(path, records.Verdict)) == [plain]
    assert "column 'detail' is missing" in message(lambda: list(records.read(path, Verdict)))


def test_a_type_that_no_column_stores_is_refused(path: Path):
    @dataclass(frozen=True)
    class Odd:
        KIND: ClassVar = "odd"
        odd_id: str
        value: complex

    with pytest.raises(TypeError, match="complex"):
        records.write(path, Odd, [Odd("a", 1j)], 0, {})


# what a file says of itself


def test_the_metadata_name_kind_versions_seed_and_settings(path: Path):
    records.write(path, Task, [TASK], 7, {"max_cells": 4500})
    metadata = pq.read_schema(path).metadata
    assert metadata[b"kind"] == b"tasks"
    assert metadata[b"schema_version"] == str(records.SCHEMA_VERSION).encode()
    assert metadata[b"package_version"] == version("arc-refinery").encode()
    assert records.packages_of(path) == {}  # other versions would be another file, from which others are made
    assert metadata[b"seed"] == b"7"
    assert metadata[b"settings"] == records.settings_hash({"max_cells": 4500}).encode()


def test_the_hash_of_settings_depends_on_values_not_on_their_order():
    assert records.settings_hash({"a": 1, "b": 2}) == records.settings_hash({"b": 2, "a": 1})
    assert records.settings_hash({"a": 1, "b": 2}) != records.settings_hash({"a": 1, "b": 3})


@each_record
def test_kind_of_says_what_a_file_holds(path: Path, record: Any):
    records.write(path, type(record), [record], 0, {})
    assert records.kind_of(path) == record.KIND


def test_notes_are_taken_when_all_records_are_written(path: Path):
    seen: list[str] = []

    def counted() -> Iterator[Task]:
        for task in (TASK, TASK):
            seen.append(task.task_id)
            yield task

    records.write(path, Task, counted(), 0, {}, lambda: {"n_seen": len(seen)})
    assert records.notes(path) == {"n_seen": 2}


def test_prompts_over_the_limit_are_dropped_and_their_lengths_are_noted(path: Path):
    prompts = [dataclasses.replace(PROMPT, prompt_id=f"p{n}", n_tokens=n) for n in (99, 100, 101, 500)]
    write_prompts(Prompt, path, prompts, 120, 20, 0, {})
    assert [prompt.prompt_id for prompt in records.read(path, Prompt)] == ["p99", "p100"]  # 100 is allowed
    assert records.notes(path) == {"longest_allowed": 100, "n_dropped": 2, "dropped": {"2": [101, 500]}}


def test_no_prompts_at_all_are_no_error(path: Path):
    write_prompts(Prompt, path, [], 120, 20, 0, {})
    assert list(records.read(path, Prompt)) == []
    assert records.notes(path) == {"longest_allowed": 100, "n_dropped": 0, "dropped": {}}


# equal inputs, equal bytes


@each_record
def test_equal_inputs_give_equal_bytes(tmp_path: Path, record: Any):
    one, other = tmp_path / "one.parquet", tmp_path / "other" / "name.parquet"
    records.write(one, type(record), [record] * 3, 5, {"a": 1, "b": 2})
    records.write(other, type(record), (record for _ in range(3)), 5, {"b": 2, "a": 1})
    assert one.read_bytes() == other.read_bytes()


def test_a_file_that_was_read_and_written_again_has_equal_bytes(tmp_path: Path):
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    verdicts = [dataclasses.replace(VERDICT, attempt_id=name) for name in "abc"]
    records.write(one, Verdict, verdicts, 5, {})
    records.write(other, Verdict, records.read(one, Verdict), 5, {})
    assert one.read_bytes() == other.read_bytes()


# nothing half-written


def broken() -> Iterator[Task]:
    yield TASK
    raise OSError("disk full")


def test_a_stage_that_fails_midway_leaves_no_file(path: Path):
    with pytest.raises(OSError, match="disk full"):
        records.write(path, Task, broken(), 0, {})
    assert not path.exists()


def test_a_stage_that_fails_midway_keeps_the_old_file(path: Path):
    records.write(path, Task, [TASK], 0, {})
    old = path.read_bytes()
    with pytest.raises(OSError, match="disk full"):
        records.write(path, Task, broken(), 1, {})
    assert path.read_bytes() == old


def test_a_failed_stage_can_be_run_again(path: Path):
    with pytest.raises(OSError, match="disk full"):
        records.write(path, Task, broken(), 0, {})
    records.write(path, Task, [TASK], 0, {})
    assert len(list(records.read(path, Task))) == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_stage_that_runs_again_replaces_its_file(path: Path):
    records.write(path, Task, [TASK, TASK], 0, {})
    records.write(path, Task, [dataclasses.replace(TASK, task_id="t2")], 0, {})
    assert [task.task_id for task in records.read(path, Task)] == ["t2"]


def test_a_file_appears_only_when_it_is_complete(path: Path):
    def watching() -> Iterator[Task]:
        for _ in range(3):
            assert not path.exists()
            yield TASK

    records.write(path, Task, watching(), 0, {})
    assert path.exists()


# bad files: the message says which, what is wrong, and what to do


def test_a_missing_file_is_named(path: Path):
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: no such file.")
    assert f"snakemake {path}" in text


@pytest.mark.parametrize("n_bytes", [0, 3, 100, -1, -100])
def test_a_truncated_file_is_named(path: Path, n_bytes: int):
    records.write(path, Task, [TASK], 0, {})
    path.write_bytes(path.read_bytes()[:n_bytes])
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: cannot be read as a Parquet file (")
    assert f"snakemake {path}" in text


def test_a_file_that_is_damaged_in_the_middle_is_named(path: Path):
    records.write(path, Task, [dataclasses.replace(TASK, source="x" * 5000)], 0, {})
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(400) + whole[404:])  # the footer, which check() reads, is intact
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: cannot be read (")
    assert f"snakemake {path}" in text


def test_a_parquet_file_of_another_program_is_named(path: Path):
    pq.write_table(pa.table({"x": [1]}), path)
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: was not written by arc-refinery")


@each_record
def test_a_file_of_another_kind_is_refused_with_both_kinds(path: Path, record: Any):
    other: Any = Verdict if isinstance(record, Task) else Task
    records.write(path, other, [], 0, {})
    assert (
        message(lambda: list(records.read(path, type(record))))
        == f"{path}: holds {other.KIND}, expected {record.KIND}; give another file"
    )


def test_a_file_of_another_schema_version_is_refused_with_both_versions(path: Path):
    forge(path, [task_row()], schema_version="0")
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: has schema 0, this version reads {records.SCHEMA_VERSION}.")
    assert f"snakemake {path}" in text


@pytest.mark.parametrize("column", ["task_id", "train", "test", "origin", "source"])
def test_a_missing_column_is_named(path: Path, column: str):
    schema = records.schema(Task)
    forge(path, [task_row()], schema.remove(schema.get_field_index(column)))
    assert message(lambda: list(records.read(path, Task))).startswith(f"{path}: column '{column}' is missing.")


def test_a_column_of_another_type_is_named_with_both_types(path: Path):
    schema = records.schema(Task)
    forge(path, [], schema.set(schema.get_field_index("source"), pa.field("source", pa.int64())))
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: column 'source' is int64, expected string.")


def test_a_column_that_is_there_twice_is_named(path: Path):
    schema = records.schema(Task)
    table = pa.Table.from_pylist([task_row()], schema)
    metadata = {"kind": "tasks", "schema_version": str(records.SCHEMA_VERSION)}
    pq.write_table(table.append_column("source", table["source"]).replace_schema_metadata(metadata), path)
    assert message(lambda: list(records.read(path, Task))).startswith(f"{path}: column 'source' is there twice.")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (make_task(train=()), "t: column 'train' is empty, expected at least one pair"),
        (make_prompt(n_predictions=0), "t/turn1-000: column 'n_predictions' is 0, expected 1 or more"),
        (
            with_detail(PROMPT, augmentation=Augmentation(colors=tuple(range(9)))),
            f"{PROMPT.prompt_id}: column 'colors' is [0, 1, 2, 3, 4, 5, 6, 7, 8], expected a permutation of 0..9",
        ),
        (
            with_detail(ATTEMPT, augmentation=Augmentation(colors=(0,) * 10)),
            f"{ATTEMPT.attempt_id}: column 'colors' is [0, 0, 0, 0, 0, 0, 0, 0, 0, 0], expected a permutation of 0..9",
        ),
        (with_detail(PROMPT, train=()), f"{PROMPT.prompt_id}: column 'train' is empty, expected at least one pair"),
        (
            Conversation("q", (Segment("?", False), Segment("", True)), 0),
            "q: column 'segments' has no text that is sampled, expected at least one",
        ),
    ],
)
def test_a_value_that_no_stage_writes_is_named_with_its_row(path: Path, record: Any, expected: str):
    records.write(path, type(record), [record], 0, {})
    text = message(lambda: list(records.read(path, type(record))))
    assert text == f"{path}: {expected}. Re-make it: delete it, then run snakemake {path}"


def test_grids_that_were_stored_as_text_are_refused(path: Path):
    schema = records.schema(Task)
    forge(path, [], schema.set(schema.get_field_index("train"), pa.field("train", pa.string())))
    assert message(lambda: list(records.read(path, Task))).startswith(f"{path}: column 'train' is string, expected ")


def test_a_further_column_does_no_harm(path: Path):
    forge(path, [task_row(extra=1)], records.schema(Task).append(pa.field("extra", pa.int64())))
    assert [task.task_id for task in records.read(path, Task)] == ["t"]


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ([[1, 2], [3]], "rows of different lengths"),
        ([[11]], "cells 11..11, expected 0..9"),
        ([[-1]], "cells -1..-1, expected 0..9"),
        ([[0] * 31], "shape 1x31, expected sides of 1..30"),
        ([], "expected 2-D"),
    ],
)
def test_a_bad_grid_inside_is_refused_with_the_reason(path: Path, grid: Any, reason: str):
    forge(path, [task_row(train=[{"input": grid, "output": [[1]]}])])
    text = message(lambda: list(records.read(path, Task)))
    assert text.startswith(f"{path}: cannot be read (a grid is ")
    assert reason in text


def test_check_finds_a_bad_file_before_anything_is_read(path: Path):
    forge(path, [], schema_version="0")
    assert "has schema 0" in message(lambda: records.check(path, Task))


def test_check_accepts_what_write_made(path: Path):
    records.write(path, Task, [TASK], 0, {})
    records.check(path, Task)
