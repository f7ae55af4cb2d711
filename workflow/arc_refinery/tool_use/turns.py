"""Parse a model's turn into thinking, text and tool calls.

The format is Qwen3's: `<think>...</think>`, then text, then calls, each between `<tool_call>` and `</tool_call>`.
"""

import re
from dataclasses import dataclass

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
OPEN_THOUGHT, CLOSE_THOUGHT = "<think>", "</think>"

_CALL = re.compile(f"{OPEN_CALL}(.*?)({CLOSE_CALL}|(?={OPEN_CALL})|$)", re.DOTALL)
_ENDS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The text between the tags of a call."""

    text: str
    is_closed: bool = True  # False: `</tool_call>` is missing, because the turn was cut off or the model forgot it


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One assistant turn."""

    thinking: str
    text: str  # neither thinking nor a call
    calls: tuple[WrittenCall, ...]
    is_thinking_closed: bool = True  # False: the turn ends in the middle of its thinking

    @property
    def answer(self) -> str | None:
        """The text, if it ends the episode: no calls, and the thinking is closed."""
        return self.text if self.is_thinking_closed and not self.calls else None


def parse_turn(written: str) -> ParsedTurn:
    """Parse a turn; every text is one. Calls inside the thinking are thoughts.

    The thinking ends at the first `</think>`, even if `<think>` was at the end of the prompt; text before `<think>` is
    text. Thinking tags after the first call are part of the call.
    """
    written = written.rstrip()
    while written.endswith(_ENDS):
        written = written.rpartition("<|")[0].rstrip()
    head = written.partition(OPEN_CALL)[0]
    before, thinking, rest = "", "", written
    if OPEN_THOUGHT in head and CLOSE_THOUGHT not in head.partition(OPEN_THOUGHT)[0]:
        before, _, thinking = written.partition(OPEN_THOUGHT)
        thinking, closed, rest = thinking.partition(CLOSE_THOUGHT)
        if not closed:
            return ParsedTurn(thinking.strip(), before.strip(), (), is_thinking_closed=False)
    elif CLOSE_THOUGHT in head:
        thinking, _, rest = written.partition(CLOSE_THOUGHT)
    calls = tuple(WrittenCall(found[1].strip(), found[2] == CLOSE_CALL) for found in _CALL.finditer(rest))
    text = "\n".join(part for part in (before.strip(), _CALL.sub("", rest).strip()) if part)
    return ParsedTurn(thinking.strip(), text, calls)
