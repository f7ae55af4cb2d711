"""Parse a model's turn into thinking, text and tool calls.

The format is Qwen3's: `<think>...</think>`, then text, then calls, each between `<tool_call>` and `</tool_call>`.
"""

import json
import re
from dataclasses import dataclass

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
OPEN_THOUGHT, CLOSE_THOUGHT = "<think>", "</think>"

_CALL = re.compile(f"{OPEN_CALL}(.*?)({CLOSE_CALL}|(?={OPEN_CALL})|$)", re.DOTALL)
_WHOLE_CALL = re.compile(rf"\s*{CLOSE_CALL}")  # after its JSON
_JSON = json.JSONDecoder()
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
    outside, calls = _split_calls(rest)
    text = "\n".join(part for part in (before.strip(), outside.strip()) if part)
    return ParsedTurn(thinking.strip(), text, calls)


def _split_calls(text: str) -> tuple[str, tuple[WrittenCall, ...]]:
    """Return the text around the calls, and the calls. Tags inside the texts of a JSON object are part of it."""
    outside: list[str] = []
    calls: list[WrittenCall] = []
    end = 0
    while found := _CALL.search(text, end):
        outside.append(text[end : found.start()])
        start = found.start() + len(OPEN_CALL)
        if whole := _WHOLE_CALL.match(text, _end_of_json(text, start)):
            calls.append(WrittenCall(text[start : whole.start()].strip()))
        else:
            calls.append(WrittenCall(found[1].strip(), found[2] == CLOSE_CALL))
        end = (whole or found).end()
    return "".join([*outside, text[end:]]), tuple(calls)


def _end_of_json(text: str, start: int) -> int:
    """Return where the JSON value from `start` ends, or `start` if there is none."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        return _JSON.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return start
