"""Sampling with vLLM, on GPUs or with its CPU build."""

from collections.abc import Sequence
from pathlib import Path

from arc_refinery.config import Model
from arc_refinery.records import Prompt
from arc_refinery.sampling.protocol import Completion, Decoding
from arc_refinery.seeding import stream_seed

MAX_LORA_RANK = 64
SEEDS = 2**31


class VllmSampler:
    prompts_at_once = 64

    def __init__(self, model: Model, adapter: Path | None, decoding: Decoding) -> None:
        from vllm import LLM, SamplingParams
        from vllm.lora.request import LoRARequest

        self.decoding = decoding
        self.sampling_params = SamplingParams
        self.engine = LLM(
            model.path,
            dtype=model.dtype,
            max_model_len=model.window,
            tensor_parallel_size=model.tensor_parallel_size,
            gpu_memory_utilization=model.gpu_memory_utilization,
            quantization="bitsandbytes" if model.use_4bit_quantization else None,
            enable_prefix_caching=True,
            enable_lora=adapter is not None,
            max_lora_rank=MAX_LORA_RANK,
            enforce_eager=model.dtype == "float32",
            seed=decoding.seed,
        )
        self.adapter = None if adapter is None else LoRARequest("trained", 1, str(adapter))

    def sample(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        params = [
            self.sampling_params(
                n=prompt.n_predictions,
                temperature=self.decoding.temperature,
                top_p=self.decoding.top_p,
                max_tokens=self.decoding.max_output_tokens,
                seed=stream_seed(self.decoding.seed, "sample", prompt.prompt_id) % SEEDS,
                logprobs=0,
            )
            for prompt in prompts
        ]
        answers = self.engine.generate(
            [prompt.text for prompt in prompts], params, lora_request=self.adapter, use_tqdm=False
        )
        return [
            [
                Completion(one.text, len(one.token_ids), str(one.finish_reason), float(one.cumulative_logprob))
                for one in answer.outputs
            ]
            for answer in answers
        ]
