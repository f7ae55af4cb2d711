"""Attention of completions while they are sampled: to the keys of their prompt, stored once, and to their own.

Both parts are computed separately and weighted by their sums of exponentials.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

Keys = list[tuple[Tensor, Tensor]]  # keys and values of a text in each layer: (heads, tokens, size of a head)


class Prefixes:
    """Prompts that were read side by side, and the rows of their completions.

    `read` has the keys and values of their last tokens, `lengths` of each, and is emptied; `before` has those of the
    tokens before, if any; `owners` has the number of each row's prompt, in order: (rows,). `whole` gets the keys of
    each whole prompt.
    """

    def __init__(
        self,
        read: DynamicCache,
        lengths: Sequence[int],
        owners: Tensor,
        before: Sequence[Keys] = (),
        whole: Sequence[Keys] = (),
    ) -> None:
        self.owners = owners
        self.places = torch.cat([torch.arange(int(n)) for n in torch.bincount(owners)]).to(owners.device)
        self.keys: list[Tensor] = []  # one per layer: (prompts, heads, tokens of the longest, size of a head)
        self.values: list[Tensor] = []
        while read.layers:  # emptied on the way, so that there is only one copy of all layers
            layer = read.layers.pop(0)
            keys, values = (list(packed[0].split(list(lengths), 1)) for packed in (layer.keys, layer.values))
            for number, earlier in enumerate(before):
                if earlier:
                    key, value = earlier.pop(0)
                    keys[number], values[number] = (
                        torch.cat([key, keys[number]], 1),
                        torch.cat([value, values[number]], 1),
                    )
            for number, of_layers in enumerate(whole):
                of_layers.append((keys[number], values[number]))
            self.keys.append(_padded(keys))
            self.values.append(_padded(values))
        n_columns = self.keys[0].shape[2]
        missing = torch.arange(n_columns) >= torch.tensor([key.shape[1] for key in keys]).unsqueeze(1)
        self.bias = torch.zeros(missing.shape).masked_fill(missing, -torch.inf).to(owners.device)
        self.width = int(self.places.max()) + 1  # most rows of a prompt

    def select_rows(self, rows: Tensor) -> None:
        """Continue with these rows; prompts without rows are dropped."""
        self.places = self.places[rows]
        self.width = int(self.places.max()) + 1
        prompts, self.owners = self.owners[rows].unique(return_inverse=True)
        if len(prompts) < len(self.bias):
            self.bias = self.bias[prompts]
            for layers in (self.keys, self.values):
                for number, layer in enumerate(layers):  # one by one: only one copy of all layers
                    layers[number] = layer[prompts]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        n_rows, n_heads, _, size = key.shape
        query = query.reshape(n_rows, n_heads, -1, size).float() * (size**-0.5 if scale is None else scale)
        own = _Part.attend(query, key, value)
        # all rows of a prompt meet its keys in one product: (prompts, heads, rows of a prompt, size of a head)
        n_repeats = query.shape[2]
        grid = query.new_zeros(len(self.bias), self.width, n_heads, n_repeats, size)
        grid[self.owners, self.places] = query
        grid = grid.transpose(1, 2).reshape(len(self.bias), n_heads, self.width * n_repeats, size)
        prompt = _Part.attend(grid, self.keys[layer], self.values[layer], self.bias[:, None, None])

        def by_row(values: Tensor) -> Tensor:
            by_prompt = values.view(len(self.bias), n_heads, self.width, n_repeats, -1).transpose(1, 2)
            return by_prompt[self.owners, self.places]

        prompt = _Part(by_row(prompt.top), by_row(prompt.total), by_row(prompt.mean))
        return prompt.joined(own).to(value.dtype).reshape(n_rows, -1, 1, value.shape[-1])


@dataclass(frozen=True, slots=True)
class _Part:
    """Attention to some of the keys, in float32."""

    top: Tensor  # highest score: (..., queries, 1)
    total: Tensor  # sum of exp(score - top): (..., queries, 1)
    mean: Tensor  # values, weighted by exp(score - top) / total: (..., queries, size of a head)

    @classmethod
    def attend(cls, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | float = 0.0) -> "_Part":
        scores = query @ key.float().transpose(2, 3) + bias
        top = scores.amax(-1, keepdim=True)
        weights = scores.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        return cls(top, total, (weights.div_(total).to(value.dtype) @ value).float())

    def joined(self, other: "_Part") -> Tensor:
        top = torch.maximum(self.top, other.top)
        mine, others = self.total * (self.top - top).exp(), other.total * (other.top - top).exp()
        return (self.mean * mine + other.mean * others) / (mine + others)


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """Prompts of (heads, tokens, size) -> (prompts, heads, tokens of the longest, size), zeros at the ends."""
    return pad_sequence([part.transpose(0, 1) for part in parts], batch_first=True).transpose(1, 2).contiguous()
