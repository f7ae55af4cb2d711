"""`snakemake --profile condor`: what rules ask for arrives at the pool, and a run there ends as a local one."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import Checkout, copy
from classad2 import ClassAd

from arc_refinery.runs.condor import matches
from cluster.pool import A100, Pool
from cluster.runs import LONG, SHARD, Run

pytestmark = pytest.mark.pool

REST_OF_UUID = "-70bc-6494-6d62-1b77a9a7f29f"
NEEDS: dict[str, dict[str, Any]] = {
    "cpu": {"cpus": 2, "mem_mb": 1500, "runtime": 30},
    "sample": {
        "cpus": 1, "mem_mb": 2500, "disk_mb": 4000, "runtime": 90, "gpus": 1, "gpu_mem_mb": 20000,
        "requirements": 'Machine == "no-such-machine"',
    },
}  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "registered.jsonl"  # it has the time
    }


def test_what_a_rule_declares_is_in_its_job_ad(prepared: Checkout, condor: Callable[..., Run], pool: Pool):
    changed = prepared.change(lambda config: config.update(resources=NEEDS), LONG)
    plain = {"WANDB_MODE": "online", "TRACKIO_DIR": "/curves", "CC": "gcc-12", "CUDA_HOME": "/usr/local/cuda"}
    plain |= {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "NCCL_DEBUG": "INFO", "FLASHINFER_WORKSPACE_BASE": "/f"}
    plain |= {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "TORCHINDUCTOR_CACHE_DIR": "/inductor"}
    secret = {"WANDB_API_KEY": "secret", "CCACHE_DIR": "secret"}
    targets = ["--force", SHARD, "results/small/tasks/heldout.parquet"]
    set_by_hand = ["--set-resources", 'sample:gpus_minimum_capability="8.6"']
    run = condor(prepared, *targets, *set_by_hand, config=changed, **plain, **secret)
    gpu_job, cpu_job = run.job("sample"), run.job("evaluation_tasks")
    expected: dict[str, dict[str, Any]] = {
        "evaluation_tasks": {
            "RequestCpus": 2, "RequestMemory": 1500, "RequestDisk": 2000 * 1024, "AllowedJobDuration": 30 * 60
        },
        "sample": {
            "RequestCpus": 1, "RequestMemory": 2500, "RequestDisk": 4000 * 1024, "AllowedJobDuration": 90 * 60,
            "RequestGPUs": 1, "GPUsMinMemory": 20000, "GPUsMinCapability": 8.6, "GPUsMinRuntime": 13000,
            "JobMaxRetries": 2, "JobMachineAttrs": "Machine", "JobMachineAttrsHistoryLength": 2,
        },
    }  # fmt: skip
    assert {name: cpu_job.get(name) for name in expected["evaluation_tasks"]} == expected["evaluation_tasks"]
    assert {name: gpu_job.get(name) for name in expected["sample"]} == expected["sample"]
    assert "RequestGPUs" not in cpu_job or cpu_job["RequestGPUs"] == 0
    assert NEEDS["sample"]["requirements"] in gpu_job["Requirements"]
    assert "TARGET.Memory >= RequestMemory" in gpu_job["Requirements"]  # HTCondor's own conditions stay beside it
    assert "no-such-machine" not in cpu_job["Requirements"]
    assert {f"{name}={value}" for name, value in plain.items()} <= set(cpu_job["Environment"].split())
    assert "secret" not in cpu_job["Environment"]  # others can read the queue
    assert "No machine of the pool can run job" in run.says(f"can run job {gpu_job['ClusterId']}")


def test_a_failed_job_avoids_its_machines_for_ten_minutes(prepared: Checkout, condor: Callable[..., Run]):
    changed = prepared.change(lambda config: config.update(resources={"cpu": {"requirements": "TARGET.Good"}}), LONG)
    run = condor(prepared, "--force", "results/small/tasks/heldout.parquet", config=changed)
    requirement = run.job("evaluation_tasks")["Requirements"].removeprefix("/Expr(").partition(" && (TARGET.Arch")[0]
    assert run.process.poll() is None and "TARGET.Good" in requirement
    now = int(time.time())

    def starts_on(machine: str, job: str, good: str = "true") -> bool:
        slot = ClassAd(f'[Machine = "{machine}"; Good = {good}]')
        return matches(ClassAd(f"[{job} Requirements = {requirement}]"), slot)

    evicted = f'NumJobCompletions = 0; JobCurrentStartDate = {now}; MachineAttrMachine0 = "a";'
    failed = evicted.replace("Completions = 0", "Completions = 2") + 'MachineAttrMachine1 = "b";'
    still, later = (failed.replace(str(now), str(now - seconds)) for seconds in (540, 601))
    assert starts_on("a", "NumJobCompletions = 0;") and starts_on("a", evicted)
    assert [starts_on(machine, failed) for machine in "abc"] == [False, False, True]
    assert not starts_on("a", still)
    assert starts_on("a", later)
    assert not starts_on("c", failed, good="false") and not starts_on("a", later, good="false")


def test_a_job_on_a_gpu_is_told_which_and_completes_its_name(
    prepared: Checkout, condor: Callable[..., Run], pool: Pool, tmp_path: Path
):
    stand_in = tmp_path / "nvidia-smi"
    stand_in.write_text(f'#!/bin/sh\necho "GPU 0: a stand-in (UUID: $CUDA_VISIBLE_DEVICES{REST_OF_UUID})"\n')
    stand_in.chmod(0o755)
    wanted = {"request_gpus": "1", "htcondor_gpus_min_mem_mb": "20000", "gpus_minimum_capability": "8.0"}
    set_by_hand = ["--set-resources", *(f"evaluation_tasks:{name}={value}" for name, value in wanted.items())]
    path = f"{tmp_path}{os.pathsep}{pool.environment['PATH']}"
    run = condor(prepared, "--force", "results/small/tasks/heldout.parquet", *set_by_hand, config=LONG, PATH=path)
    assert run.end() == 0, run.explain()
    (job,) = pool.jobs('regexp("^evaluation_tasks-", JobBatchName) && RequestGPUs == 1', history=True)
    name = job["AssignedGPUs"]
    assert name == A100  # the other card is large enough, and too old
    log = (prepared.folder / "logs/small/heldout/tasks.log").read_text()
    assert f"CUDA_VISIBLE_DEVICES: {name} is {name}{REST_OF_UUID}" in log


def reduce(config: dict[str, Any]) -> None:
    """One part, one set and two arms: every rule has a job, few have several."""
    config["parts"]["n_parts"] = 1
    for key in ("sets", "arms"):
        del config["evaluation"][key][0]


def reduce_tools(config: dict[str, Any]) -> None:
    del config["data"]["heldout"][1]


def test_a_whole_run_on_the_pool_ends_as_a_local_one(tmp_path: Path, condor: Callable[..., Run], pool: Pool):
    """As tool use does, without a shared folder: test_transfer.py."""
    checkout, local = (copy(tmp_path / name) for name in ("remote", "local"))
    config = checkout.change(reduce)
    assert local.change(reduce) == config
    run = condor(checkout, "--quiet", "rules", "--", "all", config=config)
    done = local.snakemake("--cores", "1", "--quiet", "rules", "--configfile", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.end(900) == 0, run.explain()
    assert digests(checkout.folder / "results") == digests(local.folder / "results")
    rules = {job["JobBatchName"].split("-")[0] for job in pool.jobs("JobStatus == 4", history=True)}
    assert {"tasks", "sample", "grade", "refining_prompts", "training_prompts", "train", "report"} <= rules

    again = condor(checkout, "all", config=config)
    assert again.end() == 0
    assert "Nothing to be done" in again.text

    shard = checkout.folder / "results/small/heldout/turn1/attempts/001.parquet"
    before = shard.read_bytes()
    shard.unlink()
    one = condor(checkout, str(shard.relative_to(checkout.folder)), config=config)
    assert one.end() == 0, one.explain()
    assert shard.read_bytes() == before
