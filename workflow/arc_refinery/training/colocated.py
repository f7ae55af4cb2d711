"""vLLM in the trainer's process, opened by TRL, with the trained adapter beside its weights, as evaluation has it.

TRL would merge the adapter into vLLM's weights. In bfloat16 that rounds small updates away, at first nearly all, so the
sampler would lag behind the training. Here vLLM's weights never change, and each update sends the adapter alone.
"""

import tempfile
from functools import partial
from typing import Any

from trl.generation import vllm_generation
from vllm import LLM
from vllm.lora.request import LoRARequest

from arc_refinery.config import Lora, ModelConfig, PolicyGradient
from arc_refinery.errors import InputError
from arc_refinery.sampling.library_arguments import vllm_colocated
from arc_refinery.sampling.vllm_sampler import supported_rank

NAME, NUMBER = "trained", 1  # what vLLM calls the adapter


class Engine(LLM):
    """TRL's engine, with `ours` in addition to or instead of its own keywords (`library_arguments.vllm_colocated`)."""

    def __init__(self, ours: dict[str, Any], **theirs: Any) -> None:
        super().__init__(**theirs | ours)
        dtype = str(self.llm_engine.model_config.dtype).removeprefix("torch.")
        if dtype != ours["dtype"]:
            raise InputError(f"dtype: training has {ours['dtype']}, but vLLM samples in {dtype}; set it to {dtype}")

    def load(self, network: Any) -> None:
        """Replace the adapter that completions are sampled with by the trained one of a `PeftModel`."""
        with tempfile.TemporaryDirectory(prefix="adapter-") as folder:
            network.save_pretrained(folder, selected_adapters=["default"])
            self.llm_engine.add_lora(LoRARequest(NAME, NUMBER, folder, load_inplace=True))

    def generate(self, *arguments: Any, **named: Any) -> Any:
        # It is loaded, so nothing reads its path; with load_inplace, each token would.
        return super().generate(*arguments, **named, lora_request=LoRARequest(NAME, NUMBER, "loaded"))

    def sleep(self, level: int = 1, **named: Any) -> None:
        """Keep the weights in the machine's memory (level 1): TRL's level 2 drops them, and ours are never sent."""
        super().sleep(1, **named)


def open_with(model: ModelConfig, lora: Lora, training: PolicyGradient) -> None:
    """Let TRL open an `Engine` instead of its own."""
    keywords = vllm_colocated(model.dtype, supported_rank(lora.lora_r), training.kv_cache_gb)
    vllm_generation.LLM = partial(Engine, keywords)
