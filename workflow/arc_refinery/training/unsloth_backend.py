"""The trained network, loaded by Unsloth: as `adapters.open_network`, with Unsloth's kernels on a GPU.

Import this before trl, transformers and peft: Unsloth replaces parts of them. On a GPU that includes TRL's trainer and
its loss; on a CPU the trainer stays TRL's own, and Unsloth only loads the model (docs/run.md).
"""

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from arc_refinery.config import Lora, ModelConfig, PolicyGradient
from arc_refinery.errors import InputError
from arc_refinery.sampling.checks import adapter_config
from arc_refinery.sampling.library_arguments import unsloth_adapter, unsloth_model

if TYPE_CHECKING:
    from peft import PeftModel


if find_spec("unsloth") is None:
    raise InputError(
        "unsloth: the package is not installed in this environment; train in one made from "
        "envs/gpu-unsloth.txt, or without a GPU from envs/unsloth-cpu.txt (docs/run.md)"
    )

# Unsloth writes trainers as source code, by default into the working directory, where jobs would share them
_WRITTEN = tempfile.TemporaryDirectory(prefix="unsloth-")
os.environ["UNSLOTH_COMPILE_LOCATION"] = _WRITTEN.name
os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"  # else it downloads a file from the hub, to be counted

import torch  # noqa: E402
from unsloth import FastLanguageModel  # noqa: E402

from arc_refinery.models.tokenizers import load_tokenizer  # noqa: E402


def open_unsloth_network(
    model: ModelConfig, lora: Lora, training: PolicyGradient, start: Path | None, seed: int
) -> "PeftModel":
    """Return the model with a fresh adapter, or with the one in the folder `start`, which training then changes."""
    has_gpu = torch.cuda.is_available()
    _check(model, lora, training, start, has_gpu)
    network, _ = FastLanguageModel.from_pretrained(**unsloth_model(model, lora, training, start, seed, has_gpu))
    if start is None:
        network = FastLanguageModel.get_peft_model(network, **unsloth_adapter(lora, seed, has_gpu))
    loaded = str(network.get_base_model().dtype).removeprefix("torch.")
    if loaded != model.dtype:
        raise InputError(f"dtype: it is {model.dtype}, but Unsloth loads {loaded} here; set it to {loaded}")
    return network


def _check(model: ModelConfig, lora: Lora, training: PolicyGradient, start: Path | None, has_gpu: bool) -> None:
    if has_gpu and model.dtype == "float32":
        raise InputError(
            "dtype: on a GPU, Unsloth trains float32 weights in mixed precision anyway; set it to bfloat16 or "
            "float16, or train without unsloth"
        )
    if not has_gpu and (lora.load_in_4bit or training.sampler != "transformers"):
        raise InputError("unsloth: 4-bit weights and vLLM inside the trainer need a GPU, and this machine has none")
    tokenizer = load_tokenizer(model.path)
    if tokenizer.pad_token == tokenizer.eos_token:
        raise InputError(
            f"{model.path}: Unsloth treats every {tokenizer.pad_token} as padding, even if it ends an answer; set "
            "another pad_token in its tokenizer_config.json, or train without unsloth"
        )
    if start is None:
        return
    if training.beta:
        raise InputError(
            f"{start}: on a GPU, Unsloth's KL term compares with the model without this adapter, not with the "
            "start of training; set beta to 0, or train without unsloth"
        )
    base = str(adapter_config(start).get("base_model_name_or_path"))
    if Path(base).resolve() != Path(model.path).resolve():  # Unsloth would load the base
        raise InputError(f"{start}: an adapter of the model {base}, not of {model.path}; use one of this model")
