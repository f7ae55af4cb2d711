"""The tools that a model can call, and the error messages that it reads.

No text of a model raises: each call has a result, which for a wrong call says what is wrong and how to write it. Only
a failing sandbox raises.

No result contains special tokens of the chat template or the tokenizer (`<|im_end|>`, `</tool_call>`), so that a
program that prints one cannot end its turn or begin another.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Literal, get_args

from arc_refinery.config.tool_use import ToolName
from arc_refinery.sandbox import Executor, Outcome, Script, Status
from arc_refinery.tool_use.calculator import CalculatorError, calculate
from arc_refinery.tool_use.turns import ParsedTurn, WrittenCall

# Faults of a call, in this order: not a JSON object with `name` and `arguments`; no such tool; wrong arguments; without
# its closing tag; too many in one turn; no calls left; a correct call that failed.
Fault = Literal["malformed", "unknown_tool", "arguments", "cut_off", "too_many", "none_left", "failed"]

MAX_FILE_BYTES = 2**16
LISTED_FILES = 20

_MARKS = re.compile(r"<(?=\||/?(?:tool_call|tool_response|tools|think)>)")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as described to the model."""

    name: ToolName
    description: str
    parameters: dict[str, str]  # descriptions by name; all are required texts
    example: dict[str, str]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema for the chat template."""
        properties = {name: {"type": "string", "description": text} for name, text in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.parameters)}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "calculator",
            "Compute an arithmetic expression.",
            {"expression": "Numbers, + - * / // % **, parentheses, sqrt, abs, round, min, max, floor, ceil"},
            {"expression": "12 * (3 + 4)"},
        ),
        Tool(
            "execute_code",
            "Run Python code; gives what it prints and the value of its last expression.",
            {"code": "A Python program"},
            {"code": "x = 6\nx * 7"},
        ),
        Tool(
            "read_file",
            "Read a text file of the task's folder.",
            {"path": "The file's name inside the folder"},
            {"path": "notes.txt"},
        ),
    )
}


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a call."""

    text: str  # for the model to read
    tool: str = ""  # empty if the call names no existing tool
    fault: Fault | None = None


