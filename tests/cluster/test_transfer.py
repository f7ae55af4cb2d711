"""`profiles/condor-transfer`: jobs on a machine that does not see the folder of the run."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import SMALL, TOOLS, Checkout, copy, n_attempts

from cluster.conftest import prepare
from cluster.pool import Pool, wait_until
from cluster.runs import LOG, LONG, PROGRESS, SHARD, Run
from cluster.test_eviction import hold_and_release, n_resumed, vacate
from cluster.test_profile import digests, reduce, reduce_tools

pytestmark = [
    pytest.mark.pool,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a folder from a machine of the pool"),
]

Change = Callable[[dict[str, Any]], None]
PROFILE = "profiles/condor-transfer"
ELSEWHERE = {kind: {"requirements": 'Machine == "127-0-0-2.local"'} for kind in ("cpu", "sample", "train")}


def elsewhere(content: dict[str, Any]) -> None:
    content["resources"] = {**content.get("resources", {}), **ELSEWHERE}


def results(checkout: Checkout) -> dict[str, str]:
    """Digests of all results; HTCondor brings empty progress files back, too."""
    folder = checkout.folder / "results"
    return {name: digest for name, digest in digests(folder).items() if (folder / name).stat().st_size}


def logs(checkout: Checkout) -> set[str]:
    paths = (str(path.relative_to(checkout.folder)) for path in checkout.folder.glob("logs/*small/**/*.*"))
    return {path.partition("/events.out")[0] for path in paths}  # TensorBoard's name has time and machine


@pytest.fixture
def far(pool: Pool, tmp_path: Path) -> Iterator[Path]:
    """A folder that the machine of the jobs does not see."""
    folder = tmp_path / "far"
    folder.mkdir()
    with pool.second_machine(hidden=folder):
        yield folder


@pytest.mark.parametrize(("base", "change"), [(SMALL, reduce), (TOOLS, reduce_tools)], ids=["refining", "tool-use"])
def test_a_whole_run_ends_as_a_local_one(
    base: str, change: Change, far: Path, tmp_path: Path, condor: Callable[..., Run]
):
    """So each rule declares what it reads: nothing else is there. The model is a folder of the user's."""

    def changed(content: dict[str, Any]) -> None:
        change(content)
        elsewhere(content)
        content["model"]["path"] = "mine/model"

    remote, local = copy(far), copy(tmp_path / "local")
    for checkout in (remote, local):
        model = {SMALL: "tiny", TOOLS: "tiny-tools"}[base]
        shutil.copytree(checkout.folder / "workflow/models" / model, checkout.folder / "mine/model")
    config = remote.change(changed, base)
    local.change(changed, base)
    run = condor(remote, "--quiet", "rules", "--", "all", config=config, profile=PROFILE)
    done = local.snakemake("--cores", "1", "--quiet", "rules", "--configfile", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.end(900) == 0, run.explain()
    assert results(remote) == results(local)
    assert logs(local) <= logs(remote)


@pytest.mark.parametrize("interrupt", [vacate, hold_and_release])
def test_an_interrupted_job_continues(
    interrupt: Callable[[Run, int], None], far: Path, condor: Callable[..., Run], pool: Pool
):
    checkout = prepare(far, 120)
    config = checkout.change(elsewhere, LONG)
    run = condor(checkout, "--", SHARD, config=config, profile=PROFILE)
    number = run.job("sample", status=2)["ClusterId"]
    progress = f"second/execute/*/{PROGRESS}"
    wait_until(lambda: sum(map(n_attempts, pool.folder.glob(progress))) >= 60, 90, run.explain)
    interrupt(run, number)
    assert run.end() == 0, run.explain()
    assert n_resumed(checkout.folder / LOG) >= 60
    shard = (checkout.folder / SHARD).read_bytes()
    (checkout.folder / SHARD).unlink()
    done = checkout.snakemake("--cores", "1", SHARD, "--configfile", LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (checkout.folder / SHARD).read_bytes() == shard


def train_longer(content: dict[str, Any]) -> None:
    reduce(content)
    elsewhere(content)
    del content["training"]["sft"]
    content["training"]["grpo"] |= {"max_steps": 60, "save_steps": 5, "epochs": 100}


def test_an_evicted_training_continues(far: Path, tmp_path: Path, condor: Callable[..., Run], pool: Pool):
    remote, local = copy(far), copy(tmp_path / "local")
    config = remote.change(train_longer)
    local.change(train_longer)
    adapter = "results/small/adapters/trained"
    run = condor(remote, "--", adapter, config=config, profile=PROFILE)
    number = run.job("train", status=2)["ClusterId"]
    checkpoint = f"second/execute/*/{adapter}.checkpoints/checkpoint-10"
    wait_until(lambda: any(pool.folder.glob(checkpoint)), 120, run.explain)
    vacate(run, number)
    assert run.end() == 0, run.explain()
    assert "resumes from this checkpoint" in (remote.folder / "logs/small/adapters/trained.log").read_text()
    done = local.snakemake("--cores", "1", adapter, "--configfile", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert digests(remote.folder / adapter) == digests(local.folder / adapter)


def test_a_job_that_fails_ends_the_run_with_its_reason(far: Path, condor: Callable[..., Run]):
    checkout = prepare(far, 20)
    prompts = checkout.folder / "results/small/part1/turn1/prompts.parquet"
    prompts.write_bytes(b"no table")
    run = condor(
        checkout,
        "--set-resources",
        "sample:max_retries=0",
        "--",
        SHARD,
        config=checkout.change(elsewhere, LONG),
        profile=PROFILE,
    )
    assert run.end() == 1, run.explain()
    assert "prompts.parquet: " in run.text and "held" not in run.text
    assert not (checkout.folder / SHARD).exists()


TASKS = "results/small/tasks/heldout.parquet"


def test_an_archive_of_an_environment_travels_with_its_jobs(
    archive: Path, far: Path, condor: Callable[..., Run], tmp_path: Path
):
    checkout = copy(far)
    config = checkout.change(elsewhere)
    archive.rename(checkout.folder / "environment.tar.gz")
    run = condor(checkout, "--", TASKS, config=config, profile=PROFILE, ARC_REFINERY_ENVIRONMENT="environment.tar.gz")
    assert run.end() == 0, run.explain()
    assert (checkout.folder / TASKS).exists()
    used = (tmp_path / "used").read_text().splitlines()
    assert {Path(prefix).name for prefix in used} == {".arc-refinery-environment"}


def test_an_archive_that_is_not_there_fails_its_jobs(prepared: Checkout, condor: Callable[..., Run]):
    flags = ["--force", "--set-resources", "evaluation_tasks:max_retries=0", "--", TASKS]
    run = condor(prepared, *flags, config=LONG, profile=PROFILE, ARC_REFINERY_ENVIRONMENT="/shared/none.tar.gz")
    assert run.end() == 1, run.explain()
    assert "is held" not in run.text


def test_an_image_makes_jobs_of_the_container_universe(prepared: Checkout, condor: Callable[..., Run]):
    """No machine of the pool has Apptainer; test_images.py runs such jobs."""
    image = "/images/arc.sif"
    run = condor(prepared, "--force", "--", SHARD, config=LONG, profile=PROFILE, ARC_REFINERY_IMAGE=image)
    job = run.job("sample")
    assert (job["WantContainer"], job["ContainerImage"]) == (True, "arc.sif")
    assert image in job["TransferInput"]
    names = {variable.partition("=")[0] for variable in job["Environment"].split()}
    assert "PATH" not in names and "HOME" in names  # the image has its own
