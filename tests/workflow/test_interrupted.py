"""Runs and jobs that are interrupted: nothing is lost, and the same command continues."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import processes
import psutil
import pytest
from checkout import SMALL, Checkout, n_attempts

pytestmark = [pytest.mark.snakemake, pytest.mark.model]


def test_a_killed_sampling_job_goes_on_and_writes_the_same_bytes(finished: Checkout, tmp_path: Path):
    prompts = "results/small/arc-agi-1-evaluation/turn1/prompts.parquet"
    command = ["arc-refinery", "sample", "--dataset-path", prompts, "--base-model-path", "workflow/models/tiny"]
    command += ["--max-model-len", "1024", "--max-output-tokens", "48", "--output"]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert finished.run(*command, str(undisturbed)).returncode == 0
    progress = killed / ".progress" / "000.jsonl"
    finished.kill_when(lambda: n_attempts(progress) > 0, *command, str(killed))
    assert not (killed / "000.parquet").exists()
    done = finished.run(*command, str(killed))
    assert done.returncode == 0, done.stderr
    assert "attempts were already done" in done.stderr
    assert (killed / "000.parquet").read_bytes() == (undisturbed / "000.parquet").read_bytes()
    assert not progress.exists()


TASKS = "results/small/tasks/heldout.parquet"
PROMPTS = "results/small/heldout/turn1/prompts.parquet"
ATTEMPTS = "results/small/heldout/turn1/attempts/000.parquet"
RUN = ["--cores", "1", "--configfile", SMALL]


@pytest.fixture
def stop(fresh: Checkout, tmp_path: Path) -> Iterator[Callable[[str, str], processes.Running]]:
    """Start a run of Snakemake on one core, and stop its first job of a command; it prints to `output`."""
    left: list[psutil.Process] = []

    def stop(target: str, command: str) -> processes.Running:
        output = tmp_path / "output"
        run = processes.start(["snakemake", target, *RUN], fresh.folder, output, output)
        while not (jobs := [process for process in started_by(run) if command in " ".join(words(process))]):
            assert run.poll() is None, output.read_text()
            time.sleep(0.005)
        jobs[-1].suspend()
        left.extend([*started_by(run), psutil.Process(run.pid)])
        return run

    yield stop
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def started_by(run: processes.Running) -> list[psutil.Process]:
    return psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []


def words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def test_ctrl_c_twice_kills_the_jobs_and_ends_in_order(
    stop: Callable[[str, str], processes.Running], fresh: Checkout, tmp_path: Path
):
    run, output = stop(TASKS, "arc-refinery stage evaluation_tasks"), tmp_path / "output"
    jobs = started_by(run)
    run.send_signal(signal.SIGINT)
    while "Terminating processes on user request" not in output.read_text():
        time.sleep(0.005)
    run.send_signal(signal.SIGINT)
    assert run.wait() == 1
    _, alive = psutil.wait_procs(jobs, timeout=10)
    assert not alive
    text = output.read_text()
    assert "Interrupted again: killing the jobs" in text
    assert "Traceback" not in text and "FAILED" not in text
    assert text.splitlines()[-1].startswith("Stopped: 0 of 1 jobs")
    done = fresh.snakemake(TASKS, *RUN)
    assert done.returncode == 0, done.stderr
    assert (fresh.folder / TASKS).exists()


@pytest.mark.parametrize("quiet", [[], ["--quiet", "all"]])
def test_a_failed_run_ends_with_the_reason(fresh: Checkout, quiet: list[str]):
    (fresh.folder / ATTEMPTS).with_name(".progress").joinpath("000.jsonl").mkdir(parents=True)  # where a file is needed
    done = fresh.snakemake(ATTEMPTS, *RUN, *quiet)
    assert done.returncode == 1
    text = done.stderr[done.stderr.index("Failed: ") :]  # HTCondor's library may print after it
    job, reason, log, last, *_ = text.splitlines()
    assert "heldout" in job and "arc-refinery: " in reason and ATTEMPTS in reason
    assert log.split()[-1] == "logs/small/heldout/turn1/sample-000.log"
    assert "the same command continues" in last
    assert "arc-refinery stage" not in done.stderr  # no shell commands
