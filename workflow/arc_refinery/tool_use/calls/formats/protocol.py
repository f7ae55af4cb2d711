"""All that differs between formats of tool calls.

The text around turns and results comes from the model's own chat template (rendering.py), so no format writes it. Calls
are between `<tool_call>` and `</tool_call>`, as all of Qwen's chat templates write them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from arc_refinery.tool_use.config.tool_signatures import ToolSignature

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
CHATML_ENDS = ("<|im_end|>", "<|endoftext|>")
CHATML_MARKS = re.compile(r"<(?=\||/?(?:tool_call|tool_response|tools|think)>)")
# Without the tag itself, which no result may contain
UNCLOSED = "it ends without its closing tag. Write a shorter one, and close it:"

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


class CallFormat(Protocol):
    """A form of tool calls."""

    @property
    def name(self) -> str:
        """The value of `generation.call_format`."""

    @property
    def ends(self) -> tuple[str, ...]:
        """Tokens that end a turn."""

    @property
    def marks(self) -> re.Pattern[str]:
        """First characters of what no result may contain: special tokens and tags of the chat template."""

    @property
    def unclosed(self) -> str:
        """For the model: what a call without its end lacks, and what to do; a correct call follows."""

    def start(self, text: str) -> int:
        """Return where the first call begins; without any, the length of the text."""

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Return the text around the calls, and the calls; every text can be split."""

    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of a call's text, which need not fit a tool; raises `MalformedCall`."""

    def example(self, tool: ToolSignature) -> str:
        """Return the text of a correct call, as `read` takes it."""


def start_of_tag(text: str) -> int:
    return len(text.partition(OPEN_CALL)[0])


def split_tagged(text: str, end_of_body: Callable[[str, int], int]) -> tuple[str, tuple[WrittenCall, ...]]:
    """Return the text around the calls, and the calls.

    `end_of_body` returns where a complete call that begins at an index ends, or that index if there is none; tags
    before that end are part of the call.
    """
    outside: list[str] = []
    calls: list[WrittenCall] = []
    end = 0
    while match := _CALL.search(text, end):
        outside.append(text[end : match.start()])
        start = match.start() + len(OPEN_CALL)
        whole = _WHOLE_CALL.match(text, end_of_body(text, start))
        end = (whole or match).end()
        body, is_closed = (text[start : whole.start()], True) if whole else (match[1], match[2] == CLOSE_CALL)
        calls.append(WrittenCall(body.strip(), is_closed, (match.start(), end)))
    return "".join([*outside, text[end:]]), tuple(calls)
