"""A training in two processes (gloo, on CPUs): equal to one process, interrupted and resumed, failing as one."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

import processes
import pytest
from checkout import ROOT, TINY, MadeOnce, contents, is_whole
from safetensors.torch import load_file

from arc_refinery.training.log import Choice, HeldoutResult, read_lines

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


def test_two_processes_train_as_one_does_also_when_interrupted(tasks: Path, tmp_path: Path):
    alone, two, interrupted = (tmp_path / name for name in ("alone", "two", "interrupted"))
    run(training(tasks, alone))
    log = run([sys.executable, "-c", REHEARSING, *training(tasks, two, *TWO)[1:]])
    assert log.count("step 3 of 5: reward") == 1, "one process logs"
    assert log.count("rehearsed 2 rows of up to 1,024 tokens") == 2

    (steps, heldout, (choice,)), (steps_of_two, heldout_of_two, (choice_of_two,)) = map(kinds_of, (alone, two))
    assert choice.step == choice_of_two.step
    assert [record.step for record in heldout] == [0, 2, 4, 5]
    for record, other in zip(heldout, heldout_of_two, strict=True):
        assert (other.reward, other.solved) == pytest.approx((record.reward, record.solved), rel=1e-4)
    for step, other in zip(steps, steps_of_two, strict=True):
        assert step.keys() == other.keys()
        same = {name for name in step if name == "reward" or name.startswith(("reward/", "share/", "completions/"))}
        assert {name: other[name] for name in same} == pytest.approx({name: step[name] for name in same}, rel=1e-4)
        assert other["loss"] == pytest.approx(step["loss"], rel=1e-4, abs=1e-6)  # advantages of a group sum to 0
        assert other["grad_norm"] == pytest.approx(step["grad_norm"], rel=1e-4)
        assert other["num_tokens"] == step["num_tokens"]
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (alone, two))
    apart = sum(float((ours[name] - theirs[name]).square().sum()) for name in ours) ** 0.5
    assert apart < 1e-3 * sum(float(tensor.square().sum()) for tensor in ours.values()) ** 0.5

    command, checkpoints = training(tasks, interrupted, *TWO), Path(f"{interrupted}.checkpoints")
    output = tmp_path / "output"
    terminated = processes.start(command, ROOT, output, output)
    wait_for(checkpoints / "checkpoint-2/trainer_state.json", terminated, output)
    terminated.send_signal(signal.SIGTERM)
    assert terminated.wait() == -signal.SIGTERM, output.read_text()
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
    assert done.stderr.splitlines()[-1] == "arc-refinery: the second process cannot continue"
    assert not (tmp_path / "failed").exists()
