"""Sample turns of episodes with vLLM, on GPUs or with its CPU build. Each turn of an episode has its own seed."""

from collections.abc import Sequence
from pathlib import Path

from arc_refinery.config import Generation, ModelConfig
from arc_refinery.models.tokenizers import end_tokens
from arc_refinery.sampling.library_arguments import vllm_turn
from arc_refinery.sampling.vllm_sampler import open_engine


class VllmTurns:
    def __init__(self, model: ModelConfig, adapter: Path | None, generation: Generation) -> None:
        self.engine, self.adapter = open_engine(model, adapter, seed=0)
        self.generation = generation
        tokenizer = self.engine.get_tokenizer()
        stop = tokenizer.convert_tokens_to_ids(generation.stop_token)
        self.ends = frozenset([stop, *end_tokens(model.path, tokenizer)])

    def sample(self, contexts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        params = [SamplingParams(**vllm_turn(self.generation, sorted(self.ends), seed)) for seed in seeds]
        inputs = [tokens_input(context) for context in contexts]
        answers = self.engine.generate(inputs, params, lora_request=self.adapter, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]
