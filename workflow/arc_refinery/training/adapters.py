"""The network that is trained: a model's weights, frozen, under a LoRA adapter; and the adapter as a folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import BitsAndBytesConfig, set_seed

from arc_refinery.config import Lora, Network
from arc_refinery.errors import ModelError
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS
from arc_refinery.sampling.transformers_sampler import load_weights


def open_network(model: Network, lora: Lora, start: Path | None, load_in_4bit: bool, seed: int) -> PeftModel:
    """The model under a fresh adapter, or under the one in the folder `start`, which training then changes."""
    network = open_base(model, load_in_4bit)
    if start is not None:
        return PeftModel.from_pretrained(network, start, is_trainable=True)
    set_seed(seed)  # peft draws the adapter's first matrix
    return get_peft_model(network, lora_config(lora))


def open_base(model: Network, load_in_4bit: bool) -> Any:
    """The model as it is; raises `ModelError` where this machine cannot train it in its precision."""
    if model.dtype == "float16" and not torch.cuda.is_available():
        raise ModelError("dtype float16 trains on a GPU only, and there is none here; use float32 or bfloat16")
    quantization = BitsAndBytesConfig(load_in_4bit=True) if load_in_4bit else None
    return load_weights(model, quantization_config=quantization)


def lora_config(lora: Lora) -> LoraConfig:
    return LoraConfig(
        r=lora.lora_r,
        lora_alpha=lora.lora_alpha,
        use_rslora=True,
        target_modules=list(lora.target_modules),
        task_type="CAUSAL_LM",
    )


def read_weights(network: Any, folder: Path) -> None:
    """Give the adapter that is trained the weights of a folder."""
    set_peft_model_state_dict(network, load_file(folder / ADAPTER_WEIGHTS), adapter_name="default")


def write_adapter(network: Any, output: Path, add: Callable[[Path], None]) -> None:
    """Write the adapter, and what `add` puts beside it, to the folder `output` at once."""
    temporary = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    network.save_pretrained(temporary, selected_adapters=["default"])
    (temporary / "README.md").unlink(missing_ok=True)  # peft's empty model card
    settings = json.loads((temporary / "adapter_config.json").read_text())
    settings["target_modules"].sort()  # peft writes a set in the order of this process's hashes
    (temporary / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    add(temporary)
    shutil.rmtree(output, ignore_errors=True)
    os.replace(temporary, output)