class FaultyCall(Exception):
    """A call is wrong, or a tool fails; the message is for the model."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault


@dataclass(slots=True)
class Toolbox:
    """The tools of one episode.

    `executor` runs programs: any but the one that compares answers (code_exec.py). `folder` holds the task's files.
    """

    names: tuple[ToolName, ...] = get_args(ToolName)
    executor: Executor | None = None
    folder: Path | None = None
    max_result_chars: int = 2000
    max_calls_per_turn: int = 4

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """JSON schemas of the tools, in TRL's order."""
        return [TOOLS[name].schema for name in sorted(set(self.names))]

    def run(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """Run a parsed call and return its result."""
        return self._finished(self._run(name, arguments))

    def begin(self, call: WrittenCall, index: int, calls_left: int) -> CallResult | Script:
        """Return the result of a call, or the program to execute for it."""
        if not self.names:
            return self._faulty(FaultyCall("unknown_tool", "there are no tools here. Give the final answer."))
        if index >= calls_left:
            return self._faulty(FaultyCall("none_left", "no calls are left. Give the final answer now."))
        if index >= self.max_calls_per_turn:
            message = f"this call was not run: one turn may have {self.max_calls_per_turn}. Call it in the next turn."
            return self._faulty(FaultyCall("too_many", message))
        if not call.is_closed:
            # Without the tag itself, which no result may contain
            message = "the call was not run: it ends without its closing tag. Write a shorter one, and close it:"
            return self._faulty(FaultyCall("cut_off", f"{message} {_example(TOOLS[self.names[0]])}"))
        return self._parse_and_run(call.text)

    def end(self, outcome: Outcome) -> CallResult:
        """Return the result of a call whose program was executed."""
        printed = outcome.printed.rstrip()
        if outcome.status is Status.ok:
            text = printed or "(nothing was printed, and the last line is no expression with a value)"
            return CallResult(self._shown(text), "execute_code")
        room = max(self.max_result_chars - len(outcome.error) - 50, 0)
        before = f"\nPrinted before: {printed[:room]}" if printed else ""
        return self._faulty(FaultyCall("failed", outcome.error + before), "execute_code")

    def _parse_and_run(self, written: str) -> CallResult | Script:
        try:
            name, arguments = self._parsed(written)
        except FaultyCall as error:
            return self._faulty(error)
        return self._run(name, arguments)

    def _run(self, name: str, arguments: dict[str, Any]) -> CallResult | Script:
        try:
            tool = self._tool(name)
            _check(tool, arguments)
            match tool.name:
                case "calculator":
                    text = _calculator(arguments["expression"])
                case "execute_code":
                    return self._script(arguments["code"])
                case "read_file":
                    text = self._read_file(arguments["path"])
        except FaultyCall as error:
            return self._faulty(error, name if name in self.names else "")
        return CallResult(self._shown(text), name)

    def _finished(self, begun: CallResult | Script) -> CallResult:
        if isinstance(begun, CallResult):
            return begun
        assert self.executor is not None
        (outcome,) = self.executor.run([begun])
        return self.end(outcome)

    def _parsed(self, written: str) -> tuple[str, dict[str, Any]]:
        how = f"Write it like this: {_example(TOOLS[self.names[0]])}"
        try:
            call = json.loads(written)
        except json.JSONDecodeError as error:
            where = f"{error.msg}, line {error.lineno} column {error.colno}"
            hint = (
                ' Inside a text, a new line is \\n and a quote is \\".' if "\n" in written or "Inv" in error.msg else ""
            )
            raise FaultyCall("malformed", f"the call is no JSON ({where}).{hint} {how}") from None
        except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
            raise FaultyCall("malformed", f"the call is no JSON that can be read. {how}") from None
        if not isinstance(call, dict):
            raise FaultyCall("malformed", f"the call is {_kind(call)}, expected an object. {how}")
        for key, wanted in (("name", str), ("arguments", dict)):
            if key not in call:
                raise FaultyCall("malformed", f'"{key}" is missing. {how}')
            if not isinstance(call[key], wanted):
                expected = "a text" if wanted is str else "an object"
                raise FaultyCall("malformed", f'"{key}" is {_kind(call[key])}, expected {expected}. {how}')
        return call["name"], call["arguments"]

    def _tool(self, name: str) -> Tool:
        if name not in self.names:
            first = TOOLS[self.names[0]]
            message = (
                f'there is no tool "{name:.40}". There is {_listed(self.names)}. Write it like this: {_example(first)}'
            )
            raise FaultyCall("unknown_tool", message)
        return TOOLS[name]

    def _script(self, code: str) -> Script:
        if self.executor is None:
            raise FaultyCall("failed", "no code can be executed here.")
        return Script("", (code,), interactive=True)

    def _read_file(self, name: str) -> str:
        if self.folder is None or not self.folder.is_dir():
            raise FaultyCall("failed", "this task has no files.")
        try:
            return _content(self.folder.resolve(), name)
        except (OSError, ValueError, RuntimeError) as error:  # invalid name, circular links, no permission
            reason = getattr(error, "strerror", None) or "is no name of a file"
            raise FaultyCall("failed", f'"{name:.60}": {reason}. There is {_files(self.folder)}.') from None

    def _faulty(self, error: FaultyCall, tool: str = "") -> CallResult:
        return CallResult(self._shown(f"Error: {error}"), tool, error.fault)

    def _shown(self, text: str) -> str:
        if len(text) > self.max_result_chars:
            text = f"{text[: self.max_result_chars]}\n... (cut after {self.max_result_chars} characters)"
        return _MARKS.sub("< ", text.encode("utf-8", "backslashreplace").decode())


def answer_all(turns: Sequence[tuple[Toolbox, ParsedTurn, int]]) -> list[list[CallResult]]:
    """Return the results of all calls of several episodes' turns, `(toolbox, turn, calls left)`.

    The toolboxes must share their executor: all programs run in one batch, because some take up to their time limits.
    """
    begun = [
        [toolbox.begin(call, index, calls_left) for index, call in enumerate(turn.calls)]
        for toolbox, turn, calls_left in turns
    ]
    scripts = [one for calls in begun for one in calls if isinstance(one, Script)]
    outcomes = iter(turns[0][0].executor.run(scripts) if scripts and turns[0][0].executor else ())
    return [
        [toolbox.end(next(outcomes)) if isinstance(one, Script) else one for one in calls]
        for (toolbox, _, _), calls in zip(turns, begun, strict=True)
    ]


def _calculator(expression: str) -> str:
    try:
        return calculate(expression)
    except CalculatorError as error:
        raise FaultyCall("failed", f"{error}.") from None


def _content(folder: Path, name: str) -> str:
    """Return the text of a file below a folder; links are followed if they stay below it."""
    path = (folder / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(folder):
        raise FaultyCall("failed", f'"{name:.60}" is not inside the folder. There is {_files(folder)}.')
    status = path.stat()
    if S_ISDIR(status.st_mode):
        raise FaultyCall("failed", f'"{name:.60}" is a folder. There is {_files(path)}.')
    if not S_ISREG(status.st_mode):
        raise FaultyCall("failed", f'"{name:.60}" is no regular file.')
    if status.st_size > MAX_FILE_BYTES:
        raise FaultyCall("failed", f'"{name:.60}" has {status.st_size} bytes, at most {MAX_FILE_BYTES} can be read.')
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise FaultyCall("failed", f'"{name:.60}" is no text: {len(content)} bytes of something else.')
    return text or "(the file is empty)"


def _files(folder: Path) -> str:
    names = sorted(os.listdir(folder))
    return _listed(names[:LISTED_FILES]) + (
        f" and {len(names) - LISTED_FILES} more" if len(names) > LISTED_FILES else ""
    )


def _check(tool: Tool, arguments: dict[str, Any]) -> None:
    how = f"Write it like this: {_example(tool)}"
    for name in tool.parameters:
        if name not in arguments:
            raise FaultyCall("arguments", f'{tool.name}: the argument "{name}" is missing. {how}')
        if not isinstance(arguments[name], str):
            kind = _kind(arguments[name])
            raise FaultyCall("arguments", f'{tool.name}: the argument "{name}" is {kind}, expected a text. {how}')
    for name in arguments:
        if name not in tool.parameters:
            raise FaultyCall("arguments", f'{tool.name} takes no argument "{name:.40}". {how}')


def _example(tool: Tool) -> str:
    return json.dumps({"name": tool.name, "arguments": tool.example})


def _kind(value: Any) -> str:
    """Return the type of a JSON value in words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
