"""Jobs that lose their machine in the middle: they start again elsewhere, resume, and end in the same bytes."""

import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from checkout import Checkout, n_attempts

from cluster.pool import Pool, wait_until
from cluster.runs import LOG, LONG, PROGRESS, SHARD, Run

pytestmark = pytest.mark.pool


def vacate(run: Run, number: int) -> None:
    run.pool.client("condor_vacate_job", str(number))


def vacate_at_once(run: Run, number: int) -> None:
    run.pool.client("condor_vacate_job", "-fast", str(number))


def hold_and_release(run: Run, number: int) -> None:
    run.pool.client("condor_hold", str(number))
    assert f"condor_release {number}" in run.says(f"Job {number} (sample-0) is held")
    run.pool.client("condor_release", str(number))


def kill_the_starter(run: Run, _number: int) -> None:
    (starter,) = (process for process in run.pool.processes() if process.name() == "condor_starter")
    starter.kill()


def restart_the_pool(run: Run, _number: int) -> None:
    run.pool.restart()
    run.says("starts the job elsewhere")


@pytest.fixture(scope="module")
def undisturbed(prepared_for_long: Checkout) -> bytes:
    """The shard as a local run writes it."""
    done = prepared_for_long.snakemake("--cores", "1", SHARD, "--configfile", LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return (prepared_for_long.folder / SHARD).read_bytes()


def test_a_sampling_job_that_loses_its_machine_in_every_way_goes_on_where_it_was(
    prepared_for_long: Checkout, undisturbed: bytes, condor: Callable[..., Run], pool: Pool
):
    ways = [vacate, vacate_at_once, hold_and_release, kill_the_starter, restart_the_pool]
    for name in (SHARD, PROGRESS):
        (prepared_for_long.folder / name).unlink(missing_ok=True)
    progress, log = prepared_for_long.folder / PROGRESS, prepared_for_long.folder / LOG
    run = condor(
        prepared_for_long, "--set-resources", "sample:htcondor_submit_job_lease_duration=10", "--", SHARD, config=LONG
    )
    number = run.job("sample", status=2)["ClusterId"]
    n_before = 0
    for n_starts, lose in enumerate(ways, start=1):
        wait_until(lambda: n_attempts(progress) >= n_before + 60, 60, run.explain)  # noqa: B023 (called at once)
        (job,) = pool.jobs(f"ClusterId == {number}")
        assert job["NumJobStarts"] == n_starts, f"before {lose.__name__}"
        log.unlink()
        lose(run, number)
        n_kept = wait_until(lambda: n_resumed(log), 90, run.explain)
        assert n_kept >= n_before + 60, f"after {lose.__name__}"
        n_before = n_kept
    assert run.end() == 0, run.explain()
    (ended,) = pool.jobs(f"ClusterId == {number}", history=True)
    assert ended["NumJobStarts"] == 1 + len(ways)
    assert (prepared_for_long.folder / SHARD).read_bytes() == undisturbed
    assert not progress.exists()


def n_resumed(log: Path) -> int:
    """With how many attempts the job that writes this log started; Snakemake deletes the log before each start."""
    match = re.search(r"(\d+) of \d+ attempts were already done", log.read_text() if log.exists() else "")
    return int(match[1]) if match else 0


def test_a_vacated_training_goes_on_after_its_last_whole_step(
    finished: Checkout, tmp_path: Path, condor: Callable[..., Run], pool: Pool
):
    adapters = {}
    for name in ("undisturbed", "vacated"):
        checkout = finished.clone(tmp_path / name)
        longer = checkout.change(lambda config: config["training"]["grpo"].update(max_steps=8, epochs=6, save_steps=8))
        if name == "undisturbed":
            done = checkout.snakemake("--cores", "2", "results/small/adapters/trained", "--configfile", longer)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            run = condor(checkout, "results/small/adapters/trained", config=longer)
            job = run.job("train", status=2)
            log = checkout.folder / "logs/small/adapters/trained.log"
            wait_until(lambda: n_steps(log) >= 3, 120, run.explain)  # noqa: B023 (called at once)
            vacate(run, job["ClusterId"])
            assert run.end() == 0, run.explain()
            (ended,) = pool.jobs(f"ClusterId == {job['ClusterId']}", history=True)
            assert ended["NumJobStarts"] == 2, "it was not disturbed"
            resumed = re.search(r"checkpoint-(\d+): training resumes from this checkpoint", log.read_text())
            assert resumed and 3 <= int(resumed[1]) < 8
        folder = checkout.folder / "results/small/adapters/trained"
        adapters[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert adapters["vacated"] == adapters["undisturbed"]


def n_steps(log: Path) -> int:
    """Number of steps in a training's log."""
    return len(re.findall(r"step [1-8] of 8: reward", log.read_text() if log.exists() else ""))


def test_a_job_that_is_asked_to_end_does_not_finish_its_rule_first(
    prepared: Checkout, condor: Callable[..., Run], pool: Pool
):
    for name in (SHARD, PROGRESS):
        (prepared.folder / name).unlink(missing_ok=True)
    run = condor(prepared, SHARD, config=LONG)
    job = run.job("sample", status=2)
    wait_until((prepared.folder / PROGRESS).exists, 60, run.explain)
    samplers = [process for process in pool.processes() if "sample" in process.cmdline()]
    assert samplers
    pool.client("condor_rm", str(job["ClusterId"]))
    gone, alive = psutil.wait_procs(samplers, timeout=30)
    assert gone and not alive
    assert not (prepared.folder / SHARD).exists()
    assert "was removed/aborted" in run.says("was removed")
    assert run.end() == 1
