"""What an experiment will cost on a GPU, counted from its config before anything runs.

    | stage | jobs | completions | million tokens | hours on an H100 80 GB |
    | arc-agi-1-evaluation: turn1 | 8 | 51,200 | 17.4 | 9.90 |

Lengths are assumed, and so is how much of a GPU's peak is reached (sampling/gpu_time.py): read it as an order of
magnitude.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil

from arc_refinery.config import Experiment, PolicyGradient
from arc_refinery.config.experiment import PlannedSampling
from arc_refinery.errors import InputError
from arc_refinery.models.shape import shape_of
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.sampling.gpu_memory import Step, steps, training_count
from arc_refinery.sampling.gpu_time import (
    PER_PROGRAM,
    START,
    TYPICAL,
    Gpu,
    lengths,
    sampling_seconds,
    seconds,
    tuning_seconds,
)

PER_ATTEMPT, PER_TOKEN = 500, 2  # bytes on disk of an attempt with its verdict, and of each of its tokens
HOUR = 3600


STEPS = 1000  # of a training, if only its rows can tell


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a config does not say; lengths are means in tokens."""

    prompt: int | None = None  # None: half of what the window leaves
    answer: int | None = None  # None: a third of the longest completion
    n_tasks: int | None = None  # of sets whose size only their file tells; None: such sets are not counted


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a stage."""

    stage: str
    n_jobs: int
    n_completions: int
    n_tokens: int  # that the model writes
    hours: float | None  # of GPUs; None: not counted
    is_sampling: bool = True

    @property
    def row(self) -> list[object]:
        written = [f"{self.n_completions:,}", f"{self.n_tokens / 1e6:.1f}"] if self.n_completions else ["–", "–"]
        return [self.stage, self.n_jobs, *written, "–" if self.hours is None else f"{self.hours:.2f}"]


def cost_page(experiment: Experiment, gpu: Gpu, assumed: Assumed) -> str:
    """Return a table of the stages with their sum; raise `InputError` if a model's sizes are unknown."""
    planned = experiment.planned_sampling
    for flag, given, limits in (
        ("--prompt-tokens", assumed.prompt, [each.model.window for each in planned]),
        ("--answer-tokens", assumed.answer, [each.longest for each in planned]),
    ):
        if given and limits and given > max(limits):
            raise InputError(f"{flag} is {given}; {experiment.experiment} has at most {max(limits):,}")
    costs = [*sampling_costs(experiment, gpu, assumed), *training_costs(experiment, gpu)]
    if not costs:
        raise InputError(f"{experiment.experiment}: the kind {experiment.kind} does not say what it samples")
    counted = [cost for cost in costs if cost.hours is not None]
    sampled = [cost for cost in costs if cost.is_sampling]
    n_completions, n_tokens = (sum(getattr(cost, name) for cost in sampled) for name in ("n_completions", "n_tokens"))
    header = ["stage", "jobs", "completions", "million tokens", f"hours on an {gpu.name}"]
    hours = f"{'' if len(counted) == len(costs) else 'at least '}{sum(cost.hours or 0 for cost in counted):.2f}"
    total = ["all", sum(cost.n_jobs for cost in costs), "", "", hours if counted else "–"]
    blocks = [f"# {experiment.experiment}: cost", markdown_table(header, [*(cost.row for cost in costs), total])]
    if n_completions:
        disk = n_completions * PER_ATTEMPT + n_tokens * PER_TOKEN
        blocks.append(
            f"Grading {n_completions:,} completions takes about {n_completions * PER_PROGRAM / HOUR:.1f} CPU hours; "
            f"they and their verdicts take about {max(1, round(disk / 1e6)):,} MB on disk."
        )
    if any(model.backend == "transformers" for model in experiment.samplers.values()):
        blocks.append("Sampling with `backend: transformers` takes longer than counted here.")
    return "\n\n".join([*blocks, *_too_large(experiment, gpu), _assumptions(assumed), *_not_counted(costs)])


def sampling_costs(experiment: Experiment, gpu: Gpu, assumed: Assumed) -> Iterator[Cost]:
    for planned in experiment.planned_sampling:
        stage = f"{planned.stage}, at most" if planned.is_most else planned.stage
        if n_tasks := planned.n_tasks or assumed.n_tasks:
            yield replace(sampling_cost(planned, n_tasks, gpu, assumed), stage=stage)
        else:
            yield Cost(stage, planned.n_jobs, 0, 0, None)


