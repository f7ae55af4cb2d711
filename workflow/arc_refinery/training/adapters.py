"""The trained network, a frozen model under a LoRA adapter; reading and writing the adapter's folder."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copymode
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import set_seed

from arc_refinery.config import Lora, ModelConfig
from arc_refinery.errors import ModelError
from arc_refinery.files import atomic_write
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS
from arc_refinery.sampling.library_arguments import lora_adapter
from arc_refinery.sampling.transformers_sampler import load_weights, not_finite


def open_network(model: ModelConfig, lora: Lora, start: Path | None, seed: int) -> PeftModel:
    """Return the model with a fresh adapter, or with the one in the folder `start`, which training then changes."""
    network = open_base(model, lora)
    if start is not None:
        return PeftModel.from_pretrained(network, start, is_trainable=True)
    set_seed(seed)  # peft draws the adapter's first matrix
    return get_peft_model(network, lora_config(lora))


def open_base(model: ModelConfig, lora: Lora) -> Any:
    """Return the model without an adapter; raise `ModelError` if this machine cannot train it in its precision."""
    has_gpu = torch.cuda.is_available()
    if model.dtype != "float32" and torch.version.cuda and not has_gpu:
        raise ModelError(
            f"dtype {model.dtype} is for training on a GPU, and torch {torch.__version__} finds none. Does "
            f"`nvidia-smi` show one, with a driver for CUDA {torch.version.cuda}, and does CUDA_VISIBLE_DEVICES "
            "name it? To train on the CPU anyway, set the dtype to float32"
        )
    if model.dtype == "bfloat16" and has_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        major, minor = torch.cuda.get_device_capability()
        raise ModelError(
            "dtype bfloat16 needs a GPU of compute capability 8.0 (Ampere) or newer, and "
            f"{torch.cuda.get_device_name()} has {major}.{minor}: torch would emulate it slowly. Ask the cluster for "
            "another GPU (docs/run.md), or set the dtype to float16"
        )
    if model.dtype == "float16" and not has_gpu:
        raise ModelError("dtype float16 trains on a GPU only, and this machine has none; use float32 or bfloat16")
    return load_weights(model, lora.load_in_4bit)


def lora_config(lora: Lora) -> LoraConfig:
    return LoraConfig(**lora_adapter(lora))


def read_weights(network: Any, folder: Path) -> None:
    """Load a folder's weights into the trained adapter."""
    set_peft_model_state_dict(network, load_file(folder / ADAPTER_WEIGHTS), adapter_name="default")


def fault_of_adapter(network: Any) -> str:
    """Return that the trained adapter holds values that are not finite numbers; empty if all are."""
    wrong = not_finite(network, is_trained=True)
    fault = f"{len(wrong)} of the adapter's matrices hold values that are not finite numbers, such as"
    return f"{fault} {wrong[0]}" if wrong else ""


def write_adapter(network: Any, output: Path, add: Callable[[Path], None]) -> None:
    """Write the adapter, and the files that `add` puts next to it, atomically to the folder `output`."""
    if fault := fault_of_adapter(network):
        raise ModelError(
            f"{output}: not written, because {fault}; train again, with a lower learning_rate or max_grad_norm"
        )
    with atomic_write(output, SafetensorError) as unfinished:
        network.save_pretrained(unfinished, selected_adapters=["default"])
        copymode(unfinished / "adapter_config.json", unfinished / ADAPTER_WEIGHTS)  # not for its owner alone
        (unfinished / "README.md").unlink(missing_ok=True)  # peft's empty model card
        settings = json.loads((unfinished / "adapter_config.json").read_text())
        settings["target_modules"].sort()  # peft writes a set, whose order differs per process
        (unfinished / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
        add(unfinished)
