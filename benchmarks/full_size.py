"""Memory and time of a GRPO step on the full-size configs, for three GPUs, as Markdown tables.

    python benchmarks/full_size.py

Counted, not measured: nothing is run. Memory is that of `arc-refinery doctor memory`. If a training does not fit as
configured, the first of these that fits is taken, with the fewest passes: sleep mode with 0.45 of the memory for vLLM,
or sampling by transformers. Unsloth's trainings are counted only as configured. Seconds are for typical lengths: half
of the longest prompt, and completions (episodes) with a log-normal distribution around a third of the longest; once
more for the longest ones.

sampling   all weights are read once per token, and for each completion the keys and values of all tokens before it
reward     each completion is a program; `n_jobs` of them run at a time
update     per token and weight 2 operations forward, as many backward (frozen weights need no gradients) and in the
           second forward pass of gradient checkpointing; also for the KL term's reference and for old
           log-probabilities. A pass reads its prompts once. With Unsloth each completion reads its prompt.
attention  in the update, 4.5 times its forward pass

Not counted: Python, logging, checkpoints, held-out prompts, preemption where vLLM's cache is too small, and the prompts
that later turns of an episode read again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, exp
from pathlib import Path
from statistics import NormalDist
from typing import Any

from sandbox import show

from arc_refinery.config import PolicyGradient, load_experiment
from arc_refinery.models.shape import PUBLISHED_SHAPES
from arc_refinery.refining.domains.arc.config import ArcExperiment
from arc_refinery.sampling.gpu_memory import Count, Step, counts, steps
from arc_refinery.tool_use.config import ToolUse

# Assumed
PEAK_OF_MATRICES = 0.4  # share of a GPU's peak that products of matrices reach
PEAK_OF_ATTENTION = 0.3
PEAK_OF_READING = 0.7  # share of the memory's bandwidth that decoding reaches
PER_TOKEN = 0.001  # seconds per token of the longest completion in vLLM, in addition to reading
PER_LAYER = 0.0014  # seconds per such token and layer in transformers, if reading takes no longer: kernels start singly
PER_PROGRAM = 0.5  # seconds
PER_SYNC = 0.1  # seconds until vLLM has a new adapter
PER_SLEEP = 0.5  # seconds to map and unmap memory
TO_MACHINE = 20e9  # bytes per second of weights that go to the machine's memory to sleep, and come back
PADDED = 1.2  # tokens of completions that the update reads, per token that exists
SPREAD = 0.8  # standard deviation of the logarithm of completions' lengths

CONFIG = Path(__file__).parents[1] / "config"
PARTS = ("new weights", "sampling", "reward", "update", "attention")
MODES: tuple[dict[str, Any], ...] = (
    {},
    {"sleep_mode": True, "gpu_memory_utilization": 0.45},
    {"sampler": "transformers"},
)


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    gpu_mem_mb: int
    operations: float  # per second, in bfloat16 without sparsity
    bandwidth: float  # bytes per second


GPUS = (
    Gpu("H100 80 GB", 80_000, 989e12, 3.35e12),
    Gpu("A100 40 GB", 40_000, 312e12, 1.555e12),
    Gpu("A6000 48 GB", 48_000, 155e12, 0.768e12),
)


def lengths(n: int, longest: int) -> list[int]:
    """Lengths of `n` typical completions: quantiles, cut at the longest."""
    median = longest / 3 / exp(SPREAD**2 / 2)
    scores = (NormalDist().inv_cdf((i + 0.5) / n) for i in range(n))
    return [min(longest, round(median * exp(SPREAD * score))) for score in scores]


def seconds(step: Step, grpo: PolicyGradient, gpu: Gpu, prompt: int, completions: Sequence[int]) -> list[float]:
    """Seconds of the parts of one step; each of its prompts has `prompt` tokens."""
    shape, n_rows = step.shape, step.n_rows
    weights = 2 * shape.n_parameters  # bytes
    n_tokens, seen = sum(completions), sum(n * prompt + n * n // 2 for n in completions)  # seen: pairs of tokens
    matrices = gpu.operations * PEAK_OF_MATRICES
    kernels = gpu.operations * PEAK_OF_ATTENTION
    reading = gpu.bandwidth * PEAK_OF_READING

    # a batch of completions, for `steps_per_generation` steps
    n_steps, n_decoded = grpo.steps_per_generation, max(completions)
    prompts = n_steps * n_rows // grpo.num_generations * 2 * shape.n_in_matrices * prompt / matrices
    read = (n_decoded * weights + n_steps * seen * shape.kv_bytes_per_token(2)) / reading
    decoding = max(read, n_steps * n_tokens * 2 * shape.n_parameters / matrices)
    if grpo.sampler == "transformers":
        new_weights, sampling = 0.0, prompts + max(decoding, n_decoded * PER_LAYER * shape.num_hidden_layers)
    else:
        new_weights = PER_SYNC + (PER_SLEEP + 2 * weights / TO_MACHINE if grpo.sleep_mode else 0.0)
        sampling = prompts + decoding + n_decoded * PER_TOKEN

    # one step
    corrects = grpo.sampler != "transformers" and grpo.importance_sampling_correction
    more = bool(grpo.beta) + bool(corrects or grpo.steps_per_batch > 1)  # forward passes
    in_pass = n_rows // step.passes
    n_prompts = step.passes * (step.prompts_of(in_pass) or in_pass)
    in_layers = shape.n_in_matrices * (n_prompts * prompt + PADDED * n_tokens)
    in_head = shape.hidden_size * shape.vocab_size * PADDED * n_tokens
    pairs = n_prompts * prompt * prompt / 2 + PADDED * seen
    attention = 4 * shape.queries * shape.num_hidden_layers * pairs
    return [
        new_weights / n_steps,
        sampling / n_steps,
        ceil(n_rows / grpo.n_jobs) * PER_PROGRAM,
        (3 + more) * 2 * (in_layers + in_head) / matrices,
        (4.5 + more) * attention / kernels,
    ]


def trainings() -> Iterator[tuple[str, ArcExperiment | ToolUse]]:
    """Experiments with GRPO, by name."""
    for path in sorted(CONFIG.glob("*.yaml")):
        experiment = load_experiment(path)
        if (
            isinstance(experiment, ArcExperiment | ToolUse)
            and experiment.runs
            and experiment.model.path in PUBLISHED_SHAPES
        ):
            yield path.stem, experiment


def changed(experiment: ArcExperiment | ToolUse, gpu: Gpu, grpo: dict[str, Any]) -> ArcExperiment | ToolUse:
    content = experiment.model_dump()
    content["training"]["grpo"] |= grpo
    content["resources"]["train"]["gpu_mem_mb"] = gpu.gpu_mem_mb
    return type(experiment).model_validate(content)


def first_training(experiment: Any) -> tuple[Step, Count]:
    step = next(step for step in steps(experiment) if step.key == "training.grpo")
    return step, next(count for count in counts(experiment) if step.job in count.job)


def fitting(experiment: Any, gpu: Gpu) -> tuple[str, Step, Count] | None:
    """Return the first settings that fit the GPU: in words, the step, and its memory."""
    configured, _ = first_training(experiment)
    passes = [n for n in range(configured.passes, configured.n_rows + 1) if configured.n_rows % n == 0]
    for mode, n in product(MODES, passes):
        update = mode | {"gradient_accumulation_steps": n}
        step, count = first_training(changed(experiment, gpu, update))
        if not count.faults:
            if n == configured.passes:
                update = mode
            words = ", ".join(f"`{key}: {str(value).lower()}`" for key, value in update.items())
            return words or "as configured", step, count
    return None


def row(step: Step, gpu: Gpu) -> list[str]:
    grpo = step.settings
    assert isinstance(grpo, PolicyGradient)
    longest = step.length - step.n_scored
    typical = seconds(step, grpo, gpu, longest // 2, lengths(step.n_rows, step.n_scored))
    worst = sum(seconds(step, grpo, gpu, longest, [step.n_scored] * step.n_rows))
    total = sum(typical)
    return [*(f"{part:.1f}" for part in typical), f"{total:.1f}", f"{worst:.0f}", f"{total / 3.6:.1f}"]


def main() -> None:
    titles = "; ".join(("training", *PARTS, "step", "longest", "hours per 1,000 steps"))
    for gpu in GPUS:
        rows: dict[tuple[str, ...], list[str]] = {}  # those of trainings that are alike only once
        for name, experiment in trainings():
            if gpu is not GPUS[0] and name.endswith("-unsloth"):
                continue
            if fit := fitting(experiment, gpu):
                words, step, count = fit
                gib = f"{count.total / 2**30:.1f} ({count.share:.0%})"
                rows.setdefault((words, gib, *row(step, gpu)), []).append(f"`{name}`")
            else:
                rows.setdefault(("does not fit", *["–"] * 9), []).append(f"`{name}`")
        header = titles.replace("training;", "training; settings; GiB;")
        show(
            gpu.name, "Seconds of a step, counted.", header, [[", ".join(names), *line] for line, names in rows.items()]
        )
    multi_turn = dict(trainings())["multi-turn-rl"]
    several = []
    for n_steps in (1, 2, 4, 8):
        step, _ = first_training(changed(multi_turn, GPUS[0], {"steps_per_generation": n_steps}))
        several.append([str(n_steps), *row(step, GPUS[0])])
    header = titles.replace("training", "steps_per_generation")
    show("multi-turn-rl, several steps per batch", "The same, on an H100.", header, several)


if __name__ == "__main__":
    main()
