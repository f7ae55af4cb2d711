"""Speed and memory of the stage `grade`, as a Markdown table.

    python benchmarks/grading.py

The stage grades shards of two sizes, so that its start cancels: the rate is the difference in attempts over the
difference in wall time. The attempts are benign programs of workload.py (good ones, and ones that raise), all
different, augmented at random; half of the true outputs are what the program gives, the others are of another program,
mostly in another shape. Sampling is not measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from sandbox import machine, progress, show
from workload import BENIGN, Sample, make, provide_common, run_in_process

from arc_refinery import records
from arc_refinery.arc.augment import random_augmentation
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.refining.domains.arc.records import Attempt

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from factories import make_attempt, make_prompt, make_task

ATTEMPTS_PER_TASK = 8
N_TRAIN = 4


def tasks_of(samples: Sequence[Sample]) -> Iterator[Task]:
    """The inputs of each program with outputs of its own or of another one."""
    outputs = [run_in_process(sample.program).outputs for sample in samples]
    valid = [grids for grids in outputs if grids]
    for number, sample in enumerate(samples):
        truths: tuple[Grid, ...] = outputs[number] if number % 2 else ()
        truths = truths or valid[number % len(valid)]
        pairs = tuple(Pair(*grids) for grids in zip(sample.program.inputs, truths, strict=True))
        yield make_task(f"task{number}", train=pairs[:N_TRAIN], test=pairs[N_TRAIN:])


def attempts_of(samples: Sequence[Sample], rng: np.random.Generator) -> Iterator[Attempt]:
    for number, sample in enumerate(samples):
        augmentation = random_augmentation(rng)
        order = tuple(int(index) for index in rng.permutation(N_TRAIN))
        prompt = make_prompt(make_task(f"task{number}"), augmentation=augmentation, train_order=order)
        for draw in range(ATTEMPTS_PER_TASK):
            completion = f"```python\n{sample.program.source}# draw {draw}\n```"
            yield make_attempt(prompt, attempt_id=f"{number}/{draw}", completion=completion)


def grade(folder: Path, n_jobs: int, programs_per_child: int) -> tuple[float, float]:
    """Wall seconds and peak memory (MB) of the stage."""
    settings = {"domain": "arc", "sandbox": {"programs_per_child": programs_per_child}, "seed": 0}
    command = [sys.executable, "-c", "from arc_refinery.cli import main; main()", "stage", "grade"]
    command += [json.dumps(settings), "--attempts", str(folder / "attempts.parquet")]
    command += ["--tasks", str(folder / "tasks.parquet"), "--n-jobs", str(n_jobs)]
    start = time.perf_counter()
    with subprocess.Popen(
        [*command, "--output", str(folder / "verdicts.parquet")], stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, nargs=2, default=(2000, 10000), help="of the two shards")
    parser.add_argument("--seed", type=int, default=0, help="of the programs (default: %(default)s)")
    arguments = parser.parse_args()
    provide_common()
    sizes = arguments.attempts
    rows = []
    with tempfile.TemporaryDirectory() as index:
        folders = [Path(index, str(size)) for size in sizes]
        for size, folder in zip(sizes, folders, strict=True):
            samples = make(size // ATTEMPTS_PER_TASK, arguments.seed, BENIGN)
            rng = np.random.default_rng(arguments.seed)
            records.write(folder / "tasks.parquet", Task, tasks_of(samples), 0, {})
            records.write(folder / "attempts.parquet", Attempt, attempts_of(samples, rng), 0, {})
        for programs_per_child in (1, 32):
            for n_jobs in range(1, len(os.sched_getaffinity(0)) + 1):
                progress(f"grading: {n_jobs} servers, {programs_per_child} programs per child")
                (short, low), (long, high) = (grade(folder, n_jobs, programs_per_child) for folder in folders)
                rate = (sizes[1] - sizes[0]) / (long - short)
                metrics = [n_jobs, programs_per_child, f"{rate:.0f}", f"{long:.1f}", f"{low:.0f}", f"{high:.0f}"]
                rows.append([str(figure) for figure in metrics])
    print(f"{machine()}\n")
    show(
        "Grading",
        f"Shards of {sizes[0]} and {sizes[1]} attempts.",
        f"servers; programs per child; attempts / s; s for {sizes[1]}; peak MB for {sizes[0]}; peak MB for {sizes[1]}",
        rows,
    )


if __name__ == "__main__":
    main()
