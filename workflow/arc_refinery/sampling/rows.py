"""Completions while they are sampled: each prompt is read once, and no completion is read after its end."""

from collections.abc import Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessorList
from transformers.generation.logits_process import TopPLogitsWarper

from arc_refinery.errors import NotFiniteError
from arc_refinery.models.shared_attention import continued, layout_arguments, side_by_side
from arc_refinery.sampling.draws import SMALL_VOCABULARY, tokens_at
from arc_refinery.sampling.prefixes import Keys, Prefixes


class Rows:
    """Completions that have not ended, and what the network has read of them."""

    def __init__(
        self,
        network: Any,
        prompts: Sequence[Sequence[int]],
        owners: Tensor,
        shares: bool,
        before: Sequence[Keys] = (),
        is_kept: bool = False,
    ) -> None:
        """Read the prompts; `owners` has the number of each row's prompt, in order: (rows,).

        Without `shares` there is one prompt, and its keys are copied to each row. `before` has the keys of tokens at
        the beginning of each prompt, which are not read again, and is emptied. With `is_kept`, `kept` has the keys of
        all that was read of a row, by its number, as soon as the row has ended.
        """
        self.network = network
        device = network.device
        n_before = [keys[0][0].shape[1] if keys else 0 for keys in before] or [0] * len(prompts)
        unread = [prompt[n:] for prompt, n in zip(prompts, n_before, strict=True)]
        lengths = list(map(len, unread))
        self.owners = owners.to(device)
        self.numbers = torch.arange(len(self.owners), device=device)  # each row's number in the batch
        self.positions = torch.tensor([len(prompt) for prompt in prompts], device=device)[self.owners]
        self.cache = DynamicCache(config=network.config)
        ids = torch.tensor([[token for tokens in unread for token in tokens]], device=device)
        if any(n_before):
            arguments = continued(ids, lengths, before)
        else:
            arguments = side_by_side(ids, lengths) if shares else {"input_ids": ids}
        ends = torch.tensor(lengths, device=device).cumsum(0) - 1
        last = network(**arguments, past_key_values=self.cache, logits_to_keep=ends).logits[0]
        self.logits: Tensor = last.float()[self.owners]  # the next token's: (rows, vocabulary)
        self.kept: dict[int, Keys] = {}
        whole: list[Keys] = [[] for _ in prompts] if is_kept else []
        self.prefixes = Prefixes(self.cache, lengths, self.owners, before, whole) if shares else None
        self._prompts = [whole[owner] for owner in owners.tolist()] if is_kept else []  # by the number of a row
        if self.prefixes:
            self.cache = DynamicCache(config=network.config)
        else:
            self.cache.batch_repeat_interleave(len(self.owners))

    def add(self, tokens: Tensor, running: Tensor) -> None:
        """Drop the rows that are not running, and read the next token of the others; both are (rows,)."""
        if not running.all():
            self.keep(~running)
            rows = running.nonzero().squeeze(1)
            self.numbers, self.owners, self.positions = (
                values[rows] for values in (self.numbers, self.owners, self.positions)
            )
            self.cache.batch_select_indices(rows)
            if self.prefixes:
                self.prefixes.select_rows(rows)
        ids = tokens[running].unsqueeze(1)
        arguments = {"input_ids": ids}
        if self.prefixes:
            arguments = layout_arguments(self.prefixes, ids, self.positions.unsqueeze(1))
        self.logits = self.network(**arguments, past_key_values=self.cache).logits[:, -1].float()
        self.positions = self.positions + 1

    def keep(self, ended: Tensor) -> None:
        """Keep what was read of rows, if that is wanted; `ended` is (rows,)."""
        if not self._prompts:
            return
        for row, number in zip(ended.nonzero().squeeze(1).tolist(), self.numbers[ended].tolist(), strict=True):
            keys = self._prompts[number]
            if self.cache.get_seq_length():
                own = [(layer.keys[row], layer.values[row]) for layer in self.cache.layers]
                keys = [
                    (torch.cat([key, own_key], 1), torch.cat([value, own_value], 1))
                    for (key, value), (own_key, own_value) in zip(keys, own, strict=True)
                ]
            self.kept[number] = keys


def sample_rows(
    network: Any, ids: Tensor, logits_processor: Any, stopping_criteria: Any, generation_config: Any, **named: Any
) -> Tensor:
    """Continue texts, as `network.generate(..., attention_mask, custom_generate=sample_rows)` of transformers.

    Needs a network that `enable_layouts` has changed. Returns (rows, tokens), padded on the right. `generate` itself
    reads equal prompts again, and all rows until the longest one ends. Random numbers are drawn for all rows here, too,
    so the tokens are the same, as far as rounding allows, up to `SMALL_VOCABULARY` tokens.
    """
    texts = [tuple(compress(*both)) for both in zip(ids.tolist(), named["attention_mask"].tolist(), strict=True)]
    prompts = {prompt: number for number, prompt in enumerate(dict.fromkeys(texts))}
    owners, order = torch.tensor([prompts[text] for text in texts], device=ids.device).sort(stable=True)
    rows = Rows(network, list(prompts), owners, shares=True)
    written, running_ids, top_p = ids, ids[order], None
    if generation_config.do_sample and rows.logits.shape[1] > SMALL_VOCABULARY:
        top_p = 1.0
        if logits_processor and isinstance(logits_processor[-1], TopPLogitsWarper):
            logits_processor, top_p = LogitsProcessorList(logits_processor[:-1]), logits_processor[-1].top_p
    while True:
        check_finite(rows.logits, network)
        scores, places = logits_processor(running_ids, rows.logits), order[rows.numbers]
        next_ids = _draw(scores, places, len(ids), top_p) if generation_config.do_sample else scores.argmax(-1)
        column = torch.full_like(ids[:, :1], generation_config.pad_token_id)
        column[places] = next_ids.unsqueeze(1)
        written = torch.cat([written, column], 1)
        running_ids = torch.cat([running_ids, next_ids.unsqueeze(1)], 1)
        running = ~stopping_criteria(running_ids, None)
        if not running.any():
            return written
        running_ids = running_ids[running]
        rows.add(next_ids, running)


def check_finite(values: Tensor, network: Any) -> None:
    """Raise `NotFiniteError` unless all predictions of a network, or their log-probabilities, are finite numbers."""
    if not torch.isfinite(values).all():
        raise NotFiniteError(network.config.name_or_path)


def _draw(scores: Tensor, places: Tensor, n_rows: int, top_p: float | None) -> Tensor:
    """Sample a token for each of the rows at `places`, with the random numbers that these have among all rows.

    With `top_p`, one number is drawn for each row; else by `torch.multinomial`, as the library does. Several training
    processes that share a step replace both functions.
    """
    if top_p is not None:
        numbers = torch.rand(n_rows, device=scores.device)
        return tokens_at(numbers[places], scores, top_p, top_k=0)
    weights = scores.new_ones(n_rows, scores.shape[1])
    weights[places] = scores.softmax(-1)
    return torch.multinomial(weights, num_samples=1)[places].squeeze(1)
