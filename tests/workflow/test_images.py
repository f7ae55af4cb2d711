"""Rules in a container image (`--sdm apptainer`), with a stand-in for Apptainer; tests/cluster has the real one."""

import os
import subprocess
from pathlib import Path

import processes
import pytest
from checkout import Checkout

pytestmark = pytest.mark.snakemake

STAND_IN = """#!/bin/bash
if [ "$1" = --version ]; then echo apptainer version 1.4.5; exit; fi
echo "$@" >> "{folder}/started"
exec bash -c "${{@: -1}}"
"""
WANTED = "results/quick/questions/arithmetic.parquet"


def test_rules_run_in_the_image_with_the_code_of_the_checkout(pristine: Checkout, tmp_path: Path):
    checkout = pristine.clone(tmp_path / "checkout")
    stand_in = tmp_path / "apptainer"
    stand_in.write_text(STAND_IN.format(folder=tmp_path))
    stand_in.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ARC_REFINERY_IMAGE": "/images/arc.sif"}
    command = ["snakemake", "--sdm", "apptainer", "--cores", "1", WANTED, "--configfile", "config/quick.yaml"]
    environment = processes.environment(variables)
    done = subprocess.run(command, cwd=checkout.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (checkout.folder / WANTED).exists()
    (started,) = (tmp_path / "started").read_text().splitlines()
    assert started.startswith(f"exec --home {checkout.folder} ")
    assert " /images/arc.sif bash -c set -euo pipefail; " in started
    assert ' PYTHONPATH="$PWD/workflow"; ' in started
