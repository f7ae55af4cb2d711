"""Completions and their log-probabilities, with each prompt read once for all of its completions.

The completions of one prompt are one packed sequence: the prompt without its last token, then a row per completion. A
row starts with that last token, so that each of its positions predicts the next token of its completion. Rows of
similar lengths are a block, as wide as the longest of them:

    prompt        p1 p2 p3           completions   a1 a2   and   b1 b2 b3   and   c1 c2 c3 c4 c5 c6
    blocks                           a and b, c
    tokens        p1 p2 | p3 a1 .. | p3 b1 b2 | p3 c1 c2 c3 c4 c5
    positions      0  1 |  2  3  4 |  2  3  4 |  2  3  4  5  6  7
    predict              a1 a2 .. | b1 b2 b3 | c1 c2 c3 c4 c5 c6          (..: padding, which predicts nothing)

A row attends to the prompt and causally to itself. `Packed` computes that block by block, without a mask of all pairs
of tokens, on a CPU as on a GPU. So the cost is that of the tokens that exist and of a little padding (`MOST_READ`).
Completions without loss are not read. The idea is known as prefix grouping (Liu et al. 2025).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention
from trl.trainer.utils import split_tensor_dict

from arc_refinery.models.shared_attention import layout_arguments, split_by_lengths

IGNORED = -100  # label of a position that predicts nothing
MOST_READ = 1.2  # positions per token of a group's completions; less would take more blocks, and so more calls


@dataclass(frozen=True, slots=True)
class Block:
    """Completions that are read as wide as the longest of them."""

    rows: tuple[int, ...]  # rows of the batch
    n_columns: int  # tokens of the longest completion

    @property
    def n_tokens(self) -> int:
        return len(self.rows) * self.n_columns


@dataclass(frozen=True, slots=True)
class Group:
    """Completions of one prompt that are read together."""

    prompt: tuple[int, ...]  # token ids
    blocks: tuple[Block, ...]  # short completions first

    @property
    def n_prefix(self) -> int:
        return len(self.prompt) - 1

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of the prefix and of each block."""
        return [self.n_prefix, *(block.n_tokens for block in self.blocks)]


