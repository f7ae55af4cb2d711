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
from experiments import words_of
from safetensors.torch import load_file

from arc_refinery import records
from arc_refinery.training.log import Choice, Decision, HeldoutResult, read_lines
from arc_refinery.training.samples import TrainingSample

pytestmark = [pytest.mark.snakemake, pytest.mark.training]

SFT = "results/small/adapters/sft"
GRPO: dict[str, Any] = {
    "rewards": [{"reward": "arc-v1"}],
    "learning_rate": 1e-3,
    "warmup_ratio": 0.1,
    "weight_decay": 0.01,
    "beta": 0.001,
    "loss_type": "bnpo",
    "scale_rewards": "group",
    "max_grad_norm": 1,
    "repetition_penalty": 1,
    "num_generations": 4,
    "prompts_per_step": 2,
    "gradient_accumulation_steps": 1,
    "epochs": 10,
    "save_steps": 100,
    "report_to": [],
}
SETTINGS: dict[str, Any] = {
    "model": {"path": "workflow/models/tiny", "template": "compact", "window": 1024, "dtype": "float32"},
    "lora": {"lora_r": 8, "lora_alpha": 16},
    "guard": {},
    "refinement": {},
    "lengths": {"max_completion_length": 48, "max_seq_length": 1024},
    "sandbox": {},
}
WRECKED: dict[str, Any] = {"learning_rate": 1, "warmup_ratio": 0, "max_steps": 12, "save_steps": 2}
AFTER_SFT: dict[str, Any] = {"start": SFT, "beta": 0.02}
ON_POLICY: dict[str, Any] = {
    "prompts": "turn1/prompts.parquet",
    "settings": {"refinement": {"include_errors": True}},
    "rollout": "on-policy",
    "scale_rewards": "none",
}


