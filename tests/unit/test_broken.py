"""Broken programs as first turns: made of the tasks' own programs, all wrong, near and distinct."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT, SMALL, TINY, TINY_TOOLS
from experiments import do, put
from handmade_programs import write_rows
from messages import Wording

from arc_refinery import records
from arc_refinery.barc.generator import broken_programs, has_held_out_text
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import ConfigError, Sandbox, validate_experiment
from arc_refinery.domains.arc.prompts import body_of, compact_answer
from arc_refinery.domains.domain import GradedAttempt, load_domain
from arc_refinery.errors import InputError
from arc_refinery.programs import likeness
from arc_refinery.refining import inputs, jobs
from arc_refinery.refining.config import Refining
from arc_refinery.refining.graded import read_graded

BROKEN = "turn1-broken"
ITSELF = {"use_data_augmentation": False}
TEMPLATES = {"arc": "compact", "code": ""}
GENERATED = {"name": "own", "source": "generator", "seed": 3, "n_tasks": 6, "compositions": 0.5, "max_side": 4}


def broken(folder: Path, domain: str, task_set: dict[str, Any], n: int = 3, **settings: Any) -> list[GradedAttempt]:
    """The graded attempts of the branch of a task set, of `n` per task at most."""
    model = {"window": 1024, "path": TINY if domain == "arc" else TINY_TOOLS, "template": TEMPLATES[domain]}
    tasks = folder / "results/tasks/own.parquet"
    do("evaluation_tasks", {"domain": domain, "task_set": task_set, "sandbox": {}}, output=tasks)
    files = BranchFiles(folder / "results/own" / BROKEN, 1)
    asked = {"model": model, "sampling": {"n_predictions": n, "max_output_tokens": 48}, "sandbox": {}}
    asked |= {"domain": domain, "include_errors": False} | settings
    do("break_programs", asked, tasks=tasks, prompts=files.prompts, output=files.attempts[0])
    grading = {"domain": domain, "sandbox": {}}
    do("grade", grading, attempts=files.attempts[0], tasks=tasks, output=files.verdicts[0])
    return list(read_graded(load_domain(domain), files))  # it checks that they are as many as the prompts ask for


def check(domain: str, folder: Path, graded: list[GradedAttempt]) -> None:
    """All are wrong on what the prompt shows, near the task's own program, and distinct."""
    loaded = load_domain(domain)
    with loaded.executors(Sandbox(), 1) as executors:
        tasks = records.read(folder / "results/tasks/own.parquet", loaded.task_class)
        own = loaded.source_answers(tasks, loaded.wording(TEMPLATES[domain], ""), executors)
    for prompt, attempt, verdict in graded:
        assert (verdict.status, verdict.solved, verdict.score < 1.0) == ("ok", False, True)
        assert loaded.shows_task_itself(prompt)
        assert attempt.completion != own[attempt.task_id]
        assert likeness(own[attempt.task_id], attempt.completion) > 0.5
    assert len({(entry.prompt.task_id, entry.verdict.fingerprint) for entry in graded}) == len(graded)


def test_programs_of_code_are_broken(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", ["double", "largest", "mirror", "length"])  # the last one has no program
    graded = broken(tmp_path, "code", {"name": "own", "path": str(tmp_path / "rows.jsonl"), "n_shown_tests": 1})
    check("code", tmp_path, graded)
    last_lines = [(prompt.task_id, attempt.completion.split("\n")[2].strip()) for prompt, attempt, _ in graded]
    assert sorted(last_lines) == [
        ("double", "return 1 * n"),  # `2 + n` passes the shown test, double(2) == 4
        ("double", "return 2 // n"),
        ("double", "return 3 * n"),
        ("largest", "return min(xs)"),
        ("mirror", "return text[::-2]"),
        ("mirror", "return text[::0]"),
        ("mirror", "return text[::]"),
    ]
    assert {entry.prompt.task_id: entry.prompt.n_predictions for entry in graded} == {
        "double": 3,
        "largest": 1,
        "mirror": 3,
    }
    first = graded[0].attempt
    assert (first.attempt_id, first.model, first.adapter) == ("double/turn1-broken-000/000", "broken", "")
    assert first.finish_reason == "stop" and math.isnan(first.logprob)


def test_programs_that_raise_are_broken_ones_only_with_include_errors(tmp_path: Path) -> None:
    row = {"prompt": "Add.", "tests": ["assert add(1) == 8"], "reference": "n = [7][0]\ndef add(i):\n    return i + n"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"task_id": "add"}) + "\n")
    task_set = {"name": "own", "path": str(tmp_path / "rows.jsonl")}
    given = {
        include: {entry.verdict.status for entry in broken(tmp_path, "code", task_set, n=20, include_errors=include)}
        for include in (False, True)
    }
    assert given == {False: {"ok"}, True: {"ok", "error"}}  # `[7][1]`: IndexError before the function is defined


