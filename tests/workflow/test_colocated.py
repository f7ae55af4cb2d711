"""Training with vLLM in the trainer's process, on vLLM's CPU build. Skipped where vLLM is not installed."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import colocated
import pytest
import vllm_cpu
from checkout import TINY
from experiments import Changes
from vllm_cpu import needs_vllm

WRITE_COMPLETIONS = """
import json, os
from trl import GRPOTrainer
generate, written = GRPOTrainer._generate_single_turn, []
def generate_and_write(trainer, *arguments):
    sampled = generate(trainer, *arguments)
    written.extend(sampled[0])
    with open(f"{folder}/{{os.environ.get('RANK')}}.json", "w") as file:
        json.dump(written, file)
    return sampled
GRPOTrainer._generate_single_turn = generate_and_write
"""
DIE_IN_THE_THIRD_STEP = """
generate_until = GRPOTrainer._generate_single_turn
def generate_or_die(trainer, *arguments):
    len(written) < 2 * 4 or os._exit(9)
    return generate_until(trainer, *arguments)
GRPOTrainer._generate_single_turn = generate_or_die
"""
SEND_ONCE = """
from arc_refinery.training.colocated import Engine
load, loaded = Engine.load, []
def load_once(engine, network):
    loaded or load(engine, network)
    loaded.append(network)
