"""Parse a model's turn into thinking, text and tool calls.

Thinking is between `<think>` and `</think>`, as Qwen3 writes it; then come text and calls (call_formats).
"""

import re
from dataclasses import dataclass

from arc_refinery.tool_use.calls.formats import HERMES, CallFormat, MalformedCall, WrittenCall

OPEN_THOUGHT, CLOSE_THOUGHT = "<think>", "</think>"


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


def parse_turn(written: str, call_format: CallFormat = HERMES) -> ParsedTurn:
    """Parse a turn; every text is one. Calls inside the thinking are thoughts.

    The thinking ends at the first `</think>`, even if `<think>` was at the end of the prompt; text before `<think>` is
    text. Thinking tags after the first call are part of the call. Thinking that is never closed ends at the first
    complete call: Qwen3.5 writes such turns, and vLLM and SGLang run their calls, too.
    """
    written = written.rstrip()
    while written.endswith(call_format.ends):
        written = written.rpartition("<|")[0].rstrip()
    head = written[: call_format.start(written)]
    before, thinking, rest = "", "", written
    if OPEN_THOUGHT in head and CLOSE_THOUGHT not in head.partition(OPEN_THOUGHT)[0]:
        before, _, after = written.partition(OPEN_THOUGHT)
        calls_in_it = [call.span for call in call_format.split(after)[1] if _is_complete(call, call_format)]
        closing = next(
            (
                tag.start()
                for tag in re.finditer(CLOSE_THOUGHT, after)
                if not any(start < tag.start() < end for start, end in calls_in_it)
            ),
            None,
        )
        if closing is not None:
            thinking, rest = after[:closing], after[closing + len(CLOSE_THOUGHT) :]
        elif calls_in_it:
            begin = calls_in_it[0][0]
            thinking, rest = after[:begin], after[begin:]
        else:
            return ParsedTurn(after.strip(), before.strip(), (), is_thinking_closed=False)
    elif CLOSE_THOUGHT in head:
        thinking, _, rest = written.partition(CLOSE_THOUGHT)
    outside, calls = call_format.split(rest)
    text = "\n".join(part for part in (before.strip(), outside.strip()) if part)
    return ParsedTurn(thinking.strip(), text, calls)


def _is_complete(call: WrittenCall, call_format: CallFormat) -> bool:
    """Return whether a call has its end, and name and arguments can be read."""
    try:
        return call.is_closed and bool(call_format.read(call.text, {}))
    except MalformedCall:
        return False
