"""Sampling with vLLM, on GPUs or with its CPU build.

Only public names of vLLM are used, among them `LLMEngine.add_request` and `.step`: `LLM.generate` returns nothing until
everything is finished, so a killed job would lose all of it.

Each prompt has its own seed, but vLLM batches prompts as they come, and how floats are summed may depend on the batch.
On a CPU with one thread, completions did not depend on the batch; on a GPU a few may differ if a job was resumed or the
number of shards changed, unless `batch_invariant` is set.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from arc_refinery.config import ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.models.tokenizers import end_tokens
from arc_refinery.sampling import library_arguments
from arc_refinery.sampling.backends import Decoding, Report, Request, Sample, Sampled, no_report
from arc_refinery.sampling.checks import adapter_config
from arc_refinery.sampling.gpus import set_vllm_variables

BATCHES_AHEAD = 2  # queued requests, in units of the engine's batch size, so that it never runs dry


class VllmSampler:
    def __init__(self, model: ModelConfig, adapter: Path | None, decoding: Decoding, tokenizer: Any) -> None:
        self.decoding = decoding
        self.report: Report = no_report
        self.ends = frozenset(
            [*end_tokens(model.path, tokenizer, decoding.stop_token), *end_tokens(model.path, tokenizer)]
        )
        self.llm, self.adapter = open_engine(model, adapter, decoding.seed)

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        engine = self.llm.llm_engine
        ahead = BATCHES_AHEAD * engine.vllm_config.scheduler_config.max_num_seqs
        waiting = deque(requests)
        n_wanted = {request.request_id: request.n for request in requests}
        while waiting or engine.has_unfinished_requests():
            while waiting and engine.get_num_unfinished_requests() < ahead:
                self._submit(waiting.popleft())
            for answer in engine.step():
                if answer.finished:
                    samples = [
                        Sample(list(output.token_ids), str(output.finish_reason), float(output.cumulative_logprob))
                        for output in answer.outputs
                    ]
                    self.report(0, sum(len(sample.ids) for sample in samples))
                    # greedy samples are all equal, and vLLM refuses n > 1 for them
                    yield {answer.request_id: samples * (n_wanted[answer.request_id] // len(samples))}

    def _submit(self, request: Request) -> None:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        n = request.n if self.decoding.temperature else 1
        params = SamplingParams(**library_arguments.vllm_attempt(self.decoding, n, request.seed))
        self.llm.llm_engine.add_request(
            request.request_id, tokens_input(list(request.ids)), params, lora_request=self.adapter
        )

    def sample_turns(self, contexts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        params = [SamplingParams(**library_arguments.vllm_turn(self.decoding, self.ends, seed)) for seed in seeds]
        inputs = [tokens_input(context) for context in contexts]
        answers = self.llm.generate(inputs, params, lora_request=self.adapter, use_tqdm=False)
        turns = [list(answer.outputs[0].token_ids) for answer in answers]
        self.report(0, sum(map(len, turns)))
        return turns


def open_engine(model: ModelConfig, adapter: Path | None, seed: int) -> tuple[Any, Any]:
    """Return vLLM's engine and its request for the adapter (None without an adapter)."""
    on_gpu = torch.cuda.is_available()
    set_vllm_variables()
    if model.batch_invariant:
        if not on_gpu:
            raise InputError(
                "batch_invariant is a mode of vLLM on GPUs, and there is none; set it to false: on one CPU thread, "
                "completions do not depend on the batch"
            )
        os.environ["VLLM_BATCH_INVARIANT"] = "1"  # vLLM 0.31 reads it when its modules are imported
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
    return min((supported for supported in ranks if supported >= rank), default=max(ranks))
