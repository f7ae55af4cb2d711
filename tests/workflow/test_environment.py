"""A kind of experiment from outside the package brings config, rules and reward; training and report are shared."""

import subprocess

import pytest
from checkout import Checkout
from processes import environment

from arc_refinery.training.log import read_lines

CONFIG = "tests/environments/letters.yaml"

pytestmark = [pytest.mark.snakemake, pytest.mark.training]


def run(checkout: Checkout, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=checkout.folder,
        env=environment({"PYTHONPATH": "tests/environments", "COLUMNS": "100"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_an_environment_from_outside_trains_and_gets_a_report(fresh: Checkout):
    run(fresh, "snakemake", "--cores", "1", "--configfile", CONFIG)
    log = fresh.folder / "results/letters/adapters/trained/training.jsonl"
    assert [line["step"] for line in read_lines(log) if isinstance(line, dict) and "reward" in line] == [1, 2]
    report = (fresh.folder / "results/letters.md").read_text()
    assert "# Experiment letters" in report
    assert "`trained`: GRPO, 2 optimizer steps." in report
    assert (fresh.folder / "results/letters/report/training-trained.png").exists()
    assert (fresh.folder / "results/letters.html").exists()
    assert "Nothing to be done" in run(fresh, "snakemake", "--cores", "1", "--configfile", CONFIG)


def test_its_command_explains_itself(fresh: Checkout):
    said = run(fresh, "arc-refinery", "train", "--kind", "letters", "--help")
    assert "Train a LoRA adapter with GRPO to write words with the letter e." in said
    assert "--window INT" in said
    assert "--lora-r INT" in said
