"""Let a network read many texts in one row, and a prompt once for all of its completions.

A network that `enable_layouts` has changed computes as before, unless a call passes `shared=`: a `Layout` says how the
tokens of that call attend to each other. So texts need not be padded to one length, and no mask of all pairs of tokens
is made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, DynamicCache
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from arc_refinery.models.shape import attention_obstacle

ATTENTION = "sdpa_with_shared_prompts"


class Layout(Protocol):
    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attend in one layer; keys and values may have fewer heads than queries.

        All have the shape (rows, heads, tokens, size of a head), and so does what is returned.
        """
        ...


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Texts, one after another in one row; each attends to itself, causally."""

    lengths: list[int]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        texts = split_by_lengths(self.lengths, query, key, value)
        return torch.cat([scaled_dot_product_attention(*text, is_causal=True, scale=scale) for text in texts], 2)


@dataclass(frozen=True, slots=True)
class Continued:
    """Texts, one after another in one row; each attends, causally, to what was read of it before, and to itself.

    `before` has the keys and values of each text in each layer, (heads, tokens, size of a head), or none.
    """

    lengths: list[int]
    before: Sequence[Sequence[tuple[Tensor, Tensor]]]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        n_repeats = query.shape[1] // key.shape[1]
        parts = []
        for own, earlier in zip(split_by_lengths(self.lengths, query, key, value), self.before, strict=True):
            if not earlier:
                parts.append(scaled_dot_product_attention(*own, is_causal=True, scale=scale))
                continue
            keys, values = (
                torch.cat([repeat_kv(read.unsqueeze(0), n_repeats), new], 2)
                for read, new in zip(earlier[layer], own[1:], strict=True)
            )
            n_new, n_all = own[0].shape[2], keys.shape[2]
            visible = query.new_ones(n_new, n_all, dtype=torch.bool).tril(n_all - n_new)
            parts.append(scaled_dot_product_attention(own[0], keys, values, attn_mask=visible, scale=scale))
        return torch.cat(parts, 2)


def split_by_lengths(
    lengths: Sequence[int], query: Tensor, key: Tensor, value: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Cut one row into stretches of these lengths; in each, keys and values have as many heads as the queries."""
    n_repeats = query.shape[1] // key.shape[1]
    packed = query, repeat_kv(key, n_repeats), repeat_kv(value, n_repeats)
    queries, keys, values = (tensor.split(list(lengths), dim=2) for tensor in packed)
    return zip(queries, keys, values, strict=True)


def enable_layouts(network: Any) -> str:
    """Let a network take layouts. Return why it cannot and stays as it was; empty if it can."""
    config = network.config.get_text_config()
    if config._attn_implementation == ATTENTION:
        return ""
    if config._attn_implementation != "sdpa":
        return f"its attention is {config._attn_implementation}, not sdpa"
    if reason := attention_obstacle(config.to_dict()):
        return reason
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    network.set_attn_implementation(ATTENTION)
    if reason := _tried(network):
        network.set_attn_implementation("sdpa")
    return reason


def _tried(network: Any) -> str:
    """Read two tokens: each layer has to ask the layout once, with just the keys and values that it keeps."""
    if network.config.get_text_config()._attn_implementation != ATTENTION:
        return "its attention cannot be replaced"
    seen, cache = _Seen([]), DynamicCache(config=network.config)
    ids = torch.zeros(1, 2, dtype=torch.long, device=network.device)
    was_training = network.training
    network.eval()  # with gradient checkpointing, a network that trains keeps no keys
    try:
        with torch.no_grad():
            network(**layout_arguments(seen, ids, torch.arange(2).unsqueeze(0).to(ids)), past_key_values=cache)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        return f"its attention does not take the layout ({type(error).__name__})"
    finally:
        network.train(was_training)
    in_cache = [(number, layer.keys.shape, layer.values.shape) for number, layer in enumerate(cache.layers)]
    return "" if seen.layers == in_cache else "its layers attend to other keys than they keep"


@dataclass(frozen=True, slots=True)
class _Seen:
    """A causal layout that notes each layer, with the shapes of its keys and values."""

    layers: list[tuple[int, torch.Size, torch.Size]]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        self.layers.append((layer, key.shape, value.shape))
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)


def layout_arguments(layout: Layout, ids: Tensor, positions: Tensor) -> dict[str, Any]:
    """Return the arguments of a call whose tokens attend as a layout says; `ids` and `positions` are (rows, tokens)."""
    return {
        "input_ids": ids,
        "position_ids": positions,
        # never read; four dimensions: transformers makes no mask of its own; its sum: TRL counts tokens with it
        "attention_mask": ids.new_full((1, 1, 1, 1), ids.numel()),
        "shared": layout,
    }


def side_by_side(ids: Tensor, lengths: list[int]) -> dict[str, Any]:
    """Return the arguments of a call that reads texts of these lengths; `ids` has them in one row: (1, tokens)."""
    positions = torch.cat([torch.arange(length) for length in lengths])
    return layout_arguments(SideBySide(lengths), ids, positions.unsqueeze(0).to(ids.device))


def continued(ids: Tensor, lengths: list[int], before: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> dict[str, Any]:
    """Return the arguments of a call that reads more of texts; `ids` has all that is new in one row: (1, tokens)."""
    n_before = [earlier[0][0].shape[1] if earlier else 0 for earlier in before]
    positions = torch.cat([torch.arange(length) + n for length, n in zip(lengths, n_before, strict=True)])
    return layout_arguments(Continued(lengths, before), ids, positions.unsqueeze(0).to(ids.device))


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    shared: Layout | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    if shared is None:
        output: Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **named
        )[0]
        return output, None
    layer: Any = module.layer_idx
    return shared.attend(layer, query, key, value, scaling).transpose(1, 2).contiguous(), None
