"""Sampling with transformers, on a CPU or one GPU.

A prompt is read once, and all its completions share its keys (rows.py). Prompts of one task are sampled together;
how floats are summed depends on what is sampled together, so a batch never depends on other tasks or on sharding.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LogitsProcessorList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

from arc_refinery.config import ModelConfig, PromptedModel
from arc_refinery.errors import ModelError
from arc_refinery.models.files import read_by_library
from arc_refinery.models.shared_attention import share
from arc_refinery.models.tokenizers import end_tokens, load_tokenizer
from arc_refinery.records import Prompt
from arc_refinery.sampling.gpu_memory import SAMPLED_TOKENS
from arc_refinery.sampling.library_arguments import four_bits
from arc_refinery.sampling.protocol import Completion, Decoding, Sampled
from arc_refinery.sampling.rows import Rows
from arc_refinery.seeding import stream_seed

logger = logging.getLogger(__name__)


class TransformersSampler:
    def __init__(self, model: PromptedModel, adapter: Path | None, decoding: Decoding) -> None:
        torch.set_num_threads(model.n_threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = load_tokenizer(model.path)
        self.network = load_network(model, adapter, self.device)
        obstacle = share(self.network)
        if obstacle:
            logger.info("prompts are sampled one by one: %s", obstacle)
        self.shares = not obstacle
        self.ends = end_tokens(model.path, self.tokenizer)
        self.decoding = decoding
        self.warpers = LogitsProcessorList()
        if decoding.temperature:
            self.warpers.append(TemperatureLogitsWarper(decoding.temperature))
            self.warpers.append(TopPLogitsWarper(decoding.top_p, min_tokens_to_keep=1))

    def sample(self, prompts: Sequence[Prompt]) -> Iterator[Sampled]:
        largest = SAMPLED_TOKENS if self.shares else 0  # 0: each prompt alone
        for batch in batches(prompts, self.decoding.max_output_tokens, largest):
            yield dict(zip((prompt.prompt_id for prompt in batch), self._sample(batch), strict=True))

    @torch.inference_mode()
    def _sample(self, prompts: Sequence[Prompt]) -> Iterator[list[Completion]]:
        sizes = [prompt.n_predictions for prompt in prompts]
        limit = self.decoding.max_output_tokens
        texts = [prompt.text for prompt in prompts]
        owners = torch.arange(len(prompts)).repeat_interleave(torch.tensor(sizes))
        read = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        rows = Rows(self.network, read, owners, self.shares)
        seeds = [stream_seed(self.decoding.seed, "sample", prompt.prompt_id) for prompt in prompts]
        noise = _Noise(seeds, sizes, self.device)
        ends = torch.tensor(self.ends, device=self.device)
        tokens = ends[:1].repeat(sum(sizes), limit)
        logprobs = torch.zeros(sum(sizes), device=self.device)
        for column in range(limit):
            chosen = self._choose(rows, noise)
            tokens[rows.numbers, column] = chosen
            logprobs[rows.numbers] += rows.logits.log_softmax(-1).gather(1, chosen.unsqueeze(1)).squeeze(1)
            running = ~torch.isin(chosen, ends)
            if column + 1 == limit or not running.any():
                break
            rows.add(chosen, running)
        parts = zip(tokens[:, : column + 1].split(sizes), logprobs.split(sizes), strict=True)
        return (self._completions(*part) for part in parts)

    def _choose(self, rows: Rows, noise: "_Noise") -> Tensor:
        """Choose the next token of each row: (rows,)."""
        if self.decoding.temperature == 0:
            return rows.logits.argmax(-1)
        weights: Tensor = self.warpers(None, rows.logits).softmax(-1)
        return (weights / noise.of(rows, weights)).argmax(-1)

    def _completions(self, tokens: Tensor, logprobs: Tensor) -> list[Completion]:
        completions = []
        for row, logprob in zip(tokens.tolist(), logprobs.tolist(), strict=True):
            end = next((i for i, token in enumerate(row) if token in self.ends), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            n_tokens, reason = (len(row), "length") if end is None else (end + 1, "stop")
            completions.append(Completion(text, n_tokens, reason, logprob))
        return completions


def batches(prompts: Sequence[Prompt], max_output_tokens: int, largest: int) -> Iterator[list[Prompt]]:
    """Yield prompts of one task that have at most `largest` tokens with their completions, at least one.

    Prompts count as the longest of them, since their keys are padded to its length.
    """
    by_task: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_task.setdefault(prompt.task_id, []).append(prompt)
    for of_task in by_task.values():
        batch: list[Prompt] = []
        for prompt in of_task:
            more = [*batch, prompt]
            n_read = len(more) * max(one.n_tokens for one in more)
            if batch and n_read + sum(one.n_predictions for one in more) * max_output_tokens > largest:
                yield batch
                more = [prompt]
            batch = more
        yield batch


class _Noise:
    """Exponential noise: the token with the greatest probability / noise is a sample (as in `torch.multinomial`).

    A prompt has a generator of its own, which draws for all of its rows at each step, whichever have ended. So its
    numbers do not depend on other prompts.
    """

    def __init__(self, seeds: Sequence[int], sizes: Sequence[int], device: str) -> None:
        self.sizes = list(sizes)
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def of(self, rows: Rows, weights: Tensor) -> Tensor:
        noise = weights.new_empty(sum(self.sizes), weights.shape[1])
        parts = noise.split(self.sizes)
        for number in rows.owners.unique().tolist():
            parts[number].exponential_(generator=self.generators[number])
        return noise[rows.numbers]


def load_network(model: ModelConfig, adapter: Path | None, device: str) -> Any:
    """Load a model for sampling, with its adapter."""
    in_4bit = model.use_4bit_quantization
    network = load_weights(model, in_4bit, device_map=device)
    if adapter is not None:
        from peft import PeftModel

        with read_by_library(adapter, "adapter_config.json"):
            network = PeftModel.from_pretrained(network, adapter)
            if model.dtype == "float32" and not in_4bit:  # faster; in coarser weights the adapter would be rounded away
                network = network.merge_and_unload()
    return network.eval()


def load_weights(model: ModelConfig, in_4bit: bool, **options: Any) -> Any:
    """Load a model's network; raise `ModelError` if its weights cannot be read or some are missing.

    For training, too. Turns cuDNN's attention off in this process.
    """
    # On an H100 torch prefers it to FlashAttention; it builds a plan for each shape and keeps it for ever, and nearly
    # every batch has another length. vLLM turns it off as well. No effect without CUDA.
    torch.backends.cuda.enable_cudnn_sdp(False)
    dtype = getattr(torch, model.dtype)
    if in_4bit:
        options["quantization_config"] = BitsAndBytesConfig(**four_bits(model.dtype))
    with read_by_library(model.path, "model.safetensors"):
        network, found = AutoModelForCausalLM.from_pretrained(
            model.path, dtype=dtype, output_loading_info=True, **options
        )
    if missing := sorted(found["missing_keys"]):  # transformers would draw them at random
        raise ModelError(
            f"{model.path}: {len(missing)} of its weights are missing, such as {missing[0]}; does its config.json "
            "belong to its weights? Download the model again"
        )
    if wrong := not_finite(network):
        raise ModelError(
            f"{model.path}: {len(wrong)} of its weights hold values that are not finite numbers, such as {wrong[0]}, "
            f"read as {model.dtype}; download the model again, or set another dtype"
        )
    return network


def not_finite(network: torch.nn.Module, is_trained: bool = False) -> list[str]:
    """Return the names of a network's weights, all or those that are trained, that hold NaN or infinity."""
    return [
        name
        for name, weights in network.named_parameters()
        if weights.is_floating_point() and weights.requires_grad >= is_trained and not torch.isfinite(weights).all()
    ]
