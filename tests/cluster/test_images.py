"""Runs in a container image, with Apptainer itself.

They need `apptainer` on the PATH, the path of an image made from containers/ in ARC_REFINERY_TEST_IMAGE, and a folder
that is not below /tmp, because HTCondor's containers have their own: pytest --basetemp /var/lib/trial
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import TOOLS, Checkout, copy

from cluster.pool import Pool
from cluster.runs import Run
from cluster.test_profile import digests, reduce_tools
from cluster.test_transfer import elsewhere, far, results

__all__ = ["far"]

APPTAINER, IMAGE = shutil.which("apptainer") or "", os.environ.get("ARC_REFINERY_TEST_IMAGE", "")
CODE = {"ARC_REFINERY_COMMIT": "that of the test"}  # reports name it
pytestmark = [
    pytest.mark.pool,
    pytest.mark.skipif(not (APPTAINER and IMAGE), reason="needs Apptainer, and an image in ARC_REFINERY_TEST_IMAGE"),
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A finished run without an image."""
    checkout = copy(tmp_path_factory.mktemp("local"))
    run_here(checkout)
    return checkout


def change(content: dict[str, Any]) -> None:
    reduce_tools(content)
    elsewhere(content)


def run_here(checkout: Checkout, *flags: str) -> None:
    config = checkout.change(change, TOOLS)
    command = ["snakemake", *flags, "--cores", "2", "--quiet", "rules", "--configfile", config]
    variables = {**CODE, "ARC_REFINERY_IMAGE": IMAGE if flags else ""}
    done = checkout.run("env", *(f"{name}={value}" for name, value in variables.items()), *command)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def containers(pool: Pool) -> Iterator[None]:
    """The pool's machines know Apptainer."""
    config = pool.folder / "condor_config"
    before = config.read_text()
    config.write_text(f"{before}\nSINGULARITY = {APPTAINER}\n")
    libexec = pool.software / "usr/libexec/condor"  # Debian leaves out the image with which a machine tries Apptainer
    if not (trial := libexec / "exit_37.sif").exists():
        subprocess.run([APPTAINER, "build", trial, libexec / "singularity_test_sandbox"], check=True)
    pool.restart()
    try:
        yield
    finally:
        config.write_text(before)
        pool.restart()


def test_rules_run_in_an_image(local: Checkout, tmp_path: Path):
    checkout = copy(tmp_path / "sdm")
    run_here(checkout, "--sdm", "apptainer")
    assert digests(checkout.folder / "results") == digests(local.folder / "results")


@pytest.mark.parametrize("profile", ["condor", "condor-transfer"])
def test_jobs_of_a_pool_run_in_an_image(
    profile: str, containers: None, far: Path, local: Checkout, tmp_path: Path, condor: Callable[..., Run], pool: Pool
):
    checkout = copy({"condor": tmp_path / "shared", "condor-transfer": far}[profile])
    flags = ["--quiet", "rules", "--", "all"]
    config, variables = checkout.change(change, TOOLS), {**CODE, "ARC_REFINERY_IMAGE": IMAGE}
    run = condor(checkout, *flags, config=config, profile=f"profiles/{profile}", **variables)
    assert run.end(900) == 0, run.explain()
    jobs = pool.jobs(f"QDate >= {run.started}", history=True)
    assert {bool(job.get("WantContainer")) for job in jobs} == {profile == "condor-transfer"}  # the universe
    assert results(checkout) == results(local)
