"""The network that is trained, through Unsloth: what `adapters.open_network` gives, with Unsloth's kernels on a GPU.

Import this before trl, transformers and peft: Unsloth replaces parts of them. On a GPU that includes TRL's trainer and
its loss; on a CPU the trainer stays TRL's own, and Unsloth only loads the model (docs/environments.md).
"""

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from arc_refinery.config import Lora, ModelConfig, PolicyGradient
from arc_refinery.errors import InputError
from arc_refinery.library_arguments import unsloth_adapter, unsloth_model
from arc_refinery.sampling.checks import adapter_config

if TYPE_CHECKING:
    from peft import PeftModel


class UnslothError(InputError):
    """Training cannot go through Unsloth; the message says why."""


if find_spec("unsloth") is None:
    raise UnslothError(
        "unsloth: the package is not installed in this environment; train in one that was made from "
        "envs/gpu-unsloth.txt, or without a GPU from envs/unsloth-cpu.txt (docs/environments.md)"
    )

# It writes trainers as source code, by default into the working directory, where jobs would share them
_WRITTEN = tempfile.TemporaryDirectory(prefix="unsloth-")
os.environ["UNSLOTH_COMPILE_LOCATION"] = _WRITTEN.name
os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"  # else it asks a hub for a file, in order to be counted

import torch  # noqa: E402
from unsloth import FastLanguageModel  # noqa: E402

from arc_refinery.tokenizers import load_tokenizer  # noqa: E402


def open_network(
    model: ModelConfig, lora: Lora, training: PolicyGradient, start: Path | None, seed: int
) -> "PeftModel":
    """The model under a fresh adapter, or under the one in the folder `start`, which training then changes."""
    has_gpu = torch.cuda.is_available()
    _check(model, lora, training, start, has_gpu)
    network, _ = FastLanguageModel.from_pretrained(**unsloth_model(model, lora, training, start, seed, has_gpu))
    if start is None:
        network = FastLanguageModel.get_peft_model(network, **unsloth_adapter(lora, seed, has_gpu))
    loaded = str(network.get_base_model().dtype).removeprefix("torch.")
    if loaded != model.dtype:
        raise UnslothError(f"dtype: is {model.dtype}, but Unsloth loads {loaded} here; set it to {loaded}")
    return network


def _check(model: ModelConfig, lora: Lora, training: PolicyGradient, start: Path | None, has_gpu: bool) -> None:
    if has_gpu and model.dtype == "float32":
        raise UnslothError(
            "dtype: on a GPU, Unsloth trains float32 weights in mixed precision all the same; set it to bfloat16 or "
            "float16, or train without unsloth"
        )
    if not has_gpu and (lora.load_in_4bit or training.sampler != "transformers"):
        raise UnslothError("unsloth: 4-bit weights and vLLM inside the trainer need a GPU, and there is none here")
    tokenizer = load_tokenizer(model.path)
    if tokenizer.pad_token == tokenizer.eos_token:
        raise UnslothError(
            f"{model.path}: Unsloth takes every {tokenizer.pad_token} for padding, also where it ends an answer; name "
            "another pad_token in its tokenizer_config.json, or train without unsloth"
        )
    if start is None:
        return
    if training.beta:
        raise UnslothError(
            f"{start}: on a GPU, Unsloth's KL term compares with the model without this adapter, not with where "
            "training starts; set beta to 0, or train without unsloth"
        )
    base = str(adapter_config(start).get("base_model_name_or_path"))
    if Path(base).resolve() != Path(model.path).resolve():  # Unsloth would load that one
        raise UnslothError(f"{start}: is an adapter of the model {base}, not of {model.path}; take one of this model")
