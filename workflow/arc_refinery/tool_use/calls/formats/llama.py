"""The format of Llama 3.1 and 3.2: the turn is a JSON object, after `<|python_tag|>` or without it.

Their chat templates write one call per turn. A JSON object counts as a call if it begins the turn and its first key is
one of a call's, or if it begins a line and has a call's two keys: the answer to a question may also be an object.
"""

import re
from collections.abc import Mapping
from typing import Any

from arc_refinery.tool_use.calls.formats.json_calls import end_of_object, is_cut_off, read_object, write_object
from arc_refinery.tool_use.calls.formats.protocol import WrittenCall
from arc_refinery.tool_use.config.tool_signatures import ToolSignature

PYTHON_TAG = "<|python_tag|>"

_AT_BEGINNING = re.compile(r"""\s*\{\s*["']?(?:name|type|function|parameters|arguments)\b["']?\s*:""")
_LATER = re.compile(
    rf'^[ \t]*\{{\s*"name"\s*:\s*"[^"\n]*"\s*,\s*"(?:parameters|arguments)"\s*:|{re.escape(PYTHON_TAG)}', re.MULTILINE
)
_NEXT_CALL = re.compile(rf"\s*;?\s*(?:{re.escape(PYTHON_TAG)}\s*)?(?=\{{)")


class Llama:
    name = "llama"
    ends = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
    call_ends: tuple[str, ...] = ("<|eom_id|>",)
    kept_tokens: tuple[str, ...] = (PYTHON_TAG,)
    max_calls_per_turn: int | None = 1
    marks = re.compile(r"<(?=\||/?think>)")
    unclosed = "its JSON object does not end. Write a shorter one, and close it:"

    def start(self, text: str) -> int:
        if _AT_BEGINNING.match(text):
            return 0
        match = _LATER.search(text)
        return match.start() if match else len(text)

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Calls follow each other with or without a semicolon; what is not JSON is one call up to the end."""
        start = self.start(text)
        outside, calls = text[:start], list[WrittenCall]()
        while start < len(text):
            begin = start
            start += len(PYTHON_TAG) * text.startswith(PYTHON_TAG, start)
            end = end_of_object(text, start)
            if not text[start:end].strip():
                rest = text[start:].strip()
                calls.append(WrittenCall(rest, not is_cut_off(rest), (begin, len(text))))
                break
            calls.append(WrittenCall(text[start:end].strip(), span=(begin, end)))
            another = _NEXT_CALL.match(text, end)
            if another is None:
                outside += text[end:]
                break
            start = another.end()
        return outside, tuple(calls)

    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        return read_object(call, "parameters", "arguments")

    def example(self, tool: ToolSignature) -> str:
        return write_object(tool, "parameters")
