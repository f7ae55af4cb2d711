"""Networks of a few numbers, of several kinds, on a CPU."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GraniteConfig, LlamaConfig, PretrainedConfig, Qwen3Config
from trl.trainer.utils import add_fused_lm_head

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=8),
    "granite": GraniteConfig(**SIZES, attention_multiplier=0.3),
}


def network(config: PretrainedConfig, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(type(config)(**config.to_dict() | changes), attn_implementation="sdpa")
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)  # far from uniform predictions
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model
