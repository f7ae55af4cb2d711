"""Config, jobs and members of domain `code`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import handmade_programs as handmade
import numpy as np
import pandas as pd
import pytest
from checkout import ROOT
from experiments import do, settings_of
from messages import Wording

from arc_refinery import records, stages
from arc_refinery.cli import main, parse
from arc_refinery.config import ConfigError, validate_experiment
from arc_refinery.domains.code.config import FORMS, REWARDS, Experiment, Problems, TaskSet
from arc_refinery.domains.code.domain import Domain
from arc_refinery.domains.code.grading import Prompt, Verdict
from arc_refinery.domains.code.tasks import CodeTask
from arc_refinery.domains.domain import Answer, GradedAttempt
from arc_refinery.errors import InputError
from arc_refinery.jobs import train
from arc_refinery.refining import jobs
from arc_refinery.refining.config import Refining
from arc_refinery.refining.grading import grade_attempts

Executors = tuple[Any, Any, Any]


def content(**changes: Any) -> dict[str, Any]:
    """The handmade config with keys changed; `__` stands for the dot in a key's place."""
    config: dict[str, Any] = json.loads(json.dumps(handmade.settings("training.jsonl", "rows.jsonl", "")))
    for place, value in changes.items():
        *sections, last = place.split("__")
        node: Any = config
        for name in sections:
            node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
        node[int(last) if isinstance(node, list) else last] = value
    return config


def experiment(**changes: Any) -> Refining:
    return validate_experiment(content(**changes), "test", Refining)


@pytest.mark.parametrize(
    ("changes", "stage", "place"),
    [
        ({"problems__n_tasks": 9}, "tasks", "problems.n_tasks"),
        ({"problems__n_shown_tests": 0}, "tasks", "problems.n_shown_tests"),
        ({"problems__n_revealed": 2}, "tasks", "problems.n_revealed"),
        ({"sandbox__cpu_seconds": 3.0}, "tasks", "sandbox.cpu_seconds"),
        ({"evaluation__sets__0__first_row": 5}, "evaluation_tasks", "task_set.first_row"),
        ({"evaluation__sets__0__n_tasks": 7}, "evaluation_tasks", "task_set.n_tasks"),
        ({"evaluation__sets__0__n_shown_tests": 3}, "evaluation_tasks", "task_set.n_shown_tests"),
        ({"evaluation__sets__0__n_revealed": 1}, "evaluation_tasks", "task_set.n_revealed"),
        ({"sandbox__cpu_seconds": 3.0}, "evaluation_tasks", "sandbox.cpu_seconds"),
        ({"refinement__form": "traceback"}, "refining_prompts", "refinement.form"),
        ({"refinement__form": "traceback"}, "training_prompts", "refinement.form"),
        ({"refinement__form": "traceback"}, "train", "refinement.form"),
        ({"evaluation__arms__1__turns__1__form": "verdict-only"}, "refining_prompts", "refinement.form"),
        ({"training__grpo__rewards": [{"reward": "staged"}]}, "train", "grpo.rewards"),
    ],
)
def test_a_key_reaches_its_jobs(changes: dict[str, Any], stage: str, place: str):
    def settings(changed: Refining) -> dict[str, Any]:
        planned = {
            "tasks": lambda: jobs.tasks(changed),
            "evaluation_tasks": lambda: jobs.evaluation_tasks(changed, "test"),
            "refining_prompts": lambda: jobs.refining_prompts(changed, "test", "refine-turn2"),
            "training_prompts": lambda: jobs.training_prompts(changed, "part1"),
            "train": lambda: train(changed, "trained"),
        }
        return settings_of(planned[stage]())

    def value(settings: Any) -> Any:
        for key in place.split("."):
            settings = settings[key]
        return settings[0]["reward"] if place == "grpo.rewards" else settings

    (expected,) = changes.values()
    assert settings(experiment(**changes))["domain"] == "code"
    assert value(settings(experiment(**changes))) == ("staged" if place == "grpo.rewards" else expected)
    assert value(settings(experiment())) != expected


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"refinement__form": "residual"}, "refinement.form failing-tests traceback verdict-only"),
        ({"evaluation__arms__1__turns__1__form": "given"}, "form given failing-tests"),
        ({"evaluation__sets__0__source": "generator"}, "evaluation.sets.0.source file hub generator"),
        ({"evaluation__sets__0__path": None}, "evaluation.sets.0 path"),
        ({"evaluation__sets__0__n_shown_tests": -1}, "n_shown_tests -1"),
        ({"evaluation__sets__0__first_row": -1}, "first_row -1"),
        ({"problems__max_side": 3}, "problems.max_side"),
        ({"arc": {"use_data_augmentation": True}}, "arc known key"),
        ({"training__grpo__rewards": [{"reward": "arc-v1"}]}, "arc-v1 solved tests staged"),
        ({"template_rows": {"source": "file", "path": "a.jsonl"}}, "template_rows arc"),
        ({"domain": "codes"}, "domain codes arc code"),
        ({"problems__seed": 2}, "problems seed two-rules"),
        ({"evaluation__sets__0__seed": 0}, "evaluation.sets.0 seed two-rules"),
        ({"problems__source": "two-rules"}, "problems path two-rules"),
        ({"problems": {"source": "two-rules", "repository": "a/b", "n_tasks": 2}}, "problems repository two-rules"),
        ({"problems": {"source": "two-rules"}}, "problems n_tasks two-rules"),
        ({"problems": {"source": "two-rules", "n_tasks": 3}}, "problems n_tasks 3 even"),
        (
            {"evaluation__sets__0": {"name": "test", "source": "two-rules", "n_tasks": 2, "first_row": 1}},
            "first_row 1 even",
        ),
    ],
)
def test_wrong_keys_are_named(changes: dict[str, Any], named: str, wording: Wording):
    with pytest.raises(ConfigError) as error:
        experiment(**changes)
    assert all(word in str(error.value) for word in named.split())
    wording(error.value)


