"""CPU seconds of an episode's turns if the keys of earlier turns are kept, and if each turn reads its whole context.

    python benchmarks/turns.py                              the embedded tool model
    python benchmarks/turns.py --model-path <folder>        another one

Episodes of three turns with random tokens for prompts and results: after each turn, a context has grown by the same
number of tokens, of which a turn writes all but ten, or forty. No turn ends early. Both ways take turns in one process,
and write the same tokens unless rounding decides between two of them.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from sandbox import machine, progress, show

from arc_refinery.config import ModelConfig
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.sampling.backends import Decoding, open_sampler

MODEL = Path(__file__).parents[1] / "workflow/models/tiny-tools"
N_TURNS = 3
NO_END = frozenset({-1})  # nothing ends a turn


def seconds_of_turns(sampler: Any, prompts: list[list[int]], results: list[list[int]], is_kept: bool) -> list[float]:
    """CPU seconds of each turn; `results` are the tokens that follow each turn but the last."""
    rows, seconds = prompts, []
    for turn, result in enumerate([*results, []]):
        if not is_kept:
            sampler.read = []
        start = time.process_time()
        turns = sampler.sample_turns(rows, [turn] * len(rows))
        seconds.append(time.process_time() - start)
        rows = [row + written + result for row, written in zip(rows, turns, strict=True)]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-path", default=str(MODEL), help="(default: %(default)s)")
    parser.add_argument("--rows", type=int, default=16, help="episodes (default: %(default)s)")
    parser.add_argument("--growth", type=int, default=500, help="tokens of a turn and result (default: %(default)s)")
    parser.add_argument("--written", type=int, nargs="+", help="tokens of a turn (default: 40, and all but 10)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    tokenizer, random = load_tokenizer(arguments.model_path), torch.Generator().manual_seed(0)

    def tokens(n: int) -> list[int]:
        return torch.randint(10, 200, (n,), generator=random).tolist()

    lines = []
    for n_written in arguments.written or (40, arguments.growth - 10):
        decoding = Decoding(temperature=1.0, top_p=1.0, max_output_tokens=n_written)
        model = ModelConfig(path=arguments.model_path, window=2 * arguments.growth * N_TURNS, n_threads=1)
        sampler: Any = open_sampler(model, None, decoding, tokenizer)
        sampler.ends = NO_END
        sampler.sample_turns([tokens(20)], [0])  # warm
        best: dict[bool, list[float]] = {}
        for number in range(arguments.rounds):
            progress(f"{n_written} tokens per turn, round {number + 1}")
            prompts = [tokens(arguments.growth) for _ in range(arguments.rows)]
            results = [tokens(arguments.growth - n_written) for _ in range(N_TURNS - 1)]
            for is_kept in (True, False):
                seconds = seconds_of_turns(sampler, prompts, results, is_kept)
                best[is_kept] = min(best.get(is_kept, seconds), seconds, key=sum)
        kept, read_again = best[True], best[False]
        lines.append(
            [
                f"{n_written} written, {arguments.growth - n_written} of a result",
                *(f"{again:.1f} → {once:.1f}" for once, again in zip(kept, read_again, strict=True)),
                f"{sum(read_again) / sum(kept):.2f}",
                f"{sum(read_again[1:]) / sum(kept[1:]):.2f}",
            ]
        )
    show(
        "Three turns, reading the whole context each time → reading what is new",
        f"CPU seconds of {arguments.rows} episodes with prompts of {arguments.growth} tokens, best of "
        f"{arguments.rounds} rounds; {arguments.model_path}; {machine()}.",
        "a turn's tokens; turn 1; turn 2; turn 3; ratio; of turns 2 and 3",
        lines,
    )


if __name__ == "__main__":
    main()
