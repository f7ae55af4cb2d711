"""`doctor power`: what it refuses, and its table. That its numbers are right: test_statistics.py."""

import subprocess
import sys
from dataclasses import replace
from math import isinf

import pytest
from checkout import ROOT
from messages import Wording

from arc_refinery import cli
from arc_refinery.errors import InputError
from arc_refinery.evaluation.power import Plan


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--configfile", "config/tool-use.yaml"],
        ["--configfile", "config/code-demo.yaml"],
        ["--configfile", "config/config.yaml", "--changed", "0.9"],
        ["--configfile", "config/multi-turn-rl.yaml", "--rate", "0.1"],
        ["--tasks", "500", "--rate", "0.1"],
        ["--tasks", "1"],
        ["--tasks", "27"],
        ["--tasks", "100", "--changed", "0.02"],
        ["--tasks", "100", "--difference", "0.3"],
        ["--tasks", "100", "--changed", "0.05", "--difference", "0.2"],
        ["--configfile", "config/code-demo.yaml", "--tasks", "400", "--difference", "0.7"],
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
        "difference before tasks",
        "large difference of rates",
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
    cli.parse(["doctor", "power", "--configfile", "config/code-demo.yaml", "--tasks", "352"]).run()
    assert "| 352 |" in capsys.readouterr().out
    rows = []
    for words in ([], ["--spread", "0"], ["--rate", "0.1"]):
        cli.parse(["doctor", "power", "--configfile", "config/code-demo.yaml", "--tasks", "447", *words]).run()
        (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| 447 "))
        rows.append([float(cell) for cell in row.strip("| ").split(" | ")[1:]])
    assumed, without, rarer = rows
    assert assumed[0] == without[0] and assumed[1] > 1.5 * without[1]  # one training says nothing about others
    # 0.3 / sqrt(0.386 x 0.614), the standard deviations of one attempt, is 0.616
    assert rarer[0] == pytest.approx(0.616 * assumed[0], abs=0.06)


def test_what_cannot_change_is_a_dash_that_is_explained(capsys: pytest.CaptureFixture[str]):
    """Three trainings take more than the 5 points with which one is shown."""
    cli.parse(["doctor", "power", "--tasks", "172", "--changed", "0.05"]).run()
    page = capsys.readouterr().out
    (row,) = (line for line in page.splitlines() if line.startswith("| 172 "))
    assert row.split(" | ")[2] == "–" and "–: none, because at most 5.0 points can change" in page
    cli.parse(["doctor", "power", "--tasks", "1000"]).run()
    assert "–" not in capsys.readouterr().out


@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_no_rates_differ_by_more_than_they_can(rate: float):
    """A side with a rate of 0.5 differs from no other by more than 50 points."""
    plans = [replace(Plan(n, n_attempts=1), task_spread=0.3).with_rate(rate) for n in (6, 20, 1000)]
    found = [plan.detects(n_runs) for plan in plans for n_runs in (1, 3, 5)]
    assert all(difference <= 1 - rate or isinf(difference) for difference in found)
    assert any(map(isinf, found)) and not all(map(isinf, found))