@pytest.mark.parametrize(
    ("reward", "passed", "values"),
    [
        # of two shown and two hidden tests: none, one shown, both shown, all
        ("solved", [0, 1, 2, 4], [0.0, 0.0, 0.0, 1.0]),
        ("score", [0, 1, 2, 4], [0.0, 0.5, 1.0, 1.0]),
        ("tests", [0, 1, 2, 4], [0.0, 0.25, 0.5, 1.0]),
        ("staged", [0, 1, 2, 4], [0.1, 0.2, 0.3, 1.0]),
    ],
)
def test_rewards(code_executors: Executors, reward: str, passed: list[int], values: list[float]):
    task = CodeTask("t", "", ("f",), ("assert f(1) == 1", "assert f(2) == 2"), ("assert f(3) == 3", "assert f(4) == 4"))
    programs = [f"```python\ndef f(n):\n    return n if n <= {n} else None\n```" for n in passed]
    grades = list(Domain().grade([Answer(program, task) for program in programs], code_executors))
    assert list(map(REWARDS[reward], grades)) == pytest.approx(values)


# Stages and commands


def arc_refinery(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["arc-refinery", *arguments])
    main()


def test_a_stage_gets_the_sections_of_its_domain():
    settings = {"domain": "code", "task_set": {"name": "a", "path": "a.jsonl"}, "sandbox": {}}
    stage = stages.load("evaluation_tasks", "refining")
    arguments = stages.validated(stage, settings, {"output": ["a.parquet"]}, Experiment)
    assert type(arguments["domain"]) is Domain
    assert arguments["task_set"] == TaskSet(name="a", path="a.jsonl")


def test_commands_without_flags_are_parsed():
    assert parse(["dev", "config"]).output == Path("config")


def rows_file(tmp_path: Path, *names: str) -> Path:
    path = tmp_path / "rows.jsonl"
    handmade.write_rows(path, names)
    return path