Engine.load = load_once
"""

pytestmark = [pytest.mark.training, needs_vllm]


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The embedded model, but for its end token: one that it hardly ever writes."""
    folder = tmp_path_factory.mktemp("models") / "endless"
    shutil.copytree(TINY, folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    end = next(token for token, number in vocabulary.items() if number == 1)
    changes = {"config.json": 1, "generation_config.json": 1, "tokenizer_config.json": end}
    for name, value in changes.items():
        content = json.loads((folder / name).read_text())
        key = "eos_token_id" if isinstance(value, int) else "eos_token"
        (folder / name).write_text(json.dumps(content | {key: value}))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|end|>", end))
    return str(folder)


def run(words: list[str], patch: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{patch}\nfrom arc_refinery.cli import main; main()"
    return vllm_cpu.run([sys.executable, "-c", code, *words])


def completions(folder: Path) -> list[list[int]]:
    """All that the last command sampled, one process, in order."""
    written: list[list[int]] = json.loads((folder / "0.json").read_text())
    return written


def steps_in(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "adapter/training.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if "reward" in entry]


def train(folder: Path, changes: Changes | None = None, patch: str = "") -> subprocess.CompletedProcess[str]:
    """Three steps, each with a checkpoint."""
    words = colocated.train(folder, {"grpo.save_steps": 1} | (changes or {}))
    return run(words, WRITE_COMPLETIONS.format(folder=folder) + patch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    done = train(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sampler check" in done.stderr
    return folder


def test_vllm_samples_from_the_weights_that_are_trained(trained: Path):
    steps = steps_in(trained)
    assert [step["sampling/sampling_logp_difference/mean"] < 0.05 for step in steps] == [True] * 3


def test_a_resumed_training_samples_what_an_uninterrupted_one_does(trained: Path, tmp_path: Path):
    assert train(tmp_path, patch=DIE_IN_THE_THIRD_STEP).returncode == 9
    assert completions(tmp_path) == completions(trained)[: 2 * 4]
    done = train(tmp_path)
    assert "training resumes from this checkpoint" in done.stderr, done.stderr[-3000:]
    assert completions(tmp_path) == completions(trained)[2 * 4 :]
    assert (tmp_path / "adapter/training.jsonl").read_bytes() == (trained / "adapter/training.jsonl").read_bytes()


def test_two_seeds_sample_different_completions_and_the_gap_is_logged_without_a_correction(
    trained: Path, tmp_path: Path
):
    """The first step's completions: the model, the prompt and the adapter, which changes nothing yet, are equal."""
    changes = {"seed": 1, "grpo.max_steps": 2, "grpo.save_steps": 2}
    done = train(tmp_path, changes | {"grpo.importance_sampling_correction": False, "grpo.top_p": 1})
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(
        completion != other
        for completion, other in zip(completions(tmp_path)[:4], completions(trained)[:4], strict=True)
    )
    gaps = [step.get("sampling/sampling_logp_difference/mean", math.inf) for step in steps_in(tmp_path)]
    assert gaps[0] < 0.05
    assert gaps[1] == math.inf  # every save_steps steps


def test_an_update_that_merging_would_round_away_reaches_the_sampler():
    code = f"""
import torch
from peft.tuners.lora import LoraLayer
from vllm import SamplingParams
from arc_refinery.config import Lora, ModelConfig
from arc_refinery.sampling.library_arguments import vllm_colocated
from arc_refinery.training import adapters, colocated

network = adapters.open_network(ModelConfig(path={TINY!r}, window=64, dtype="bfloat16"), Lora(lora_r=1), None, seed=0)
engine = colocated.Engine(vllm_colocated("bfloat16", 8, None), model={TINY!r}, max_model_len=64, enforce_eager=True)

def logprobs():
    engine.load(network)
    engine.reset_prefix_cache()
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    (answer,) = engine.generate([dict(prompt_token_ids=list(range(5, 45)))], sampling_params=params, use_tqdm=False)
    return torch.tensor([next(iter(token.values())).logprob for token in answer.prompt_logprobs[1:]])

before, kept = logprobs(), []
for name, weights in network.named_parameters():
    if "lora_B" in name:
        weights.data.fill_(2e-6)
for layer in network.modules():
    if isinstance(layer, LoraLayer):
        base = layer.base_layer.weight
        merged = base.float() + layer.get_delta_weight("default").float()
        kept.append((merged.to(base.dtype) == base).flatten())
print("found", torch.cat(kept).float().mean().item(), (logprobs() - before).abs().mean().item())
"""
    done = vllm_cpu.run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("found "))
    share_of_equal_weights, change = map(float, line.split()[1:])
    assert share_of_equal_weights > 0.9
    assert change > 1e-4  # nats per token


def test_vllm_samples_both_turns_of_on_policy_episodes(tmp_path: Path):
    done = train(tmp_path, {"grpo.rollout": "on-policy"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sampler check" in done.stderr
    assert len(steps_in(tmp_path)) == 3
    assert all("sampling/sampling_logp_difference/mean" in step for step in steps_in(tmp_path))


def test_the_correction_leaves_long_completions_their_gradient(tmp_path: Path, endless: str):
    """vLLM's log-probabilities come after top_p, the trainer's do not: a little a token, much over a completion."""
    grpo = {"temperature": 1, "top_p": 0.95, "repetition_penalty": 1, "mask_truncated_completions": False}
    changes: Changes = {f"grpo.{name}": value for name, value in (grpo | {"max_steps": 1}).items()}
    changes |= {"lengths": {"max_completion_length": 100, "max_seq_length": 600}}
    done = run(colocated.train(tmp_path, changes | {"model.path": endless, "model.window": 600}))
    assert done.returncode == 0, done.stderr[-3000:]
    (step,) = steps_in(tmp_path)
    n_tokens = step["completions/mean_length"]
    assert n_tokens > 80
    # what a ratio over the whole completion would leave of its gradient
    assert math.exp(-n_tokens * step["sampling/sampling_logp_difference/mean"]) < 0.1
    assert 0.5 < step["sampling/importance_sampling_ratio/mean"] < 1.5


def test_a_sampler_that_never_gets_the_weights_stops_the_training(tmp_path: Path):
    done = run(colocated.train(tmp_path), patch=SEND_ONCE)
    assert done.returncode == 1
    assert "the sampler does not follow the training" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "adapter").exists()


def test_each_of_two_processes_samples_completions_of_its_own(tmp_path: Path):
    done = run(
        colocated.train(tmp_path, {"grpo.n_processes": 2, "grpo.gradient_accumulation_steps": 2}),
        patch=WRITE_COMPLETIONS.format(folder=tmp_path),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert len(first) == len(second) == 3 * 2  # steps, halves of a group
    # with one stream of random numbers for both, all would be equal; some are by chance
    assert sum(completion != other for completion, other in zip(first, second, strict=True)) >= 3
    steps = steps_in(tmp_path)
    # the samplers' log-probabilities, of the completions of both, are those of the trainer
    assert [step["sampling/sampling_logp_difference/mean"] < 0.05 for step in steps] == [True] * 3


def test_vllm_samples_every_turn_of_episodes_with_tools(tmp_path: Path):
    done = run(colocated.train_tools(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sampler check" in done.stderr
    steps = steps_in(tmp_path)
    assert len(steps) == 2
    assert any(step["calls"] > 0 for step in steps)
    assert all(abs(step["sampling/sampling_logp_difference/mean"]) < 0.05 for step in steps)
