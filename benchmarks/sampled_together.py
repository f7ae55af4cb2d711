"""Completions per second of transformers on a GPU, by how many tokens are sampled together.

    python benchmarks/sampled_together.py --model-path <folder>

32,768 tokens are what a CPU takes at a time; on a GPU its free memory decides (`gpu_memory.sampled_tokens`). Prompts
are random tokens, and no completion ends early. Both ways take turns in one process, after one batch to warm up.
"""

import argparse
import time
from typing import Any

import torch
from sandbox import machine, progress, show

from arc_refinery.config import ModelConfig
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.sampling.backends import Decoding, Request, open_sampler
from arc_refinery.sampling.gpu_memory import SAMPLED_TOKENS

NO_END = frozenset({-1})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-path", required=True, help="folder with a model")
    parser.add_argument("--prompts", type=int, default=128, help="(default: %(default)s)")
    parser.add_argument("--completions", type=int, default=8, help="of a prompt (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=200, help="(default: %(default)s)")
    parser.add_argument("--completion-tokens", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="(default: %(default)s)")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    model = ModelConfig(path=arguments.model_path, window=4096, dtype="bfloat16" if on_gpu else "float32")
    decoding = Decoding(temperature=1.0, top_p=1.0, max_output_tokens=arguments.completion_tokens)
    sampler: Any = open_sampler(model, None, decoding, load_tokenizer(arguments.model_path))
    sampler.ends = NO_END
    by_memory = sampler.largest_batch
    random = torch.Generator().manual_seed(0)

    def requests(n: int) -> list[Request]:
        prompts = torch.randint(10, 200, (n, arguments.prompt_tokens), generator=random).tolist()
        return [Request(str(i), "", ids, arguments.completions, i) for i, ids in enumerate(prompts)]

    list(sampler.sample(requests(4)))
    ways = {"32,768 tokens": lambda: SAMPLED_TOKENS, f"{by_memory():,} tokens, by free memory": by_memory}
    best: dict[str, float] = {}
    for number in range(arguments.rounds):
        asked = requests(arguments.prompts)
        for way, largest in ways.items():
            progress(f"{way}, round {number + 1}")
            sampler.largest_batch = largest
            start = time.perf_counter()
            list(sampler.sample(asked))
            seconds = time.perf_counter() - start
            best[way] = min(best.get(way, seconds), seconds)
    n_tokens = arguments.prompts * arguments.completions * arguments.completion_tokens
    first = next(iter(best.values()))
    gpu = torch.cuda.get_device_name() if on_gpu else "no GPU"
    print(f"{machine()}, {gpu}\n")
    show(
        "Sampled together",
        f"{arguments.prompts} prompts of {arguments.prompt_tokens} tokens, {arguments.completions} completions of "
        f"{arguments.completion_tokens}; best of {arguments.rounds} rounds.",
        "at a time; seconds; tokens per second; ratio",
        [[way, f"{s:.1f}", f"{n_tokens / s:,.0f}", f"{first / s:.2f}"] for way, s in best.items()],
    )


if __name__ == "__main__":
    main()