def collect(task_set: TaskSet, output: Path) -> None:
    do("evaluation_tasks", {"domain": "code", "task_set": task_set.model_dump(), "sandbox": {}}, output=output)


def split(problems: Problems, outputs: list[Path]) -> None:
    settings = {"domain": "code", "problems": problems.model_dump(), "sandbox": {}, "tasks_per_part": None}
    do("tasks", settings, output=outputs)


@pytest.mark.slow
def test_rows_that_give_no_task_are_counted_and_named_in_the_notes(tmp_path: Path):
    path = rows_file(tmp_path, "empty", "double", "wrong", "again", "add")
    evaluated, parts = tmp_path / "test.parquet", [tmp_path / f"part{n}.parquet" for n in (1, 2)]
    collect(TaskSet(name="test", path=str(path)), evaluated)
    split(Problems(source="file", path=str(path)), parts)
    expected = {
        "no tests (empty)": 1,
        "its own program fails a test (wrong): assert half(2) == 1: it is false": 1,
        "a hidden test makes only calls that prompts show (again): assert triple(1) == 3": 1,
    }
    assert records.notes(evaluated)["problems_left_out"] == expected
    assert [records.notes(part)["problems_left_out"] for part in parts] == [expected] * 2
    assert records.texts(evaluated, CodeTask, "task_id") == ["double", "add"]
    assert sorted(name for part in parts for name in records.texts(part, CodeTask, "task_id")) == ["add", "double"]


@pytest.mark.slow
def test_five_rows_are_named_and_all_are_counted(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    rows = [{"task_id": f"t{n}", "prompt": "Do it.", "tests": []} for n in range(7)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"task_id": "t", **handmade.ROWS["add"]}]))
    output = tmp_path / "test.parquet"
    collect(TaskSet(name="test", path=str(path)), output)
    assert records.notes(output)["problems_left_out"] == {"no tests (t0, t1, t2, t3, t4, ...)": 7}


@pytest.mark.slow
def test_a_set_without_a_task_is_refused(tmp_path: Path, wording: Wording):
    path = rows_file(tmp_path, "empty", "wrong")
    output = tmp_path / "test.parquet"
    with pytest.raises(InputError) as error:
        collect(TaskSet(name="test", path=str(path)), output)
    assert all(word in str(error.value) for word in (str(path), "1 no tests", "1 its own program fails a test"))
    assert not output.exists()
    wording(error.value)


@pytest.mark.slow
def test_a_file_is_split_into_sets_by_rows(tmp_path: Path):
    path = rows_file(tmp_path, "double", "largest", "empty", "parity", "mirror", "add")
    task_set = TaskSet(name="test", path=str(path), first_row=1, n_tasks=2)
    collect(task_set, tmp_path / "test.parquet")
    assert records.texts(tmp_path / "test.parquet", CodeTask, "task_id") == ["largest", "parity"]
    problems = Problems(source="file", path=str(path), n_tasks=3)
    split(problems, [tmp_path / "part1.parquet"])
    tasks = records.texts(tmp_path / "part1.parquet", CodeTask, "task_id")
    assert sorted(tasks) == ["double", "largest", "parity"]


@pytest.mark.slow
def test_no_row_behind_the_wanted_tasks_is_read(tmp_path: Path):
    path = rows_file(tmp_path, "wrong", "double", "add", "empty", "again")
    evaluated, part = tmp_path / "test.parquet", tmp_path / "part1.parquet"
    task_set = TaskSet(name="test", path=str(path), n_tasks=2)
    collect(task_set, evaluated)
    split(Problems(source="file", path=str(path), n_tasks=2), [part])
    for file in (evaluated, part):
        assert sorted(records.texts(file, CodeTask, "task_id")) == ["add", "double"]
        assert records.notes(file)["problems_left_out"] == {
            "its own program fails a test (wrong): assert half(2) == 1: it is false": 1
        }