def training(
    output: Path,
    prompts: str = "training/prompts.parquet",
    start: str | None = None,
    before: Path | None = None,
    settings: dict[str, Any] | None = None,
    **grpo: Any,
) -> list[str]:
    """The command of a job on a part's prompts, with changed settings and changed keys of `grpo`."""
    words = words_of(
        "train",
        SETTINGS | {"grpo": GRPO | grpo} | (settings or {}),
        data=[f"results/small/part{part}/{prompts}" for part in (1, 2)],
        start=start,
        before=before,
        output=output,
        **{name: f"{output}.{name}" for name in ("checkpoints", "measurements", "tensorboard")},
    )
    return ["arc-refinery", *words]


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
    "changes",
    [
        AFTER_SFT | {"n_heldout": 3, "refill": 2},
        ON_POLICY | {"beta": 0.02, "n_heldout": 3, "advantage": "others", "feedback_loss": 0.1, "feedback": "twin"},
        ON_POLICY | {"steps_per_generation": 2, "refill": 1, "advantage": "examples/advantages.py:above_the_mean"},
    ],
    ids=["after sft", "on-policy", "two steps at once"],
)
def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(
    finished: Checkout, tmp_path: Path, changes: dict[str, Any]
):
    undisturbed, killed = (
        training(tmp_path / name, max_steps=4, save_steps=2, **changes) for name in ("undisturbed", "killed")
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
    if "n_heldout" in changes:
        rewards = {check.step: check.reward for check in log[HeldoutResult]}
        assert list(rewards) == [0, 2, 4]
        (choice,) = log[Choice]
        assert choice.heldout_reward == rewards[choice.step] == max(rewards.values())
    else:
        assert log[Choice] == [Choice(4, "the last step")]
    samples = samples_of(tmp_path / "killed")
    n_steps = changes.get("steps_per_generation", 1)
    assert {step: len(kept) for step, kept in samples.items()} == dict.fromkeys(range(1, 5, n_steps), 8 * n_steps)
    for entry in log[dict][::n_steps]:
        kept = samples[entry["step"]]
        assert fmean(sample.reward for sample in kept) == pytest.approx(entry["reward"], abs=1e-6)
        assert fmean(
            sum(span.n_tokens for span in sample.spans if span.is_sampled) for sample in kept
        ) == pytest.approx(entry["completions/mean_length"])
    turns = {tuple(span.is_sampled for span in sample.spans) for kept in samples.values() for sample in kept}
    if "rollout" in changes:
        assert any(entry["share/second_turn"] > 0 for entry in log[dict])
        if "feedback_loss" in changes:
            assert all("loss/feedback" in entry for entry in log[dict] if entry["share/second_turn"] > 0)
        assert turns == {(True,), (True, False, True)}
    else:
        assert turns == {(True,)}
    if "refill" in changes:
        check_refilled(log[dict][::n_steps], samples)
    for group in (kept[start : start + 4] for kept in samples.values() for start in range(0, len(kept), 4)):
        mean = fmean(sample.reward for sample in group)
        if changes.get("advantage") == "others":
            check_second_turns(group)
        elif "advantage" in changes:
            expected = [pytest.approx((max(0.0, sample.reward - mean),), abs=1e-6) for sample in group]
            assert [sample.advantages for sample in group] == expected


def test_a_terminated_training_has_saved_its_last_whole_step(finished: Checkout, tmp_path: Path):
    changes = AFTER_SFT | {"n_heldout": 3, "max_steps": 5, "save_steps": 4}
    run(finished, training(tmp_path / "undisturbed", **changes))
    terminated = training(tmp_path / "terminated", **changes)
    assert finished.run(sys.executable, "-c", TERMINATED, *terminated[1:]).returncode == -signal.SIGTERM
    assert [path.name for path in (tmp_path / "terminated.checkpoints").glob("checkpoint-*")] == ["checkpoint-2"]
    assert "checkpoint-2: training resumes from this checkpoint" in run(finished, terminated)
    assert contents(tmp_path / "terminated") == contents(tmp_path / "undisturbed")


def test_a_training_in_parts_ends_with_the_same_bytes(finished: Checkout, tmp_path: Path):
    changes = AFTER_SFT | {"n_heldout": 3, "max_steps": 6, "save_steps": 2, "lr_scheduler_type": "linear"}

    def part(name: str, before: str | None = None, **settings: Any) -> list[str]:
        return training(tmp_path / name, before=tmp_path / before if before else None, settings=settings, **changes)

    run(finished, part("whole"))
    run(finished, part("part@2", until_step=2))
    files_of_step_2 = contents_of_files(tmp_path / "part@2")
    second = part("part@4", "part@2", until_step=4)
    finished.kill_when(lambda: is_whole(tmp_path / "part@4.checkpoints/checkpoint-2/trainer_state.json"), *second)
    run(finished, second)
    run(finished, part("part", "part@4"))
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    assert contents_of_files(tmp_path / "part@2") == files_of_step_2, "a later part leaves the earlier ones alone"
    assert log_of(tmp_path / "part@4")[Choice] == [Choice(4, "a step to keep")]
    steps = {name: load_file(tmp_path / name / "adapter_model.safetensors") for name in ("part@2", "part@4")}
    assert any(not tensor.equal(steps["part@4"][name]) for name, tensor in steps["part@2"].items())
    refusal = finished.run(*part("other", "part@4", seed=1))
    assert refusal.returncode != 0 and "is not an earlier part of this training" in refusal.stderr


def collapse(checkout: Checkout, folder: Path, action: str) -> Decision:
    """Train until it collapses, as a whole and in two parts (`part@10`, `part`); return what the guard says."""
    guard = {"guard": {"window": 2, "action": action}}
    run(checkout, training(folder / "whole", settings=guard, **WRECKED))
    run(checkout, training(folder / "part@10", settings=guard | {"until_step": 10}, **WRECKED))
    run(checkout, training(folder / "part", before=folder / "part@10", settings=guard, **WRECKED))
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
    guard = {"guard": {"window": 2, "action": "stop"}}
    run(finished, training(tmp_path / "stopped", settings=guard, n_heldout=3, **WRECKED))
    log = log_of(tmp_path / "stopped")
    (decision,), (choice,) = log[Decision], log[Choice]
    assert decision.action == "stop" and log[dict][-1]["step"] == decision.step < 12
    assert choice.step == 0 or choice.step < decision.step - 2
    if choice.step == 0:  # an adapter that changes nothing
        weights = load_file(tmp_path / "stopped/adapter_model.safetensors")
        assert all(not bool(tensor.any()) for name, tensor in weights.items() if "lora_B" in name)


def test_prompts_that_are_read_once_train_the_same_adapter(finished: Checkout, tmp_path: Path):
    # bnpo averages over the tokens of a pass, so it depends on which completions meet in one
    changes = AFTER_SFT | {"gradient_accumulation_steps": 2, "max_steps": 3, "loss_type": "grpo"}
    log = run(finished, training(tmp_path / "auto", **changes))
    assert "prompts are not shared" not in log
    run(finished, training(tmp_path / "off", **changes, shared_prefix="off"))
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
    command = training(tmp_path / "tracked@2", max_steps=2, n_heldout=1, report_to=["wandb", "trackio"])
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
    train = training(tmp_path / "full", max_steps=2, save_steps=1)
    done = finished.run(sys.executable, "-c", LIMITED, *train[1:])
    assert done.returncode == 1
    said = f"{tmp_path}/full.checkpoints/checkpoint-1: cannot be written: the file would exceed the limit on file sizes"
    assert said in done.stderr.splitlines()[-1]
    assert "reward" in run(finished, train), "the same command begins again"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": "results/none"}, "results/none/adapter_config.json: no such file"),
        (
            {"settings": {"model": SETTINGS["model"] | {"dtype": "float16"}}},
            "dtype float16 trains on a GPU only",
        ),
        ({"report_to": ["wandb"]}, "report_to: the package wandb is not installed here"),
        ({"n_heldout": 99}, "n_heldout = 99 leaves nothing to train on"),
        ({"prompts": "none.parquet"}, "results/small/part1/none.parquet: cannot be read"),
    ],
)
def test_what_cannot_be_trained_ends_with_one_message(
    finished: Checkout, tmp_path: Path, changes: dict[str, Any], said: str
):
    done = finished.run(*training(tmp_path / "none", **changes))
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
