"""Training with vLLM in the trainer's process, on vLLM's CPU build. Skipped where vLLM is not installed.

That build packs weights away when it loads a model, so that new ones cannot be put in their place. The tests keep them;
nothing else about vLLM or TRL is changed.
"""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import colocated
import pytest
from checkout import TINY
from vllm_cpu import environment, needs_vllm

KEEP_WEIGHTS = """
import torch
from vllm.model_executor.layers import utils
def keep(layer, remove_weight):
    layer.cpu_linear = torch.nn.functional.linear
utils.dispatch_cpu_unquantized_gemm = keep
from vllm.model_executor.layers import linear, vocab_parallel_embedding
for module in (linear, vocab_parallel_embedding):
    if hasattr(module, "dispatch_cpu_unquantized_gemm"):
        module.dispatch_cpu_unquantized_gemm = keep
"""
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
SEND_NOTHING = """
from trl.generation.vllm_generation import VLLMGeneration
VLLMGeneration.sync_weights = lambda self: None
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
    return str(folder)


def run(words: list[str], patch: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{KEEP_WEIGHTS}{patch}\nfrom arc_refinery.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment(VLLM_ENABLE_V1_MULTIPROCESSING="0"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "flags", [(), ("--rollout", "on-policy", "--frequency-penalty", "0.1")], ids=["prepared", "on-policy"]
)
def test_vllm_samples_from_the_weights_that_are_trained(tmp_path: Path, flags: tuple[str, ...]):
    done = run([*colocated.train(tmp_path), *flags])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sampler check" in done.stderr
    lines = (tmp_path / "adapter/training.jsonl").read_text().splitlines()
    steps = [entry for entry in map(json.loads, lines) if "reward" in entry]
    assert len(steps) == 3
    assert all("sampling/sampling_logp_difference/mean" in entry for entry in steps)


def test_the_correction_leaves_long_completions_their_gradient(tmp_path: Path, endless: str):
    """vLLM's log-probabilities come after top_p, the trainer's do not: a little a token, much over a completion."""
    flags = "--temperature 1 --top-p 0.95 --repetition-penalty 1 --no-mask-truncated-completions"
    flags += " --max-completion-length 400 --max-seq-length 1024 --max-steps 1"
    done = run([*colocated.train(tmp_path), *flags.split(), "--model-path", endless])
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (tmp_path / "adapter/training.jsonl").read_text().splitlines()
    (step,) = (entry for entry in map(json.loads, lines) if "reward" in entry)
    n_tokens = step["completions/mean_length"]
    assert n_tokens > 300
    # what a ratio over the whole completion would leave of its gradient
    assert math.exp(-n_tokens * step["sampling/sampling_logp_difference/mean"]) < 0.1
    assert 0.5 < step["sampling/importance_sampling_ratio/mean"] < 1.5


def test_a_sampler_that_never_gets_the_weights_stops_the_training(tmp_path: Path):
    done = run(colocated.train(tmp_path), patch=SEND_NOTHING)
    assert done.returncode == 1
    assert "the sampler does not follow the training" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "adapter").exists()


def test_each_of_two_processes_samples_completions_of_its_own(tmp_path: Path):
    done = run(
        [*colocated.train(tmp_path), "--n-processes", "2", "--gradient-accumulation-steps", "2"],
        patch=WRITE_COMPLETIONS.format(folder=tmp_path),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert len(first) == len(second) == 3 * 2  # steps, halves of a group
    assert all(one != other for one, other in zip(first, second, strict=True))
    lines = (tmp_path / "adapter/training.jsonl").read_text().splitlines()
    steps = [entry for entry in map(json.loads, lines) if "reward" in entry]
    # the samplers' log-probabilities, of the completions of both, are those of the trainer
    assert [step["sampling/sampling_logp_difference/mean"] < 0.05 for step in steps] == [True] * 3


def test_vllm_samples_every_turn_of_episodes_with_tools(tmp_path: Path):
    done = run(colocated.train_tools(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sampler check" in done.stderr
    lines = (tmp_path / "adapter/training.jsonl").read_text().splitlines()
    steps = [entry for entry in map(json.loads, lines) if "reward" in entry]
    assert len(steps) == 2
    assert any(step["calls"] > 0 for step in steps)
    assert all(abs(step["sampling/sampling_logp_difference/mean"]) < 0.05 for step in steps)
