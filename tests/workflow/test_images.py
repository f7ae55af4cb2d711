"""Rules in a container image (`--sdm apptainer`), with a stand-in for Apptainer; tests/cluster has the real one."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import processes
import pytest
from checkout import Checkout
from messages import Wording

pytestmark = pytest.mark.snakemake

STAND_IN = """#!/bin/bash
if [ "$1" = --version ]; then echo apptainer version 1.4.5; exit; fi
echo "$@" >> "{folder}/started"
exec bash -c "${{@: -1}}"
"""
IMAGE = "/images/arc.sif"
WANTED = "results/quick/questions/arithmetic.parquet"


@dataclass(frozen=True)
class Machine:
    """A checkout, and a stand-in for Apptainer that writes down what it is asked to start."""

    checkout: Checkout
    started: Path
    path: str

    def run(self, *flags: str, image: str) -> subprocess.CompletedProcess[str]:
        environment = processes.environment({"PATH": self.path, "ARC_REFINERY_IMAGE": image})
        command = ["snakemake", "--cores", "1", WANTED, "--configfile", "config/quick.yaml", *flags]
        folder = self.checkout.folder
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(pristine: Checkout, tmp_path: Path) -> Machine:
    stand_in = tmp_path / "apptainer"
    stand_in.write_text(STAND_IN.format(folder=tmp_path))
    stand_in.chmod(0o755)
    return Machine(pristine.clone(tmp_path / "checkout"), tmp_path / "started", f"{tmp_path}:{os.environ['PATH']}")


def test_rules_run_in_the_image_with_the_code_of_the_checkout(machine: Machine):
    done = machine.run("--sdm", "apptainer", image=IMAGE)
    assert done.returncode == 0, done.stderr
    assert (machine.checkout.folder / WANTED).exists()
    (started,) = machine.started.read_text().splitlines()
    assert started.startswith(f"exec --home {machine.checkout.folder} ")
    assert f" {IMAGE} bash -c set -euo pipefail; " in started
    assert ' PYTHONPATH="$PWD/workflow"; ' in started


@pytest.mark.parametrize(
    ("flags", "image", "status"),
    [([], IMAGE, 0), (["--sdm", "apptainer"], "", 1), (["--sdm", "apptainer", "--profile", "condor"], IMAGE, 1)],
    ids=["named", "asked", "pool"],
)
def test_an_image_that_is_not_used_and_one_within_another_are_named(
    machine: Machine, flags: list[str], image: str, status: int, wording: Wording
):
    done = machine.run(*flags, image=image)
    assert done.returncode == status, done.stderr
    assert not machine.started.exists()
    (line,) = (line for line in done.stderr.splitlines() if "--sdm apptainer" in line)
    wording(line)