@pytest.mark.slow
def test_a_set_with_fewer_tasks_than_it_asks_for_is_refused(tmp_path: Path, wording: Wording):
    path, output = rows_file(tmp_path, "double", "empty", "add"), tmp_path / "test.parquet"
    task_set = TaskSet(name="test", path=str(path), n_tasks=3)
    with pytest.raises(InputError) as error:
        collect(task_set, output)
    assert all(word in str(error.value) for word in ("test gives 2 tasks", "n_tasks is 3"))
    assert not output.exists()
    wording(error.value)


@pytest.mark.slow
def test_the_rows_of_the_documents_are_tasks(tmp_path: Path):
    rows = (ROOT / "examples/functions.jsonl").read_text()
    assert f"```json\n{rows}```" in (ROOT / "docs/your-own.md").read_text()
    task_set = TaskSet(name="mine", path=str(ROOT / "examples/functions.jsonl"))
    collect(task_set, tmp_path / "mine.parquet")
    tasks = list(records.read(tmp_path / "mine.parquet", CodeTask))
    assert [(task.task_id, len(task.shown), len(task.hidden)) for task in tasks] == [
        ("slug", 1, 1),
        ("total", 1, 1),
        ("median", 1, 2),
    ]
    assert "Item = namedtuple" in tasks[1].shown_code


def test_an_exported_wording_is_the_template_of_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "mine"
    arc_refinery(monkeypatch, "prompts", "export", "--domain", "code", "--output", str(folder))
    assert str(folder) in capsys.readouterr().out
    domain = Domain()
    assert domain.wording(str(folder), "") == domain.wording("plain", "failing-tests")
    (folder / "request.txt").write_text("Answer in Python.\n")
    task = CodeTask("t", "Do it.", ("f",), ("assert f(1) == 1",), ())
    shown = domain.first_turn(task, np.random.default_rng(0), None, domain.wording(str(folder), ""))
    assert shown.messages[-1]["content"].endswith("\n\nAnswer in Python.")
    files = experiment(model__template=str(folder)).template_files()
    assert sorted(files) == sorted(map(str, folder.iterdir()))


# Members of the domain


@pytest.fixture(scope="module")
def graded(code_executors: Executors) -> Iterator[dict[str, GradedAttempt]]:
    """An attempt at `largest` per letter."""
    domain = Domain()
    row = handmade.ROWS["largest"]
    task = CodeTask("largest", row["prompt"], ("largest",), tuple(row["tests"]), tuple(row["hidden_tests"]))
    messages = domain.first_turn(task, np.random.default_rng(0), None, domain.wording("plain", "")).messages
    prompt = Prompt("largest/turn1-000", "largest", 1, "", tuple(messages), "", 20, 7, task)
    attempts = [
        records.Attempt(
            records.attempt_id(prompt.prompt_id, number), prompt.prompt_id, "largest", 1, "", "m", "", 0, 1.0, 1.0,
            handmade.answer("largest", letter), 20, 10, "stop", -1.0,
        )
        for number, letter in enumerate("STwvexn")
    ]  # fmt: skip
    verdicts = list(grade_attempts(domain, iter(attempts), {"largest": task}, code_executors, len(attempts)))
    triples = zip("STwvexn", attempts, verdicts, strict=True)
    yield {letter: GradedAttempt(prompt, attempt, verdict) for letter, attempt, verdict in triples}


