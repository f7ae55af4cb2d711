"""The stage that trains with GRPO on prompts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.config import Guard, Lengths, Lora, PositiveInt, Sandbox, Seed
from arc_refinery.domains.domain import Domain, LoadedDomain
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Grpo, PromptedModel, Refinement
from arc_refinery.refining.prompt_files import STATUSES, nothing_selected, nothing_to_refine
from arc_refinery.refining.stages.prompts import wording_of
from arc_refinery.stages import Adapter, Checkpoints, Curves, Files, Measurements
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.job import train as train_in_processes


def train(
    domain: LoadedDomain,
    model: PromptedModel,
    lora: Lora,
    grpo: Grpo,
    guard: Guard,
    refinement: Refinement,
    lengths: Lengths,
    sandbox: Sandbox,
    seed: Seed,
    until_step: PositiveInt | None = None,
    enable_thinking: bool | None = None,
    *,
    data: Files,
    start: Path | None = None,
    before: Path | None = None,
    output: Adapter,
    checkpoints: Checkpoints,
    measurements: Measurements,
    tensorboard: Curves,
) -> None:
    """Train a LoRA adapter with GRPO on prompts; an interrupted job resumes.

    `start` is the adapter to start from, by default a new one; `before` the adapter of the part of this training that
    ended before, and `until_step` ends this part.
    """

    def environment() -> Iterator[Any]:
        from arc_refinery.refining.environment import RefineEnvironment
        from arc_refinery.refining.rollout import TrainingPrompt

        prompts_hash, wording = content_hash(data), wording_of(domain, model, refinement.form)
        prompts = [TrainingPrompt.of(domain, prompt) for prompt in _prompts(domain, data)]
        with domain.executors(sandbox, grpo.n_jobs) as executors:
            yield RefineEnvironment(
                prompts=prompts,
                prompts_hash=prompts_hash,
                training=grpo,
                lengths=lengths,
                domain=domain,
                wording=wording,
                refinement=refinement,
                enable_thinking=enable_thinking,
                executors=executors,
                seed=seed,
            )

    job = TrainingJob(
        model=model,
        lora=lora,
        training=grpo,
        guard=guard,
        sandbox=sandbox,
        seed=seed,
        start=start,
        until_step=until_step,
        before=before,
        output=output,
        work=checkpoints,
        measurements=measurements,
        tensorboard=tensorboard,
    )
    train_in_processes(job, environment)


def _prompts(domain: Domain, paths: Sequence[Path]) -> list[Prompt]:
    """Return the prompts of files, which leave room for an answer; raise `InputError` if there are none."""
    prompts = [prompt for _, prompt in records.distinct(records.read_all(paths, domain.prompt_class))]
    if prompts:
        return prompts
    statuses: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path in paths:
        notes = records.notes(path)
        statuses.update(notes.get(STATUSES, {}))
        counts.update({name: value for name, value in notes.items() if isinstance(value, int)})
    why = nothing_selected(counts) or nothing_to_refine(statuses)
    raise InputError(f"{' '.join(map(str, paths))}: there are no training prompts: {why}")
