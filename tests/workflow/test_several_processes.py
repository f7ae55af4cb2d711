"""A training in two processes (gloo, on CPUs): interrupted and resumed, failing as one."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

import processes
import pytest
from checkout import ROOT, TINY, MadeOnce, contents, is_whole

from arc_refinery import records
from arc_refinery.training.log import Choice, HeldoutResult, read_lines
from arc_refinery.training.samples import TrainingSample

pytestmark = [pytest.mark.training]

SETTINGS = (
    "--learning-rate 1e-3 --lora-r 8 --lora-alpha 16 --max-grad-norm 1 --repetition-penalty 1 --num-generations 4 "
    "--prompts-per-step 2 --gradient-accumulation-steps 4 --loss-type grpo --beta 0.02 --n-heldout 2 --max-steps 5 "
    "--save-steps 2 --max-completion-length 48 --max-seq-length 1024 --report-to"
)
TWO = ("--n-processes", "2")

# The command after this text; one of its processes fails in the second step
FAILING = """
import os
from arc_refinery.cli import main
if "LOCAL_RANK" in os.environ:
    from arc_refinery.errors import InputError
    from arc_refinery.training import grpo
    rewards, calls = grpo.Trainer._calculate_rewards, []
    def failing(trainer, *arguments, **named):
        calls.append(trainer.model.training)
        if sum(calls) == 2 and os.environ["RANK"] == "1":
            raise InputError("the second process cannot continue")
        return rewards(trainer, *arguments, **named)
    grpo.Trainer._calculate_rewards = failing
main()
"""

# The command after this text; its processes rehearse, as on GPUs
REHEARSING = """
import os, sys
from arc_refinery.cli import main
if "LOCAL_RANK" in os.environ:
    from arc_refinery.training import rehearsal
    def rehearse(callback, *_, **__):
        rehearsal.run_pass(callback.trainer, callback.longest.inputs())
        os.write(2, f"rehearsed {callback.longest}\\n".encode())  # at once: the other process writes there, too
    rehearsal.Rehearsal.on_train_begin = rehearse
main()
"""


@pytest.fixture(scope="module")
def tasks(made_once: MadeOnce) -> Path:
    """Eight generated tasks: three steps per epoch, and two held-out prompts."""
    folder = made_once("tasks of several processes", make_tasks)
    return folder / "tasks.parquet"


def make_tasks(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    flags = ["--name", "few", "--source", "generator", "--n-tasks", "8", "--seed", "3", "--max-side", "6"]
    output = str(folder / "tasks.parquet")
    done = processes.run(["arc-refinery", "tasks", "evaluation", *flags, "--output", output], ROOT)
    assert done.returncode == 0, done.stderr


def training(tasks: Path, output: Path, *flags: str) -> list[str]:
    command = ["arc-refinery", "train", "--model-path", TINY, "--template", "compact", "--dataset-path", str(tasks)]
    paths = ["--output", str(output), "--checkpoints", f"{output}.checkpoints"]
    return [*command, *SETTINGS.split(), *paths, *flags]


def run(command: list[str]) -> str:
    done = processes.run(command, ROOT)
    assert done.returncode == 0, done.stderr
    return done.stderr


def kinds_of(folder: Path) -> tuple[list[Any], ...]:
    lines = read_lines(folder / "training.jsonl")
    return tuple([line for line in lines if isinstance(line, kind)] for kind in (dict, HeldoutResult, Choice))


def test_two_processes_share_a_step_also_when_interrupted(tasks: Path, tmp_path: Path):
    alone, two, interrupted = (tmp_path / name for name in ("alone", "two", "interrupted"))
    run(training(tasks, alone))
    log = run([sys.executable, "-c", REHEARSING, *training(tasks, two, *TWO)[1:]])
    assert log.count("step 3 of 5: reward") == 1, "one process logs"
    assert log.count("rehearsed 2 rows of up to 1,024 tokens") == 2

    (steps, heldout, _), (steps_of_two, heldout_of_two, _) = map(kinds_of, (alone, two))
    assert [record.step for record in heldout] == [record.step for record in heldout_of_two] == [0, 2, 4, 5]
    for step, other in zip(steps, steps_of_two, strict=True):
        assert step.keys() == other.keys()
    samples = list(records.read(two / "samples.parquet", TrainingSample))
    by_step = [[sample for sample in samples if sample.step == step] for step in range(1, 6)]
    for step, kept in zip(steps_of_two, by_step, strict=True):
        assert len(kept) == 8  # the whole step, each half by a process
        assert step["reward"] == pytest.approx(sum(sample.reward for sample in kept) / 8, rel=1e-4)
        for group in (kept[:4], kept[4:]):
            assert len({sample.name for sample in group}) == 1
            assert sum(sample.advantages[0] for sample in group) == pytest.approx(0, abs=1e-3)

    command, checkpoints = training(tasks, interrupted, *TWO), Path(f"{interrupted}.checkpoints")
    output = tmp_path / "output"
    terminated = processes.start(command, ROOT, output, output)
    wait_for(checkpoints / "checkpoint-2/trainer_state.json", terminated, output)
    terminated.send_signal(signal.SIGTERM)
    assert terminated.wait(), output.read_text()
    assert sorted(checkpoints.glob("checkpoint-*"))
    assert not interrupted.exists()
    processes.kill_when(command, ROOT, lambda: is_whole(checkpoints / "checkpoint-4/trainer_state.json"))
    assert "training resumes from this checkpoint" in run(command)
    assert contents(interrupted) == contents(two)


def wait_for(state: Path, run: processes.Running, output: Path) -> None:
    while not is_whole(state):
        assert run.poll() is None, output.read_text()
        time.sleep(0.01)


def test_a_process_that_fails_ends_all_with_its_message(tasks: Path, tmp_path: Path):
    command = training(tasks, tmp_path / "failed", *TWO)
    done = processes.run([sys.executable, "-c", FAILING, *command[1:]], ROOT)
    assert done.returncode == 1, done.stderr
    assert "arc-refinery: the second process cannot continue" in done.stderr.splitlines()
    assert not (tmp_path / "failed").exists()
