"""The profile for Slurm, run against a real one: the same bytes as without it, and what jobs ask of the cluster."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import Checkout, copy, n_attempts

from cluster import slurm

pytestmark = pytest.mark.pool

CONFIG = "results/cut-down.yaml"
SHARD = "results/small/heldout/turn1/attempts/000.parquet"
TARGET = "results/small/heldout/turn1/verdicts/000.parquet"
# What the profile asks for suits jobs of hours; these take seconds.
SUBMIT = ("--profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5")


def prepare(folder: Path) -> Path:
    """A copy of the repository with the cut-down experiment, whose jobs ask for as much as the full-size one."""
    checkout = copy(folder)
    full_size = yaml.safe_load((folder / "config/base/llama-8b.yaml").read_text())

    def change(config: dict[str, Any]) -> None:
        config["resources"] = full_size["resources"]
        config["evaluation"]["sets"][1]["n_tasks"] = 40  # sampling takes long enough to be disturbed

    checkout.change(change, name="cut-down")
    return folder


@contextmanager
def snakemake(folder: Path, *arguments: str, programs: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A run, which has ended without an error when the block is left."""
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    path[:0] = [str(programs)] if programs else []
    output = folder / "output.txt"
    with output.open("w") as file:
        run = subprocess.Popen(
            ["snakemake", "--configfile", CONFIG, *arguments],
            cwd=folder, env={**os.environ, "PATH": os.pathsep.join(path)}, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        yield run
        assert run.wait(900) == 0, output.read_text()
    finally:
        run.kill()
        run.wait()


def wait_until(run: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert run.poll() is None, "the run has ended"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def results(folder: Path) -> dict[str, str]:
    files = sorted((folder / "results/small").rglob("*.parquet"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def jobs_of(cluster: slurm.Slurm, rule: str) -> list[dict[str, str]]:
    return [job for job in cluster.jobs() if job["Comment"].startswith(f"rule_{rule}_")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    cluster = slurm.Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    except slurm.Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def submitted(cluster: slurm.Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout where one shard has been sampled and graded by jobs of Slurm."""
    folder = prepare(tmp_path_factory.mktemp("submitted"))
    with snakemake(folder, *SUBMIT, TARGET, programs=cluster.programs):
        pass
    return folder


def asked_for(cluster: slurm.Slurm, rule: str) -> dict[str, str]:
    job = jobs_of(cluster, rule)[0]
    return {key: job[key] for key in ("NumNodes", "NumCPUs", "MinMemoryNode", "TimeLimit", "TresPerJob") if key in job}


def test_jobs_of_slurm_write_the_same_bytes_as_a_local_run(submitted: Path, tmp_path: Path):
    local = prepare(tmp_path)
    done = Checkout(local).snakemake("--configfile", CONFIG, "--cores", "2", TARGET)
    assert done.returncode == 0, done.stderr
    assert TARGET in results(local)
    assert results(submitted) == results(local)


def test_a_job_without_gpu_asks_for_what_the_config_says(cluster: slurm.Slurm, submitted: Path):
    request = {"NumNodes": "1", "NumCPUs": "4", "MinMemoryNode": "8000M", "TimeLimit": "04:00:00"}
    assert asked_for(cluster, "grade") == request


def test_a_job_with_a_gpu_asks_for_it_too(cluster: slurm.Slurm, submitted: Path):
    request = {"NumNodes": "1", "NumCPUs": "20", "MinMemoryNode": "32000M", "TimeLimit": "12:00:00"}
    assert asked_for(cluster, "sample") == request | {"TresPerJob": "gres:gpu:1"}


def test_a_requeued_job_goes_on_and_writes_the_same_bytes(cluster: slurm.Slurm, submitted: Path):
    before = results(submitted)
    (submitted / SHARD).unlink()
    progress = (submitted / SHARD).parent / ".progress" / "000.jsonl"
    with snakemake(submitted, *SUBMIT, SHARD, programs=cluster.programs) as run:
        wait_until(run, lambda: n_attempts(progress) > 0)
        (job,) = (job["JobId"] for job in jobs_of(cluster, "sample") if job["JobState"] == "RUNNING")
        cluster.run("scontrol", "requeue", job)
        wait_until(run, lambda: jobs_of(cluster, "sample")[-1]["JobState"] == "PENDING")
        # Slurm lets a requeued job rest for two minutes. Seconds are needed: a node refuses a job that starts in the
        # second in which it was killed there ("Job credential revoked"), and then it has failed.
        cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+2seconds")
    assert "attempts were already done" in (submitted / "logs/small/heldout/turn1/sample-000.log").read_text()
    assert jobs_of(cluster, "sample")[-1]["Restarts"] == "1"
    assert results(submitted) == before


def test_without_debian_there_is_one_plain_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(slurm.Unavailable, match="takes a machine with Debian"):
        slurm.unpack(tmp_path / "software")


def test_without_the_packages_there_is_one_plain_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("apt-get", "dpkg"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'E: Unable to locate package slurmctld' >&2; exit 100\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(slurm.Unavailable, match="cannot be had: E: Unable to locate package"):
        slurm.unpack(tmp_path / "software")
