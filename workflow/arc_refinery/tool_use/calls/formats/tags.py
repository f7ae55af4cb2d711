"""Calls between `<tool_call>` and `</tool_call>`, as all of Qwen's chat templates write them."""

import re
from collections.abc import Callable

from arc_refinery.tool_use.calls.formats.protocol import WrittenCall

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
CHATML_ENDS = ("<|im_end|>", "<|endoftext|>")
CHATML_MARKS = re.compile(r"<(?=\||/?(?:tool_call|tool_response|tools|think)>)")
# Without the tag itself, which no result may contain
UNCLOSED = "it ends without its closing tag. Write a shorter one, and close it:"

_CALL = re.compile(f"{OPEN_CALL}(.*?)({CLOSE_CALL}|(?={OPEN_CALL})|$)", re.DOTALL)
_WHOLE_CALL = re.compile(rf"\s*{CLOSE_CALL}")  # after what is between the tags


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
