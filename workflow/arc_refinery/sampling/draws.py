"""Random tokens by temperature, top-k and top-p, from one random generator per request.

Each generator draws for all rows of its request at each step, whichever have ended, so that its numbers depend on no
other request.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from arc_refinery.sampling.backends import Decoding

# Up to this size, a random number is drawn for each token of the vocabulary, as in `torch.multinomial`: the published
# results of the embedded models were drawn so. With 152,000 tokens that, and sorting all of them, takes twice as long
# as the network of 0.5B parameters; there, one number is drawn for each row, and only probable tokens are sorted.
SMALL_VOCABULARY = 4096


class Draws:
    def __init__(self, decoding: Decoding, seeds: Sequence[int], sizes: Sequence[int], device: str) -> None:
        """`sizes` has the number of rows of each request, `seeds` that of its generator."""
        self.decoding = decoding
        self.sizes = list(sizes)
        self.parts = torch.arange(len(sizes)).repeat_interleave(torch.tensor(self.sizes)).to(device)
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.warpers = LogitsProcessorList()
        if decoding.temperature:
            self.warpers.append(TemperatureLogitsWarper(decoding.temperature))
            if decoding.top_k:
                self.warpers.append(TopKLogitsWarper(decoding.top_k, min_tokens_to_keep=1))
            self.warpers.append(TopPLogitsWarper(decoding.top_p, min_tokens_to_keep=1))

    def next_tokens(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return the next token of each of the `rows`: (rows,); `logits` are (rows, vocabulary)."""
        if self.decoding.temperature == 0:
            return logits.argmax(-1)
        if logits.shape[1] > SMALL_VOCABULARY:
            places = self._random(logits.new_empty(sum(self.sizes)), rows, Tensor.uniform_)
            return tokens_at(places, logits / self.decoding.temperature, self.decoding.top_p, self.decoding.top_k)
        weights: Tensor = self.warpers(None, logits).softmax(-1)
        noise = self._random(weights.new_empty(sum(self.sizes), weights.shape[1]), rows, Tensor.exponential_)
        return (weights / noise).argmax(-1)

    def _random(self, values: Tensor, rows: Tensor, fill: Any) -> Tensor:
        """Return the random numbers of some rows; `values` are overwritten with those of all rows."""
        parts = values.split(self.sizes)
        for number in self.parts[rows].unique().tolist():
            fill(parts[number], generator=self.generators[number])
        return values[rows]


def tokens_at(places: Tensor, scores: Tensor, top_p: float, top_k: int) -> Tensor:
    """Return the token at the place of each row, 0 <= place < 1, in the row's distribution after both cuts: (rows,).

    `top_k` keeps that many tokens (0: all); `top_p` keeps the fewest, most probable first, that have this share of the
    rest. `scores` are logarithms of probabilities, up to a constant: (rows, vocabulary).
    """
    weights = scores.softmax(-1)
    if top_k:
        weights = weights.where(weights >= weights.topk(min(top_k, weights.shape[1])).values[:, -1:], 0)
    if top_p == 1:
        return _at(places, weights)
    # tokens below the bound have less than 1 - top_p in all, so each of them comes too late
    rows, tokens = (weights >= (1 - top_p) / weights.shape[1]).nonzero(as_tuple=True)
    sizes = rows.bincount(minlength=len(weights))
    columns = torch.arange(len(rows), device=rows.device) - (sizes.cumsum(0) - sizes)[rows]
    probable = weights.new_zeros(len(weights), int(sizes.max()))
    probable[rows, columns] = weights[rows, tokens]
    ids = torch.zeros_like(probable, dtype=torch.long)
    ids[rows, columns] = tokens
    probable, order = probable.sort(descending=True, stable=True)
    before = probable.cumsum(-1) - probable
    chosen = _at(places, probable.where(before < top_p * weights.sum(-1, keepdim=True), 0))
    return ids.gather(1, order.gather(1, chosen.unsqueeze(1))).squeeze(1)


def _at(places: Tensor, weights: Tensor) -> Tensor:
    sums = weights.cumsum(-1, dtype=torch.double)
    return torch.searchsorted(sums, places.unsqueeze(1) * sums[:, -1:], right=True).squeeze(1)
