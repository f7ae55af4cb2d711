"""Sampling with vLLM, on GPUs or with its CPU build.

Only public names of vLLM are used, among them `LLMEngine.add_request` and `.step`: `LLM.generate` returns nothing until
everything is finished, so a killed job would lose all of it.

Each prompt has its own seed, but vLLM batches prompts as they come, and how floats are summed may depend on the batch.
On a CPU with one thread, completions did not depend on the batch; on a GPU a few may differ if a job was resumed or the
number of shards changed.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from arc_refinery.config import ModelConfig, PromptedModel
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.records import Prompt
from arc_refinery.sampling import library_arguments
from arc_refinery.sampling.checks import adapter_config
from arc_refinery.sampling.library_variables import set_vllm_variables
from arc_refinery.sampling.protocol import Completion, Decoding, Sampled
from arc_refinery.seeding import stream_seed

BATCHES_AHEAD = 2  # queued requests, in units of the engine's batch size, so that it never runs dry


class VllmSampler:
    def __init__(self, model: PromptedModel, adapter: Path | None, decoding: Decoding) -> None:
        self.decoding = decoding
        self.tokenizer = load_tokenizer(model.path)
        opened, self.adapter = open_engine(model, adapter, decoding.seed)
        self.engine = opened.llm_engine

    def sample(self, prompts: Sequence[Prompt]) -> Iterator[Sampled]:
        ahead = BATCHES_AHEAD * self.engine.vllm_config.scheduler_config.max_num_seqs
        waiting = deque(prompts)
        n_wanted = {prompt.prompt_id: prompt.n_predictions for prompt in prompts}
        while waiting or self.engine.has_unfinished_requests():
            while waiting and self.engine.get_num_unfinished_requests() < ahead:
                self._submit(waiting.popleft())
            for answer in self.engine.step():
                if answer.finished:
                    completions = [self._completion(output) for output in answer.outputs]
                    # greedy completions are all equal, and vLLM refuses n > 1 for them
                    copies = n_wanted[answer.request_id] // len(completions)
                    yield {answer.request_id: completions * copies}

    def _submit(self, prompt: Prompt) -> None:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        # ids, not text: vLLM would add a second start token before the chat template's
        ids = self.tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
        decoding = self.decoding
        params = library_arguments.vllm_attempt(
            decoding.temperature,
            decoding.top_p,
            decoding.max_output_tokens,
            n=prompt.n_predictions if decoding.temperature else 1,
            seed=stream_seed(decoding.seed, "sample", prompt.prompt_id),
        )
        self.engine.add_request(
            prompt.prompt_id, tokens_input(ids), SamplingParams(**params), lora_request=self.adapter
        )

    def _completion(self, output: Any) -> Completion:
        ids = list(output.token_ids)
        text = self.tokenizer.decode(ids[:-1] if output.finish_reason == "stop" else ids, skip_special_tokens=True)
        return Completion(text, len(ids), str(output.finish_reason), float(output.cumulative_logprob))


def open_engine(model: ModelConfig, adapter: Path | None, seed: int) -> tuple[Any, Any]:
    """Return vLLM's engine and its request for the adapter (None without an adapter)."""
    on_gpu = torch.cuda.is_available()
    set_vllm_variables()
    if not on_gpu:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # a separate process starts much slower
        torch.set_num_threads(model.n_threads)
    from vllm import LLM
    from vllm.lora.request import LoRARequest

    lora_rank = None if adapter is None else supported_rank(adapter_config(adapter)["r"])
    engine = LLM(**library_arguments.vllm_engine(model, lora_rank, seed, on_gpu))
    return engine, None if adapter is None else LoRARequest("adapter", 1, str(adapter))


def supported_rank(rank: int) -> int:
    """Return the smallest maximal rank that vLLM supports for adapters of this rank."""
    from vllm.config.lora import MaxLoRARanks

    ranks: tuple[int, ...] = get_args(MaxLoRARanks)
    return min((one for one in ranks if one >= rank), default=max(ranks))
