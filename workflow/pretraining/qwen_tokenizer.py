"""Tokenizer of the embedded model for tool use, in the style of Qwen3, with Qwen3's chat template.

Byte-level BPE after Qwen's splitting pattern (one token per digit), with Qwen's special tokens. The merges are learned
from generated conversations. The template's texts around the tools are one token each, and so is each tool's
description: these texts are the same in all prompts, and would otherwise be most of the tokens.
"""

import json
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import qwen3_chat_template

from arc_refinery.tool_use.tools.toolbox import Toolbox

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
N_MERGED = 700  # size of the vocabulary without added tokens

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def build_qwen_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose merges are learned from `texts`, ready to be saved next to the model."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=N_MERGED, initial_alphabet=alphabet, show_progress=False)
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        padding_side="left",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        chat_template=qwen3_chat_template,
    )
    fast.add_tokens([AddedToken(text, special=False, normalized=False) for text in [*TAGS, *_fixed_texts(fast)]])
    return fast


def _fixed_texts(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Return the template's text before and after the tools, and the line of each tool."""
    schemas = Toolbox().schemas
    messages = [{"role": "user", "content": ""}]
    text = str(tokenizer.apply_chat_template(messages, tools=schemas, tokenize=False))
    lines = [json.dumps(schema) for schema in schemas]
    before, after = text.split("\n".join(lines))
    return [before.removeprefix(START), after.partition(END)[0], *lines]
