"""Requests of the pinned Slurm plugin, where docs/run.md depends on it; tests/cluster has a real Slurm."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

submit_string = pytest.importorskip("snakemake_executor_plugin_slurm.submit_string")
utils = pytest.importorskip("snakemake_executor_plugin_slurm.utils")


class Resources(dict[str, Any]):
    __getattr__ = dict.__getitem__


def gpu_options(**resources: Any) -> list[str]:
    job = SimpleNamespace(resources=Resources(nodes=1, mem_mb=1000, runtime=60, **resources), threads=4, name="sample")
    names = dict.fromkeys(("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"), "x")
    call = submit_string.get_submit_command(job, names) + utils.set_gres_string(job)
    return [word for word in call.split() if word.startswith(("--gpus", "--gres"))]


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        ({"gpu": 1}, ["--gpus=1"]),
        ({"gpu": 1, "gres": "gpu:1"}, ["--gres=gpu:1", "--gpus=1"]),
        ({"gpu": 0, "gres": "gpu:1"}, ["--gres=gpu:1"]),
        ({"gpu": 0, "gres": "gpu:a100:2"}, ["--gres=gpu:a100:2"]),
    ],
)
def test_a_request_for_gres_alone_needs_no_gpu(resources: dict[str, Any], options: list[str]):
    assert gpu_options(**resources) == options


def test_inside_a_job_its_variables_are_removed(monkeypatch: pytest.MonkeyPatch):
    for name in ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SBATCH_PARTITION"):
        monkeypatch.setenv(name, "1")
    utils.delete_slurm_environment()
    assert {name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))} == {"SBATCH_PARTITION"}
