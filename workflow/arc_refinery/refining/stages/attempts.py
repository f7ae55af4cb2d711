"""Stages that sample and grade attempts. A job samples one shard of prompts; if interrupted, it resumes there."""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import compress
from pathlib import Path
from typing import Annotated, Any

from arc_refinery import records
from arc_refinery.config import PROMPTS, TUNING, ModelConfig, NonNegativeInt, PositiveInt, Sandbox, Seed, marked
from arc_refinery.config.answers import identity
from arc_refinery.domains.domain import Domain, LoadedDomain
from arc_refinery.domains.prompts import begun_answer
from arc_refinery.errors import InputError, NoRoomError, NotFiniteError
from arc_refinery.outputs import Writes, records_file
from arc_refinery.records import Attempt, Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.graded import check_tasks
from arc_refinery.refining.grading import grade_attempts
from arc_refinery.refining.prompt_files import MAKE_ROOM
from arc_refinery.sampling.backends import Decoding, Report, Request, Sample, open_sampler
from arc_refinery.sampling.checks import check_answers_end, check_model
from arc_refinery.sampling.shard import Compute, Entry, check_shard, progress_path, resumed
from arc_refinery.seeding import stream_seed
from arc_refinery.stages import Files


def sample(
    domain: LoadedDomain,
    model: ModelConfig,
    sampling: Sampling,
    seed: Seed,
    run: Path | None = None,
    *,
    prompts: Path,
    adapter: Path | None = None,
    shard: NonNegativeInt = 0,
    n_shards: PositiveInt = 1,
    output: Annotated[Path, Writes(records_file, "attempts")],
) -> None:
    """Sample completions for a shard of prompts; an interrupted job resumes.

    `run` is the folder of all results, where tokens are counted against a limit.
    """
    size = sampling.tasks_per_batch
    decoding = Decoding(sampling.temperature, sampling.top_p, sampling.max_output_tokens, seed)
    fitting = _fitting(list(records.read(prompts, domain.prompt_class)), prompts, model, sampling.max_output_tokens)
    in_shard = shard_of(fitting, shard, n_shards, size)
    notes: dict[str, Any] = {}
    attempts = sample_shard(domain, in_shard, model, adapter, decoding, output, size, notes, run)
    settings = {**attempt_settings(model, decoding, size), "lora_path": adapter}
    records.write(output, domain.attempt_class, attempts, seed, settings, lambda: notes, [prompts])
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


def shard_of(prompts: Sequence[Prompt], shard: int, n_shards: int, tasks_per_batch: int = 1) -> list[Prompt]:
    """Return the prompts of a shard (`records.in_shard`)."""
    check_shard(shard, n_shards)
    task_ids = [prompt.task_id for prompt in prompts]
    return list(compress(prompts, records.in_shard(task_ids, shard, n_shards, tasks_per_batch)))


def attempt_settings(model: ModelConfig, decoding: Decoding, tasks_per_batch: int) -> dict[str, Any]:
    """Return everything that determines completions, except the prompts and the adapter."""
    names = ("temperature", "top_p", "max_output_tokens", "seed")
    return {
        "model": model.model_dump(exclude=marked(type(model), PROMPTS, TUNING)),
        "decoding": {name: getattr(decoding, name) for name in names},
        "tasks_per_batch": tasks_per_batch,
    }


def sample_shard(
    domain: Domain,
    prompts: Sequence[Prompt],
    model: ModelConfig,
    adapter: Path | None,
    decoding: Decoding,
    output: Path,
    tasks_per_batch: int = 1,
    notes: dict[str, Any] | None = None,
    run: Path | None = None,
) -> Iterator[Attempt]:
    """Yield the attempts on each prompt, in order; progress is stored next to `output` (sampling/shard.py).

    `prompts` are whole batches of tasks (`shard_of`). Raises `InputError` if the backend is not installed, the
    adapter does not fit or a server refuses; `ModelError` if answers would not end. `notes` get what a server says of
    itself.
    """
    compute = (
        _asking(prompts, model, adapter, decoding, run)
        if model.is_served
        else _sampling(prompts, model, adapter, decoding, tasks_per_batch)
    )
    settings = {
        "progress": 2,  # counts up when the form of an entry changes, or how floats are summed
        **attempt_settings(model, decoding, tasks_per_batch),
        **identity(model),
        "prompts": [(prompt.prompt_id, prompt.text, prompt.n_predictions) for prompt in prompts],
    }
    n_attempts = sum(prompt.n_predictions for prompt in prompts)
    completions: Entry = {}
    for entry in resumed(output, settings, adapter, n_attempts, "attempt", compute):
        completions |= entry
    if model.is_served:  # entries of single answers
        from arc_refinery.sampling.endpoint import served_by

        if notes is not None:
            notes[records.SERVED_BY] = served_by(answer for (answer,) in completions.values())
        completions = {
            prompt.prompt_id: [completions[attempt_id][0] for attempt_id in _attempt_ids(prompt)] for prompt in prompts
        }
    for prompt in prompts:
        detail = domain.attempt_detail(prompt)
        own = {} if detail is None else {"detail": detail}
        for number, sampled_completion in enumerate(completions[prompt.prompt_id]):
            yield domain.attempt_class(
                attempt_id=records.attempt_id(prompt.prompt_id, number),
                prompt_id=prompt.prompt_id,
                task_id=prompt.task_id,
                turn=prompt.turn,
                parent_id=prompt.parent_id,
                model=model.path,
                adapter=str(adapter or ""),
                seed=decoding.seed,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                completion=begun_answer(prompt) + sampled_completion["text"],
                n_prompt_tokens=sampled_completion.get("n_prompt_tokens", prompt.n_tokens),
                n_tokens=sampled_completion["n_tokens"],
                finish_reason=sampled_completion["finish_reason"],
                logprob=math.nan if (logprob := sampled_completion.get("logprob")) is None else logprob,
                **own,
            )


