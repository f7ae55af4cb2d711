"""Needs of the first run on a GPU that no CPU run shows: 4 bits, merged weights for vLLM, devices, signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from checkout import TINY

from arc_refinery import cli
from arc_refinery.cli import published
from arc_refinery.config import Lora, ModelConfig
from arc_refinery.errors import ModelError


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Keywords that transformers would load weights with; nothing is loaded."""
    import torch
    from transformers import AutoModelForCausalLM

    calls: list[dict[str, Any]] = []

    def from_pretrained(path: str, **named: Any) -> tuple[Any, dict[str, list[str]]]:
        calls.append(named)
        return torch.nn.Module(), {"missing_keys": []}

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    return calls


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_4_bits_are_nf4_with_double_quantisation_computed_in_the_models_dtype(loaded: list[dict[str, Any]], dtype: str):
    import torch

    from arc_refinery.training.adapters import open_base

    open_base(ModelConfig(path=TINY, window=9, dtype=dtype), Lora(load_in_4bit=True))
    settings = loaded[0]["quantization_config"]
    assert settings.load_in_4bit
    assert (settings.bnb_4bit_quant_type, settings.bnb_4bit_use_double_quant) == ("nf4", True)
    assert settings.bnb_4bit_compute_dtype is getattr(torch, dtype)


def test_whole_weights_are_not_quantised(loaded: list[dict[str, Any]]):
    from arc_refinery.training.adapters import open_base

    open_base(ModelConfig(path=TINY, window=9), Lora())
    assert "quantization_config" not in loaded[0]


def test_networks_attend_without_cudnn(loaded: list[dict[str, Any]]):
    import torch

    from arc_refinery.training.adapters import open_base

    was_on = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        open_base(ModelConfig(path=TINY, window=9), Lora())
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_on)


def test_sft_trains_on_4_bits_too(monkeypatch: pytest.MonkeyPatch, loaded: list[dict[str, Any]]):
    from arc_refinery.training import adapters

    monkeypatch.setattr(adapters, "get_peft_model", lambda network, config: network)
    adapters.open_network(ModelConfig(path=TINY, window=9), Lora(load_in_4bit=True), None, seed=0)
    assert loaded[0]["quantization_config"].load_in_4bit


def test_a_torch_for_gpus_that_finds_none_trains_no_16_bit_weights(
    monkeypatch: pytest.MonkeyPatch, loaded: list[dict[str, Any]]
):
    import torch

    from arc_refinery.training.adapters import open_base

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=r"a driver for CUDA 13\.0, and does CUDA_VISIBLE_DEVICES name it"):
        open_base(ModelConfig(path=TINY, window=9, dtype="bfloat16"), Lora())
    open_base(
        ModelConfig(path=TINY, window=9, dtype="float32"), Lora()
    )  # as the demo does, whatever torch is installed
    monkeypatch.setattr(torch.version, "cuda", None)
    open_base(ModelConfig(path=TINY, window=9, dtype="bfloat16"), Lora())
    assert len(loaded) == 2


def test_a_gpu_without_bfloat16_is_refused_where_torch_would_emulate_it(
    monkeypatch: pytest.MonkeyPatch, loaded: list[dict[str, Any]]
):
    import torch

    from arc_refinery.training.adapters import open_base

    def put_in(name: str, major: int, minor: int) -> None:
        properties = SimpleNamespace(name=name, major=major, minor=minor)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    put_in("Quadro RTX 8000", 7, 5)
    with pytest.raises(ModelError, match=r"8\.0 \(Ampere\) or newer, and Quadro RTX 8000 has 7\.5"):
        open_base(ModelConfig(path=TINY, window=9, dtype="bfloat16"), Lora())
    open_base(ModelConfig(path=TINY, window=9, dtype="float16"), Lora())
    put_in("NVIDIA A40", 8, 6)
    open_base(ModelConfig(path=TINY, window=9, dtype="bfloat16"), Lora())
    assert len(loaded) == 2


def test_what_starts_a_training_leaves_the_first_import_to_unsloth():
    code = "import sys, arc_refinery.training.job; sys.exit(bool({'torch', 'transformers', 'trl'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_training_sees_its_own_gpus_before_cuda_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    visible: list[str] = []
    monkeypatch.setattr(published, "_has_gpu", lambda: visible.append(os.environ["CUDA_VISIBLE_DEVICES"]))
    monkeypatch.setattr(published.Train, "prompts", lambda *_: Path("prompts"))
    monkeypatch.setattr(published, "_do", lambda *_, **__: None)
    cli.parse(["train", "--dataset-path", "x", "--output", "y"]).run()
    assert visible == ["5"]


STARTS_ANOTHER = """
import subprocess, sys, time
from arc_refinery import cli
from arc_refinery.cli import published
from arc_refinery.cli.command import Command
class Sleep(Command):
    def run(self):
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
        time.sleep(600)
cli.load = lambda *_: Sleep
sys.argv = ["arc-refinery", "sample"]
cli.main()
"""


@pytest.fixture
def command() -> Iterator[subprocess.Popen[str]]:
    """A command that has started another process, as vLLM starts its engine."""
    with subprocess.Popen([sys.executable, "-c", STARTS_ANOTHER], stdout=subprocess.PIPE, text=True) as running:
        yield running
        running.kill()


def test_sigterm_ends_what_a_command_has_started(command: subprocess.Popen[str]):
    assert command.stdout is not None
    other = psutil.Process(int(command.stdout.readline()))
    command.send_signal(signal.SIGTERM)
    assert command.wait(30) == -signal.SIGTERM
    deadline = time.monotonic() + 30
    while other.is_running() and other.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)
