"""Run all checks for one kind of job, in the environment and on the machine where that job would run."""

from collections.abc import Iterator
from pathlib import Path

from arc_refinery.config import Experiment, Lora
from arc_refinery.doctor import machine, stages
from arc_refinery.doctor.findings import Finding, JobKind, Visit


def examine(experiment: Experiment, job: JobKind, other: Visit | None, results: Path) -> Visit:
    """Check what this kind of job needs. `other`: findings of another kind of job; `results`: folder of results."""
    return Visit.on_this_machine(job, _findings(experiment, job, other, results))


def _findings(experiment: Experiment, job: JobKind, other: Visit | None, results: Path) -> Iterator[Finding]:
    needs = getattr(experiment.resources, job)
    yield machine.software(machine.pins_of(job, bool(needs.gpus)))
    yield from machine.disk(needs, results)
    yield machine.shared_files(other)
    yield machine.fetched_files(experiment.downloads, results / experiment.experiment)
    yield machine.sandbox(experiment.sandbox)
    if job == "cpu":
        return
    gpu_findings = [*machine.gpu(needs, experiment.model.dtype), machine.compiler()] if needs.gpus else []
    yield from gpu_findings or [Finding("GPU", "not applicable", "the config asks for none")]
    yield from machine.gpu_memory(experiment, job)
    if job == "sample":
        yield machine.model_files(experiment, results / experiment.experiment)
        yield machine.answers(experiment, results / experiment.experiment)
    if any(finding.outcome == "failed" for finding in gpu_findings):
        yield Finding(job, "not applicable", "skipped, because the GPU cannot be used")
    elif job == "sample":
        yield from stages.sampling(experiment.model, experiment.training.lora if experiment.training else Lora())
    elif experiment.training and experiment.training.grpo:
        yield from stages.training(experiment.model, experiment.training.lora, experiment.training.grpo)
    else:
        yield Finding(job, "not applicable", "the config has no GRPO training")
