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
        ["--configfile", "config/code-untrained.yaml"],
        ["--configfile", "config/config.yaml", "--changed", "0.9"],
    ],
    ids=["nothing", "no primary", "no size", "changed"],
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


def test_a_single_task_has_a_dash(capsys: pytest.CaptureFixture[str]):
    cli.parse(["doctor", "power", "--tasks", "1", "--difference", "0.5"]).run()
    assert "| 1 | – | – | – | – |" in capsys.readouterr().out


def test_the_power_of_a_set_whose_size_is_given_and_of_trainings_that_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    cli.parse(["doctor", "power", "--configfile", "config/code-untrained.yaml", "--tasks", "352"]).run()
    assert "| 352 |" in capsys.readouterr().out
    cli.parse(["doctor", "power", "--tasks", "400", "--run-spread", "0.02"]).run()
    (header,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| tasks"))
    assert header == "| tasks | 3 trainings | 5 trainings | 10 trainings |"  # one shows nothing of others
