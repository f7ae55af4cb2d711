"""Stages that sample and grade attempts."""

import logging
from pathlib import Path
from typing import Annotated

from arc_refinery import records
from arc_refinery.config import ModelConfig, NonNegativeInt, PositiveInt, Sandbox, Seed
from arc_refinery.errors import NoRoomError
from arc_refinery.outputs import Writes, records_file
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.domain import LoadedDomain
from arc_refinery.refining.graded import check_tasks
from arc_refinery.refining.grading import grade_attempts
from arc_refinery.refining.prompt_files import MAKE_ROOM
from arc_refinery.stages import Files


def sample(
    domain: LoadedDomain,
    model: ModelConfig,
    sampling: Sampling,
    seed: Seed,
    *,
    prompts: Path,
    adapter: Path | None = None,
    shard: NonNegativeInt = 0,
    n_shards: PositiveInt = 1,
    output: Annotated[Path, Writes(records_file, "attempts")],
) -> None:
    """Sample completions for a shard of prompts; an interrupted job resumes."""
    from arc_refinery.refining.attempts import attempt_settings, sample_shard, shard_of
    from arc_refinery.sampling.backends import Decoding
    from arc_refinery.sampling.shard import progress_path

    size = sampling.tasks_per_batch
    decoding = Decoding(sampling.temperature, sampling.top_p, sampling.max_output_tokens, seed)
    fitting = _fitting(list(records.read(prompts, domain.prompt_class)), prompts, model, sampling.max_output_tokens)
    in_shard = shard_of(fitting, shard, n_shards, size)
    attempts = sample_shard(domain, in_shard, model, adapter, decoding, output, size)
    settings = {**attempt_settings(model, decoding, size), "lora_path": adapter}
    records.write(output, domain.attempt_class, attempts, seed, settings, made_from=[prompts])
    progress_path(output).unlink()


def _fitting(prompts: list[Prompt], path: Path, model: ModelConfig, answer: int) -> list[Prompt]:
    """Return the prompts that leave room for `answer` tokens in the window."""
    fitting = [prompt for prompt in prompts if prompt.n_tokens + answer <= model.window]
    if prompts and not fitting:
        lengths = [prompt.n_tokens for prompt in prompts]
        raise NoRoomError(path, len(lengths), lengths, model.window, answer, MAKE_ROOM)
    logging.info(
        "%d of %d prompts are too long for the window and were left out", len(prompts) - len(fitting), len(prompts)
    )
    return fitting


def grade(
    domain: LoadedDomain,
    sandbox: Sandbox,
    seed: Seed,
    *,
    attempts: Files,
    tasks: Path,
    n_jobs: PositiveInt = 1,
    output: Annotated[Path, Writes(records_file, "verdicts")],
) -> None:
    """Execute the programs of attempts in the sandbox and grade their outputs."""
    by_id = {task.task_id: task for task in records.read(tasks, domain.task_class)}
    check_tasks(attempts, tasks, by_id)
    domain.check_attempts(attempts, tasks, by_id)
    answers = (attempt for _, attempt in records.read_all(attempts, domain.attempt_class))
    n_attempts = sum(map(records.count, attempts))
    with domain.executors(sandbox, n_jobs) as executors:
        verdicts = grade_attempts(domain, answers, by_id, executors, n_attempts)
        records.write(output, domain.verdict_class, verdicts, seed, sandbox.model_dump(), made_from=attempts)
