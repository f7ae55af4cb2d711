"""Jobs that lose their machine in the middle: they start again somewhere, go on, and end in the same bytes."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from checkout import Checkout
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
def undisturbed(prepared: Checkout) -> bytes:
    """The shard as a local run writes it."""
    done = prepared.snakemake("--cores", "1", SHARD, "--configfile", LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return (prepared.folder / SHARD).read_bytes()


@pytest.mark.parametrize("disturb", [vacate, vacate_at_once, hold_and_release, kill_the_starter, restart_the_pool])
def test_a_disturbed_sampling_job_goes_on_where_it_was(
    prepared: Checkout, undisturbed: bytes, condor: Callable[..., Run], pool: Pool, disturb: Callable[[Run, int], None]
):
    for name in (SHARD, PROGRESS):
        (prepared.folder / name).unlink(missing_ok=True)
    progress = prepared.folder / PROGRESS
    run = condor(prepared, "--set-resources", "sample:htcondor_submit_job_lease_duration=10", "--", SHARD, config=LONG)
    job = run.job("sample", status=2)
    wait_until(lambda: progress.exists() and progress.read_bytes().count(b"\n") >= 4, 60, run.explain)
    disturb(run, job["ClusterId"])
    assert run.end() == 0, run.explain()
    (ended,) = pool.jobs(f"ClusterId == {job['ClusterId']}", history=True)
    assert ended["NumJobStarts"] == 2, "it was not disturbed"
    assert "prompts were sampled before" in (prepared.folder / LOG).read_text()
    assert (prepared.folder / SHARD).read_bytes() == undisturbed
    assert not progress.exists()


def test_a_vacated_training_goes_on_from_its_checkpoint(
    finished: Checkout, tmp_path: Path, condor: Callable[..., Run], pool: Pool
):
    adapters = {}
    for name in ("undisturbed", "vacated"):
        checkout = finished.clone(tmp_path / name)
        longer = checkout.change(lambda config: config["training"].update(max_steps=8, epochs=6))
        if name == "undisturbed":
            done = checkout.snakemake("--cores", "2", "results/small/adapters/trained", "--configfile", longer)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            run = condor(checkout, "results/small/adapters/trained", config=longer)
            job = run.job("train", status=2)
            checkpoint = checkout.folder / "results/small/adapters/trained.checkpoints/checkpoint-2/trainer_state.json"
            wait_until(checkpoint.exists, 120, run.explain)
            vacate(run, job["ClusterId"])
            assert run.end() == 0, run.explain()
            (ended,) = pool.jobs(f"ClusterId == {job['ClusterId']}", history=True)
            assert ended["NumJobStarts"] == 2, "it was not disturbed"
            assert (
                "training goes on from this checkpoint"
                in (checkout.folder / "logs/small/adapters/trained.log").read_text()
            )
        folder = checkout.folder / "results/small/adapters/trained"
        adapters[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert adapters["vacated"] == adapters["undisturbed"]


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
