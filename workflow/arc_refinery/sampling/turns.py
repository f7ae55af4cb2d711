"""Sample the next turn of many conversations, as token ids; for episodes with tools (tool_use/episodes/episodes.py).

The result depends on which conversations are passed together, because padding changes how floats are summed: callers
pass the same ones whatever the number of jobs.
"""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import GenerationConfig, set_seed

from arc_refinery.config import Generation, ModelConfig
from arc_refinery.models.shared_attention import share
from arc_refinery.models.tokenizers import end_tokens, load_tokenizer
from arc_refinery.sampling.rows import sample_rows
from arc_refinery.sampling.transformers_sampler import load_network
from arc_refinery.seeding import stream_seed

logger = logging.getLogger(__name__)


class TurnSampler(Protocol):
    ends: frozenset[int]  # ids that end a turn

    def sample(self, contexts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        """Return a turn for each context, sampled with its seed; includes the end token if it was reached."""
        ...


def open_turn_sampler(model: ModelConfig, adapter: Path | None, generation: Generation) -> TurnSampler:
    match model.backend:
        case "transformers":
            return TransformersTurns(model, adapter, generation)
        case "vllm":
            from arc_refinery.sampling.vllm_turns import VllmTurns

            return VllmTurns(model, adapter, generation)


class TransformersTurns:
    def __init__(self, model: ModelConfig, adapter: Path | None, generation: Generation) -> None:
        torch.set_num_threads(model.n_threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = load_tokenizer(model.path)
        self.tokenizer.eos_token = generation.stop_token
        self.network = load_network(model, adapter, self.device)
        ends = end_tokens(model.path, self.tokenizer)
        self.network.generation_config = GenerationConfig()  # else the model's own settings fill in what is unset here
        self.ends = frozenset(ends)
        if obstacle := share(self.network):
            logger.info("all contexts are read until the longest turn ends: %s", obstacle)
        else:
            self.network.generate = partial(self.network.generate, custom_generate=sample_rows)
        sampling = {"temperature": generation.temperature, "top_p": generation.top_p, "top_k": generation.top_k}
        self.settings = GenerationConfig(
            max_new_tokens=generation.max_turn_tokens,
            do_sample=generation.temperature > 0,
            eos_token_id=ends,
            pad_token_id=self.tokenizer.pad_token_id,
            **(sampling if generation.temperature else {}),
        )

    @torch.inference_mode()
    def sample(self, contexts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        set_seed(stream_seed(*seeds) % 2**32)  # one random generator for the whole batch
        padded: Any = self.tokenizer.pad({"input_ids": list(contexts)}, return_tensors="pt").to(self.device)
        sampled = self.network.generate(**padded, generation_config=self.settings)
        return [self._until_end(row) for row in sampled[:, padded["input_ids"].shape[1] :].tolist()]

    def _until_end(self, ids: list[int]) -> list[int]:
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids) - 1)
        return ids[: end + 1]
