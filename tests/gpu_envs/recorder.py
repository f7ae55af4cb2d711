"""`arc-refinery` with a recorder in the place of vLLM's engine: `python recorder.py RECORD stage train ...`.

The recorder holds the model's network on the CPU. It loads the adapters that it is given, samples with them by
transformers, and gives what vLLM would. The file RECORD gets, as JSON, the keywords of the engine and of the sampling
parameters, and the names of the weights under the adapter that training changed (`drifted`).
"""

import inspect
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # the loss of TRL 1.15 is a Triton kernel, on a CPU too

import torch
import vllm
from peft import PeftModel
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams
from vllm.logprobs import Logprob
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput

from arc_refinery.cli import main
from arc_refinery.training import grpo
from arc_refinery.training.adapters import write_adapter

torch.version.cuda = None  # otherwise 16-bit weights are refused without a GPU
seen: dict[str, Any] = {"n_loads": 0, "n_syncs": 0, "params": {}}


class Recorder:
    def __init__(self, **keywords: Any) -> None:
        inspect.signature(LLM).bind(**keywords)
        seen["engine"] = keywords
        self.network = AutoModelForCausalLM.from_pretrained(keywords["model"], dtype=torch.float32)
        config = SimpleNamespace(max_model_len=keywords["max_model_len"], dtype=getattr(torch, keywords["dtype"]))
        self.llm_engine = SimpleNamespace(model_config=config, add_lora=self.add_lora)
        self.loaded: LoRARequest | None = None

    def add_lora(self, request: LoRARequest) -> None:
        assert request.load_inplace
        if isinstance(self.network, PeftModel):
            self.network = self.network.unload()
        self.network = PeftModel.from_pretrained(self.network, request.lora_path)
        self.loaded = request
        seen["n_loads"] += 1

    def reset_prefix_cache(self) -> None:
        seen["n_syncs"] += 1

    def generate(
        self,
        prompts: Sequence[dict[str, list[int]]],
        sampling_params: SamplingParams,
        use_tqdm: bool,
        lora_request: LoRARequest,
    ) -> list[RequestOutput]:
        inspect.signature(LLM.generate).bind(
            self, prompts, sampling_params=sampling_params, use_tqdm=use_tqdm, lora_request=lora_request
        )
        assert lora_request == self.loaded and not lora_request.load_inplace  # equal by name
        ends = sampling_params.stop_token_ids or self.network.generation_config.eos_token_id
        seen["params"] = {name: getattr(sampling_params, name) for name in ("temperature", "top_p", "stop_token_ids")}
        return [self._answer(prompt["prompt_token_ids"], sampling_params.max_tokens, ends) for prompt in prompts]

    def _answer(self, prompt: list[int], max_tokens: int | None, ends: list[int]) -> RequestOutput:
        settings = {"do_sample": True, "top_k": 0, "max_new_tokens": max_tokens, "eos_token_id": ends}
        sample = self.network.generate(
            input_ids=torch.tensor([prompt]), **settings, return_dict_in_generate=True, output_logits=True
        )
        ids = sample.sequences[0, len(prompt) :].tolist()
        logprobs = [
            {token: Logprob(logits[0].log_softmax(-1)[token].item(), rank=1)}
            for token, logits in zip(ids, sample.logits, strict=True)
        ]
        completion = CompletionOutput(0, "", ids, cumulative_logprob=0.0, logprobs=logprobs, finish_reason="stop")
        return RequestOutput("0", None, prompt, None, [completion], finished=True)


def compare_and_write(network: Any, *arguments: Any) -> None:
    """Note which weights under the adapter are no longer those of the model."""
    model = AutoModelForCausalLM.from_pretrained(seen["engine"]["model"], dtype=network.dtype)
    base = dict(model.named_parameters())
    now = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): weights
        for name, weights in network.named_parameters()
        if "lora_" not in name
    }
    assert now.keys() == base.keys()
    seen["dtype"] = str(network.dtype)
    seen["drifted"] = [name for name in base if not torch.equal(now[name], base[name])]
    write_adapter(network, *arguments)


vllm.LLM = Recorder  # which our engine is derived from
setattr(grpo, "write_adapter", compare_and_write)  # noqa: B010  # that module imports it
record = Path(sys.argv.pop(1))
main()
record.write_text(json.dumps(seen))
