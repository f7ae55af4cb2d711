"""The format of Qwen3, Qwen2.5 and Hermes: a JSON object between tags."""

from collections.abc import Mapping
from typing import Any

from arc_refinery.tool_use.calls.formats.json_calls import end_of_call, read_object, write_object
from arc_refinery.tool_use.calls.formats.protocol import WrittenCall
from arc_refinery.tool_use.calls.formats.tags import CHATML_ENDS, CHATML_MARKS, UNCLOSED, split_tagged, start_of_tag
from arc_refinery.tool_use.config.tool_signatures import ToolSignature


class Hermes:
    name = "hermes"
    ends = CHATML_ENDS
    marks = CHATML_MARKS
    unclosed = UNCLOSED

    def start(self, text: str) -> int:
        return start_of_tag(text)

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Tags inside the texts of a JSON object are part of it."""
        return split_tagged(text, end_of_call)

    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        return read_object(call)

    def example(self, tool: ToolSignature) -> str:
        return write_object(tool)
