"""All that differs between formats of tool calls, and what they share.

The text around turns and results comes from the model's own chat template (rendering.py), so no format writes it. Calls
are between `<tool_call>` and `</tool_call>`, as all of Qwen's chat templates write them.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arc_refinery.tool_use.config.tool_signatures import ToolSignature

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
_CALL = re.compile(f"{OPEN_CALL}(.*?)({CLOSE_CALL}|(?={OPEN_CALL})|$)", re.DOTALL)
_WHOLE_CALL = re.compile(rf"\s*{CLOSE_CALL}")  # after what is between the tags


class MalformedCall(Exception):
    """A call cannot be read; the message is for the model."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The text of a call, without the tags around it."""

    text: str
    is_closed: bool = True  # False: its end is missing, because the turn was cut off or the model forgot it
    span: tuple[int, int] = field(default=(0, 0), compare=False)  # in the text before the split, tags included


class CallFormat(ABC):
    """A form of tool calls."""

    name: str  # the value of `generation.call_format`
    ends = ("<|im_end|>", "<|endoftext|>")  # tokens that end a turn
    # First characters of what no result may contain: special tokens and tags of the chat template
    marks = re.compile(r"<(?=\||/?(?:tool_call|tool_response|tools|think)>)")
    # For the model; a correct call follows. Without the tag itself, which no result may contain
    unclosed = "it ends without its closing tag. Write a shorter one, and close it:"

    def start(self, text: str) -> int:
        """Return where the first call begins; without any, the length of the text."""
        return len(text.partition(OPEN_CALL)[0])

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Return the text around the calls, and the calls; every text can be split.

        Tags inside the values of a complete call are part of it.
        """
        outside: list[str] = []
        calls: list[WrittenCall] = []
        end = 0
        while match := _CALL.search(text, end):
            outside.append(text[end : match.start()])
            start = match.start() + len(OPEN_CALL)
            whole = _WHOLE_CALL.match(text, self.end_of_body(text, start))
            end = (whole or match).end()
            body, is_closed = (text[start : whole.start()], True) if whole else (match[1], match[2] == CLOSE_CALL)
            calls.append(WrittenCall(body.strip(), is_closed, (match.start(), end)))
        return "".join([*outside, text[end:]]), tuple(calls)

    @abstractmethod
    def end_of_body(self, text: str, start: int) -> int:
        """Return where a complete call that begins at `start`, behind its tag, ends; `start` if there is none."""

    @abstractmethod
    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of a call's text, which need not fit a tool; raises `MalformedCall`."""

    @abstractmethod
    def example(self, tool: ToolSignature) -> str:
        """Return the text of a correct call, as `read` takes it."""
