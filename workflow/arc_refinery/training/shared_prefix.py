"""Completions and their log-probabilities, with each prompt read once for all of its completions.

The completions of one prompt are one packed sequence: the prompt without its last token, then a row per completion. A
row starts with that last token, so that each of its positions predicts the next token of its completion:

    prompt        p1 p2 p3           completions   a1 a2   and   b1 b2 b3
    tokens        p1 p2 | p3 a1 .. | p3 b1 b2
    positions      0  1 |  2  3  4 |  2  3  4
    predict              a1 a2 .. | b1 b2 b3          (..: padding, which predicts nothing)

A row attends to the prompt and causally to itself. `Packed` computes that without a mask of all pairs of tokens, on
a CPU as on a GPU, so the cost is that of the tokens that exist. The idea is known as prefix grouping (Liu et al. 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from trl.trainer.utils import split_tensor_dict

from arc_refinery.shared_prompts import apart, layout_arguments

IGNORED = -100  # label of a position that predicts nothing


@dataclass(frozen=True, slots=True)
class Group:
    """Completions of one prompt that are read together."""

    rows: tuple[int, ...]  # of the batch
    prompt: tuple[int, ...]  # token ids
    n_columns: int  # tokens of the longest completion

    @property
    def n_prefix(self) -> int:
        return len(self.prompt) - 1

    @property
    def n_tokens(self) -> int:
        return self.n_prefix + len(self.rows) * self.n_columns


def regrouped(passes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the passes of a step with the same rows in another order: those of a prompt are consecutive."""
    prompts = [tuple(row) for one in passes for row in one["prompt_ids"].tolist()]
    first = {prompt: place for place, prompt in reversed(list(enumerate(prompts)))}
    order = torch.tensor(sorted(range(len(prompts)), key=lambda row: first[prompts[row]]))
    merged = {name: _merged([one[name] for one in passes], order) for name in passes[0]}
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
    """Return the groups of a batch, in the order of their first rows.

    `ids` and `mask` have the shape (rows, prompt + completion tokens); prompts are padded on the left, completions, the
    last `n_completion` columns, on the right.
    """
    n_prompt = ids.shape[1] - n_completion
    n_columns = _lengths(mask[:, n_prompt:])
    found: dict[tuple[int, ...], list[int]] = {}
    for row, (tokens, is_prompt) in enumerate(
        zip(ids[:, :n_prompt].tolist(), mask[:, :n_prompt].tolist(), strict=True)
    ):
        prompt = tuple(token for token, kept in zip(tokens, is_prompt, strict=True) if kept)
        found.setdefault(prompt, []).append(row)
    return [Group(tuple(rows), prompt, max(1, *(n_columns[row] for row in rows))) for prompt, rows in found.items()]


def _lengths(mask: Tensor) -> list[int]:
    """Return the number of columns up to the last 1 of each row."""
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return [int(length) for length in (mask * columns).amax(1).tolist()]


def log_probs(network: Any, ids: Tensor, mask: Tensor, n_completion: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and the entropies of completion tokens (nats), both (rows, n_completion).

    Arguments as for `groups_of`; masked tokens have zeros. The network has TRL's fused head, and `share` was called.
    """
    groups = groups_of(ids, mask, n_completion)
    tokens, positions, labels = zip(*(packed(group, ids, mask, n_completion) for group in groups), strict=True)
    ids_of_all, positions_of_all, labels_of_all = (
        torch.cat(parts).unsqueeze(0) for parts in (tokens, positions, labels)
    )
    output = network(
        **layout_arguments(Packed(groups), ids_of_all, positions_of_all),
        shift_labels=labels_of_all,
        fused_lm_head=True,
    )
    found, entropies = (_unpacked(one, groups, ids, n_completion) for one in (output.log_probs, output.entropy))
    return found, entropies


def packed(group: Group, ids: Tensor, mask: Tensor, n_completion: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens of a group, their positions and the tokens that they predict, each (tokens,)."""
    completions = slice(ids.shape[1] - n_completion, ids.shape[1] - n_completion + group.n_columns)
    prompt = ids.new_tensor(group.prompt)
    rows = list(group.rows)
    targets = ids[rows, completions]
    inputs = torch.cat([prompt[-1:].expand(len(rows), 1), targets[:, :-1]], 1)
    labels = targets.masked_fill(mask[rows, completions] == 0, IGNORED)
    positions = torch.arange(group.n_prefix + group.n_columns, device=ids.device)
    return (
        torch.cat([prompt[:-1], inputs.flatten()]),
        torch.cat([positions[: group.n_prefix], positions[group.n_prefix :].repeat(len(rows))]),
        torch.cat([torch.full_like(prompt[:-1], IGNORED), labels.flatten()]),
    )


def _unpacked(packed: Tensor, groups: Sequence[Group], ids: Tensor, n_completion: int) -> Tensor:
    """Return values of packed tokens, (1, tokens), in the order of the batch's rows: (rows, n_completion)."""
    values = packed.new_zeros(len(ids), n_completion)
    for group, part in zip(groups, packed[0].split([group.n_tokens for group in groups]), strict=True):
        of_rows = part[group.n_prefix :].view(len(group.rows), group.n_columns)
        values = values.index_copy(0, ids.new_tensor(group.rows), pad(of_rows, (0, n_completion - group.n_columns)))
    return values


@dataclass(frozen=True, slots=True)
class Packed:
    """Groups, one after another in one row."""

    groups: Sequence[Group]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        of_groups = apart([group.n_tokens for group in self.groups], query, key, value)
        outputs = [_attend(group, *one, scale) for group, one in zip(self.groups, of_groups, strict=True)]
        return torch.cat(outputs, 2)


def _attend(group: Group, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    n_prefix, n_columns = group.n_prefix, group.n_columns

    def rows(packed: Tensor) -> Tensor:
        """(1, heads, tokens, size) -> (rows, heads, columns, size)"""
        n_heads, _, size = packed.shape[1:]
        return packed[0, :, n_prefix:].reshape(n_heads, len(group.rows), n_columns, size).transpose(0, 1)

    def with_prefix(packed: Tensor) -> Tensor:
        return torch.cat([packed[:, :, :n_prefix].expand(len(group.rows), -1, -1, -1), rows(packed)], 2)

    sees = torch.ones(n_columns, n_prefix + n_columns, dtype=torch.bool, device=query.device).tril(n_prefix)
    completions = scaled_dot_product_attention(
        rows(query), with_prefix(key), with_prefix(value), attn_mask=sees, scale=scale
    )
    if not n_prefix:
        return completions.transpose(0, 1).flatten(1, 2).unsqueeze(0)
    prompt = scaled_dot_product_attention(
        query[:, :, :n_prefix], key[:, :, :n_prefix], value[:, :, :n_prefix], is_causal=True, scale=scale
    )
    return torch.cat([prompt, completions.transpose(0, 1).flatten(1, 2).unsqueeze(0)], 2)
