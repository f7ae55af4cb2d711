"""Sampling with transformers, on a CPU or one GPU.

A context is read once, and all its samples share its keys (rows.py). How floats are summed depends on what is sampled
together: attempts on the prompts of a batch of tasks, whatever the shards, and turns of the episodes of a batch.
"""

import ctypes
import logging
import sys
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    GenerationConfig,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar

from arc_refinery.config import ModelConfig
from arc_refinery.errors import ModelError
from arc_refinery.models.shape import read_by_library, shape_of
from arc_refinery.models.shared_attention import enable_layouts
from arc_refinery.models.tokenizers import end_tokens
from arc_refinery.sampling.backends import Decoding, Report, Request, Sample, Sampled, no_report
from arc_refinery.sampling.draws import Draws
from arc_refinery.sampling.gpu_memory import SAMPLED_TOKENS, WIDTH, sampled_tokens
from arc_refinery.sampling.library_arguments import four_bits
from arc_refinery.sampling.prefixes import Keys
from arc_refinery.sampling.rows import Rows, check_finite
from arc_refinery.seeding import stream_seed

logger = logging.getLogger(__name__)


class TransformersSampler:
    def __init__(
        self, model: ModelConfig, adapter: Path | None, decoding: Decoding, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        torch.set_num_threads(model.n_threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.device == "cpu":
            _keep_freed_memory()
        self.model = model
        self.tokenizer = tokenizer
        self.network = load_network(model, adapter, self.device)
        obstacle = enable_layouts(self.network)
        if obstacle:
            logger.info("prompts are sampled one by one, turns until the longest one ends: %s", obstacle)
        self.shares = not obstacle
        self.ends = frozenset(end_tokens(model.path, tokenizer, decoding.stop_token))
        self.decoding = decoding
        self.report: Report = no_report
        self.read: list[tuple[tuple[int, ...], Keys]] = []  # the texts that the last turns have read, and their keys

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        for batch in batches(requests, self.decoding.max_output_tokens, self.largest_batch()):
            sizes = [request.n for request in batch]
            owners = torch.arange(len(batch)).repeat_interleave(torch.tensor(sizes))
            draws = Draws(self.decoding, [request.seed for request in batch], sizes, self.device)
            samples = iter(
                self._sample([tuple(request.ids) for request in batch], owners, torch.arange(len(owners)), draws)
            )
            yield {request.request_id: [next(samples) for _ in range(request.n)] for request in batch}

    def largest_batch(self) -> int:
        """Return the tokens of prompts and completions that are sampled together; 0: each request alone."""
        if not self.shares:
            return 0
        if self.device == "cpu":
            return SAMPLED_TOKENS  # results depend on it, so not on the machine
        try:
            shape = shape_of(self.model.path)
        except ModelError:  # of layers that are not counted
            return 0
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return sampled_tokens(shape, WIDTH[self.model.dtype], self.decoding.max_output_tokens, free)

    def sample_turns(self, contexts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        seed = stream_seed(*seeds) % 2**32  # one random generator for the whole batch
        if not self.shares:
            return self._generate(contexts, seed)
        texts = list(map(tuple, contexts))
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        owners, order = torch.tensor([numbers[text] for text in texts]).sort(stable=True)
        draws = Draws(self.decoding, [seed], [len(contexts)], self.device)
        before = [self._read_of(text) for text in numbers]
        self.read = []
        return [sample.ids for sample in self._sample(list(numbers), owners, order, draws, before, is_kept=True)]

    def _read_of(self, text: tuple[int, ...]) -> Keys:
        """Return the keys of the longest beginning of a text that the last turns have read; empty if there is none."""
        known = [(len(ids), keys) for ids, keys in self.read if len(ids) < len(text) and text[: len(ids)] == ids]
        return list(max(known, key=itemgetter(0))[1]) if known else []

    @torch.inference_mode()
    def _sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        owners: Tensor,
        order: Tensor,
        draws: Draws,
        before: Sequence[Keys] = (),
        is_kept: bool = False,
    ) -> list[Sample]:
        """Continue contexts; `owners` and `order` have the context of each row and its number in the result.

        `before` has the keys of the beginnings of contexts (rows.py). With `is_kept`, `read` gets those of all texts.
        """
        limit = self.decoding.max_output_tokens
        rows = Rows(self.network, contexts, owners, self.shares, before, is_kept)
        order = order.to(self.device)
        ends = torch.tensor(sorted(self.ends), device=self.device)
        tokens = ends[:1].repeat(len(owners), limit)
        logprobs = torch.zeros(len(owners), device=self.device)
        for column in range(limit):
            places = order[rows.numbers]
            predicted = rows.logits.log_softmax(-1)
            check_finite(predicted.amax(-1), self.network)
            next_ids = draws.next_tokens(rows.logits, places)
            tokens[places, column] = next_ids
            logprobs[places] += predicted.gather(1, next_ids.unsqueeze(1)).squeeze(1)
            running = ~torch.isin(next_ids, ends)
            self.report(0 if is_kept else int((~running).sum()), len(next_ids))
            if column + 1 == limit or not running.any():
                break
            rows.add(next_ids, running)
        if is_kept:
            rows.keep(torch.ones_like(rows.numbers, dtype=torch.bool))
            written = tokens[order].tolist()
            for number, keys in rows.kept.items():
                text = (*contexts[int(owners[number])], *written[number])
                self.read.append((text[: keys[0][0].shape[1]], keys))
        return [
            Sample(ids := self._until_end(row), "stop" if ids[-1] in self.ends else "length", logprob)
            for row, logprob in zip(tokens[:, : column + 1].tolist(), logprobs.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def _generate(self, contexts: Sequence[list[int]], seed: int) -> list[list[int]]:
        """Continue contexts with the library's own loop, padded."""
        decoding = self.decoding
        sampling = {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": decoding.top_k}
        settings = GenerationConfig(
            max_new_tokens=decoding.max_output_tokens,
            do_sample=decoding.temperature > 0,
            eos_token_id=sorted(self.ends),
            pad_token_id=self.tokenizer.pad_token_id,
            **(sampling if decoding.temperature else {}),
        )
        self.network.generation_config = GenerationConfig()  # else the model's own settings fill in what is unset here
        set_seed(seed)
        padded: Any = self.tokenizer.pad({"input_ids": list(contexts)}, return_tensors="pt").to(self.device)
        sampled = self.network.generate(**padded, generation_config=settings)
        return [self._until_end(row) for row in sampled[:, padded["input_ids"].shape[1] :].tolist()]

    def _until_end(self, ids: list[int]) -> list[int]:
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids) - 1)
        return ids[: end + 1]


def batches(requests: Sequence[Request], max_output_tokens: int, largest: int) -> Iterator[list[Request]]:
    """Yield requests of one group that have at most `largest` tokens with their samples, at least one.

    Contexts count as the longest of them, since their keys are padded to its length.
    """
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.group, []).append(request)
    for group in groups.values():
        batch: list[Request] = []
        for request in group:
            longer = [*batch, request]
            n_read = len(longer) * max(len(request.ids) for request in longer)
            if batch and n_read + sum(request.n for request in longer) * max_output_tokens > largest:
                yield batch
                longer = [request]
            batch = longer
        yield batch


def _keep_freed_memory() -> None:
    """Let malloc use freed tensors again, not return them to the kernel, which clears each page that it gives."""
    libc, trim_threshold, mmap_threshold = ctypes.CDLL(None), -1, -3  # numbers of malloc.h
    libc.mallopt(trim_threshold, 2**31 - 1)
    libc.mallopt(mmap_threshold, 2**30)


def load_network(model: ModelConfig, adapter: Path | None, device: str) -> Any:
    """Load a model for sampling, with its adapter."""
    in_4bit = model.use_4bit_quantization
    network = load_weights(model, in_4bit, device_map=device)
    if adapter is not None:
        from peft import PeftModel

        with read_by_library(adapter, "adapter_config.json"):
            network = PeftModel.from_pretrained(network, adapter)
            adds_biases = any(settings.lora_bias for settings in network.peft_config.values())  # to layers without one
            # Faster. In coarser weights the adapter would be rounded away.
            if model.dtype == "float32" and not in_4bit and not adds_biases:
                network = network.merge_and_unload()
    return network.eval()


def load_weights(model: ModelConfig, in_4bit: bool, **options: Any) -> Any:
    """Load a model's network; raise `ModelError` if its weights cannot be read or some are missing.

    For training, too. Turns cuDNN's attention off in this process.
    """
    # On an H100 torch prefers it to FlashAttention; it builds a plan for each shape and keeps it for ever, and nearly
    # every batch has another length. vLLM turns it off as well. No effect without CUDA.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if not sys.stderr.isatty():
        disable_progress_bar()  # unreadable in log files
    dtype = getattr(torch, model.dtype)
    if in_4bit:
        options["quantization_config"] = BitsAndBytesConfig(**four_bits(model.dtype))
    with read_by_library(model.path, "model.safetensors"):
        network, report = AutoModelForCausalLM.from_pretrained(
            model.path, dtype=dtype, output_loading_info=True, **options
        )
    if missing := sorted(report["missing_keys"]):  # transformers would draw them at random
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
