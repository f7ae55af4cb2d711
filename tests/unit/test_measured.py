"""Measured time of a run beside the count."""

import json
from pathlib import Path

import handmade
import pytest
from checkout import ROOT
from unit.test_times import benchmark

from arc_refinery import cli, records
from arc_refinery.config import load_experiment
from arc_refinery.doctor.measured import measured_page
from arc_refinery.errors import InputError
from arc_refinery.records import Attempt
from arc_refinery.sampling.gpu_time import GPUS

ARMS = {"first": [{"n_predictions": 4}], "second": [{"n_predictions": 2}, {"n_predictions": 2}]}
ANSWERS = {"turn1": {"a": "SSww", "b": "wwww"}, "second-turn2": {"b": "Sw"}}


def cells(page: str, name: str) -> list[str]:
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
    return row.strip("| ").split(" | ")


def test_tokens_per_second_are_those_of_the_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Eight attempts in the first turn, two in the second."""
    model = {"path": str(ROOT / "workflow/models/tiny"), "template": "compact", "window": 100}
    handmade.finished(tmp_path / "results", handmade.settings(ARMS, model=model), ANSWERS, "ab")
    for branch, seconds in (("turn1", 0.5), ("second-turn2", 4.0)):
        benchmark(tmp_path / f"logs/tiny/benchmarks/small/{branch}/sample-000.tsv", seconds, 1.0, 10.0)
    words = ["--benchmarks", str(tmp_path / "logs/tiny/benchmarks"), "--results", str(tmp_path / "results/tiny")]
    cli.parse(["report", "times", *words]).run()
    page = capsys.readouterr().out
    assert "# Machine time" in page and "counted" not in page
    first, second = cells(page, "small: turn1"), cells(page, "small: second-turn2")
    assert (first[2], second[2]) == ("8", "2")
    folder = tmp_path / "results/tiny/small"
    written = [
        sum(attempt.n_tokens for attempt in records.read(path, Attempt)) for path in folder.glob("turn1/attempts/*")
    ]
    assert float(first[5]) == sum(written) / 0.5
    cli.parse(["report", "times", *words, "--gpu", "a100"]).run()
    page = capsys.readouterr().out
    assert 95 <= float(cells(page, "small: turn1")[-1]) < 97  # vLLM's start, and a moment


def test_a_step_of_a_training_is_set_beside_the_count(tmp_path: Path):
    experiment = load_experiment(ROOT / "config/config.yaml")
    log = tmp_path / "logs/adapters/trained.measured.jsonl"
    log.parent.mkdir(parents=True)
    seconds = {"seconds/sampling": 0.5, "seconds/reward": 0.25, "seconds/update": 1}
    steps = [{"step": n, "seconds/step": n, "trainer_mb": 900 + n} | seconds for n in (1, 3)]
    log.write_text("".join(json.dumps(step) + "\n" for step in steps))
    row = cells(measured_page(experiment, tmp_path / "results", tmp_path / "logs", GPUS["h100"]), "trained")
    assert row[:-1] == ["trained", "2", "2.0", "0.5", "0.2", "1.0", "–", "903"]
    assert float(row[-1]) > 0


def test_supervised_training_has_a_row_too(tmp_path: Path):
    experiment = load_experiment(ROOT / "config/tool-use-demo.yaml")
    log = tmp_path / "logs/adapters/sft.measured.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"step": 1, "seconds/step": 2.0, "trainer_mb": 900, "gpu_mb": 70}\n')
    row = cells(measured_page(experiment, tmp_path / "results", tmp_path / "logs", GPUS["h100"]), "sft")
    assert row[:-1] == ["sft", "1", "2.0", "–", "–", "–", "70", "900"]
    assert float(row[-1]) >= 0


def test_another_log_than_that_of_seconds_is_refused(tmp_path: Path):
    log = tmp_path / "adapters/trained.measured.jsonl"
    log.parent.mkdir()
    for content in ('{"step": 1}\n', "[1]\n", "{"):
        log.write_text(content)
        with pytest.raises(InputError, match=r"trained\.measured"):
            measured_page(load_experiment(ROOT / "config/config.yaml"), tmp_path, tmp_path, None)


def test_without_a_run_it_says_so(tmp_path: Path):
    with pytest.raises(InputError, match="run it first"):
        measured_page(load_experiment(ROOT / "config/config.yaml"), tmp_path, tmp_path, None)
    with pytest.raises(InputError, match="--results"):
        cli.parse(["report", "times", "--benchmarks", str(tmp_path), "--gpu", "h100"]).run()