def _sampling(
    prompts: Sequence[Prompt], model: ModelConfig, adapter: Path | None, decoding: Decoding, tasks_per_batch: int
) -> Compute:
    """Return what samples the missing attempts here: an entry per batch, which is never resumed in the middle."""
    tokenizer = check_model(model, adapter)
    check_answers_end(tokenizer)

    def completion(sample: Sample) -> dict[str, Any]:
        """Return a sample as progress files have it."""
        ids = sample.ids[:-1] if sample.finish_reason == "stop" else sample.ids
        text = tokenizer.decode(ids, skip_special_tokens=True)
        n_tokens = len(sample.ids)  # including the end token
        return {
            "text": text,
            "n_tokens": n_tokens,
            "finish_reason": sample.finish_reason,
            "logprob": sample.logprob,
        }

    def sampled(done: Sequence[Entry], report: Report) -> Iterator[Entry]:
        sampler = open_sampler(model, adapter, decoding, tokenizer, report)
        done_ids = {prompt_id for entry in done for prompt_id in entry}
        missing = (prompt for prompt in prompts if prompt.prompt_id not in done_ids)
        batch_of = records.batch_numbers((prompt.task_id for prompt in prompts), tasks_per_batch)
        requests = [request_of(prompt, str(batch_of[prompt.task_id]), decoding.seed, tokenizer) for prompt in missing]
        for batch in sampler.sample(requests):
            if any(math.isnan(sample.logprob) for samples in batch.values() for sample in samples):
                raise NotFiniteError(model.path)  # vLLM does not check
            yield {name: [completion(sample) for sample in samples] for name, samples in batch.items()}

    return sampled


def _asking(
    prompts: Sequence[Prompt], model: ModelConfig, adapter: Path | None, decoding: Decoding, run: Path | None
) -> Compute:
    """Return what asks a server for the missing attempts: an entry per answer, so that none is paid twice."""
    if adapter is not None:
        raise InputError(f"{adapter}: an adapter cannot be sent to a server; serve the model with it under a name")
    from arc_refinery.sampling.decided import open_answers
    from arc_refinery.sampling.endpoint import Question, without_thoughts

    answered = open_answers(model, run)

    def asked(done: Sequence[Entry], report: Report) -> Iterator[Entry]:
        done_ids = {attempt_id for entry in done for attempt_id in entry}
        n_before: Counter[str] = Counter()  # attempts at the task
        questions = []
        for prompt in prompts:
            for attempt_id in _attempt_ids(prompt):
                seed = stream_seed(decoding.seed, "sample", attempt_id) % 2**31
                at = (prompt.task_id, prompt.turn, n_before[prompt.task_id])
                questions.append(Question(attempt_id, without_thoughts(prompt.messages), seed, {}, *at))
                n_before[prompt.task_id] += 1
        missing = [question for question in questions if question.question_id not in done_ids]
        for attempt_id, answer in answered(missing, decoding, report):
            yield {attempt_id: [asdict(answer) | {"text": answer.text}]}

    return asked


def _attempt_ids(prompt: Prompt) -> list[str]:
    return [records.attempt_id(prompt.prompt_id, number) for number in range(prompt.n_predictions)]


def request_of(prompt: Prompt, group: str, seed: int, tokenizer: Any) -> Request:
    # without special tokens: the chat template has written the start token
    ids = tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
    return Request(prompt.prompt_id, group, ids, prompt.n_predictions, stream_seed(seed, "sample", prompt.prompt_id))


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