def sampling_cost(planned: PlannedSampling, n_tasks: int, gpu: Gpu, assumed: Assumed) -> Cost:
    prompt = min(assumed.prompt or max(1, (planned.model.window - planned.longest) // 2), planned.model.window)
    mean = min(assumed.answer or ceil(planned.longest * TYPICAL), planned.longest)
    model, of_job = planned.model, ceil(n_tasks / planned.n_jobs)
    n_gpus, shape = model.tensor_parallel_size, shape_of(model.path)
    n_prompts, n_of_job = of_job * ceil(planned.n_completions / planned.per_prompt), of_job * planned.n_completions
    try:
        of_one = sampling_seconds(shape, gpu, n_prompts, prompt, n_of_job, mean, n_gpus, model.use_4bit_quantization)
    except ValueError as error:
        advice = "name another --gpu, or raise tensor_parallel_size"
        raise InputError(f"{planned.stage}: {model.path} {error}; {advice}") from None
    n_completions, n_used = n_tasks * planned.n_completions, planned.n_jobs * n_gpus
    return Cost(planned.stage, planned.n_jobs, n_completions, n_completions * mean, n_used * (START + of_one) / HOUR)


def training_costs(experiment: Experiment, gpu: Gpu) -> Iterator[Cost]:
    """Yield the cost of each training; those of a sweep that cost the same are one line."""
    n_tunings, rows = len(experiment.sft_adapters), experiment.rows_trained_on
    costs = (_training(step, gpu, n_tunings, rows.get(step.key)) for step in steps(experiment))
    for (hours, n_jobs), alike in groupby(costs, key=lambda cost: (cost.hours, cost.n_jobs)):
        stages = [cost.stage for cost in alike]
        name = stages[0] if len(stages) == 1 else f"{stages[0]} and {len(stages) - 1} more"
        total = None if hours is None else hours * len(stages)
        yield Cost(name, n_jobs * len(stages), 0, 0, total, is_sampling=False)


def _training(step: Step, gpu: Gpu, n_tunings: int, n_rows: int | None) -> Cost:
    settings, n_jobs, n_gpus = step.settings, 1, 1
    if isinstance(settings, PolicyGradient):
        n_gpus, of_step = settings.n_training_processes + settings.n_server_gpus, settings.prompts_per_step
    else:
        n_jobs, of_step = max(1, n_tunings), settings.rows_per_step
    n_steps, note = settings.max_steps, ""
    if n_steps < 0:
        n_steps, note = STEPS, " (its rows decide how many)"
        if n_rows:
            n_steps, note = ceil(settings.epochs * n_rows / of_step), ""
    stage = f"{step.job}, {n_steps:,} steps{note}"
    return Cost(stage, n_jobs, 0, 0, n_jobs * n_gpus * n_steps * step_seconds(step, gpu) / HOUR, is_sampling=False)


def _too_large(experiment: Experiment, gpu: Gpu) -> Iterator[str]:
    """Yield a line for each training that does not fit the card."""
    for step in steps(experiment):
        count = training_count(step, gpu.gpu_mem_mb)
        if count.faults:
            yield f"{count.job} does not fit an {gpu.name}: {count.summary}; {'; '.join(count.faults)}."


def step_seconds(step: Step, gpu: Gpu) -> float:
    """Count the seconds of a step of a training, for half of the longest prompt and completions of typical lengths."""
    if isinstance(step.settings, PolicyGradient):
        prompt, completions = (step.length - step.n_scored) // 2, lengths(step.n_rows, step.n_scored)
        return sum(seconds(step, step.settings, gpu, prompt, completions))
    return tuning_seconds(step, gpu, step.length // 2)


def _assumptions(assumed: Assumed) -> str:
    prompts = f"{assumed.prompt:,} tokens" if assumed.prompt else "half of what the window leaves (`--prompt-tokens`)"
    answers = f"{assumed.answer:,} tokens" if assumed.answer else "a third of the longest (`--answer-tokens`)"
    return (
        f"Assumed: vLLM in bfloat16, {START} s until it is ready; prompts of {prompts}, completions of {answers}; in "
        "trainings half of the longest prompt and a third of the longest completion; shares of the GPU's peak as in "
        "docs/internals.md. Read it as an order of magnitude: a run's own lengths are in its report, and "
        "`arc-refinery report times` says what it took."
    )


def _not_counted(costs: list[Cost]) -> list[str]:
    n_missing = sum(cost.hours is None for cost in costs)
    if not n_missing:
        return []
    return [f"{n_missing} of {len(costs)} stages are not counted, because only a file tells their size: `--tasks`."]
