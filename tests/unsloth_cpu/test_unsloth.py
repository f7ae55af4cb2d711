"""GRPO through Unsloth on a CPU: `arc-refinery train --unsloth` with the embedded model, on prompts made by our stages.

`make test-unsloth` runs these in an environment of their own; elsewhere they are skipped.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

pytestmark = pytest.mark.skipif(
    find_spec("unsloth") is None, reason="Unsloth has an environment of its own: run `make test-unsloth`"
)

TINY = ROOT / "workflow/models/tiny"
COMMAND = Path(sys.executable).with_name("arc-refinery")
LENGTHS = ["--max-model-len", 1024, "--max-output-tokens", 48]
MODEL = ["--model-path", TINY, "--template", "compact"]
TRAINING = [
    *("--unsloth", *MODEL, "--learning-rate", 1e-3, "--max-grad-norm", 1.0, "--lora-r", 4, "--lora-alpha", 8),
    *("--num-generations", 8, "--prompts-per-step", 2, "--gradient-accumulation-steps", 2),
    *("--repetition-penalty", 1.0, "--max-completion-length", 48, "--max-seq-length", 1024),
]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)


def succeed(*words: object) -> None:
    done = run(*words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def train(folder: Path, dataset: Path, *more: object) -> tuple[Path, list[dict[str, Any]]]:
    """The adapter's folder, and what training.jsonl says of each step."""
    succeed("train", *TRAINING, "--dataset-path", dataset, "--output", folder, *more)
    entries = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    return folder, [entry for entry in entries if "reward" in entry]


def weights(adapter: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(adapter / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def first_turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts of generated tasks: an experiment's folder of first turns."""
    folder = tmp_path_factory.mktemp("turn1")
    tasks, prompts = folder / "tasks.parquet", folder / "prompts.parquet"
    succeed("task-set", "--output", tasks, "--name", "made", "--source", "generator", "--n-tasks", 16)
    sampling = ["--n-predictions", 8, "--max-model-len", 1024, "--max-output-tokens", 48]
    succeed("prompts", "first", "--tasks-path", tasks, "--output", prompts, *MODEL, *sampling)
    return prompts


@pytest.fixture(scope="module")
def second_turns(first_turns: Path) -> Path:
    """Prompts to refine incorrect attempts that the embedded model made."""
    folder, prompts = first_turns.parent, first_turns.with_name("second.parquet")
    attempts, verdicts = folder / "attempts", folder / "verdicts/000.parquet"
    succeed("sample", "--dataset-path", first_turns, "--base-model-path", TINY, "--output", attempts, *LENGTHS)
    tasks = ["--tasks-path", folder / "tasks.parquet"]
    succeed("grade", "--attempts", attempts / "000.parquet", *tasks, "--output", verdicts)
    flags = ["--n-considered", 8, "--n-parents", 1, "--n-predictions", 1, "--batch-size", 1, "--branch", "training"]
    succeed("prompts", "refine", "--folder", folder, "--n-shards", 1, *MODEL, *LENGTHS, *flags, "--output", prompts)
    return prompts


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, second_turns: Path) -> tuple[Path, list[dict[str, Any]]]:
    return train(tmp_path_factory.mktemp("trained") / "adapter", second_turns, "--max-steps", 3)


def test_steps_have_rewards(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    _, steps = trained
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert all(0 <= step["reward"] <= 10 for step in steps)  # the range of the reward
    assert any(step["reward_std"] > 0 and step["grad_norm"] > 0 for step in steps)
    assert steps[0]["kl"] == pytest.approx(0, abs=1e-5)  # a fresh adapter changes nothing
    assert steps[-1]["kl"] > 1e-5


def test_the_adapter_is_the_one_that_was_asked_for(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    settings = json.loads((trained[0] / "adapter_config.json").read_text())
    lora_settings = {"r": 4, "lora_alpha": 8, "use_rslora": True, "lora_dropout": 0.0, "bias": "none"}
    assert {name: settings[name] for name in lora_settings} == lora_settings
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert sorted(settings["target_modules"]) == sorted(modules)
    assert len(weights(trained[0])) == 6 * len(modules) * 2  # the embedded model's layers; A and B of each


def test_plain_peft_loads_the_adapter_and_it_changes_the_model(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ids = torch.arange(20, 40)[None]
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(model, trained[0])
    with torch.no_grad(), adapted.disable_adapter():
        before = adapted(ids).logits
    with torch.no_grad():
        after = adapted(ids).logits
    assert (after - before).abs().max() > 1e-3


def test_training_goes_on_from_an_adapter(
    trained: tuple[Path, list[dict[str, Any]]], second_turns: Path, tmp_path: Path
) -> None:
    start = trained[0]
    # the first step is all warm-up, at a rate of 0: what comes out is what was put in
    adapter, _ = train(tmp_path / "on", second_turns, "--lora-path", start, "--beta", 0, "--max-steps", 1)
    before, after = weights(start), weights(adapter)
    assert before.keys() == after.keys()
    assert all(bool((before[name] == after[name]).all()) for name in before)
    assert any(bool(before[name].any()) for name in before if "lora_B" in name)


def test_training_that_goes_on_refuses_a_kl_term(
    trained: tuple[Path, list[dict[str, Any]]], second_turns: Path, tmp_path: Path
) -> None:
    paths = ["--dataset-path", second_turns, "--output", tmp_path / "on", "--lora-path", trained[0]]
    done = run("train", *TRAINING, *paths, "--beta", 0.02)
    assert done.returncode != 0
    assert "set beta to 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_policy_second_turns(first_turns: Path, tmp_path: Path) -> None:
    adapter, steps = train(tmp_path / "adapter", first_turns, "--rollout", "on-policy", "--max-steps", 3)
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert any(step["share/second_turn"] > 0 for step in steps)
    assert any(bool(matrix.any()) for name, matrix in weights(adapter).items() if "lora_B" in name)