def group_by_prompt(passes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the passes of a step with the same rows in another order: those of a prompt are consecutive."""
    prompts = [tuple(row) for batch in passes for row in batch["prompt_ids"].tolist()]
    first = {prompt: place for place, prompt in reversed(list(enumerate(prompts)))}
    order = torch.tensor(sorted(range(len(prompts)), key=lambda row: first[prompts[row]]))
    merged = {name: _merged([batch[name] for batch in passes], order) for name in passes[0]}
    split: list[dict[str, Any]] = split_tensor_dict(merged, len(passes))
    return split


def _merged(values: Sequence[Any], order: Tensor) -> Any:
    """Return the rows of all passes in an order; what is not in rows is equal in all passes."""
    if isinstance(values[0], Tensor) and values[0].ndim:
        return torch.cat(list(values))[order.to(values[0].device)]
    if isinstance(values[0], list):
        rows = [row for value in values for row in value]
        return [rows[place] for place in order.tolist()]
    return values[0]


def groups_of(ids: Tensor, mask: Tensor, n_completion: int) -> list[Group]:
    """Return the groups of a batch, in the order of their first rows; rows whose completion is masked are in none.

    `ids` and `mask` have the shape (rows, prompt + completion tokens); prompts are padded on the left, completions, the
    last `n_completion` columns, on the right.
    """
    n_prompt = ids.shape[1] - n_completion
    lengths = _lengths(mask[:, n_prompt:])
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, (tokens, is_prompt) in enumerate(
        zip(ids[:, :n_prompt].tolist(), mask[:, :n_prompt].tolist(), strict=True)
    ):
        if lengths[row]:
            prompt = tuple(token for token, is_part in zip(tokens, is_prompt, strict=True) if is_part)
            rows_of.setdefault(prompt, []).append(row)
    if not rows_of:  # read one token: the backward pass, and other processes that wait in it, need a graph
        return [Group((int(ids[0, n_prompt - 1]),), (Block((0,), 1),))]
    return [Group(prompt, _blocks(rows, lengths)) for prompt, rows in rows_of.items()]


def _blocks(rows: list[int], lengths: Sequence[int]) -> tuple[Block, ...]:
    """Cut rows into as few blocks as `MOST_READ` allows, in the way that reads the fewest tokens."""
    rows = sorted(rows, key=lambda row: lengths[row])
    # the fewest tokens in which so many blocks read the first rows, for each number of rows, and those blocks
    best: list[tuple[float, tuple[Block, ...]]] = [(0, ()), *[(math.inf, ())] * len(rows)]

    def with_last_block(end: int) -> tuple[float, tuple[Block, ...]]:
        width = lengths[rows[end - 1]]
        start = min(range(end), key=lambda start: best[start][0] + (end - start) * width)
        n_tokens, blocks = best[start]
        last = Block(tuple(sorted(rows[start:end])), width)
        return n_tokens + last.n_tokens, (*blocks, last)

    while best[-1][0] > MOST_READ * sum(lengths[row] for row in rows):
        best = [(math.inf, ()), *(with_last_block(end) for end in range(1, len(rows) + 1))]
    return best[-1][1]


def _lengths(mask: Tensor) -> list[int]:
    """Return the number of columns up to the last 1 of each row."""
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return [int(length) for length in (mask * columns).amax(1).tolist()]


def log_probs(network: Any, ids: Tensor, mask: Tensor, n_completion: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and the entropies of completion tokens (nats), both (rows, n_completion).

    Arguments as for `groups_of`; masked tokens have zeros. The network has TRL's fused head, and `enable_layouts` was
    called.
    """
    groups = groups_of(ids, mask, n_completion)
    tokens, positions, labels = zip(*(packed(group, ids, mask, n_completion) for group in groups), strict=True)
    all_ids, all_positions, all_labels = (torch.cat(parts).unsqueeze(0) for parts in (tokens, positions, labels))
    output = network(
        **layout_arguments(Packed(groups), all_ids, all_positions),
        shift_labels=all_labels,
        fused_lm_head=True,
    )
    scored, entropies = (_unpacked(values, groups, ids, n_completion) for values in (output.log_probs, output.entropy))
    return scored, entropies


def packed(group: Group, ids: Tensor, mask: Tensor, n_completion: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens of a group, their positions and the tokens that they predict, each (tokens,)."""
    n_prompt = ids.shape[1] - n_completion
    prompt = ids.new_tensor(group.prompt)
    parts = [(prompt[:-1], torch.arange(group.n_prefix, device=ids.device), torch.full_like(prompt[:-1], IGNORED))]
    for block in group.blocks:
        rows, columns = list(block.rows), slice(n_prompt, n_prompt + block.n_columns)
        targets = ids[rows, columns]
        inputs = torch.cat([prompt[-1:].expand(len(rows), 1), targets[:, :-1]], 1)
        positions = torch.arange(group.n_prefix, group.n_prefix + block.n_columns, device=ids.device)
        labels = targets.masked_fill(mask[rows, columns] == 0, IGNORED)
        parts.append((inputs.flatten(), positions.repeat(len(rows)), labels.flatten()))
    tokens, positions, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return tokens, positions, labels


def _unpacked(packed: Tensor, groups: Sequence[Group], ids: Tensor, n_completion: int) -> Tensor:
    """Return values of packed tokens, (1, tokens), in the order of the batch's rows: (rows, n_completion)."""
    values = packed.new_zeros(len(ids), n_completion)
    for group, part in zip(groups, packed[0].split([sum(group.lengths) for group in groups]), strict=True):
        for block, flat in zip(group.blocks, part.split(group.lengths)[1:], strict=True):
            rows = flat.view(len(block.rows), block.n_columns)
            padded = pad(rows, (0, n_completion - block.n_columns))
            values = values.index_copy(0, ids.new_tensor(block.rows), padded)
    return values


@dataclass(frozen=True, slots=True)
class Packed:
    """Groups, one after another in one row."""

    groups: Sequence[Group]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        tensors = split_by_lengths([sum(group.lengths) for group in self.groups], query, key, value)
        outputs = [_attend(group, *three, scale) for group, three in zip(self.groups, tensors, strict=True)]
        return torch.cat(outputs, 2)


def _attend(group: Group, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    """Attend in one group; all have the shape (1, heads, tokens, size of a head), and as many heads."""
    device = query.device.type
    if torch.is_autocast_enabled(device):  # which does not reach the kernels that a causal bias calls
        query, key, value = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (query, key, value))
    (prefix_query, *queries), (prefix_key, *keys), (prefix_value, *values) = (
        tensor.split(group.lengths, 2) for tensor in (query, key, value)
    )
    outputs = []
    if group.n_prefix:
        prefix = prefix_query, prefix_key, prefix_value
        outputs.append(scaled_dot_product_attention(*prefix, is_causal=True, scale=scale))
    for block, *own in zip(group.blocks, queries, keys, values, strict=True):
        n_rows, n_columns = len(block.rows), block.n_columns
        # (1, heads, tokens, size) -> (rows, heads, columns, size)
        rows, own_keys, own_values = (tensor[0].unflatten(1, (n_rows, n_columns)).transpose(0, 1) for tensor in own)
        all_keys = torch.cat([prefix_key.expand(n_rows, -1, -1, -1), own_keys], 2)
        all_values = torch.cat([prefix_value.expand(n_rows, -1, -1, -1), own_values], 2)
        # instead of a tensor, which FlashAttention does not take
        sees = causal_lower_right(n_columns, group.n_prefix + n_columns)
        output = scaled_dot_product_attention(rows, all_keys, all_values, attn_mask=sees, scale=scale)
        outputs.append(output.transpose(0, 1).flatten(1, 2).unsqueeze(0))
    return torch.cat(outputs, 2)
