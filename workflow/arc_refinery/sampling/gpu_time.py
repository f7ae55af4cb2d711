"""Seconds on a GPU, counted from a model's shape before anything runs; nothing here is measured.

    sampling_seconds(shape, GPUS["h100"], n_prompts=400, prompt=2000, n_completions=25600, mean=340)

sampling   all weights are read once per token, and for each completion the keys and values of all tokens before it
reward     each completion is a program; `n_jobs` of them run at a time
update     per token and weight 2 operations forward, as many backward (frozen weights need no gradients) and in the
           second forward pass of gradient checkpointing; also for the KL term's reference and for old
           log-probabilities. A pass reads its prompts once. With Unsloth each completion reads its prompt.
attention  in the update, 4.5 times its forward pass

Not counted: Python, logging, checkpoints, held-out prompts, preemption where vLLM's cache is too small, and the prompts
that later turns of an episode read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp
from statistics import NormalDist

from arc_refinery.config import PolicyGradient
from arc_refinery.models.shape import Shape
from arc_refinery.sampling.gpu_memory import LIMIT, MIB, Step, weight_items

# Assumed
PEAK_OF_MATRICES = 0.4  # share of a GPU's peak that products of matrices reach
PEAK_OF_ATTENTION = 0.3
PEAK_OF_READING = 0.7  # share of the memory's bandwidth that decoding reaches
PER_TOKEN = 0.001  # seconds per token of the longest completion in vLLM, in addition to reading
PER_LAYER = 0.0014  # seconds per such token and layer in transformers, if reading takes no longer: kernels start singly
PER_PROGRAM = 0.05  # seconds to execute and grade one on a core (measured: 0.02 to 0.03 on MBPP)
PER_SYNC = 0.1  # seconds until vLLM has a new adapter
PER_SLEEP = 0.5  # seconds to map and unmap memory
TO_MACHINE = 20e9  # bytes per second of weights that go to the machine's memory to sleep, and come back
PADDED = 1.2  # tokens of completions that the update reads, per token that exists
MOST_AT_ONCE = 1024  # completions, vLLM's default on large GPUs
SPREAD = 0.8  # standard deviation of the logarithm of completions' lengths
TYPICAL = 1 / 3  # mean length of completions, as a share of the longest
# Measured: docs/run.md
CHOOSING = 400  # bytes that are moved per token and entry of the vocabulary to choose the token (H200)
START = 95  # seconds until vLLM is ready (H100)


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    gpu_mem_mb: int
    operations: float  # per second, in bfloat16 without sparsity
    bandwidth: float  # bytes per second


GPUS = {
    "h100": Gpu("H100 80 GB", 80_000, 989e12, 3.35e12),
    "h200": Gpu("H200 141 GB", 141_000, 989e12, 4.8e12),
    "a100": Gpu("A100 80 GB", 80_000, 312e12, 2.039e12),
    "a100-40": Gpu("A100 40 GB", 40_000, 312e12, 1.555e12),
    "a6000": Gpu("A6000 48 GB", 48_000, 155e12, 0.768e12),
    "l40s": Gpu("L40S 48 GB", 48_000, 362e12, 0.864e12),
    "rtx4090": Gpu("RTX 4090 24 GB", 24_000, 165e12, 1.008e12),
}


def sampling_seconds(
    shape: Shape,
    gpu: Gpu,
    n_prompts: int,
    prompt: int,
    n_completions: int,
    mean: int,
    n_gpus: int = 1,
    in_4bit: bool = False,
) -> float:
    """Count the seconds of vLLM for completions of `mean` tokens to prompts of `prompt` tokens, without its start.

    `n_gpus` share each of its steps; what they say to each other is not counted. Weights in 4 bits take less memory and
    as much time, because each step unpacks them. Raises `ValueError` if the weights do not fit.
    """
    weights, per_token = 2 * shape.n_parameters, shape.kv_bytes_per_token(2)
    reading = n_gpus * gpu.bandwidth * PEAK_OF_READING
    matrices, kernels = (n_gpus * gpu.operations * peak for peak in (PEAK_OF_MATRICES, PEAK_OF_ATTENTION))
    n_tokens = n_completions * mean
    memory, stored = LIMIT * n_gpus * gpu.gpu_mem_mb * MIB, sum(weight_items(shape, 2, in_4bit).values())
    if stored >= memory:
        raise ValueError(f"has {stored / 1e9:.0f} GB of weights and {n_gpus} x {gpu.name} hold {memory / 1e9:.0f}")
    room = memory - stored
    of_one = per_token * (mean + prompt * n_prompts / n_completions)  # completions of a prompt share its keys
    at_once = min(max(1, int(room / of_one)), MOST_AT_ONCE, n_completions)
    n_steps = max(mean, n_tokens / at_once)
    moved = n_steps * weights + n_tokens * ((prompt + mean / 2) * per_token + CHOOSING * shape.vocab_size)
    pairs = n_prompts * prompt**2 / 2
    prompts = 2 * shape.n_in_matrices * n_prompts * prompt / matrices
    prompts += 4 * shape.queries * shape.num_hidden_layers * pairs / kernels
    return prompts + max(moved / reading, 2 * shape.n_parameters * n_tokens / matrices) + n_steps * PER_TOKEN


def tuning_seconds(step: Step, gpu: Gpu, length: int) -> float:
    """Count the seconds of a step of supervised fine-tuning on rows of `length` tokens."""
    return 3 * 2 * step.shape.n_in_matrices * step.n_rows * length / (gpu.operations * PEAK_OF_MATRICES)


def lengths(n: int, longest: int) -> list[int]:
    """Lengths of `n` typical completions: quantiles, cut at the longest."""
    median = longest * TYPICAL / exp(SPREAD**2 / 2)
    scores = (NormalDist().inv_cdf((i + 0.5) / n) for i in range(n))
    return [min(longest, round(median * exp(SPREAD * score))) for score in scores]


def seconds(step: Step, grpo: PolicyGradient, gpu: Gpu, prompt: int, completions: Sequence[int]) -> list[float]:
    """Seconds of the parts of one step; each of its prompts has `prompt` tokens.

    Processes share the rows of a step, and a server's GPUs each of its steps.
    """
    shape, n_rows, n_trainers, n_servers = step.shape, step.n_rows, step.n_processes, max(1, grpo.n_server_gpus)
    weights = 2 * shape.n_parameters  # bytes
    n_tokens, seen = sum(completions), sum(n * prompt + n * n // 2 for n in completions)  # seen: pairs of tokens
    at_once = n_trainers * n_servers  # GPUs that sample
    matrices = gpu.operations * PEAK_OF_MATRICES
    kernels = gpu.operations * PEAK_OF_ATTENTION
    reading = gpu.bandwidth * PEAK_OF_READING

    # a batch of completions, for `steps_per_generation` steps
    n_steps, n_decoded = grpo.steps_per_generation, max(completions)
    prompts = n_steps * n_rows // grpo.num_generations * 2 * shape.n_in_matrices * prompt / matrices / at_once
    read = (n_decoded * weights / n_servers + n_steps * seen * shape.kv_bytes_per_token(2) / at_once) / reading
    decoding = max(read, n_steps * n_tokens * 2 * shape.n_parameters / matrices / at_once)
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
        ceil(n_rows / n_trainers / grpo.n_jobs) * PER_PROGRAM,
        (3 + more) * 2 * (in_layers + in_head) / matrices / n_trainers,
        (4.5 + more) * attention / kernels / n_trainers,
    ]
