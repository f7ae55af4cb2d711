"""Number of the generator's held-out programs that compute what a training program computes, as a Markdown table.

    python benchmarks/overlap.py                 the held-out tasks of config/seeds-demo.yaml; some minutes

The generator holds programs out of training by their text; one that is written differently may compute the same. Here
all programs run on the same grids, inputs of generated problems. Two programs count as equal if all outputs are.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from arc_refinery.arc.grids import Grid, fingerprint
from arc_refinery.arc.tasks import Problem, Task
from arc_refinery.config import Sandbox, load_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.demonstrations import transform_program
from arc_refinery.domains.arc.sources import GENERATED_EXAMPLES, generated, tasks_of_set
from arc_refinery.sandbox import Executor, Program

CONFIG = Path(__file__).parents[1] / "config/seeds-demo.yaml"


def programs(problems: Iterable[Problem | Task]) -> list[str]:
    """Return the programs as a model is to write them."""
    written = [transform_program(problem.source, bare=True) for problem in problems]
    return [text for text in written if text]


def behaviours(sources: Iterable[str], grids: tuple[Grid, ...], executor: Executor) -> dict[str, str]:
    """Return a fingerprint of all outputs by source; sources that fail on any grid are left out."""
    distinct = list(dict.fromkeys(sources))
    outcomes = executor.run(Program(str(i), source, grids) for i, source in enumerate(distinct))
    pairs = zip(distinct, outcomes, strict=True)
    return {source: fingerprint(outcome.outputs) for source, outcome in pairs if outcome.outputs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", type=int, default=20000, help="problems on the training side")
    parser.add_argument("--grids", type=int, default=100, help="grids that every program runs on")
    options = parser.parse_args()
    experiment = load_experiment(CONFIG)
    assert isinstance(experiment, ArcExperiment) and experiment.problems
    held_out_set = next(tasks for tasks in experiment.evaluation.sets if tasks.source == "generator")
    held_out = programs(tasks_of_set(held_out_set.completed(experiment), Counter()))
    problems = partial(generated, experiment.problems, split="pretraining", n_examples=GENERATED_EXAMPLES, seed=0)
    training = programs(problems(options.training, address="training problems"))
    grids = tuple(problem.examples[0].input for problem in problems(options.grids, address="overlap"))
    with Executor(2, Sandbox(cpu_seconds=10.0).limits(), programs_per_child=64) as executor:
        ours, theirs = (behaviours(sources, grids, executor) for sources in (held_out, training))
    fingerprints = set(theirs.values())
    equal = [source for source in held_out if ours.get(source) in fingerprints]
    print("| programs | number |\n|---|--:|")
    print(f"| held out | {len(held_out)} |")
    print(f"| … that run on all {len(grids)} grids | {sum(source in ours for source in held_out)} |")
    print(f"| … and compute what a training program computes | {len(equal)} |")
    print(f"| training side, different texts | {len(set(training))} |")
    print(f"| … that run on all grids | {len(theirs)} |")
    print(f"| … different behaviours | {len(fingerprints)} |")


if __name__ == "__main__":
    main()
