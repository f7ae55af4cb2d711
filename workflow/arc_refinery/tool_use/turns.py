"""What a model writes in one turn, taken apart: thinking, text, calls of tools.

The form is Qwen3's: `<think>...</think>` first, then text, then calls, each between `<tool_call>` and `</tool_call>`.
"""

import re
from dataclasses import dataclass

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
OPEN_THOUGHT, CLOSE_THOUGHT = "<think>", "</think>"

_CALL = re.compile(f"{OPEN_CALL}(.*?)({CLOSE_CALL}|(?={OPEN_CALL})|$)", re.DOTALL)
_ENDS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """What stands between the tags, as it was written."""

    text: str
    is_closed: bool = True  # False: `</tool_call>` is missing, because the turn was cut off or the model forgot it


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant turn."""

    thinking: str
    text: str  # what is neither thinking nor a call
    calls: tuple[WrittenCall, ...]
    is_thinking_closed: bool = True  # False: the turn ends in the middle of its thinking

    @property
    def answer(self) -> str | None:
        """The text, where it is one that ends an episode: nothing is called and the thinking is over."""
        return self.text if self.is_thinking_closed and not self.calls else None


def parse_turn(written: str) -> Turn:
    """Take a turn apart; every text is one. Calls inside the thinking are thoughts.

    The thinking ends at the first `</think>`, also where `<think>` stood at the end of the prompt. Tags of thinking
    after the first call are part of it.
    """
    written = written.rstrip()
    while written.endswith(_ENDS):
        written = written.rpartition("<|")[0].rstrip()
    head = written if written.startswith(OPEN_THOUGHT) else written.partition(OPEN_CALL)[0]
    thinking, rest = "", written
    if CLOSE_THOUGHT in head:
        thinking, _, rest = written.partition(CLOSE_THOUGHT)
    elif OPEN_THOUGHT in head:
        before, _, thinking = written.partition(OPEN_THOUGHT)
        return Turn(thinking.strip(), before.strip(), (), is_thinking_closed=False)
    calls = tuple(WrittenCall(found[1].strip(), found[2] == CLOSE_CALL) for found in _CALL.finditer(rest))
    return Turn(thinking.replace(OPEN_THOUGHT, "", 1).strip(), _CALL.sub("", rest).strip(), calls)
