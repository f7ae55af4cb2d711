"""Training as users run it: killed and resumed, stopped when it collapses, chosen by held-out reward."""

import json
import signal
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from checkout import TRACKERS, Checkout, contents, is_whole
from safetensors.torch import load_file

from arc_refinery import records
from arc_refinery.training.log import Choice, Decision, HeldoutResult, read_lines
from arc_refinery.training.samples import TrainingSample

pytestmark = [pytest.mark.snakemake, pytest.mark.training]

SFT = "results/small/adapters/sft"
COMMON = "--learning-rate 1e-3 --lora-r 8 --lora-alpha 16 --max-grad-norm 1 --repetition-penalty 1 --num-generations 4"
SIZES = "--prompts-per-step 2 --gradient-accumulation-steps 1 --max-completion-length 48 --max-seq-length 1024"
WRECKED = "--learning-rate 1 --warmup-ratio 0 --max-steps 12 --save-steps 2 --guard.window 2"


def training(output: Path, *flags: str, prompts: str = "training/prompts.parquet") -> list[str]:
    command = ["arc-refinery", "train", "--model-path", "workflow/models/tiny", "--template", "compact"]
    command += ["--dataset-path", *(f"results/small/part{part}/{prompts}" for part in (1, 2))]
    settings = " ".join((COMMON, SIZES, "--report-to", *flags)).split()
    return [*command, *settings, "--output", str(output), "--checkpoints", f"{output}.checkpoints"]


def run(checkout: Checkout, command: list[str]) -> str:
    done = checkout.run(*command)
    assert done.returncode == 0, done.stderr
    return done.stderr


# The command after this text; it gets SIGTERM in the middle of its third step
TERMINATED = """
import os, signal
from arc_refinery.cli import main
from arc_refinery.training import grpo
rewards, calls = grpo.Trainer._calculate_rewards, []
def terminated(trainer, *arguments, **named):
    calls.append(trainer.model.training)
    if sum(calls) == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    return rewards(trainer, *arguments, **named)
grpo.Trainer._calculate_rewards = terminated
main()
"""


# The command after this text; it writes no file over 20 KB
LIMITED = """
import resource
from arc_refinery.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20 * 1024, 20 * 1024))
main()
"""


