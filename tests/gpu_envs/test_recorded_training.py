"""The stage `train`, also of tool use, with vLLM in the trainer, a recorder in its place (recorder.py), on the CPU.

Not checked, because it takes a GPU: vLLM's own weights, and memory that both share.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import colocated
import pytest
from checkout import TINY, TINY_TOOLS
from gpu_envs.pretended import engine_config

RECORDER = Path(__file__).with_name("recorder.py")
TRAININGS = {"refining": (colocated.train, TINY), "tool-use": (colocated.train_tools, TINY_TOOLS)}

pytestmark = pytest.mark.training


@pytest.fixture(scope="module", params=TRAININGS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Any]:
    """The model, the folder of a short training in bfloat16, and what the recorder saw."""
    command, model = TRAININGS[request.param]
    folder = tmp_path_factory.mktemp("trained")
    job = command(folder, {"model.dtype": "bfloat16"})
    words = [sys.executable, str(RECORDER), f"{folder}/record.json", *job]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sampler check" in done.stderr
    return model, folder, json.loads((folder / "record.json").read_text())


def test_every_step_was_made(trained: tuple[str, Path, Any]):
    _, folder, _ = trained
    lines = (folder / "adapter/training.jsonl").read_text().splitlines()
    steps = [entry for entry in map(json.loads, lines) if "reward" in entry]
    assert len(steps) >= 2
    assert all("sampling/sampling_logp_difference/mean" in entry for entry in steps)


def test_vllm_gets_the_adapter_with_every_update(trained: tuple[str, Path, Any]):
    _, _, record = trained
    assert record["n_loads"] == record["n_syncs"] >= 3 + 2  # the check, and each step


def test_the_base_keeps_its_weights(trained: tuple[str, Path, Any]):
    _, _, record = trained
    assert record["dtype"] == "torch.bfloat16"
    assert record["drifted"] == []


def test_turns_of_episodes_end_at_the_stop_token(trained: tuple[str, Path, Any]):
    model, _, record = trained
    stops = {TINY: [], TINY_TOOLS: [stop_id()]}
    assert record["params"]["stop_token_ids"] == stops[model]


def stop_id() -> int:
    from transformers import AutoTokenizer

    return int(AutoTokenizer.from_pretrained(TINY_TOOLS).convert_tokens_to_ids("<|im_end|>"))


def test_vllm_admits_the_engine_that_trl_opens(trained: tuple[str, Path, Any]):
    model, _, record = trained
    config = engine_config(record["engine"])
    assert config.model_config.model == model
    assert config.model_config.max_model_len == 512
    assert config.cache_config.gpu_memory_utilization == 0.1
    assert config.model_config.logprobs_mode == "processed_logprobs"
    assert config.parallel_config.distributed_executor_backend == "external_launcher"
    assert str(config.model_config.dtype) == "torch.bfloat16"
    assert (config.lora_config.max_lora_rank, config.lora_config.max_loras) == (8, 1)
