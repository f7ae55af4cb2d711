"""The protocol of tools: a signature for the model, and the steps of a call.

A tool belongs to one episode, and may keep what it needs for later calls. A call begins with checked arguments, and
ends at once with a text, or, if a program has to be executed for it, with the program's outcome:

    begin({"code": "6 * 7"}) == Script("", ("6 * 7",), interactive=True)
    end(Outcome("", Status.ok, printed="42\\n")) == "42"
"""

import json
import math
import re
from abc import ABC, abstractmethod
from typing import Any, Literal

from arc_refinery.sandbox import Outcome, Script
from arc_refinery.tool_use.config.tool_signatures import JsonSchema, ToolSignature

# Faults of a call, in this order: cannot be read; no such tool; wrong arguments; without its end; too many in one turn;
# no calls left; a correct call that failed.
Fault = Literal["malformed", "unknown_tool", "arguments", "cut_off", "too_many", "none_left", "failed"]


class FaultyCall(Exception):
    """A call is wrong, or a tool fails; the message is for the model."""

    def __init__(self, fault: Fault, message: str, printed: str = "") -> None:
        """`printed` is what a program printed before it failed."""
        super().__init__(message)
        self.fault: Fault = fault
        self.printed = printed


class ToolDown(Exception):
    """A tool could not work, whatever the call was; the message is for the user, and the model never reads it."""


class Tool(ABC):
    """A tool of one episode. Calls are run one after the other."""

    signature: ToolSignature
    max_result_chars: int | None = None  # length of its longest result; None: the episode's

    @abstractmethod
    def begin(self, arguments: dict[str, Any]) -> str | Script:
        """Return the result, or the script to execute for it; raises `FaultyCall` or `ToolDown`."""

    def end(self, outcome: Outcome) -> str:
        """Return the result of the script of the call that began; raises `FaultyCall`."""
        raise NotImplementedError("its calls start no script")


def checked_arguments(signature: ToolSignature, arguments: dict[str, Any], example: str) -> dict[str, Any]:
    """Return the arguments of a call, whole numbers where they are expected; raises `FaultyCall`.

    `example` is a correct call.
    """
    how = f"Write it like this: {example}"
    for name in signature.required:
        if name not in arguments:
            raise FaultyCall("arguments", f'{signature.name}: the argument "{name}" is missing. {how}')
    for name in arguments:
        if name not in signature.parameters:
            raise FaultyCall("arguments", f'{signature.name} takes no argument "{name:.40}". {how}')
    try:
        return {
            name: _checked(value, signature.parameters[name], f'the argument "{name}"')
            for name, value in arguments.items()
        }
    except ValueError as error:
        raise FaultyCall("arguments", f"{signature.name}: {error}. {how}") from None


def whole_characters(text: str) -> str:
    """Return an argument that can be encoded; raises `FaultyCall`."""
    if half := _HALF_CHARACTER.search(text):
        raise FaultyCall("arguments", f"{half[0]!a} is half of a character. Write the character itself.")
    return text


def kind(value: Any) -> str:
    """Return the type of a JSON value in words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_TYPES = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
_EXPECTED = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def _checked(value: Any, schema: JsonSchema, what: str) -> Any:
    """Return a value that fits a schema; raises `ValueError`."""
    if value is None and schema.get("nullable"):
        return None
    if schema["type"] == "array":
        if not isinstance(value, list):
            raise ValueError(f"{what} is {kind(value)}, expected a list")
        return [_checked(item, schema["items"], f"item {n} of {what}") for n, item in enumerate(value, 1)]
    if isinstance(value, float) and schema["type"] == "integer" and value.is_integer():
        value = int(value)
    if type(value) not in _TYPES[schema["type"]] or (type(value) is float and not math.isfinite(value)):
        actual = f"{value:g}" if type(value) is float and schema["type"] in ("integer", "number") else kind(value)
        raise ValueError(f"{what} is {actual}, expected {_EXPECTED[schema['type']]}")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{what} is {json.dumps(value):.60}, expected one of {json.dumps(schema['enum'])}")
    return value
