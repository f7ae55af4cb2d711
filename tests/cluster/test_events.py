"""Events that hit jobs and the run itself: each ends or continues, and says what to do."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import Checkout, n_attempts

from cluster.pool import Pool, wait_until
from cluster.runs import LOG, LONG, PROGRESS, SHARD, Run

pytestmark = pytest.mark.pool


@pytest.fixture
def sampling(prepared: Checkout, condor: Callable[..., Run]) -> Run:
    """A run in the middle of sampling a shard."""
    for name in (SHARD, PROGRESS):
        (prepared.folder / name).unlink(missing_ok=True)
    run = condor(prepared, SHARD, config=LONG)
    progress = prepared.folder / PROGRESS
    wait_until(lambda: n_attempts(progress) > 0, 60, run.explain)
    return run


def newest(run: Run) -> Path:
    """The event log of a run."""
    return max(run.checkout.folder.glob("logs/condor/*/snakemake-rules.log"))


@pytest.fixture
def busy(pool: Pool) -> Iterator[str]:
    """The number of somebody else's job that takes all that the pool has."""
    description = pool.folder / "busy.sub"
    description.write_text("executable=/bin/sleep\narguments=600\nrequest_cpus=4\nrequest_gpus=2\nqueue\n")
    pool.client("condor_submit", str(description))
    (job,) = wait_until(lambda: pool.jobs("JobStatus == 2"), 60, lambda: "the pool is not busy")
    yield str(job["ClusterId"])
    if pool.jobs(f"ClusterId == {job['ClusterId']}"):
        pool.remove(job["ClusterId"])


def test_a_held_job_fails_its_run_and_does_not_stay_in_the_queue(
    prepared: Checkout, condor: Callable[..., Run], pool: Pool
):
    run = condor(prepared, "--force", "--htcondor-held-timeout", "3", "--", SHARD, config=LONG)
    number = run.job("sample", status=2)["ClusterId"]
    pool.client("condor_hold", "-reason", "the disk is full", str(number))
    assert "the disk is full" in run.says(f"Job {number} (sample-0) is held")
    assert run.end() == 1, run.explain()
    assert f"Removed from the queue, because this run ends: job {number}." in run.text
    assert not pool.jobs()


def test_a_job_over_its_runtime_is_held_with_that_reason(prepared: Checkout, condor: Callable[..., Run]):
    run = condor(prepared, "--force", "--set-resources", "sample:allowed_job_duration=3", "--", SHARD, config=LONG)
    assert "exceeded allowed job duration of 00:03" in run.says("(sample-0) is held")


def test_a_removed_job_fails_its_run(sampling: Run, pool: Pool):
    pool.client("condor_rm", str(sampling.job("sample")["ClusterId"]))
    assert sampling.end() == 1
    assert "was removed/aborted" in sampling.text


@pytest.mark.parametrize(
    ("gpu_needs", "text"),
    [
        ({"gpu_mem_mb": 48000}, "GPUsMinMemory 48000"),
        ({"gpus": 2}, "GPUsMinCapability 8.0"),  # one of the two cards has 7.5
    ],
)
def test_a_request_that_no_machine_meets_is_said_at_once(
    prepared: Checkout, condor: Callable[..., Run], pool: Pool, gpu_needs: dict[str, Any], text: str
):
    needs = {"sample": {"gpus": 1} | gpu_needs}
    changed = prepared.change(lambda config: config.update(resources=needs), LONG)
    run = condor(prepared, "--force", SHARD, config=changed)
    line = run.says("No machine of the pool can run job", 30)
    assert "RequestGPUs" in line and text in line and "condor_q -better-analyze" in line
    run.kill(signal.SIGINT)
    assert run.end(60) == 1
    assert not pool.jobs()


