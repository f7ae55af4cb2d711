"""Which Python a job runs in: that of Snakemake, one for the rule, or one that is unpacked on the job's machine."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import Checkout

from cluster.pool import Pool, wait_until
from cluster.runs import LONG, SHARD, Run

pytestmark = pytest.mark.pool


def test_sampling_can_have_an_environment_of_its_own(
    prepared: Checkout, environment: Path, condor: Callable[..., Run], pool: Pool
):
    needs = {"sample": {"venv": str(environment)}}
    changed = prepared.change(lambda config: config.update(resources=needs), LONG)
    (prepared.folder / SHARD).unlink(missing_ok=True)
    run = condor(prepared, SHARD, config=changed)
    wait_until((environment / "used").exists, 60, run.explain)
    assert (environment / "used").read_text().startswith("stage sample {")


def test_a_packed_environment_is_unpacked_once_on_the_machine(
    prepared: Checkout, archive: Path, condor: Callable[..., Run], tmp_path: Path
):
    cache = tmp_path / "cache"
    wanted = ["results/small/tasks/heldout.parquet", "results/small/tasks/arc-agi-1-evaluation.parquet"]
    variables = {"ARC_REFINERY_ENVIRONMENT": str(archive), "ARC_REFINERY_CACHE": str(cache)}
    run = condor(prepared, "--force", *wanted, config=LONG, **variables)
    assert run.end() == 0, run.explain()
    (unpacked,) = (path for path in cache.iterdir() if path.is_dir())
    used = (tmp_path / "used").read_text().splitlines()
    assert set(used) == {str(unpacked)}
    assert len(used) >= 2 * 2  # two jobs: Snakemake, and its command
    assert not list(cache.glob("*.partial"))


def test_a_job_asks_apptainer_for_the_image(prepared: Checkout, tmp_path: Path):
    """The program is a stand-in that shows its arguments; no container has been started by these tests."""
    stand_in = tmp_path / "apptainer"
    stand_in.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        [prepared.folder / "profiles/condor/job.sh", "/some/python", "-m", "snakemake", "--cores", "all"],
        cwd=prepared.folder,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "ARC_REFINERY_IMAGE": "/images/arc.sif"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = str(prepared.folder)
    options = ["exec", "--nv", "--bind", folder, "--pwd", folder, "/images/arc.sif"]
    assert done.stdout.splitlines() == [*options, "python", "-m", "snakemake", "--cores", "all"]


def test_machines_whose_file_system_domain_nobody_has_set_run_jobs_too(
    prepared: Checkout, condor: Callable[..., Run], pool: Pool
):
    config = pool.folder / "condor_config"
    before = config.read_text()
    config.write_text(
        f"{before}\nSTARTD.FILESYSTEM_DOMAIN = other.machine\nSTARTER.FILESYSTEM_DOMAIN = other.machine\n"
    )
    pool.restart()
    try:
        run = condor(prepared, "--force", "results/small/tasks/heldout.parquet", config=LONG)
        assert run.end() == 0, run.explain()
    finally:
        config.write_text(before)
        pool.restart()
