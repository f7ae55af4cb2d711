"""The format of Qwen3, Qwen2.5 and Hermes: a JSON object with a name and arguments, between tags."""

import json
import re
from collections.abc import Mapping
from typing import Any

from arc_refinery.tool_use.calls.formats.protocol import OPEN_CALL, CallFormat, MalformedCall, WrittenCall
from arc_refinery.tool_use.calls.tool import kind
from arc_refinery.tool_use.config.tool_signatures import ToolSignature

_JSON = json.JSONDecoder()
_BLOCK = re.compile(r'```(?:json)?\s*(?=\{\s*"name"\s*:)')
_END_OF_BLOCK = re.compile(r"\s*```")
_QUOTES = r" Inside a text, a quote is \"."


class Hermes(CallFormat):
    name = "hermes"

    def start(self, text: str) -> int:
        blocks = _blocks(text)
        return blocks[0].span[0] if blocks else super().start(text)

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Qwen2.5-Coder writes calls as blocks of Markdown, though its chat template shows tags."""
        blocks = _blocks(text)
        if not blocks:
            return super().split(text)
        spans = [0, *(place for block in blocks for place in block.span), len(text)]
        return "".join(text[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True)), tuple(blocks)

    def end_of_body(self, text: str, start: int) -> int:
        """Return where an object ends; also one in doubled braces."""
        start += len(text[start:]) - len(text[start:].lstrip())
        if not text.startswith("{{", start):
            return _end_of_object(text, start)
        end = _end_of_object(text, start + 1)
        rest = text[end:].lstrip()
        return len(text) - len(rest) + 1 if rest.startswith("}") else end

    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        try:
            content = json.loads(_without_doubled_braces(call))
        except json.JSONDecodeError as error:
            raise MalformedCall(f"the call is not valid JSON: {_fault(error)}.{_hint(error)}") from None
        except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
            raise MalformedCall(
                "the call cannot be read: it has a number that is too long or is nested too deeply."
            ) from None
        if not isinstance(content, dict):
            raise MalformedCall(f"the call is {kind(content)}, expected an object.")
        for key, wanted in (("name", str), ("arguments", dict)):
            if key not in content:
                raise MalformedCall(f'"{key}" is missing.')
            if not isinstance(content[key], wanted):
                expected = "a text" if wanted is str else "an object"
                raise MalformedCall(f'"{key}" is {kind(content[key])}, expected {expected}.')
        return content["name"], content["arguments"]

    def example(self, tool: ToolSignature) -> str:
        return json.dumps({"name": tool.name, "arguments": tool.example})


def _blocks(text: str) -> list[WrittenCall]:
    """Return the calls that are blocks of Markdown: an object with a name and arguments alone; none beside tags."""
    calls: list[WrittenCall] = []
    place = 0 if OPEN_CALL not in text else len(text)
    while block := _BLOCK.search(text, place):
        start, end = block.end(), _end_of_object(text, block.end())
        closing, place = _END_OF_BLOCK.match(text, end), start
        if end > start and closing and _is_call(json.loads(text[start:end])):
            place = closing.end()
            calls.append(WrittenCall(text[start:end], span=(block.start(), place)))
    return calls


def _is_call(content: dict[str, Any]) -> bool:
    return content.keys() == {"name", "arguments"} and isinstance(content["arguments"], dict)


def _without_doubled_braces(call: str) -> str:
    """Return a call such as `{{"name": "f", "arguments": {}}}` in single braces; other calls as they are.

    The chat template of Qwen2.5-Coder-1.5B-Instruct shows calls like that, and the model writes them, often with one
    brace too few at the end.
    """
    if not call.startswith("{{"):
        return call
    end = _end_of_object(call, 1)
    return call[1:end] if call[end:].strip() == "}" else call[1:]


def _fault(error: json.JSONDecodeError) -> str:
    """Return what is wrong and where, in words that do not depend on Python's version, as its own do."""
    if error.msg.startswith("Unterminated"):
        return f"the text from line {error.lineno} column {error.colno} on has no end"
    rest = error.doc[error.pos :]
    if error.msg.startswith("Illegal trailing comma"):  # Python 3.13 points at the comma, older ones at what follows it
        rest = rest[1:].lstrip()
    before = error.doc[: len(error.doc) - len(rest)]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"unexpected {json.dumps(rest[0]) if rest else 'end'} at line {line} column {column}"


def _hint(error: json.JSONDecodeError) -> str:
    """Return what to change, where the error shows it."""
    before, rest = error.doc[: error.pos], error.doc[error.pos :]
    if error.msg.startswith("Invalid control"):
        return (
            r" Inside a text, a tab is \t."
            if rest[:1] == "\t"
            else r" Inside a text, a new line is \n and a quote is \"."
        )
    if "escape" in error.msg:
        return r" Inside a text, a backslash is \\."
    if rest.lstrip(" \n;,").startswith("```"):
        return " Write the object alone, without a code fence."
    if error.msg == "Extra data":
        return " Write one object per call." if rest.lstrip(" \n;,").startswith("{") else ""
    if before.endswith('"') and rest[:1] not in ("", ",", ":", "}", "]", "\n", " "):
        return _QUOTES  # the text before has ended too early
    if rest.startswith(("//", "/*", "#")):
        return " JSON has no comments."
    if rest.startswith("'") and error.msg == "Expecting value":
        return ' A text is between double quotes: "text".'
    if rest.startswith(("True", "False", "None")):
        return " JSON has true, false and null."
    if error.msg.startswith("Expecting ':'") and rest[:1] in tuple(",}]"):
        return _QUOTES
    if before.rstrip().endswith('"') and rest[:1] not in ("", ",", ":", "}", "]", '"', "{", "["):
        return _QUOTES
    return ""


def _end_of_object(text: str, start: int) -> int:
    """Return where the JSON value from `start` ends, or `start` if there is none."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        return _JSON.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return start
