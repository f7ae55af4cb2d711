"""Let a network read a prompt once for all of its completions, in training as in sampling.

A network that `share` has changed computes as before, unless a call passes `shared=`: a `Layout` says how the tokens of
that call attend to each other.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

ATTENTION = "sdpa_with_shared_prompts"


class Layout(Protocol):
    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attend in one layer; keys and values may have fewer heads than queries.

        All have the shape (rows, heads, tokens, size of a head), and so does what is returned.
        """
        ...


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
