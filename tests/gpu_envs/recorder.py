"""`arc-refinery` with a recorder in the place of vLLM's engine: `python recorder.py RECORD train ...`.

The recorder holds the model's network on the CPU. It loads the weights that TRL sends, samples from them by
transformers, and gives what vLLM would. The file RECORD gets, as JSON, the keywords of the engine and of the sampling
parameters, the names of the weights, and those weights under the adapter that training changed (`drifted`).
"""

import inspect
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # the loss of TRL 1.15 is a Triton kernel, on a CPU too

import torch
import trl.generation.vllm_generation
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput

from arc_refinery.cli import main
from arc_refinery.training import grpo
from arc_refinery.training.adapters import write_adapter

torch.version.cuda = None  # else 16-bit weights are refused where there is no GPU
seen: dict[str, Any] = {"names": [], "n_syncs": 0, "params": {}}


class Recorder:
    def __init__(self, **keywords: Any) -> None:
        inspect.signature(LLM).bind(**keywords)
        seen["engine"] = keywords
        self.network = AutoModelForCausalLM.from_pretrained(keywords["model"], dtype=torch.float32)
        self.weights = dict(self.network.named_parameters())
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self.load_weights))
        worker = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        config = SimpleNamespace(max_model_len=keywords["max_model_len"])
        self.llm_engine = SimpleNamespace(model_executor=worker, model_config=config)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        for name, values in weights:
            seen["names"].append(name)
            self.weights[name].data.copy_(values)

    def reset_prefix_cache(self) -> None:
        seen["n_syncs"] += 1

    def generate(
        self, prompts: Sequence[dict[str, list[int]]], sampling_params: SamplingParams, use_tqdm: bool
    ) -> list[RequestOutput]:
        inspect.signature(LLM.generate).bind(self, prompts, sampling_params=sampling_params, use_tqdm=use_tqdm)
        ends = sampling_params.stop_token_ids or self.network.generation_config.eos_token_id
        seen["params"] = {name: getattr(sampling_params, name) for name in ("temperature", "top_p", "stop_token_ids")}
        return [self._answer(prompt["prompt_token_ids"], sampling_params.max_tokens, ends) for prompt in prompts]

    def _answer(self, prompt: list[int], max_tokens: int | None, ends: list[int]) -> RequestOutput:
        settings = {"do_sample": True, "top_k": 0, "max_new_tokens": max_tokens, "eos_token_id": ends}
        drawn = self.network.generate(
            torch.tensor([prompt]), **settings, return_dict_in_generate=True, output_logits=True
        )
        ids = drawn.sequences[0, len(prompt) :].tolist()
        logprobs = [
            {token: Logprob(logits[0].log_softmax(-1)[token].item(), rank=1)}
            for token, logits in zip(ids, drawn.logits, strict=True)
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


trl.generation.vllm_generation.LLM = Recorder
setattr(grpo, "write_adapter", compare_and_write)  # noqa: B010  # that module imports it
record = Path(sys.argv.pop(1))
main()
seen["names"] = sorted(set(seen["names"]))
record.write_text(json.dumps(seen))
