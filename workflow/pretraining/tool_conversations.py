"""Training data of the embedded model for tool use: generated arithmetic, mostly answered without a tool.

The model learns the format of a call, and how to copy numbers into it and out of its result, but it seldom calls: that
is left for RL to learn.

Its tokenizer is in the style of Qwen3, with Qwen3's chat template: byte-level BPE after Qwen's splitting pattern (one
token per digit), with Qwen's special tokens. The merges are learned from generated conversations. The template's texts
around the tools are one token each, and so is each tool's description: these texts are the same in all prompts, and
would otherwise be most of the tokens.
"""

import json
import random
from collections.abc import Iterable, Iterator

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import qwen3_chat_template

from arc_refinery.domains.gsm8k.generator import LEVELS, gsm8k_row
from arc_refinery.records.tool_use import Question
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config.experiment import ToolName
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.grading.domains import domain_of, question_of
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import demonstration
from pretraining.corpus import Ids, Masks

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
N_MERGED = 700  # size of the vocabulary without added tokens

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LEVEL_WEIGHTS = (0.55, 0.35, 0.1)
OFFERED: tuple[tuple[ToolName, ...], ...] = (
    (),
    ("calculator",),
    ("calculator", "execute_code"),
    ("calculator", "execute_code", "read_file"),
)
CALL_SHARE = 0.08  # share that calls the calculator, among conversations in which it is offered
MAX_TOKENS = 384
TOKENIZER_SAMPLE = 2000  # conversations that the tokenizer's merges are learned from


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


class ToolConversations:
    """Questions of the training split, answered with or without a calculator call."""

    def __init__(self, max_length: int) -> None:
        self.tokenizer: PreTrainedTokenizerFast = build_qwen_tokenizer(_texts(), max_length)
        self._renderers = {offered: ToolRenderer(self.tokenizer, _schemas(offered), True, END) for offered in OFFERED}
        self._start, self._end = (int(self.tokenizer.convert_tokens_to_ids(mark)) for mark in (START, END))
        self._header = list(self.tokenizer(f"{START}assistant\n", add_special_tokens=False)["input_ids"])

    def conversation(self, progress: float, *address: int | str) -> list[int] | None:
        rng = random.Random(stream_seed("tool-use", *address))
        renderer = self._renderers[rng.choice(OFFERED)]
        calls = bool(renderer.schemas) and rng.random() < CALL_SHARE
        question = _question(_row(rng, *address))
        messages = demonstration(question, Toolbox(), calls)
        if messages is None:
            return None
        ids = [token for segment in renderer.segments(messages) for token in renderer.ids(segment.text)]
        return ids if len(ids) <= MAX_TOKENS else None

    def masks(self, ids: Ids) -> tuple[Masks, Masks]:
        """Mask the assistant's turns, without headers, with end tokens; the second mask is empty."""
        position = np.arange(ids.shape[1])
        begun = np.maximum.accumulate(np.where(ids == self._start, position, 0), axis=1)
        ended = np.maximum.accumulate(np.where(ids == self._end, position, -1), axis=1)
        ended_before = np.roll(ended, 1, axis=1) > begun
        role = np.take_along_axis(ids, np.minimum(begun + 1, ids.shape[1] - 1), axis=1)
        answer = (role == self._header[1]) & (position - begun >= len(self._header)) & ~ended_before
        return answer, np.zeros_like(answer)


def _schemas(offered: tuple[ToolName, ...]) -> list[dict[str, object]]:
    return Toolbox(offered).schemas


def _row(rng: random.Random, *address: int | str) -> dict[str, str]:
    level = rng.choices(LEVELS, LEVEL_WEIGHTS)[0]
    return gsm8k_row(level, "train", stream_seed("tool-use pretraining", *address), 0)


def _question(row: dict[str, str]) -> Question:
    domain = domain_of("gsm8k")
    return question_of(domain, domain.task(row, "", ""))


def _texts() -> Iterator[str]:
    """Yield texts of conversations, without tags, which are tokens in any case."""
    for number in range(TOKENIZER_SAMPLE):
        row = _row(random.Random(number), "tokenizer", number)
        yield from ("system", "user", "assistant", row["question"])
        for message in demonstration(_question(row), Toolbox(), calls=True) or []:
            yield message["content"]
            yield from (json.dumps(call["function"]) for call in message.get("tool_calls", []))
