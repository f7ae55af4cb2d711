"""`snakemake --profile condor`: what rules ask for arrives at the pool, and a run there ends as a local one."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import Checkout, copy
from pool import Pool
from runs import LONG, SHARD, Run

NEEDS = {
    "cpu": {"cpus": 2, "mem_mb": 1500, "disk_mb": 3000, "runtime": 30},
    "sample": {
        "cpus": 1, "mem_mb": 2500, "disk_mb": 4000, "runtime": 90, "gpus": 1, "gpu_mem_mb": 20000,
        "requirements": 'Machine == "no-such-machine"',
    },
}  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_a_rule_declares_is_in_its_job_ad(prepared: Checkout, condor: Callable[..., Run], pool: Pool):
    changed = prepared.change(lambda config: config.update(resources=NEEDS), LONG)
    run = condor(prepared, "--force", SHARD, "results/small/tasks/heldout.parquet", config=changed)
    gpu_job, cpu_job = run.job("sample"), run.job("evaluation_tasks")
    expected = {
        "evaluation_tasks": {
            "RequestCpus": 2, "RequestMemory": 1500, "RequestDisk": 3000 * 1024, "AllowedJobDuration": 30 * 60
        },
        "sample": {
            "RequestCpus": 1, "RequestMemory": 2500, "RequestDisk": 4000 * 1024, "AllowedJobDuration": 90 * 60,
            "RequestGPUs": 1, "GPUsMinMemory": 20000,
        },
    }  # fmt: skip
    assert {name: cpu_job.get(name) for name in expected["evaluation_tasks"]} == expected["evaluation_tasks"]
    assert {name: gpu_job.get(name) for name in expected["sample"]} == expected["sample"]
    assert "RequestGPUs" not in cpu_job or cpu_job["RequestGPUs"] == 0
    assert NEEDS["sample"]["requirements"] in gpu_job["Requirements"]
    assert "TARGET.Memory >= RequestMemory" in gpu_job["Requirements"]  # HTCondor's own conditions stay beside it
    assert "no-such-machine" not in cpu_job["Requirements"]
    assert "No machine of the pool can run job" in run.says(f"can run job {gpu_job['ClusterId']}")


def test_a_job_on_a_gpu_is_told_which(prepared: Checkout, condor: Callable[..., Run], pool: Pool):
    needs = {"cpu": {"gpus": 1, "gpu_mem_mb": 24000}}
    changed = prepared.change(lambda config: config.update(resources=needs), LONG)
    run = condor(prepared, "--force", "results/small/tasks/heldout.parquet", config=changed)
    assert run.end() == 0, run.explain()
    (job,) = pool.jobs('regexp("^evaluation_tasks-", JobBatchName) && RequestGPUs == 1', history=True)
    assert job["AssignedGPUs"].startswith("GPU-")


@pytest.fixture(scope="session")
def ran_on_the_pool(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return copy(tmp_path_factory.mktemp("pool-run"))


def test_a_whole_run_on_the_pool_ends_as_a_local_one(
    finished: Checkout, ran_on_the_pool: Checkout, condor: Callable[..., Run], pool: Pool
):
    run = condor(ran_on_the_pool, "--quiet", "rules", "--", "all")
    assert run.end(900) == 0, run.explain()
    local, remote = (digests(checkout.folder / "results") for checkout in (finished, ran_on_the_pool))
    assert remote == local
    rules = {job["JobBatchName"].split("-")[0] for job in pool.jobs("JobStatus == 4", history=True)}
    # `judging_judge`: several judging jobs in one
    assert {"problems", "sample", "judging_judge", "refining_prompts", "training_prompts", "train", "report"} <= rules


def test_a_second_run_in_the_same_folder_has_nothing_to_do(ran_on_the_pool: Checkout, condor: Callable[..., Run]):
    run = condor(ran_on_the_pool, "all")
    assert run.end() == 0
    assert "Nothing to be done" in run.text


def test_one_shard_can_be_made_again_on_the_pool(ran_on_the_pool: Checkout, condor: Callable[..., Run]):
    shard = ran_on_the_pool.folder / "results/small/part1/turn1/attempts/001.parquet"
    before = shard.read_bytes()
    shard.unlink()
    run = condor(ran_on_the_pool, str(shard.relative_to(ran_on_the_pool.folder)))
    assert run.end() == 0, run.explain()
    assert shard.read_bytes() == before
