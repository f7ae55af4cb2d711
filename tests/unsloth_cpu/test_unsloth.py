"""GRPO through Unsloth on a CPU, by the stage `train` with the embedded model, on prompts made by our stages.

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
from experiments import Changes, words_of

pytestmark = pytest.mark.skipif(
    find_spec("unsloth") is None, reason="Unsloth has an environment of its own: run `make test-unsloth`"
)

TINY = ROOT / "workflow/models/tiny"
COMMAND = Path(sys.executable).with_name("arc-refinery")
MODEL = {"path": str(TINY), "template": "compact", "window": 1024}
SAMPLING = {"max_output_tokens": 48, "temperature": 1.0, "top_p": 0.95}
SETTINGS: Changes = {
    "model": MODEL,
    "lora": {"lora_r": 4, "lora_alpha": 8},
    "lengths": {"max_completion_length": 48, "max_seq_length": 1024},
    "guard": {},
    "refinement": {},
    "sandbox": {},
}
GRPO: Changes = {
    "unsloth": True,
    "learning_rate": 1e-3,
    "max_grad_norm": 1.0,
    "num_generations": 8,
    "prompts_per_step": 2,
    "gradient_accumulation_steps": 2,
    "repetition_penalty": 1.0,
    "rewards": ["arc-v1"],
    "beta": 0.001,
    "loss_type": "bnpo",
    "weight_decay": 0.01,
}


def run(stage: str, settings: Changes, **flags: Any) -> subprocess.CompletedProcess[str]:
    words = words_of(stage, settings, **flags)
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)


def succeed(stage: str, settings: Changes, **flags: Any) -> None:
    done = run(stage, settings, **flags)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def job(folder: Path, prompts: Path, grpo: Changes, **start: Path) -> tuple[Changes, dict[str, Path]]:
    """The settings and the flags of a training."""
    beside = {
        name: folder.with_name(f"{folder.name}.{name}") for name in ("checkpoints", "measurements", "tensorboard")
    }
    return SETTINGS | {"grpo": GRPO | grpo}, {"data": prompts, "output": folder, **beside, **start}


def train(folder: Path, prompts: Path, grpo: Changes, **start: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The adapter's folder, and what training.jsonl says of each step."""
    settings, flags = job(folder, prompts, grpo, **start)
    succeed("train", settings, **flags)
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
    task_set = {"name": "made", "source": "generator", "n_tasks": 16}
    succeed("evaluation_tasks", {"task_set": task_set, "sandbox": {}}, output=tasks)
    sampling = {"n_predictions": 8, "max_output_tokens": 48}
    settings = {"model": MODEL, "sampling": sampling, "branch": "turn1"}
    succeed("first_prompts", settings, tasks=tasks, output=prompts)
    return prompts


@pytest.fixture(scope="module")
def second_turns(first_turns: Path) -> Path:
    """Prompts to refine incorrect attempts that the embedded model made."""
    folder, prompts = first_turns.parent, first_turns.with_name("second.parquet")
    attempts = folder / "attempts/000.parquet"
    succeed(
        "sample",
        {"model": {"path": str(TINY), "window": 1024}, "sampling": SAMPLING},
        prompts=first_turns,
        output=attempts,
    )
    graded = {"tasks": folder / "tasks.parquet", "output": folder / "verdicts/000.parquet"}
    succeed("grade", {"sandbox": {}}, attempts=attempts, **graded)
    settings = {
        "model": MODEL,
        "sampling": {"n_predictions": 1, "batch_size": 1, "max_output_tokens": 48},
        "refinement": {"n_parents": 1},
        "n_considered": 8,
        "feedback": "real",
        "select": {},
        "branch": "training",
        "n_shards": 1,
        "shards_per_grading_job": 1,
        "tasks_per_batch": 1,
    }
    succeed("refining_prompts", settings, prompts=first_turns, output=prompts)
    return prompts


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, second_turns: Path) -> tuple[Path, list[dict[str, Any]]]:
    return train(tmp_path_factory.mktemp("trained") / "adapter", second_turns, {"max_steps": 3})


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
    adapter, _ = train(tmp_path / "on", second_turns, {"beta": 0, "max_steps": 1}, start=start)
    before, after = weights(start), weights(adapter)
    assert before.keys() == after.keys()
    assert all(bool((before[name] == after[name]).all()) for name in before)
    assert any(bool(before[name].any()) for name in before if "lora_B" in name)


def test_training_that_goes_on_refuses_a_kl_term(
    trained: tuple[Path, list[dict[str, Any]]], second_turns: Path, tmp_path: Path
) -> None:
    settings, flags = job(tmp_path / "on", second_turns, {"beta": 0.02}, start=trained[0])
    done = run("train", settings, **flags)
    assert done.returncode != 0
    assert "set beta to 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_policy_second_turns(first_turns: Path, tmp_path: Path) -> None:
    adapter, steps = train(tmp_path / "adapter", first_turns, {"rollout": "on-policy", "max_steps": 3})
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert any(step["share/second_turn"] > 0 for step in steps)
    assert any(bool(matrix.any()) for name, matrix in weights(adapter).items() if "lora_B" in name)