def test_generated_programs_are_broken_by_other_operations(tmp_path: Path) -> None:
    graded = broken(tmp_path, "arc", GENERATED, own=ITSELF)
    check("arc", tmp_path, graded)
    assert Counter(entry.prompt.task_id for entry in graded).most_common()[-1][1] == 3  # of each of 6 tasks
    assert len(graded) == 18
    for entry in graded:  # as the embedded model writes them
        assert compact_answer(body_of(entry.attempt.completion)) == entry.attempt.completion
    broken(tmp_path / "again", "arc", GENERATED, own=ITSELF)
    for name in ("prompts.parquet", "attempts/000.parquet"):
        first, again = (folder / "results/own" / BROKEN / name for folder in (tmp_path, tmp_path / "again"))
        assert first.read_bytes() == again.read_bytes()
    other = broken(tmp_path / "other", "arc", GENERATED, own=ITSELF, seed=1)
    assert [entry.attempt.completion for entry in other] != [entry.attempt.completion for entry in graded]


def test_a_statement_is_exchanged_or_left_out() -> None:
    body = "    grid = np.rot90(grid, 2)\n    flood_fill(grid, 0, 0, 3)"
    programs = list(broken_programs(body, random.Random(0)))
    assert {"    grid = np.rot90(grid, 1)\n    flood_fill(grid, 0, 0, 3)", "    flood_fill(grid, 0, 0, 3)"} <= {
        *programs
    }
    assert body not in programs
    for program in programs:
        assert not has_held_out_text(program) or program in body.split("\n")  # some single statements are exempt
        lines = program.split("\n")
        assert lines[0] == body.split("\n")[0] or lines[-1] == body.split("\n")[1]
    assert list(broken_programs("    grid = mine(grid)", random.Random(0))) == []


def test_tasks_without_programs_end_the_run(tmp_path: Path, wording: Wording) -> None:
    write_rows(tmp_path / "rows.jsonl", ["length"])
    with pytest.raises(InputError) as refused:
        broken(tmp_path, "code", {"name": "own", "path": str(tmp_path / "rows.jsonl")})
    wording(refused.value)


# The config


def experiment(*changes: tuple[str, Any]) -> Refining:
    content = yaml.safe_load((ROOT / SMALL).read_text())
    for place, value in changes:
        put(content, place, value)
    return validate_experiment(content, "mine.yaml", Refining)


FIRST = "evaluation.arms.1.turns.0"
ANSWERED: dict[str, Any] = {"n_predictions": 4, "answers": "broken"}


def test_arms_share_their_broken_programs_in_one_file() -> None:
    mine = experiment((FIRST, ANSWERED), ("evaluation.arms.2.turns.0", ANSWERED | {"n_predictions": 6}))
    arms = mine.evaluation.arms
    assert {arms[1].branch(1), arms[2].branch(1)} == {BROKEN}
    assert inputs.attempts(mine, "heldout", BROKEN) == [f"<results>/heldout/{BROKEN}/attempts/000.parquet"]
    assert inputs.parent_attempts(mine, "heldout", arms[1].branch(2)) == inputs.attempts(mine, "heldout", BROKEN)
    assert len(inputs.attempts(mine, "heldout", "turn1")) == 2  # shards
    settings = json.loads(jobs.break_programs(mine, "heldout", BROKEN).settings)
    assert settings["sampling"] == {"n_predictions": 6, "max_output_tokens": 48}
    assert json.loads(jobs.refining_prompts(mine, "heldout", arms[1].branch(2)).settings)["n_considered"] == 4
    assert json.loads(jobs.refining_prompts(mine, "heldout", arms[1].branch(2)).tuning)["n_shards"] == 1


def test_training_refines_the_broken_programs_of_its_parts() -> None:
    mine = experiment(("training.answers", "broken"), ("arc.augment_parts", True))
    assert inputs.all_prompts(mine)[:2] == [f"<results>/part{number}/{BROKEN}/prompts.parquet" for number in (1, 2)]
    settings = json.loads(jobs.break_programs(mine, "part1", BROKEN).settings)
    assert settings["sampling"]["n_predictions"] == 8
    assert not settings["own"]["use_data_augmentation"]


@pytest.mark.parametrize(
    "changes",
    [
        [(FIRST, ANSWERED | {"adapter": "trained"})],
        [("evaluation.arms.1.turns.1", ANSWERED)],
        [("training.answers", "broken"), ("training.select", {"max_pass_rate": 0.5})],
        [("training.answers", "broken"), ("training.prompts", "first-turn")],
        [("training.answers", "broken"), ("training.sft.demonstrations", {"targets": "nearest"})],
    ],
    ids=["sampled", "later", "select", "first-turn", "nearest"],
)
def test_what_broken_answers_cannot_be_is_refused(changes: list[tuple[str, Any]], wording: Wording) -> None:
    with pytest.raises(ConfigError) as refused:
        experiment(*changes)
    wording(refused.value)
