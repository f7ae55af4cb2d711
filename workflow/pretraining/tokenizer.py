"""Tokenizer of the embedded model: bytes, and one token for each fragment of compact prompts and answers.

Any text round-trips (text that is not a fragment becomes bytes). Digits are bytes, so a grid cell is one token.
"""

import re

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from arc_refinery.arc.grids import MAX_SIDE
from arc_refinery.barc.operations import OPERATIONS

END, PAD, USER, ASSISTANT = "<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}"
    "<|assistant|>{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
    "{%- else -%}<|user|>{{ message['content'] }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)

# Parts of compact prompts and answers that are one token each. Their order determines the ids of the shipped tokenizer.
PROMPT_FRAGMENTS = (
    "```python\nfrom common import *\n\ndef transform(grid):\n",
    "    return grid\n```",
    "\ninput ",
    "\noutput ",
    " correct",
    "Executing your program failed with ",
    ", given ",
    "Executing your program gave:",
    "\npair ",
    ", expected shape ",
    "\nWrite a corrected program.",
    " wrong, pixel similarity ",
)

_PLACE_HOLDER = re.compile(r"\{\w+\}")


def build_tokenizer(max_length: int) -> PreTrainedTokenizerFast:
    """Return the tokenizer, ready to be saved next to the model; `max_length` is the model's window in tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={byte: number for number, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (PAD, END, USER, ASSISTANT)])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in fragments()])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def fragments() -> list[str]:
    """Return the texts of two or more characters that are one token each, without repeats, in a fixed order."""
    texts = [f"\n{row} " for row in range(1, MAX_SIDE + 1)] + [f"{height}x" for height in range(1, MAX_SIDE + 1)]
    texts += PROMPT_FRAGMENTS
    for operation in OPERATIONS:
        lines = "\n".join(f"    {line}" for line in operation.code.splitlines()) + "\n"
        texts += _PLACE_HOLDER.split(lines)
    return [text for text in dict.fromkeys(texts) if len(text) > 1]
