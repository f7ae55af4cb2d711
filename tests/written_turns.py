"""Turns of every kind, right and wrong, and a second reading of which tokens of an episode a model sampled."""

import random
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from checkout import TINY_TOOLS
from factories import code_question, gsm8k_question
from mbpp_rows import mbpp_row

from arc_refinery.domains.gsm8k.generator import gsm8k_row
from arc_refinery.records.tool_use import Question, Segment
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.config.experiment import ToolName
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.tools.toolbox import Toolbox

END, OTHER_END = "<|im_end|>", "<|endoftext|>"
HEADER, NO_THOUGHT = "<|im_start|>assistant\n", "<think>\n\n</think>\n\n"
ALL: tuple[ToolName, ...] = ("calculator", "execute_code", "read_file")
LIMITS = Generation(max_turn_tokens=120, max_episode_tokens=500, max_calls=4)


def make_renderer(thinking: bool, tools: tuple[ToolName, ...] = ALL) -> ToolRenderer:
    from arc_refinery.models.tokenizers import load_tokenizer  # it imports torch

    return ToolRenderer(load_tokenizer(TINY_TOOLS), Toolbox(tools).schemas, thinking, END)


def tokens_of(renderer: ToolRenderer, segments: Iterable[Segment]) -> tuple[list[int], list[int]]:
    """Ids and mask of a conversation, as SFT reads it."""
    from arc_refinery.training.sft import SftRow, dataset  # it imports torch

    (row,) = dataset([SftRow("", tuple(segments))], renderer.tokenizer)
    return row["input_ids"], row["completion_mask"]


def loss_mask(
    ids: Sequence[int],
    tokenizer: Any,
    thinking: bool,
    ends: Collection[str] = (END,),
    longest_turn: int = 10**6,
    header: str = "",
) -> list[int]:
    """Mask of a model's sampled tokens, read from the ids of a prompt and all that follows, and from nothing else.

    A turn begins behind the assistant's header, and without thinking behind the empty thought that follows it. It goes
    on to the first token that ends a turn, or to the longest turn's length: what ends it after that was added.
    """
    header = header or (HEADER if thinking else HEADER + NO_THOUGHT)
    first = header.partition(">")[0] + ">"
    mask, read, left = [], "", 0
    for token in ids:
        text = tokenizer.decode([token])
        mask.append(int(left > 0))
        if left:
            left = 0 if text in ends else left - 1
        else:
            read = text if text == first else read + text
            left, read = (longest_turn, "") if read == header else (0, read)
    return mask


THOUGHTS = ("", NO_THOUGHT, "<think>\nThere are 2 hats: é, 帽.\n</think>\n\n", "<think>\n<tool_call>no\n</think>\n\n")
TEXTS = ("", "So:\n", "<|im_start|>assistant\nI am the model.\n")
CALLS = (
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12*3"}}\n</tool_call>',
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1/0"}}\n</tool_call>',
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "notes.txt"}}\n</tool_call>',
    '<tool_call>\n{"name": "calculator", "arguments": {"x": "1"}}\n</tool_call>',
    '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>',
    "<tool_call>\n12*3\n</tool_call>",
    "<tool_call>\n",
)
# What would be another turn of the model if it came through to the ids as it is
NOTES = f"{END}\n{HEADER}{NO_THOUGHT}#### 1{END}"


def spelt(text: str, rng: random.Random, renderer: ToolRenderer) -> list[int]:
    """The ids of a text, or of its pieces, cut anywhere: a model need not spell as its tokenizer does."""
    if rng.random() < 0.5:
        return renderer.ids(text)
    borders = [0, *sorted(rng.sample(range(len(text) + 1), len(text) // 3)), len(text)]
    return [token for start, end in pairwise(borders) for token in renderer.ids(text[start:end])]


def turn(
    rng: random.Random,
    renderer: ToolRenderer,
    longest: int,
    calls: Sequence[str] = CALLS,
    ends: Sequence[str] = (END, END, OTHER_END),
) -> list[int]:
    """A turn of any kind: with calls or without, right or wrong, ended by itself or by the limit on its length."""
    text = rng.choice(THOUGHTS) + rng.choice(TEXTS)
    if rng.random() < 0.7:
        text += "\n".join(rng.choices(calls, k=rng.randint(1, 3)))
    else:
        text += f"#### {rng.randrange(100)}"
    ids = spelt(text, rng, renderer)
    if rng.random() < 0.2:
        return [*ids, *renderer.ids(" and on" * longest)][:longest]
    return [*ids, *renderer.ids(rng.choice(ends))][:longest]


def questions(n: int) -> list[Question]:
    sums = [gsm8k_question(gsm8k_row(1 + index % 3, "train", 0, index), f"sum-{index}") for index in range(n)]
    rows = [mbpp_row(index) for index in range(n // 4)]
    programs = [
        code_question(*row["test_list"], task_id=f"program-{index}", text=row["text"], reference=row["code"])
        for index, row in enumerate(rows)
    ]
    return sums + programs
