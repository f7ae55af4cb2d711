"""The report's section on what was left out on the way to tasks and questions."""

from pathlib import Path

import yaml
from checkout import ROOT
from factories import make_task

from arc_refinery import records
from arc_refinery.arc.tasks import Task
from arc_refinery.config import validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.refining.report.tasks import left_out as of_tasks
from arc_refinery.reporting.kind import reported
from arc_refinery.tool_use.config import ToolUse


def demo() -> ArcExperiment:
    return validate_experiment(yaml.safe_load((ROOT / "tests/refining.yaml").read_text()), "demo", ArcExperiment)


def write_tasks(folder: Path, name: str, left_out: dict[str, int], **notes: dict[str, int]) -> None:
    notes |= {"problems_left_out": left_out}
    records.write(folder / f"tasks/{name}.parquet", Task, [make_task()], 0, {}, lambda: notes)


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_problems_and_pairs_are_counted_by_reason(tmp_path: Path):
    experiment = demo()
    generated = [task_set.name for task_set in experiment.evaluation.sets if task_set.source == "generator"]
    (tmp_path / "tasks").mkdir()
    for part in experiment.part_names:
        write_tasks(
            tmp_path,
            part,
            {"more than 600 cells": 3, "fewer than 3 examples": 2},
            pairs_left_out={"a grid of fractions": 7},
        )
    write_tasks(tmp_path, generated[0], {"more than 600 cells": 1})
    title, table = of_tasks(experiment, tmp_path)
    assert title == "## Data left out"
    assert cells(table) == [
        ["pairs of problems to train on", "a grid of fractions", "7"],
        ["problems to train on", "fewer than 3 examples", "2"],
        ["problems to train on", "more than 600 cells", "3"],
        [f"problems of `{generated[0]}`", "more than 600 cells", "1"],
    ]


def test_nothing_left_out_is_said_too(tmp_path: Path):
    experiment = demo()
    (tmp_path / "tasks").mkdir()
    write_tasks(tmp_path, experiment.part_names[0], {})
    assert of_tasks(experiment, tmp_path)[1] == "Every problem became a task."


def test_real_tasks_alone_leave_nothing_to_say(tmp_path: Path):
    config = yaml.safe_load((ROOT / "config/one-task-sanity-cpu.yaml").read_text())
    assert of_tasks(validate_experiment(config, "one task", ArcExperiment), tmp_path) == []


def test_questions_are_counted_by_reason(tmp_path: Path):
    experiment = validate_experiment(yaml.safe_load((ROOT / "config/tool-use-demo.yaml").read_text()), "demo", ToolUse)
    name = experiment.data.train[0].name
    held_out = {"held out, by text": 3, "held out, by id": 1}
    notes = {"n_held_out": 4, "held_out": held_out, "left_out": {"its own program fails a test (a, b)": 2}}
    (tmp_path / "questions").mkdir()
    records.write(tmp_path / f"questions/{name}.parquet", records.Question, [], 0, {}, lambda: notes)
    _, table = reported(experiment, tmp_path).left_out()
    assert cells(table) == [
        [f"questions of `{name}`", "held out, by id", "1"],
        [f"questions of `{name}`", "held out, by text", "3"],
        [f"questions of `{name}`", "its own program fails a test (a, b)", "2"],
    ]
