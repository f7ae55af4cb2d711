# Functions only: rules get the settings and inputs of their jobs through them (arc_refinery.jobs, arc_refinery.config.inputs, and
# the same of the experiment's kind).
import os
import re
import shlex
from pathlib import Path

from arc_refinery import jobs
from arc_refinery.config import CpuNeeds, inputs
from arc_refinery.config.experiment import DISK_MB


def config_origin() -> str:
    """The file to blame for a wrong key."""
    files = [str(path) for path in workflow.overwrite_configfiles or workflow.configfiles]
    return files[-1] if files else "config/config.yaml"


def from_wildcards(function, *names, **fixed):
    """A function of wildcards that calls `function` with the experiment and the values of these wildcards."""

    def answer(wildcards):
        try:
            return function(experiment, *(getattr(wildcards, name) for name in names), **fixed)
        except InputError as error:
            raise WorkflowError(str(error))

    return answer


def settings(job, *names):
    """The settings that decide a job's result, for `params`: the job runs again when they change."""
    planned = from_wildcards(job, *names)
    return lambda wildcards: planned(wildcards).settings


def tuning(job, *names):
    """The settings that may change between two runs of a job, for `resources`."""
    planned = from_wildcards(job, *names)
    return lambda wildcards: planned(wildcards).tuning


def one_of(names) -> str:
    """For `wildcard_constraints`."""
    return "|".join(map(re.escape, names))


# HTCondor: a job that has failed avoids its last two machines for ten minutes after its last start, and then takes any,
# because the others may stay busy. The profile `condor` has these machines recorded. `RetryHere` is set if no other machine
# could run the job (arc_refinery.runs.condor).
ELSEWHERE = (
    "(NumJobCompletions =?= 0 || RetryHere =?= true || time() - JobCurrentStartDate > 600"
    " || (TARGET.Machine =!= MachineAttrMachine0 && TARGET.Machine =!= MachineAttrMachine1))"
)


def requests(wanted: CpuNeeds) -> dict:
    """Resources of a job, under the names that the executors of HTCondor and Slurm each read."""
    disk_mb = getattr(wanted, "disk_mb", DISK_MB)
    resources = {
        "nodes": 1,  # else Slurm might spread a job's GPUs over several nodes
        "mem_mb": wanted.mem_mb,
        "disk_mb": disk_mb,
        "runtime": wanted.runtime,
        "htcondor_request_mem_mb": wanted.mem_mb,
        "htcondor_request_disk_mb": disk_mb,
        "allowed_job_duration": wanted.runtime * 60,
        "requirements": f"{ELSEWHERE} && ({wanted.requirements})" if wanted.requirements else ELSEWHERE,
    }
    if getattr(wanted, "gpus", 0):
        minimum = {
            "htcondor_gpus_min_mem_mb": wanted.gpu_mem_mb,
            "gpus_minimum_capability": 8.0,  # Ampere, for bfloat16
            "gpus_minimum_runtime": 13.0,  # the CUDA version that envs/gpu.txt was built for
        }
        resources |= {"gpu": wanted.gpus, "request_gpus": wanted.gpus}
        resources |= {name: str(value) for name, value in minimum.items() if value}  # text: Snakemake rounds 8.6 to 9
    return resources


def needs(kind: str) -> dict:
    """Resources of a job. Its environment is among them and not in `params`: another folder does not change results."""
    wanted = getattr(experiment.resources, kind)
    venv_on_path = f"PATH={shlex.quote(wanted.venv)}/bin:$PATH " if wanted.venv else ""
    shared = {"address": 1} if kind == "sample" and experiment.model.has_address else {}
    return requests(wanted) | shared | {"venv_on_path": venv_on_path}


def cpus(kind: str) -> int:
    return experiment.cpus(kind)
