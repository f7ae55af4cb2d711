"""All checks of one kind of job, in the environment and on the machine where that job would run."""

from collections.abc import Iterator
from pathlib import Path

from arc_refinery.config import Experiment, Lora
from arc_refinery.doctor import machine, stages
from arc_refinery.doctor.findings import Finding, Job, Visit


def examine(experiment: Experiment, job: Job, other: Visit | None, results: Path) -> Visit:
    """Check what a job of this kind needs. `other` is what a job of another kind found, `results` a folder."""
    return Visit.of_this_machine(job, _findings(experiment, job, other, results))


def _findings(experiment: Experiment, job: Job, other: Visit | None, results: Path) -> Iterator[Finding]:
    needs = getattr(experiment.resources, job)
    yield machine.software(machine.pins_of(job, bool(needs.gpus)))
    yield from machine.disk(needs, results)
    yield machine.shared_files(other)
    yield machine.fetched_files(experiment.downloads, results / experiment.experiment)
    yield machine.sandbox(experiment.sandbox)
    if job == "cpu":
        return
    of_gpu = [*machine.gpu(needs), machine.compiler()] if needs.gpus else []
    yield from of_gpu or [Finding("GPU", "not applicable", "the config asks for none")]
    yield from machine.gpu_memory(experiment, job)
    if any(finding.outcome == "failed" for finding in of_gpu):
        yield Finding(job, "not applicable", "not tried, because the GPU cannot be used")
    elif job == "sample":
        yield from stages.sampling(experiment.model, experiment.training.lora if experiment.training else Lora())
    elif experiment.training and experiment.training.grpo:
        yield from stages.training(experiment.model, experiment.training.lora, experiment.training.grpo)
    else:
        yield Finding(job, "not applicable", "the config has no GRPO training")
