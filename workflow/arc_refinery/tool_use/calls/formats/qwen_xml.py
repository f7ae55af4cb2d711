"""The format of Qwen3-Coder and Qwen3.5: a function with its parameters as tags, between the tags of a call.

Values are plain text: the tool's schema decides whether `5` is a number or a text. A value ends at the `</parameter>`
that the next parameter or the function's end follows, so that it may contain tags itself.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arc_refinery.tool_use.calls.formats.protocol import OPEN_CALL, CallFormat, MalformedCall, WrittenCall
from arc_refinery.tool_use.config.tool_signatures import JsonSchema, ToolSignature

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>")
_END = re.compile(r"\s*</function>")
_PARAMETER = re.compile(
    r"\s*<parameter=([^<>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=[^<>\n]+>|</function>))", re.DOTALL
)


class QwenXml(CallFormat):
    name = "qwen-xml"

    def start(self, text: str) -> int:
        return min(super().start(text), len(text.partition("<function=")[0]))

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Qwen3-Coder sometimes forgets the first `<tool_call>`; vLLM accepts such calls, too."""
        start = self.start(text)
        if start == super().start(text):
            return super().split(text)
        outside, calls = super().split(text[:start] + OPEN_CALL + text[start:])
        shift = len(OPEN_CALL)
        return outside, tuple(
            replace(call, span=(max(call.span[0] - shift, start), call.span[1] - shift)) for call in calls
        )

    def end_of_body(self, text: str, start: int) -> int:
        function = _FUNCTION.match(text, start)
        ended = function and _END.match(text, _values(text, function.end())[1])
        return ended.end() if ended else start

    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        function = _FUNCTION.match(call)
        if function is None:
            raise MalformedCall("the call does not begin with a function tag.")
        values, end = _values(call, function.end())
        ended = _END.match(call, end)
        if ended is None:
            raise MalformedCall(_fault_after(call[end:].strip(), values))
        if call[ended.end() :].strip():
            raise MalformedCall("there is text after the function. Write one function per call.")
        names = [name for name, _ in values]
        if twice := [name for name in names if names.count(name) > 1]:
            raise MalformedCall(f'the parameter "{twice[0]:.40}" appears twice.')
        tool = tools.get(function[1].strip())
        schemas = tool.parameters if tool else {}
        return function[1].strip(), {name: _typed(text, schemas.get(name)) for name, text in values}

    def example(self, tool: ToolSignature) -> str:
        parameters = "".join(
            f"<parameter={name}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
            for name, value in tool.example.items()
        )
        return f"<function={tool.name}>\n{parameters}</function>"


def _values(text: str, start: int) -> tuple[list[tuple[str, str]], int]:
    """Return names and texts of the parameters from `start` on, and where the last one ends."""
    values = []
    while match := _PARAMETER.match(text, start):
        values.append((match[1].strip(), match[2]))
        start = match.end()
    return values, start


def _fault_after(rest: str, values: list[tuple[str, str]]) -> str:
    """Return what is wrong with the text after the last complete parameter."""
    if not rest:
        return "the closing tag of the function is missing."
    if begun := re.match(r"<parameter=([^<>\n]+)>", rest):
        return f'the closing tag of the parameter "{begun[1]:.40}", or that of the function after it, is missing.'
    after = f'the parameter "{values[-1][0]:.40}"' if values else "the function tag"
    return f"the text after {after} is not a parameter: {rest:.40}."


def _typed(text: str, schema: JsonSchema | None) -> Any:
    """Return the value that a text stands for; the text itself if it does not fit, which the tool then reports."""
    if schema is None:
        return text
    if schema.get("nullable") and text.strip() in ("null", "None"):
        return None
    if schema["type"] == "string":
        return text
    if schema["type"] == "boolean":
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
