"""How many held-out programs of the generator compute what a training program computes, as a Markdown table.

    python benchmarks/overlap.py                 the held-out tasks of config/seeds-demo.yaml; some minutes

The generator holds programs out of training by their text; one that is written differently may compute the same. Here
all programs run on the same grids, inputs of generated problems. Two programs count as equal if all outputs are.
"""

import argparse
from collections.abc import Iterable, Iterator

from arc_refinery.barc.generator import ProblemDifficulty, generate_problem
from arc_refinery.config import Sandbox
from arc_refinery.grids import Grid, fingerprint
from arc_refinery.problems import Problem
from arc_refinery.prompts.demonstration import transform_program
from arc_refinery.sandbox import Executor, Program

DIFFICULTY = ProblemDifficulty(max_side=6, compositions=0.3)  # of the demo
N_EXAMPLES = 5


def problems(n: int, split: str, address: str) -> Iterator[Problem]:
    for number in range(n):
        yield generate_problem(DIFFICULTY, N_EXAMPLES, split, 0, address, number)[0]  # type: ignore[arg-type]


def programs(made: Iterable[Problem]) -> list[str]:
    """Return the programs as a model is to write them."""
    written = [transform_program(problem.source, bare=True) for problem in made]
    return [text for text in written if text]


def behaviours(sources: Iterable[str], grids: tuple[Grid, ...], executor: Executor) -> dict[str, str]:
    """Return a fingerprint of all outputs by source; sources that fail on any grid are left out."""
    distinct = list(dict.fromkeys(sources))
    outcomes = executor.run(Program(str(i), source, grids) for i, source in enumerate(distinct))
    found = zip(distinct, outcomes, strict=True)
    return {source: fingerprint(outcome.outputs) for source, outcome in found if outcome.outputs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", type=int, default=200, help="held-out problems")
    parser.add_argument("--training", type=int, default=20000, help="problems on the training side")
    parser.add_argument("--grids", type=int, default=100, help="grids that every program runs on")
    options = parser.parse_args()
    held_out = programs(problems(options.held_out, "heldout", "heldout"))
    training = programs(problems(options.training, "pretraining", "training problems"))
    inputs = (
        pair.input for problem in problems(options.grids, "pretraining", "overlap") for pair in problem.examples[:1]
    )
    grids = tuple(inputs)
    with Executor(2, Sandbox(cpu_seconds=10.0).limits(), programs_per_child=64) as executor:
        ours, theirs = (behaviours(sources, grids, executor) for sources in (held_out, training))
    known = set(theirs.values())
    equal = [source for source in held_out if ours.get(source) in known]
    print("| programs | number |\n|---|--:|")
    print(f"| held out | {len(held_out)} |")
    print(f"| … that run on all {len(grids)} grids | {sum(source in ours for source in held_out)} |")
    print(f"| … and compute what a training program computes | {len(equal)} |")
    print(f"| training side, different texts | {len(set(training))} |")
    print(f"| … that run on all grids | {len(theirs)} |")
    print(f"| … different behaviours | {len(known)} |")


if __name__ == "__main__":
    main()
