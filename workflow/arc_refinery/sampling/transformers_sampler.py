"""Sampling with transformers, on a CPU or one GPU.

A prompt is prefilled once, and all its completions share its KV cache. One prompt is one batch, so that completions
depend neither on sharding nor on other prompts.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, DynamicCache, LogitsProcessorList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

from arc_refinery.config import ModelConfig, PromptedModel
from arc_refinery.errors import ModelError
from arc_refinery.library_arguments import four_bits
from arc_refinery.records import Prompt
from arc_refinery.sampling.protocol import Completion, Decoding
from arc_refinery.seeding import stream_seed
from arc_refinery.tokenizers import load_tokenizer


class TransformersSampler:
    def __init__(self, model: PromptedModel, adapter: Path | None, decoding: Decoding) -> None:
        torch.set_num_threads(model.n_threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = load_tokenizer(model.path)
        self.network = load_network(model, adapter, self.device)
        self.ends = end_tokens(self.network, self.tokenizer)
        self.decoding = decoding
        self.warpers = LogitsProcessorList()
        if decoding.temperature:
            self.warpers.append(TemperatureLogitsWarper(decoding.temperature))
            self.warpers.append(TopPLogitsWarper(decoding.top_p, min_tokens_to_keep=1))

    def sample(self, prompts: Sequence[Prompt]) -> Iterator[tuple[str, list[Completion]]]:
        for prompt in prompts:
            yield prompt.prompt_id, self._sample(prompt)

    @torch.inference_mode()
    def _sample(self, prompt: Prompt) -> list[Completion]:
        rng = torch.Generator(self.device).manual_seed(stream_seed(self.decoding.seed, "sample", prompt.prompt_id))
        ids = torch.tensor([self.tokenizer(prompt.text, add_special_tokens=False)["input_ids"]], device=self.device)
        ends = torch.tensor(self.ends, device=self.device)
        cache = DynamicCache(config=self.network.config)
        logits = self.network(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
        cache.batch_repeat_interleave(prompt.n_predictions)
        logits = logits.expand(prompt.n_predictions, -1)
        tokens: list[Tensor] = []
        logprobs = torch.zeros(prompt.n_predictions, device=self.device)
        running = torch.ones(prompt.n_predictions, dtype=torch.bool, device=self.device)
        while True:
            chosen = self._choose(logits, rng)
            logprobs += running * logits.log_softmax(-1).gather(1, chosen).squeeze(1)
            chosen = torch.where(running, chosen.squeeze(1), ends[0])
            tokens.append(chosen)
            running &= ~torch.isin(chosen, ends)
            if not running.any() or len(tokens) == self.decoding.max_output_tokens:
                break
            logits = self.network(chosen.unsqueeze(1), past_key_values=cache).logits[:, -1].float()
        return self._completions(torch.stack(tokens, 1), logprobs)

    def _choose(self, logits: Tensor, rng: torch.Generator) -> Tensor:
        """Choose the next token of each row: (rows, 1) from (rows, vocabulary)."""
        if self.decoding.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        return torch.multinomial(self.warpers(None, logits).softmax(-1), 1, generator=rng)

    def _completions(self, tokens: Tensor, logprobs: Tensor) -> list[Completion]:
        completions = []
        for row, logprob in zip(tokens.tolist(), logprobs.tolist(), strict=True):
            end = next((i for i, token in enumerate(row) if token in self.ends), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            n_tokens, reason = (len(row), "length") if end is None else (end + 1, "stop")
            completions.append(Completion(text, n_tokens, reason, logprob))
        return completions


def load_network(model: ModelConfig, adapter: Path | None, device: str) -> Any:
    """Load a model for sampling, with its adapter."""
    in_4bit = model.use_4bit_quantization
    network = load_weights(model, in_4bit, device_map=device)
    if adapter is not None:
        from peft import PeftModel

        network = PeftModel.from_pretrained(network, adapter)
        if model.dtype == "float32" and not in_4bit:  # faster; in coarser weights the adapter would be rounded away
            network = network.merge_and_unload()
    return network.eval()


def load_weights(model: ModelConfig, in_4bit: bool, **options: Any) -> Any:
    """Load a model's network; raise `ModelError` if its weights are missing."""
    dtype = getattr(torch, model.dtype)
    if in_4bit:
        options["quantization_config"] = BitsAndBytesConfig(**four_bits(model.dtype))
    try:
        return AutoModelForCausalLM.from_pretrained(model.path, dtype=dtype, **options)
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{model.path}: cannot load its weights ({reason}); correct model.path") from None


def end_tokens(network: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a completion: the tokenizer's, and those in the model's generation_config.json."""
    configured = network.generation_config.eos_token_id
    ends = dict.fromkeys([tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])])
    return [end for end in ends if end is not None]
