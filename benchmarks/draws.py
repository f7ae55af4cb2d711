"""Tokens per second of a large model: how the next token is drawn (sampling/draws.py), and tasks sampled together.

    python benchmarks/draws.py --model-path <folder>

Each way samples the same prompts in one process; no completion ends early.
"""

import argparse
import time
from typing import Any

from sandbox import machine, progress, show

from arc_refinery.config import ModelConfig
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.sampling import draws
from arc_refinery.sampling.backends import Decoding, Request, open_sampler

QUESTION = "Write a Python function that returns the list of all prime numbers below {}."
WAYS = {  # what counts as a small vocabulary, and whether all prompts are sampled together
    "one number per token of the vocabulary": (10**9, True),
    "one number per completion": (0, True),
    "… a prompt at a time (`tasks_per_batch: 1`)": (0, False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--prompts", type=int, default=8, help="read together (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=8, help="of each prompt (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=60, help="of each completion (default: %(default)s)")
    parser.add_argument("--top-p", type=float, default=0.95, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    arguments = parser.parse_args()
    tokenizer = load_tokenizer(arguments.model_path)
    decoding = Decoding(temperature=1.0, top_p=arguments.top_p, max_output_tokens=arguments.tokens)
    model = ModelConfig(path=arguments.model_path, window=4096, n_threads=arguments.threads)
    sampler: Any = open_sampler(model, None, decoding, tokenizer)
    sampler.ends = frozenset({-1})  # nothing ends a completion
    questions = [[{"role": "user", "content": QUESTION.format(number)}] for number in range(arguments.prompts)]
    ids = tokenizer.apply_chat_template(questions, add_generation_prompt=True, return_dict=False)

    def requests(is_together: bool) -> list[Request]:
        groups = ["" if is_together else str(number) for number in range(len(ids))]
        return [Request(str(i), group, ids[i], arguments.samples, i) for i, group in enumerate(groups)]

    list(sampler.sample(requests(False)[:1]))  # warm
    seconds = {}
    for way, (small, is_together) in WAYS.items():
        progress(way)
        draws.SMALL_VOCABULARY = small
        start = time.perf_counter()
        list(sampler.sample(requests(is_together)))
        seconds[way] = time.perf_counter() - start
    n_tokens = arguments.prompts * arguments.samples * arguments.tokens
    first, *_ = seconds.values()
    show(
        "Sampling from a large model",
        f"{arguments.prompts} prompts with {arguments.samples} completions of {arguments.tokens} tokens; "
        f"top_p {arguments.top_p}, {arguments.threads} threads; {arguments.model_path}; {machine()}.",
        "way; tokens per second; ratio",
        [[way, f"{n_tokens / taken:.0f}", f"{first / taken:.2f}"] for way, taken in seconds.items()],
    )


if __name__ == "__main__":
    main()