def contents_of_files(folder: Path) -> dict[str, bytes]:
    """Contents of files, without the folders of checkpoints."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def log_of(folder: Path) -> dict[type, list[Any]]:
    """Lines of training.jsonl by their kinds; steps are dicts."""
    lines = read_lines(folder / "training.jsonl")
    return {
        kind: [line for line in lines if isinstance(line, kind)] for kind in (dict, HeldoutResult, Decision, Choice)
    }


def samples_of(folder: Path) -> dict[int, list[TrainingSample]]:
    """The completions by step."""
    samples: dict[int, list[TrainingSample]] = {}
    for sample in records.read(folder / "samples.parquet", TrainingSample):
        samples.setdefault(sample.step, []).append(sample)
    return samples


def check_second_turns(group: list[TrainingSample]) -> None:
    """Each is compared with the other second turns of its group, if there are any."""
    refined = [sample for sample in group if len(sample.advantages) == 2]
    assert refined == [sample for sample in group if len(sample.spans) == 3]
    for sample in refined:
        others = [other.reward for other in (refined if len(refined) > 1 else group) if other is not sample]
        assert sample.advantages[1] == pytest.approx(3 / 4 * (sample.reward - fmean(others)), abs=1e-6)


def check_refilled(steps: Sequence[Mapping[str, float]], samples: Mapping[int, list[TrainingSample]]) -> None:
    """What is learned from has other rewards, but for the groups that are counted."""
    for entry in steps:
        kept = samples[int(entry["step"])]
        groups = [kept[start : start + 4] for start in range(0, len(kept), 4)]
        assert all(len({sample.name for sample in group}) == 1 for group in groups)
        n_equal = sum(len({sample.reward for sample in group}) == 1 for group in groups)
        assert (n_equal, n_equal / len(groups)) == (entry["refill/equal_groups"], entry["share/zero_variance"])
    assert max(entry["refill/prompts"] for entry in steps) > 0


@pytest.mark.parametrize(
    ("flags", "prompts"),
    [
        (f"--lora-path {SFT} --beta 0.02 --n-heldout 3 --refill 2", "training/prompts.parquet"),
        (
            "--rollout on-policy --include-errors --beta 0.02 --n-heldout 3 --advantage others --scale-rewards none",
            "turn1/prompts.parquet",
        ),
        (
            "--rollout on-policy --include-errors --steps-per-generation 2 --scale-rewards none --refill 1 "
            "--advantage examples/advantages.py:above_the_mean",
            "turn1/prompts.parquet",
        ),
    ],
    ids=["after sft", "on-policy", "two steps at once"],
)
def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(
    finished: Checkout, tmp_path: Path, flags: str, prompts: str
):
    steps = "--max-steps 4 --save-steps 2"
    undisturbed, killed = (
        training(tmp_path / name, flags, steps, prompts=prompts) for name in ("undisturbed", "killed")
    )
    run(finished, undisturbed)
    state = tmp_path / "killed.checkpoints/checkpoint-2/trainer_state.json"
    finished.kill_when(lambda: is_whole(state), *killed)
    assert not (tmp_path / "killed").exists()
    assert "training resumes from this checkpoint" in run(finished, killed)
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")
    log = log_of(tmp_path / "killed")
    assert [entry["step"] for entry in log[dict]] == [1, 2, 3, 4]
    assert not log[Decision], "the guard is quiet on a healthy training"
    if "--n-heldout" in flags:
        rewards = {check.step: check.reward for check in log[HeldoutResult]}
        assert list(rewards) == [0, 2, 4]
        (choice,) = log[Choice]
        assert choice.heldout_reward == rewards[choice.step] == max(rewards.values())
    else:
        assert log[Choice] == [Choice(4, "the last step")]
    samples = samples_of(tmp_path / "killed")
    n_steps = 2 if "--steps-per-generation" in flags else 1
    assert {step: len(kept) for step, kept in samples.items()} == dict.fromkeys(range(1, 5, n_steps), 8 * n_steps)
    for entry in log[dict][::n_steps]:
        kept = samples[entry["step"]]
        assert fmean(sample.reward for sample in kept) == pytest.approx(entry["reward"], abs=1e-6)
        assert fmean(
            sum(span.n_tokens for span in sample.spans if span.is_sampled) for sample in kept
        ) == pytest.approx(entry["completions/mean_length"])
    turns = {tuple(span.is_sampled for span in sample.spans) for kept in samples.values() for sample in kept}
    if "on-policy" in flags:
        assert any(entry["share/second_turn"] > 0 for entry in log[dict])
        assert turns == {(True,), (True, False, True)}
    else:
        assert turns == {(True,)}
    if "--refill" in flags:
        check_refilled(log[dict][::n_steps], samples)
    for group in (kept[start : start + 4] for kept in samples.values() for start in range(0, len(kept), 4)):
        mean = fmean(sample.reward for sample in group)
        if "--advantage others" in flags:
            check_second_turns(group)
        elif "above_the_mean" in flags:
            expected = [pytest.approx((max(0.0, sample.reward - mean),), abs=1e-6) for sample in group]
            assert [sample.advantages for sample in group] == expected


def test_a_terminated_training_has_saved_its_last_whole_step(finished: Checkout, tmp_path: Path):
    flags = f"--lora-path {SFT} --beta 0.02 --n-heldout 3 --max-steps 5 --save-steps 4"
    run(finished, training(tmp_path / "undisturbed", flags))
    terminated = training(tmp_path / "terminated", flags)
    assert finished.run(sys.executable, "-c", TERMINATED, *terminated[1:]).returncode == -signal.SIGTERM
    assert [path.name for path in (tmp_path / "terminated.checkpoints").glob("checkpoint-*")] == ["checkpoint-2"]
    assert "checkpoint-2: training resumes from this checkpoint" in run(finished, terminated)
    assert contents(tmp_path / "terminated") == contents(tmp_path / "undisturbed")


def test_a_training_in_parts_ends_with_the_same_bytes(finished: Checkout, tmp_path: Path):
    flags = f"--lora-path {SFT} --beta 0.02 --n-heldout 3 --max-steps 6 --save-steps 2 --lr-scheduler-type linear"
    run(finished, training(tmp_path / "whole", flags))
    second, last = ["--until-step", "2"], ["--until-step", "4", "--continue-from", str(tmp_path / "part@2")]
    run(finished, [*training(tmp_path / "part@2", flags), *second])
    files_of_step_2 = contents_of_files(tmp_path / "part@2")
    finished.kill_when(
        lambda: is_whole(tmp_path / "part@4.checkpoints/checkpoint-2/trainer_state.json"),
        *training(tmp_path / "part@4", flags),
        *last,
    )
    run(finished, [*training(tmp_path / "part@4", flags), *last])
    run(finished, [*training(tmp_path / "part", flags), "--continue-from", str(tmp_path / "part@4")])
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    assert contents_of_files(tmp_path / "part@2") == files_of_step_2, "a later part leaves the earlier ones alone"
    assert log_of(tmp_path / "part@4")[Choice] == [Choice(4, "a step to keep")]
    steps = {name: load_file(tmp_path / name / "adapter_model.safetensors") for name in ("part@2", "part@4")}
    assert any(not tensor.equal(steps["part@4"][name]) for name, tensor in steps["part@2"].items())
    other = [*training(tmp_path / "other", flags, "--seed 1"), "--continue-from", str(tmp_path / "part@4")]
    refusal = finished.run(*other)
    assert refusal.returncode != 0 and "is not an earlier part of this training" in refusal.stderr


def collapse(checkout: Checkout, folder: Path, action: str) -> Decision:
    """Train until it collapses, as a whole and in two parts (`part@10`, `part`); return what the guard says."""
    flags = (WRECKED, f"--guard.action {action}")
    run(checkout, training(folder / "whole", *flags))
    run(checkout, [*training(folder / "part@10", *flags), "--until-step", "10"])
    run(checkout, [*training(folder / "part", *flags), "--continue-from", str(folder / "part@10")])
    decision: Decision
    (decision,) = log_of(folder / "whole")[Decision]
    return decision


def test_a_part_after_a_collapse_has_the_adapter_from_before_it(finished: Checkout, tmp_path: Path):
    decision = collapse(finished, tmp_path, "stop")
    assert decision.step < 10
    assert contents(tmp_path / "part") == contents(tmp_path / "whole") == contents_of_files(tmp_path / "part@10")
    assert not (tmp_path / f"part@10/checkpoints/checkpoint-{decision.step}").exists(), "would be resumed from"


def test_a_collapse_that_is_only_reported_is_that_of_the_first_part_that_has_one(finished: Checkout, tmp_path: Path):
    decision = collapse(finished, tmp_path, "none")
    assert decision.action == "none" and decision.step < 10
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_collapse_that_nothing_helps_against_stops_before_it(finished: Checkout, tmp_path: Path):
    run(finished, training(tmp_path / "stopped", WRECKED, "--guard.action stop --n-heldout 3"))
    log = log_of(tmp_path / "stopped")
    (decision,), (choice,) = log[Decision], log[Choice]
    assert decision.action == "stop" and log[dict][-1]["step"] == decision.step < 12
    assert choice.step == 0 or choice.step < decision.step - 2
    if choice.step == 0:  # an adapter that changes nothing
        weights = load_file(tmp_path / "stopped/adapter_model.safetensors")
        assert all(not bool(tensor.any()) for name, tensor in weights.items() if "lora_B" in name)


def test_prompts_that_are_read_once_train_the_same_adapter(finished: Checkout, tmp_path: Path):
    # bnpo averages over the tokens of a pass, so it depends on which completions meet in one
    flags = f"--lora-path {SFT} --beta 0.02 --gradient-accumulation-steps 2 --max-steps 3 --loss-type grpo"
    log = run(finished, training(tmp_path / "auto", flags))
    assert "prompts are not shared" not in log
    run(finished, training(tmp_path / "off", flags, "--shared-prefix off"))
    start = load_file(finished.folder / SFT / "adapter_model.safetensors")
    shared, separate = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("auto", "off"))
    moved = sum(float((separate[name] - start[name]).square().sum()) for name in start) ** 0.5
    apart = sum(float((shared[name] - separate[name]).square().sum()) for name in start) ** 0.5
    assert 0 < apart < 1e-3 * moved  # two ways to add up, not one and the same


@pytest.mark.skipif(
    not (TRACKERS / "wandb").exists(), reason="wandb and trackio are not installed: `make trackers` says why"
)
def test_steps_reach_wandb_and_trackio_offline(finished: Checkout, tmp_path: Path):
    folders = [f"WANDB_DIR={tmp_path}", f"TRACKIO_DIR={tmp_path}", f"PYTHONPATH={TRACKERS}"]
    command = training(tmp_path / "tracked@2", "--max-steps 2 --n-heldout 1")
    command[command.index("--report-to") + 1 : command.index("--max-steps")] = ["wandb", "trackio"]
    run(finished, ["env", *folders, *command])
    log = read_lines(tmp_path / "tracked@2" / "training.jsonl")
    rewards = {line["step"]: line["reward"] for line in log if isinstance(line, dict)}
    assert len(rewards) == 2
    with sqlite3.connect(tmp_path / "arc-refinery.db") as database:
        rows = database.execute("select run_name, metrics from metrics").fetchall()
    logged = [values for _, metrics in rows if "train/reward" in (values := json.loads(metrics))]
    assert {entry["train/global_step"]: entry["train/reward"] for entry in logged} == rewards
    (run_file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    name = f"{tmp_path}/tracked {run_file.stem.removeprefix('run-')[:8]}"  # without @2: all parts are one run
    assert {run_name for run_name, _ in rows} == {name}
    assert all(text.encode() in run_file.read_bytes() for text in (name, "train/reward", *map(repr, rewards.values())))


def test_a_checkpoint_that_cannot_be_written_ends_with_one_message(finished: Checkout, tmp_path: Path):
    train = training(tmp_path / "full", "--max-steps 2 --save-steps 1")
    done = finished.run(sys.executable, "-c", LIMITED, *train[1:])
    assert done.returncode == 1
    said = f"{tmp_path}/full.checkpoints/checkpoint-1: cannot be written: the file would exceed the limit on file sizes"
    assert said in done.stderr.splitlines()[-1]
    assert "reward" in run(finished, train), "the same command begins again"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--lora-path results/none", "results/none/adapter_config.json: no such file"),
        ("--dtype float16", "dtype float16 trains on a GPU only"),
        ("--report-to wandb", "report_to: the package wandb is not installed here"),
        ("--n-heldout 99", "n_heldout = 99 leaves nothing to train on"),
        ("--dataset-path results/none.parquet", "results/none.parquet: cannot be read"),
    ],
)
def test_what_cannot_be_trained_ends_with_one_message(finished: Checkout, tmp_path: Path, flags: str, said: str):
    done = finished.run(*training(tmp_path / "none", flags))
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
