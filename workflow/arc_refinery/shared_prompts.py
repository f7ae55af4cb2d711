"""Let a network read many texts in one row, and a prompt once for all of its completions.

A network that `share` has changed computes as before, unless a call passes `shared=`: a `Layout` says how the tokens of
that call attend to each other. So nothing is padded, and no mask of all pairs of tokens is made.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

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
        n_repeats = query.shape[1] // key.shape[1]
        packed = query, repeat_kv(key, n_repeats), repeat_kv(value, n_repeats)
        queries, keys, values = (one.split(self.lengths, dim=2) for one in packed)
        attend = partial(scaled_dot_product_attention, is_causal=True, scale=scale)
        return torch.cat(list(map(attend, queries, keys, values)), 2)


def obstacle(network: Any) -> str:
    """Return why a network's attention cannot take layouts; empty if it can."""
    config = network.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    if config._attn_implementation != "sdpa":
        return f"its attention is {config._attn_implementation}, not sdpa"
    if slides or layers != {"full_attention"}:
        return "not all of its layers attend to all earlier tokens"
    if getattr(config, "attention_dropout", 0.0):
        return "its attention has dropout"
    if getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None):
        return "it is a mixture of experts"
    return ""


def share(network: Any) -> None:
    """Let a network take layouts."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    network.set_attn_implementation(ATTENTION)


def layout_arguments(layout: Layout, ids: Tensor, positions: Tensor) -> dict[str, Any]:
    """Return the arguments of a call whose tokens attend as a layout says; `ids` and `positions` are (rows, tokens)."""
    return {
        "input_ids": ids,
        "position_ids": positions,
        "attention_mask": ids.new_ones(1, 1, 1, 1),  # four dimensions: transformers makes no mask of its own
        "shared": layout,
    }


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
