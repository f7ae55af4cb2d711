"""What an experiment declares before its evaluation begins, and what the report says of later changes."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import handmade
import pytest
from checkout import ROOT
from handmade_episodes import experiment as episodes_experiment
from messages import Wording

from arc_refinery.config import validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.errors import InputError
from arc_refinery.reporting.registration import FILE, _changes, is_registered, limits, register
from arc_refinery.reporting.report import write_report

ARMS = {"first": [{"n_predictions": 4}], "second": [{"n_predictions": 2}, {"n_predictions": 2}]}
ANSWERS = {"turn1": {"a": "SSww", "b": "wwww"}, "second-turn2": {"b": "SS"}}


def declared(has_primary: bool = True, **changes: Any) -> ArcExperiment:
    """The experiment with a primary comparison; `changes` are top-level keys."""
    content = handmade.settings(ARMS, **changes)
    if has_primary:
        content["evaluation"]["primary"] = {"set": "small", "arms": ["second", "first"]}
    return validate_experiment(content, "test", ArcExperiment)


def evaluated(folder: Path) -> Path:
    """The folder, with the results of the evaluation."""
    handmade.finished(folder.parent, handmade.settings(ARMS), ANSWERS, "ab")
    return folder


def lines(folder: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def run(experiment: ArcExperiment, folder: Path) -> list[str]:
    """Start a run; returns its warnings."""
    warnings: list[str] = []
    register(experiment, folder, warnings.append)
    return warnings


def test_before_the_first_result_the_last_declaration_counts(tmp_path: Path):
    folder = tmp_path / "tiny"
    (folder / "small/turn1").mkdir(parents=True)
    (folder / "small/turn1/prompts.parquet").touch()  # prompts are no result
    assert run(declared(seed=1), folder) == run(declared(seed=2), folder) == []
    (line,) = lines(folder)
    assert line["settings"]["seed"] == 2
    assert line["settings"]["evaluation"]["primary"]["arms"] == ["second", "first"]
    assert line["power"].startswith("Primary comparison: tasks solved, second − first, on 4 tasks")
    assert is_registered(declared(seed=2), folder)


def test_afterwards_a_change_is_kept_beside_the_first_declaration(tmp_path: Path, wording: Wording):
    folder = tmp_path / "tiny"
    run(declared(), folder)
    evaluated(folder)
    assert run(declared(), folder) == []
    (warning,) = run(declared(has_primary=False, seed=3), folder)
    wording(warning)
    run(declared(has_primary=False, seed=3), folder)  # once more, as after an interruption
    assert [line["settings"].get("seed") for line in lines(folder)] == [None, 3]
    assert not is_registered(declared(has_primary=False, seed=3), folder)
    assert is_registered(declared(), folder)  # changed back
    assert len({line["hash"] for line in lines(folder)}) == 2


def test_attempts_of_an_interrupted_job_are_results(tmp_path: Path):
    folder = tmp_path / "tiny"
    progress = folder / "small/turn1/attempts/.progress/000.jsonl"
    progress.parent.mkdir(parents=True)
    progress.write_text('{"settings": "5f0c"}\n')
    assert run(declared(seed=1), folder) == run(declared(seed=2), folder) == []
    with progress.open("a") as file:
        file.write('{"a/turn1-000": [{"text": "S"}]}\n')
    assert len(run(declared(seed=3), folder)) == 1
    assert [line["settings"]["seed"] for line in lines(folder)] == [2, 3]


def test_keys_of_a_section_that_was_empty_are_named_and_the_section_is_not(tmp_path: Path):
    content = {"base": str(ROOT / "config/multi-turn-rl.yaml"), "experiment": "tiny"}
    empty, filled = (
        validate_experiment(content | {"training": {"select": select}}, "test", ArcExperiment)
        for select in ({}, {"max_pass_rate": 0.7})
    )
    folder = tmp_path / "tiny"
    run(empty, folder)
    (folder / empty.set_names[0]).mkdir()
    (folder / empty.set_names[0] / "000.parquet").touch()
    assert _changes({"a": {"b": 1, "b.c": 2}}, {"a": {"b": 2, "b.c": 2}}) == {"a.b": (1, 2)}
    (warning,) = run(filled, folder)
    assert warning.partition(": ")[2].startswith("`training.select.max_pass_rate` from its default to 0.7.")


def test_a_set_with_another_name_begins_nothing_anew(tmp_path: Path):
    folder = tmp_path / "tiny"
    run(declared(), folder)
    evaluated(folder)
    content = handmade.settings(ARMS)
    content["evaluation"]["sets"][0]["name"] = "other"
    (warning,) = run(validate_experiment(content, "test", ArcExperiment), folder)
    assert "evaluation.sets" in warning
    assert len(lines(folder)) == 2


def test_what_changes_no_result_is_no_change(tmp_path: Path):
    folder = tmp_path / "tiny"
    run(declared(), folder)
    evaluated(folder)
    assert run(declared(resources={"sample": {"mem_mb": 5}}, compare=["tiny", "other"]), folder) == []
    assert len(lines(folder)) == 1


def test_nothing_is_declared_for_results_of_before(tmp_path: Path):
    folder = evaluated(tmp_path / "tiny")
    assert run(declared(), folder) == []
    assert not (folder / FILE).exists()
    assert not is_registered(declared(), folder)
    assert limits(declared(), folder) == []


@pytest.mark.slow
def test_the_report_says_since_when_and_what_was_changed(tmp_path: Path, wording: Wording):
    folder = tmp_path / "tiny"
    run(declared(), folder)
    evaluated(folder)

    def report(experiment: ArcExperiment) -> str:
        write_report(experiment, folder, tmp_path / "tiny.md")
        return (tmp_path / "tiny.md").read_text()

    kept, changed = report(declared()), report(declared(refinement={"n_parents": 3}))
    assert "declares as `primary`, unchanged since this run's first result." in kept
    assert "Changed after" not in kept
    assert "declares as `primary`.\n" in changed
    (limit,) = (line for line in changed.splitlines() if "Changed after" in line)
    assert limit.startswith("- ")
    wording(limit)


def test_tool_use_experiments_register_too(tmp_path: Path):
    first = episodes_experiment(tmp_path / "made")
    run_twice: list[str] = []
    folder = tmp_path / first.experiment
    register(first, folder, run_twice.append)
    (folder / first.set_names[0] / "untrained").mkdir(parents=True)
    (folder / first.set_names[0] / "untrained/000.parquet").touch()
    other = first.model_copy(update={"seed": first.seed + 1})
    register(other, folder, run_twice.append)
    assert len(run_twice) == 1
    assert limits(other, folder)[0].startswith("Changed after results of the evaluation were there: `seed` from ")


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "not JSON\n", '{"settings": {}, "sets": 5}\n'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path):
    folder = evaluated(tmp_path / "tiny")
    (folder / FILE).write_text(text)
    with pytest.raises(InputError, match=f"{FILE}: .*move it away"):
        limits(declared(), folder)


@pytest.mark.parametrize("changes", [{"hash": "0" * 16}, {"settings": {"seed": 5}}, {"hash": None}])
def test_a_declaration_that_was_edited_is_refused(changes: dict[str, Any], tmp_path: Path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    run(declared(), folder)
    (line,) = lines(folder)
    (folder / FILE).write_text(f"{json.dumps({**line, **changes})}\n")
    for use in (lambda: run(declared(), folder), lambda: limits(declared(), folder)):
        with pytest.raises(InputError, match="hash"):
            use()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_and_a_folder_in_its_place_are_named(make: Callable[[Path], None], tmp_path: Path):
    make(tmp_path / FILE)
    for use in (lambda: run(declared(), tmp_path), lambda: limits(declared(), tmp_path)):
        with pytest.raises(InputError, match=f"{FILE}: is a"):
            use()
