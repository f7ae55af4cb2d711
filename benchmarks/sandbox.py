"""CPU time of the sandbox per program: a child for each program, and up to 32 programs in one, as a Markdown table.

    python benchmarks/sandbox.py

Programs are generated, as those of the demo, with five inputs each. CPU time is that of this process and of all that it
starts. Running them once and three times, each time with other texts, and subtracting leaves out the start. The ways
take turns; the table has the median of all rounds.
"""

import argparse
import os
import platform
import resource
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from arc_refinery.barc.generator import ProblemDifficulty, generate_problem
from arc_refinery.domains.arc.demonstrations import transform_program
from arc_refinery.sandbox import Executor, Limits, Program, Status

WAYS = (1, 32)  # programs per child
REPETITIONS = 3


def machine() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    cores = len(os.sched_getaffinity(0))
    versions = f"Linux {platform.release()}, Python {platform.python_version()}, numpy {np.__version__}"
    return f"{model}, {cores} cores, {versions}"


def show(title: str, caption: str, header: str, rows: Sequence[Sequence[str]]) -> None:
    columns = header.split("; ")
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    print(f"## {title}\n\n{caption}\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines), end="\n\n", flush=True)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def make(n: int) -> list[Program]:
    programs = []
    for number in range(n):
        problem, _ = generate_problem(ProblemDifficulty(), 5, "heldout", "benchmark", number)
        source = transform_program(problem.source)
        assert source is not None
        programs.append(Program(str(number), source, tuple(pair.input for pair in problem.examples)))
    return programs


def cpu_seconds(programs: Sequence[Program], repetitions: int, programs_per_child: int) -> float:
    def used() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before = used()
    with Executor(1, Limits(), programs_per_child=programs_per_child) as executor:
        for repetition in range(repetitions):  # equal programs run once
            again = (replace(program, source=f"{program.source}\n# repetition {repetition}\n") for program in programs)
            assert {outcome.status for outcome in executor.run(again)} == {Status.ok}
    return used() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    programs = make(options.programs)
    costs: dict[int, list[float]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        for way in WAYS:
            progress(f"round {number + 1} of {options.rounds}, {way} per child")
            once, often = (cpu_seconds(programs, repetitions, way) for repetitions in (1, REPETITIONS))
            costs[way].append(1000 * (often - once) / (REPETITIONS - 1) / len(programs))
    print(f"{machine()}\n")
    rows = [[f"{way}", f"{statistics.median(costs[way]):.2f}"] for way in WAYS]
    show("Sandbox", f"{len(programs)} programs, one worker.", "programs per child; CPU ms per program", rows)


if __name__ == "__main__":
    main()
