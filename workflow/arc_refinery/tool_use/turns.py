"""Parse a model's turn into thinking, text and tool calls.

Thinking is between `<think>` and `</think>`, as Qwen3 writes it; then come text and calls (call_formats).
"""

from dataclasses import dataclass

from arc_refinery.tool_use.call_formats import HERMES, CallFormat, WrittenCall

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
    text. Thinking tags after the first call are part of the call.
    """
    written = written.rstrip()
    while written.endswith(call_format.ends):
        written = written.rpartition("<|")[0].rstrip()
    head = written[: call_format.start(written)]
    before, thinking, rest = "", "", written
    if OPEN_THOUGHT in head and CLOSE_THOUGHT not in head.partition(OPEN_THOUGHT)[0]:
        before, _, thinking = written.partition(OPEN_THOUGHT)
        thinking, closed, rest = thinking.partition(CLOSE_THOUGHT)
        if not closed:
            return ParsedTurn(thinking.strip(), before.strip(), (), is_thinking_closed=False)
    elif CLOSE_THOUGHT in head:
        thinking, _, rest = written.partition(CLOSE_THOUGHT)
    outside, calls = call_format.split(rest)
    text = "\n".join(part for part in (before.strip(), outside.strip()) if part)
    return ParsedTurn(thinking.strip(), text, calls)
