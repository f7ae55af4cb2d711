"""Sampling with transformers, on a CPU or one GPU.

A prompt is read once and its KV cache shared by all of its completions. One prompt is one batch, so that neither the
sharding nor the other prompts change a completion.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, LogitsProcessorList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

from arc_refinery.config import Model
from arc_refinery.records import Prompt
from arc_refinery.sampling.protocol import Completion, Decoding
from arc_refinery.seeding import stream_seed


class TransformersSampler:
    prompts_at_once = 1

    def __init__(self, model: Model, adapter: Path | None, decoding: Decoding) -> None:
        torch.set_num_threads(model.n_threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(model.path)
        network = AutoModelForCausalLM.from_pretrained(model.path, dtype=getattr(torch, model.dtype))
        if adapter is not None:
            network = PeftModel.from_pretrained(network, adapter).merge_and_unload()
        self.network = network.to(self.device).eval()
        self.decoding = decoding
        self.warpers = LogitsProcessorList(
            [TemperatureLogitsWarper(decoding.temperature), TopPLogitsWarper(decoding.top_p, min_tokens_to_keep=1)]
        )

    def sample(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        return [self._sample(prompt) for prompt in prompts]

    @torch.inference_mode()
    def _sample(self, prompt: Prompt) -> list[Completion]:
        rng = torch.Generator(self.device).manual_seed(stream_seed(self.decoding.seed, "sample", prompt.prompt_id))
        ids = torch.tensor([self.tokenizer(prompt.text, add_special_tokens=False)["input_ids"]], device=self.device)
        cache = DynamicCache(config=self.network.config)
        logits = self.network(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
        cache.batch_repeat_interleave(prompt.n_predictions)
        logits = logits.expand(prompt.n_predictions, -1)
        tokens: list[Tensor] = []
        logprobs = torch.zeros(prompt.n_predictions, device=self.device)
        running = torch.ones(prompt.n_predictions, dtype=torch.bool, device=self.device)
        while True:
            probabilities = self.warpers(ids, logits).softmax(-1)
            chosen = torch.multinomial(probabilities, 1, generator=rng)
            logprobs += running * logits.log_softmax(-1).gather(1, chosen).squeeze(1)
            chosen = torch.where(running, chosen.squeeze(1), self.tokenizer.pad_token_id)
            tokens.append(chosen)
            running &= chosen != self.tokenizer.eos_token_id
            if not running.any() or len(tokens) == self.decoding.max_output_tokens:
                break
            logits = self.network(chosen.unsqueeze(1), past_key_values=cache).logits[:, -1].float()
        return self._completions(torch.stack(tokens, 1), logprobs)

    def _completions(self, tokens: Tensor, logprobs: Tensor) -> list[Completion]:
        completions = []
        for row, logprob in zip(tokens.tolist(), logprobs.tolist(), strict=True):
            stopped = self.tokenizer.eos_token_id in row
            kept = row[: row.index(self.tokenizer.eos_token_id)] if stopped else row
            text = self.tokenizer.decode(kept, skip_special_tokens=True)
            completions.append(Completion(text, len(kept) + stopped, "stop" if stopped else "length", logprob))
        return completions
