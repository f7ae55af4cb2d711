"""Cost of the report of a large evaluation, in seconds and memory, as a Markdown table.

    python benchmarks/report.py                     400 tasks, three arms of 128 attempts each, none of them shared
    python benchmarks/report.py --tasks 40          a tenth of it, to try the program

The experiment is made here, from a seed, in 20 shards: prompts, attempts with completions of some hundred words and
verdicts with grids of up to 20x20. Tasks differ in how often they are solved, some programs fail, nothing is trained.
Each line is a process of its own, start and imports included:

    load       all figures of all arms, as the report reads them, and nothing else
    attempts   the table of all attempts, `attempts.parquet`
    report     `arc-refinery report`: all of it, with tables, plots, gallery, HTML and the table of all attempts
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from barc_rows import PROGRAM, measure
from tqdm import tqdm

from arc_refinery import config, records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.models.chat import Message
from arc_refinery.refining.config import Arm
from arc_refinery.refining.domains.arc.config import ArcExperiment
from arc_refinery.refining.domains.arc.records import Attempt, Prompt, Verdict

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from factories import make_attempt, make_prompt, make_task, make_verdict
from handmade import sampled_with

N_SHARDS = 20
BATCH = 8  # completions of a prompt
N_WRONG = 20  # different wrong answers to a task
PROGRAMS = [path.read_text() for path in sorted((Path(__file__).parent / "programs/good").glob("*.txt"))]
FAILED = {"error": 0.08, "invalid_output": 0.03, "no_code": 0.02, "timeout": 0.01}  # shares of attempts: an assumption
LOAD = """
import sys
from pathlib import Path
from arc_refinery import config
from arc_refinery.reporting.kind import reported
experiment = config.load_experiment(Path(sys.argv[1], "settings.json"))
results = reported(experiment, Path(sys.argv[1])).results(experiment.set_names[0])
print(sum(len(results.attempts_of_arm(arm)) for arm in experiment.arms))
"""
ATTEMPTS = """
import sys
from pathlib import Path
from arc_refinery import config
from arc_refinery.reporting.kind import reported
folder = Path(sys.argv[1])
reported(config.load_experiment(folder / "settings.json"), folder).write_attempts()
"""

Rng = np.random.Generator


def experiment(n_tasks: int, n_attempts: int, seed: int) -> ArcExperiment:
    """One arm of one turn and two of two turns; seeds of their own keep them from sharing first turns."""
    halves = [{"n_predictions": n_attempts // 2}, {"n_predictions": n_attempts // 2}]
    settings = {
        "experiment": "large",
        "seed": seed,
        "model": {"path": "./models/m", "template": "compact", "window": 8192},
        "sampling": {"max_output_tokens": 1024, "batch_size": BATCH},
        "evaluation": {
            "sets": [{"name": "large", "source": "generator", "n_tasks": n_tasks, "shards": N_SHARDS}],
            "arms": [
                {"name": "independent", "turns": [{"n_predictions": n_attempts}]},
                {"name": "refine-1", "turns": halves, "seed": 1},
                {"name": "refine-2", "turns": halves, "seed": 2},
            ],
        },
    }
    return config.validate_experiment(settings, "benchmarks/report.py", ArcExperiment)


def make(settings: ArcExperiment, folder: Path) -> None:
    """Write the files of the experiment as if it had run."""
    rng = np.random.default_rng(settings.seed)
    tasks = [a_task(f"{number:08x}", rng) for number in range(settings.evaluation.sets[0].n_tasks or 0)]
    records.write(folder / "tasks/large.parquet", Task, tasks, settings.seed, {})
    rates = rng.beta(0.15, 1.0, len(tasks))  # chance of an attempt to solve a task: half of the tasks nearly never
    branches = [(arm, turn) for arm in settings.arms for turn in range(1, len(arm.turns) + 1)]
    with tqdm(total=len(branches) * N_SHARDS, desc="making attempts", unit="shard") as bar:
        for arm, turn in branches:
            index = folder / "large" / arm.branch(turn)
            prompts = [prompt for task in tasks for prompt in prompts_of(task, arm, turn)]
            records.write(index / "prompts.parquet", Prompt, prompts, settings.seed, {}, no_notes)
            sampled = sampled_with(settings, "large", arm.branch(turn))
            for shard in range(N_SHARDS):
                ours = list(zip(tasks, rates, strict=True))[shard::N_SHARDS]
                rows = [row for task, rate in ours for row in graded(task, rate, arm, turn, rng)]
                records.write(
                    index / f"attempts/{shard:03d}.parquet",
                    Attempt,
                    [replace(row[0], **sampled) for row in rows],
                    0,
                    {},
                )
                records.write(index / f"verdicts/{shard:03d}.parquet", Verdict, [row[1] for row in rows], 0, {})
                bar.update()
    content = settings.model_dump(mode="json", exclude={"resources", "compare"})
    (folder / "settings.json").write_text(json.dumps(content))


def no_notes() -> dict[str, int]:
    return {"n_dropped": 0, "longest_allowed": 7168}


def a_task(task_id: str, rng: Rng) -> Task:
    pairs = [Pair(a_grid(rng), a_grid(rng)) for _ in range(4)]
    return make_task(task_id, train=tuple(pairs[:3]), test=tuple(pairs[3:]))


def a_grid(rng: Rng) -> Grid:
    return rng.integers(0, 10, rng.integers(3, 21, 2), np.uint8)


def prompt_name(task: Task, arm: Arm, turn: int, number: int) -> str:
    return f"{task.task_id}/{arm.branch(turn)}-{number:03d}"


def prompts_of(task: Task, arm: Arm, turn: int) -> Iterator[Prompt]:
    text = json.dumps([pair.input.tolist() for pair in task.train])
    messages: list[Message] = [{"role": "user", "content": text}]
    if turn > 1:
        messages += [{"role": "assistant", "content": PROGRAMS[0]}, {"role": "user", "content": "Wrong. " + text}]
    for number in range(arm.turns[turn - 1].n_predictions // BATCH):
        yield make_prompt(
            task,
            prompt_id=prompt_name(task, arm, turn, number),
            turn=turn,
            parent_id=f"{prompt_name(task, arm, 1, 0)}/000" if turn > 1 else "",
            messages=tuple(messages),
            text=text,
            n_tokens=len(text) // 3,
            n_predictions=BATCH,
            train=(),
            test=(),
        )


def graded(task: Task, rate: float, arm: Arm, turn: int, rng: Rng) -> Iterator[tuple[Attempt, Verdict]]:
    prompts = list(prompts_of(task, arm, turn))
    n = arm.turns[turn - 1].n_predictions
    truth = [pair.output for pair in task.pairs]
    wrong = [
        [np.where(rng.random(grid.shape) < 0.2, 0, grid).astype(np.uint8) for grid in truth] for _ in range(N_WRONG)
    ]
    fate = rng.choice([*FAILED, "ok"], size=n, p=[*FAILED.values(), 1 - sum(FAILED.values())])
    for index, (status, is_right) in enumerate(zip(fate.tolist(), (rng.random(n) < rate).tolist(), strict=True)):
        outputs = tuple(truth if is_right else wrong[rng.integers(N_WRONG)]) if status == "ok" else ()
        scores = [float(np.mean(a == b)) for a, b in zip(outputs, truth, strict=True)] if outputs else [0.0]
        pixels, grids = float(np.mean(scores)), float(is_right and bool(outputs))
        prompt = prompts[index // BATCH]
        attempt = make_attempt(
            prompt,
            attempt_id=f"{prompt.prompt_id}/{index % BATCH:03d}",
            completion=f"```python\n{rng.choice(PROGRAMS)}\n# {rng.bytes(500).hex()}\n```",  # no two are alike
            n_prompt_tokens=1000 * turn,
            n_tokens=300 + index,
            logprob=-float(index),
        )
        yield (
            attempt,
            make_verdict(
                attempt,
                program_hash=f"{index:016x}",
                status=status,
                error="" if status in ("ok", "no_code") else "ValueError: of this kind (line 3)",
                train_outputs=outputs[:3],
                test_outputs=outputs[3:],
                train_pixel_score=pixels,
                train_correct_grids=grids,
                test_pixel_score=pixels,
                test_correct_grids=grids,
            ),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--tasks", type=int, default=400, help="(default: %(default)s)")
    parser.add_argument(
        "--attempts", type=int, default=128, help="a task and arm, a multiple of 16 (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is made (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where temporary files go (default: the system's place for them)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = Path(temporary, "results", "large")
        settings = experiment(arguments.tasks, arguments.attempts, arguments.seed)
        make(settings, folder)
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 2**20
        n_attempts = arguments.tasks * sum(arm.budget for arm in settings.arms)
        print(f"{os.cpu_count()} cores, Python {platform.python_version()}; {n_attempts} attempts, {size:.0f} MiB\n")
        report = ["--configfile", str(folder / "settings.json"), "--results", str(folder), "--output", f"{folder}.md"]
        commands = {
            "load": [sys.executable, "-c", LOAD, str(folder)],
            "attempts": [sys.executable, "-c", ATTEMPTS, str(folder)],
            "report": [*PROGRAM, "report", *report],
        }
        print("| program | wall s | CPU s | peak GiB |\n|---|--:|--:|--:|")
        for name, command in commands.items():
            wall, cpu, memory = measure(command)
            print(f"| {name} | {wall:.1f} | {cpu:.1f} | {memory:.2f} |", flush=True)


if __name__ == "__main__":
    main()
