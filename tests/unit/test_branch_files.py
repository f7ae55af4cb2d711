"""Which file of verdicts belongs to which attempts, and what is refused where they do not match."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from factories import ARC, make_attempt, make_prompt, make_task, make_verdict, with_detail

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.branch_files import BranchFiles
from arc_refinery.domains.arc.records import Attempt
from arc_refinery.records import RecordError
from arc_refinery.refining.graded import read_graded

TASKS = "edcba"  # in shards 0, 1, 2, 0, 1


def names(paths: Iterable[Path]) -> list[str]:
    return [path.relative_to("r/set/turn1").as_posix() for path in paths]


def test_a_file_of_verdicts_is_about_consecutive_shards():
    files = BranchFiles(Path("r/set/turn1"), n_shards=5, shards_per_grading_job=2)
    assert names(files.verdicts) == ["verdicts/000.parquet", "verdicts/001.parquet", "verdicts/002.parquet"]
    assert [names(files.attempts_of_job(job)) for job in range(3)] == [
        ["attempts/000.parquet", "attempts/001.parquet"],
        ["attempts/002.parquet", "attempts/003.parquet"],
        ["attempts/004.parquet"],
    ]
    assert files.tasks == Path("r/tasks/set.parquet")


def branch(folder: Path, verdicts: Iterable[str]) -> BranchFiles:
    """Three shards with one attempt on each task, graded together; `verdicts`: tasks in the file's order."""
    files = BranchFiles(folder, n_shards=3, shards_per_grading_job=3)
    prompts = {task: make_prompt(make_task(task)) for task in TASKS}
    attempts = {task: make_attempt(prompt) for task, prompt in prompts.items()}
    records.write(files.prompts, ARC.prompt_class, prompts.values(), 0, {})
    for shard, path in enumerate(files.attempts):
        records.write(path, ARC.attempt_class, [attempts[task] for task in TASKS[shard::3]], 0, {})
    records.write(files.verdicts[0], ARC.verdict_class, [make_verdict(attempts[task]) for task in verdicts], 0, {})
    return files


def test_shards_of_whole_batches_are_read(tmp_path: Path):
    files = BranchFiles(tmp_path, n_shards=2, shards_per_grading_job=2, tasks_per_batch=2)
    prompts = {task: make_prompt(make_task(task)) for task in TASKS}
    attempts = {task: make_attempt(prompt) for task, prompt in prompts.items()}
    records.write(files.prompts, ARC.prompt_class, prompts.values(), 0, {})
    for path, tasks in zip(files.attempts, ("eda", "cb"), strict=True):
        records.write(path, ARC.attempt_class, [attempts[task] for task in tasks], 0, {})
    verdicts = [make_verdict(attempts[task]) for task in "edacb"]
    records.write(files.verdicts[0], ARC.verdict_class, verdicts, 0, {})
    with pytest.raises(RecordError, match="expected"):
        list(read_graded(ARC, BranchFiles(tmp_path, n_shards=2, shards_per_grading_job=2)))
    assert "".join(attempt.prompt.task_id for attempt in read_graded(ARC, files)) == TASKS


def test_attempts_find_their_verdicts_and_come_in_the_order_of_tasks(tmp_path: Path):
    graded = list(read_graded(ARC, branch(tmp_path, "ebdac")))
    assert "".join(attempt.prompt.task_id for attempt in graded) == TASKS
    assert all(attempt.attempt.attempt_id == attempt.verdict.attempt_id for attempt in graded)


def test_attempts_that_saw_a_task_in_another_form_than_their_prompt_are_refused(tmp_path: Path):
    files = branch(tmp_path, "ebdac")
    turned = [with_detail(row, augmentation=Augmentation(1)) for row in records.read(files.attempts[1], Attempt)]
    records.write(files.attempts[1], Attempt, turned, 0, {})
    message = "attempts/001.parquet: its column 'detail.augmentation' is not that of shard 1 of 3 of .*prompts.parquet"
    with pytest.raises(RecordError, match=message):
        list(read_graded(ARC, files))


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        ("ebda", "4 rows, expected 5"),
        ("ebdacc", "attempt_id c/turn1-000/000 appears twice"),
        ("bedac", "row 1 is b/turn1-000/000, expected e/turn1-000/000; 5 rows, expected 5, those of .*attempts/000"),
    ],
)
def test_verdicts_on_other_attempts_are_refused(tmp_path: Path, verdicts: str, message: str):
    files = branch(tmp_path, verdicts)
    with pytest.raises(RecordError, match=f"verdicts/000.parquet: {message}.*Re-make it: delete it, then run"):
        list(read_graded(ARC, files))