def test_a_busy_machine_is_no_missing_machine(prepared: Checkout, busy: str, condor: Callable[..., Run], pool: Pool):
    needs = {"sample": {"gpus": 1, "gpu_mem_mb": 20000}}
    changed = prepared.change(lambda config: config.update(resources=needs), LONG)
    run = condor(prepared, "--force", SHARD, config=changed)
    job = run.job("sample", status=1)
    wait_until(lambda: pool.jobs(f"ClusterId == {job['ClusterId']} && LastRejMatchTime > 0"), 60, run.explain)
    time.sleep(5)  # some looks of the watch
    pool.remove(busy)
    run.job("sample", status=2)
    assert "No machine of the pool" not in run.text


def test_a_job_that_fails_on_one_machine_succeeds_on_another(
    prepared: Checkout, condor: Callable[..., Run], pool: Pool, tmp_path: Path
):
    first = tmp_path / "first"
    program = tmp_path / "venv/bin/arc-refinery"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
machine=$(sed -n 's/^Machine = "\\(.*\\)"/\\1/p' "$_CONDOR_MACHINE_AD")
[ -e {first} ] || echo "$machine" > {first}
if [ "$machine" = "$(cat {first})" ]; then echo "out of order" >&2; exit 1; fi
PATH=${{PATH#*:}} exec arc-refinery "$@"
"""
    )
    program.chmod(0o755)
    changed = prepared.change(
        lambda config: config.update(resources={"sample": {"venv": str(tmp_path / "venv")}}), LONG
    )
    (prepared.folder / SHARD).unlink(missing_ok=True)
    with pool.second_machine():
        run = condor(prepared, SHARD, config=changed)
        assert run.end() == 0, run.explain()
    job = run.job("sample")
    assert (job["NumJobCompletions"], job["ExitCode"]) == (2, 0)
    machines = [job["MachineAttrMachine0"], job["MachineAttrMachine1"]]
    assert machines[1] == first.read_text().strip() and machines[0] != machines[1]
    assert f"Job {job['ClusterId']} (sample-0) has failed on" in run.text
    assert "No machine of the pool" not in run.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_removes_its_jobs_and_the_next_one_goes_on(
    sampling: Run, condor: Callable[..., Run], pool: Pool, number: signal.Signals
):
    sampling.kill(number)
    assert sampling.end(60) == 1, sampling.explain()
    assert not pool.jobs()
    if number == signal.SIGTERM:
        again = condor(sampling.checkout, SHARD, config=LONG)
        assert again.end() == 0, again.explain()
        assert "attempts were already done" in (sampling.checkout.folder / LOG).read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_two_signals_end_a_run_as_one_does(sampling: Run, pool: Pool, number: signal.Signals):
    for _ in range(2):
        sampling.kill(number)
        time.sleep(0.05)
    assert sampling.end(60) == 1, sampling.explain()
    assert "Traceback" not in sampling.text
    assert not pool.jobs()


def test_jobs_of_a_killed_run_are_removed_by_the_next(sampling: Run, condor: Callable[..., Run]):
    number = sampling.job("sample")["ClusterId"]
    sampling.kill(signal.SIGKILL)
    sampling.process.wait()
    again = condor(sampling.checkout, SHARD, config=LONG)
    assert f"job {number}." in again.says("left there by a run that was killed")
    assert again.end() == 0, again.explain()


def test_jobs_of_a_killed_run_are_removed_by_a_run_without_the_profile_or_it_refuses(
    sampling: Run, condor: Callable[..., Run], tmp_path: Path
):
    def here(**environment: str) -> Run:
        return condor(
            sampling.checkout, "--cores", "2", "--", SHARD, config=LONG, profile="profiles/default", **environment
        )

    number = sampling.job("sample", status=2)["ClusterId"]
    sampling.kill(signal.SIGKILL)
    sampling.process.wait()

    without_pool = here(CONDOR_CONFIG=str(unreachable(tmp_path)))
    assert without_pool.end(60) == 1, without_pool.explain()
    without_pool.says("a run has ended whose jobs may continue in HTCondor's queue and would write the same files")
    assert "Traceback" not in without_pool.text

    again = here()
    assert f"job {number}." in again.says("left there by a run that was killed")
    assert again.end() == 0, again.explain()


def test_a_run_leaves_other_runs_and_jobs_of_others_alone(
    sampling: Run, condor: Callable[..., Run], pool: Pool, tmp_path: Path
):
    description = tmp_path / "other.sub"
    description.write_text(f"executable=/bin/sleep\narguments=600\nlog={tmp_path}/other.log\nqueue\n")
    pool.client("condor_submit", str(description))
    beside = condor(sampling.checkout, "--force", "results/small/tasks/heldout.parquet", config=LONG)
    assert beside.end() == 0, beside.explain()
    (other,) = pool.jobs('Cmd == "/bin/sleep"')
    pool.remove(other["ClusterId"])
    assert sampling.end() == 0, sampling.explain()


def test_a_run_whose_event_log_is_deleted_ends_and_the_next_one_completes(
    prepared: Checkout, condor: Callable[..., Run]
):
    shards = [SHARD, SHARD.replace("000", "001")]
    for shard in shards:
        (prepared.folder / shard).unlink(missing_ok=True)
    run = condor(prepared, "--jobs", "1", "--", *shards, config=LONG)
    run.job("sample", status=2)
    newest(run).unlink()
    if run.end() != 0:  # else HTCondor remembered in time how the job had ended
        assert "does not say how it ended" in run.text and "Start the same command again" in run.text
        again = condor(prepared, *shards, config=LONG)
        assert again.end() == 0, again.explain()
    assert all((prepared.folder / shard).exists() for shard in shards)


def test_a_job_whose_logs_cannot_be_written_is_held_and_the_next_run_completes(
    prepared: Checkout, busy: str, condor: Callable[..., Run], pool: Pool
):
    run = condor(prepared, "--force", SHARD, config=LONG)
    number = run.job("sample", status=1)["ClusterId"]
    run.says("submitted to HTCondor")
    shutil.rmtree(newest(run).parent)
    pool.remove(busy)
    assert f"condor_rm {number}" in run.says(f"Job {number} (sample-0) is held")
    pool.client("condor_rm", str(number))
    assert run.end(60) == 1
    assert "was removed/aborted" in run.text
    again = condor(prepared, SHARD, config=LONG)
    assert again.end() == 0, again.explain()


def test_a_run_whose_queue_is_lost_ends_and_the_next_one_goes_on(sampling: Run, condor: Callable[..., Run], pool: Pool):
    pool.stop()
    sampling.says("HTCondor cannot be queried")
    shutil.rmtree(pool.folder / "spool")
    (pool.folder / "spool").mkdir()
    pool.start()
    sampling.says("HTCondor answers again")
    assert "Start the same command again" in sampling.says("does not say how it ended")
    assert sampling.end() == 1
    again = condor(sampling.checkout, SHARD, config=LONG)
    assert again.end() == 0, again.explain()
    assert "attempts were already done" in (sampling.checkout.folder / LOG).read_text()


def unreachable(folder: Path) -> Path:
    """The configuration of a pool that does not answer."""
    config = folder / "condor_config"
    config.write_text("CONDOR_HOST = 127.0.0.1\nCOLLECTOR_HOST = 127.0.0.1:9\n")
    return config


def test_a_space_in_the_name_of_a_file_is_refused(prepared: Checkout, condor: Callable[..., Run]):
    """The executor would wait for two files."""
    model = prepared.folder / "mine/my model"
    shutil.copytree(prepared.folder / "workflow/models/tiny", model)
    changed = prepared.change(lambda config: config["model"].update(path="mine/my model"), LONG)
    run = condor(prepared, "--force", SHARD, config=changed)
    assert run.end(60) == 1
    assert "model.path is mine/my model" in run.text and "space" in run.text
    shutil.rmtree(model)


def test_without_a_pool_there_is_one_message(prepared: Checkout, condor: Callable[..., Run], tmp_path: Path):
    run = condor(prepared, "--force", SHARD, config=LONG, CONDOR_CONFIG=str(unreachable(tmp_path)))
    assert run.end(60) == 1
    assert "condor_q and condor_status must work here" in run.text
    assert "Traceback" not in run.text
