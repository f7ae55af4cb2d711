"""`doctor power`: what it refuses, and its table. That its numbers are right: test_statistics.py."""

import subprocess
import sys

import pytest
from checkout import ROOT
from messages import Wording

from arc_refinery import cli
from arc_refinery.errors import InputError


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--configfile", "config/tool-use.yaml"],
        ["--configfile", "config/code-trained.yaml"],
        ["--configfile", "config/config.yaml", "--changed", "0.9"],
        ["--configfile", "config/multi-turn-rl.yaml", "--rate", "0.1"],
        ["--tasks", "500", "--rate", "0.1"],
        ["--tasks", "1"],
        ["--tasks", "27"],
        ["--tasks", "100", "--changed", "0.02"],
        ["--tasks", "100", "--difference", "0.3"],
        ["--configfile", "config/config.yaml", "--tasks", "5"],
    ],
    ids=[
        "nothing",
        "no primary",
        "no size",
        "changed",
        "rate",
        "no rate",
        "one task",
        "few tasks",
        "few changes",
        "large difference",
        "few tasks of rates",
    ],
)
def test_what_no_power_can_be_planned_of_is_named(words: list[str], monkeypatch: pytest.MonkeyPatch, wording: Wording):
    monkeypatch.chdir(ROOT)
    with pytest.raises(InputError) as error:
        cli.parse(["doctor", "power", *words]).run()
    wording(error.value)


def test_configs_do_without_scipy():
    """Every job of a run parses the config, and scipy takes longer to import than all else."""
    code = "import sys, arc_refinery.refining.config; assert not any('scipy' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_power_of_a_set_whose_size_is_given_and_of_trainings_that_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    cli.parse(["doctor", "power", "--configfile", "config/code-trained.yaml", "--tasks", "352"]).run()
    assert "| 352 |" in capsys.readouterr().out
    rows = []
    for words in ([], ["--spread", "0"], ["--rate", "0.1"]):
        cli.parse(["doctor", "power", "--configfile", "config/code-trained.yaml", "--tasks", "447", *words]).run()
        (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| 447 "))
        rows.append([float(cell) for cell in row.strip("| ").split(" | ")[1:]])
    assumed, without, rarer = rows
    assert assumed[0] == without[0] and assumed[1] > 1.5 * without[1]  # one training says nothing about others
    # 0.3 / sqrt(0.386 x 0.614), the standard deviations of one attempt, is 0.616
    assert rarer[0] == pytest.approx(0.616 * assumed[0], abs=0.06)