def test_verdicts_have_the_domains_detail(graded: dict[str, GradedAttempt], tmp_path: Path):
    facts = {
        letter: (verdict.status, verdict.score, verdict.solved, verdict.detail.passed, verdict.detail.hidden_passed)
        for letter, (_, _, verdict) in graded.items()
    }
    assert facts == {
        "S": ("ok", 1.0, True, 1.0, 1.0),
        "T": ("ok", 1.0, False, 0.5, 0.0),
        "w": ("ok", 0.0, False, 0.0, 0.0),
        "v": ("ok", 0.0, False, 0.0, 0.0),
        "e": ("ok", 0.0, False, 0.0, 0.0),
        "x": ("error", 0.0, False, 0.0, 0.0),
        "n": ("no_code", 0.0, False, 0.0, 0.0),
    }
    verdicts = [entry.verdict for entry in graded.values()]
    fingerprints = [verdict.fingerprint for verdict in verdicts]
    assert fingerprints[0] == fingerprints[1]  # equal on the shown tests
    assert len(set(fingerprints[1:5])) == 4 and fingerprints[5:] == ["", ""]
    records.write(tmp_path / "verdicts.parquet", Verdict, verdicts, 0, {})
    assert list(records.read(tmp_path / "verdicts.parquet", Verdict)) == verdicts


def test_answers_are_graded_against_the_prompts_task(graded: dict[str, GradedAttempt]):
    domain, prompt = Domain(), graded["w"].prompt
    assert domain.subject(prompt) == prompt.detail
    assert list(domain.subjects([graded["w"].attempt], {"largest": prompt.detail})) == [prompt.detail]


@pytest.mark.parametrize("form", FORMS)
def test_feedback_is_the_same_on_a_verdict_and_on_a_grade(
    graded: dict[str, GradedAttempt], code_executors: Executors, form: str
):
    """Evaluation reads verdicts from files, on-policy training has the grades."""
    domain = Domain()
    wording = domain.wording("plain", form)
    for letter in "Twvex":
        entry = graded[letter]
        answer = Answer(entry.attempt.completion, domain.subject(entry.prompt))
        (grade,) = domain.grade([answer], code_executors)
        later = domain.next_turn(entry, entry, "whole", wording).messages[-1]["content"]
        assert later == domain.feedback(entry.prompt, grade, wording)


def test_parents_are_ranked_by_shown_tests_alone(graded: dict[str, GradedAttempt]):
    rank = {letter: Domain().rank(entry.verdict) for letter, entry in graded.items()}
    assert rank["S"] == rank["T"] < rank["w"] == rank["x"]


def test_tables_tell_shown_from_all_tests(graded: dict[str, GradedAttempt]):
    verdicts = [graded[letter].verdict for letter in "STw"]
    columns = {"score": [v.score for v in verdicts], "status": "ok", "shown_raised": [0.0, 0.0, 0.5]}
    table = Domain().derive(pd.DataFrame(columns))
    assert table["shown_solved"].tolist() == [True, True, False]
    assert table["raised"].tolist() == [False, False, True]
    assert [v.solved for v in verdicts] == [True, False, False]


def test_verdicts_in_words(graded: dict[str, GradedAttempt]):
    lines = {letter: list(Domain().verdict_lines(entry)) for letter, entry in graded.items()}
    assert lines["S"] == ["passes 2 of 2 shown tests and 2 of 2 hidden tests"]
    assert lines["T"] == ["passes 2 of 2 shown tests and 0 of 2 hidden tests"]
    assert lines["w"] == [
        "passes 0 of 2 shown tests and 0 of 2 hidden tests",
        "  assert largest([1, 3]) == 3: largest([1, 3]) gave None",
        "  assert largest([0]) == 0: largest([0]) gave None",
    ]
    assert lines["e"][1] == "  assert largest([1, 3]) == 3: ValueError: bad"
    assert lines["x"][0].startswith("SyntaxError")
    assert lines["n"] == ["no program in the answer"]


def test_a_source_answer_has_the_reference(code_executors: Executors):
    task = CodeTask("t", "", ("f",), ("assert f(1) == 1",), (), reference="def f(n):\n    return n")
    bare = CodeTask("bare", "", ("f",), ("assert f(1) == 1",), ())
    answers = Domain().source_answers([task, bare], Domain().wording("plain", ""), code_executors)
    assert answers == {"t": "```python\ndef f(n):\n    return n\n```"}
