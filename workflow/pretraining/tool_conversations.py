"""Training data of the embedded model for tool use: generated arithmetic, mostly answered without a tool.

The model learns the format of a call, and how to copy numbers into it and out of its result, but it seldom calls: that
is left for RL to learn.
"""

import json
import random
from collections.abc import Iterator

import numpy as np
from transformers import PreTrainedTokenizerFast

from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config.experiment import LEVELS, ToolName
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.questions.data import gsm8k_question
from arc_refinery.tool_use.questions.generator import gsm8k_row
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import demonstration
from pretraining.corpus import Ids, Masks
from pretraining.qwen_tokenizer import END, START, build_qwen_tokenizer

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
        question = gsm8k_question(_row(rng, *address), "", "")
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


def _texts() -> Iterator[str]:
    """Yield texts of conversations, without tags, which are tokens in any case."""
    for number in range(TOKENIZER_SAMPLE):
        row = _row(random.Random(number), "tokenizer", number)
        yield from ("system", "user", "assistant", row["question"])
        for message in demonstration(gsm8k_question(row, "", ""), Toolbox(), calls=True) or []:
            yield message["content"]
            yield from (json.dumps(call["function"]) for call in message.get("tool_calls", []))
