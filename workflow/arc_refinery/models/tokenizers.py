"""A model's tokenizer: padding that is not an end token, answers that start with fixed text, ends of completions."""

import logging
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from arc_refinery.models.shape import read_by_library

LLAMA_PAD = "<|finetune_right_pad_id|>"  # in Llama-3.1's vocabulary, but its published folders set no padding token

logger = logging.getLogger(__name__)


def load_tokenizer(model_path: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model's folder or hub name; pads on the left, because completions follow prompts."""
    with read_by_library(model_path, "tokenizer.json"):
        tokenizer = AutoTokenizer.from_pretrained(model_path, padding_side="left")
        tokenizer("x")  # some settings are wrong only when they are used
    set_pad_token(tokenizer)
    return tokenizer


def set_pad_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Set a padding token that is not the end token: trainers mask padding in the loss, and would mask the end too."""
    if tokenizer.pad_token not in (None, tokenizer.eos_token):
        return
    if LLAMA_PAD in tokenizer.get_vocab():
        tokenizer.pad_token = LLAMA_PAD
    else:
        tokenizer.pad_token = tokenizer.eos_token
        logger.warning("%s: its only padding token is the end token, which training then masks", tokenizer.name_or_path)


def end_tokens(model_path: str, tokenizer: PreTrainedTokenizerBase, stop_token: str = "") -> list[int]:
    """Return the tokens that end a completion: `stop_token` or the tokenizer's, and those in generation_config.json.

    They are the same for transformers, vLLM and TRL, and without that file all three read config.json.
    """
    with read_by_library(model_path, "generation_config.json"):
        try:
            configured = GenerationConfig.from_pretrained(model_path).eos_token_id
        except OSError:
            configured = GenerationConfig.from_model_config(AutoConfig.from_pretrained(model_path)).eos_token_id
    first: Any = tokenizer.convert_tokens_to_ids(stop_token) if stop_token else tokenizer.eos_token_id
    ends = dict.fromkeys([first, *(configured if isinstance(configured, list) else [configured])])
    return [end for end in ends if end is not None]
