"""A training in two processes (gloo, on CPUs): interrupted and resumed, failing as one."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

import processes
import pytest
from checkout import ROOT, TINY, MadeOnce, contents, is_whole
from experiments import Changes, do, words_of

from arc_refinery import records
from arc_refinery.training.log import Choice, HeldoutResult, read_lines
from arc_refinery.training.samples import TrainingSample

pytestmark = [pytest.mark.training]

MODEL = {"path": TINY, "template": "compact", "window": 1024}
SETTINGS: Changes = {
    "model": MODEL,
    "lora": {"lora_r": 8, "lora_alpha": 16},
    "lengths": {"max_completion_length": 48, "max_seq_length": 1024},
    "guard": {},
    "refinement": {},
    "sandbox": {},
}
GRPO: Changes = {
    "learning_rate": 1e-3,
    "max_grad_norm": 1,
    "repetition_penalty": 1,
    "num_generations": 4,
    "prompts_per_step": 2,
    "gradient_accumulation_steps": 4,
    "loss_type": "grpo",
    "beta": 0.02,
    "n_heldout": 2,
    "max_steps": 5,
    "save_steps": 2,
    "report_to": [],
    "rewards": ["arc-v1"],
}

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
def prompts(made_once: MadeOnce) -> Path:
    """Of eight generated tasks: three steps per epoch, and two that are held out."""
    folder = made_once("prompts of several processes", make_prompts)
    return folder / "prompts.parquet"


def make_prompts(folder: Path) -> None:
    tasks, difficulty = folder / "tasks.parquet", {"max_side": 6}
    task_set = {"name": "few", "source": "generator", "n_tasks": 8, "seed": 3} | difficulty
    do("evaluation_tasks", {"task_set": task_set, "sandbox": {}}, output=tasks)
    sampling = {"n_predictions": 1, "batch_size": 1, "max_output_tokens": 48}
    settings = {"model": MODEL, "sampling": sampling, "own": {"test_inputs": "one"}, "branch": "training"}
    do("first_prompts", settings, tasks=tasks, output=folder / "prompts.parquet")


def training(prompts: Path, output: Path, n_processes: int = 1) -> list[str]:
    settings = SETTINGS | {"grpo": GRPO | {"n_processes": n_processes}}
    beside = {name: f"{output}.{name}" for name in ("checkpoints", "measurements", "tensorboard")}
    return ["arc-refinery", *words_of("train", settings, data=prompts, output=output, **beside)]


def run(command: list[str]) -> str:
    done = processes.run(command, ROOT)
    assert done.returncode == 0, done.stderr
    return done.stderr


def kinds_of(folder: Path) -> tuple[list[Any], ...]:
    lines = read_lines(folder / "training.jsonl")
    return tuple([line for line in lines if isinstance(line, kind)] for kind in (dict, HeldoutResult, Choice))


def test_two_processes_share_a_step_also_when_interrupted(prompts: Path, tmp_path: Path):
    alone, two, interrupted = (tmp_path / name for name in ("alone", "two", "interrupted"))
    run(training(prompts, alone))
    log = run([sys.executable, "-c", REHEARSING, *training(prompts, two, 2)[1:]])
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

    command, checkpoints = training(prompts, interrupted, 2), Path(f"{interrupted}.checkpoints")
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


def test_a_process_that_fails_ends_all_with_its_message(prompts: Path, tmp_path: Path):
    command = training(prompts, tmp_path / "failed", 2)
    done = processes.run([sys.executable, "-c", FAILING, *command[1:]], ROOT)
    assert done.returncode == 1, done.stderr
    assert "arc-refinery: the second process cannot continue" in done.stderr.splitlines()
    assert not (tmp_path / "failed").exists()
