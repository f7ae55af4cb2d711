"""The tools of an episode, the calls that a model writes, and the error messages that it reads.

No text of a model raises: each call has a result, which for a wrong call says what is wrong and how to write it. Only
a failing sandbox raises.

No result contains special tokens or tags of the chat template (`<|im_end|>`, `</tool_call>`), so that a program that
prints one cannot end its turn or begin another; the renderer masks those that only the tokenizer names.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from arc_refinery.errors import InputError
from arc_refinery.models.chat import without_marks
from arc_refinery.sandbox import Executor, Outcome, Script
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat, MalformedCall, WrittenCall
from arc_refinery.tool_use.calls.tool import Fault, FaultyCall, Tool, ToolDown, checked_arguments
from arc_refinery.tool_use.calls.turns import ParsedTurn
from arc_refinery.tool_use.config.experiment import ToolChoice, ToolName
from arc_refinery.tool_use.config.tool_signatures import ToolSignature
from arc_refinery.tool_use.tools.built_in_tools import BUILT_IN, listed
from arc_refinery.tool_use.tools.own_tools import own_tools

T = TypeVar("T")
BASIC: tuple[ToolName, ...] = ("calculator", "execute_code", "read_file")


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a call."""

    text: str  # for the model to read
    tool: str = ""  # empty if the call names no existing tool
    fault: Fault | None = None
    failure: str = ""  # why the tool could not work: such a result is not for the model


class Toolbox:
    """The tools of one episode."""

    def __init__(
        self,
        choices: Iterable[ToolName | ToolChoice] = BASIC,
        executor: Executor | None = None,
        folder: Path | None = None,
        max_result_chars: int = 2000,
        max_calls_per_turn: int = 4,
        call_format: CallFormat = HERMES,
        setup: tuple[str, str] = ("", ""),
    ) -> None:
        """`executor` runs programs: any but the one that compares answers (asserts/run.py).

        `folder` holds the task's files; `setup` is code that runs before the model's, and what it defines
        in words.
        """
        tools = [tool for choice in choices for tool in _tools(choice, folder, setup)]
        names = [tool.signature.name for tool in tools]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"tools: a second tool is called {twice[0]}; rename or remove one")
        self.tools = dict(zip(names, tools, strict=True))
        self.executor = executor
        self.max_result_chars = max_result_chars
        self.max_calls_per_turn = max_calls_per_turn
        self.call_format = call_format

    @property
    def signatures(self) -> list[ToolSignature]:
        """The tools as described to the model, in TRL's order."""
        return [self.tools[name].signature for name in sorted(self.tools)]

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """JSON schemas of the tools, in TRL's order."""
        return [signature.schema for signature in self.signatures]

    def run(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """Run a parsed call and return its result."""
        (result,) = _in_parallel([self._run(name, arguments)], self.executor)
        return result

    def answer(self, turn: ParsedTurn, calls_left: int) -> Generator[Script, Outcome, list[CallResult]]:
        """Run the calls of a turn, one after the other; yield scripts to execute, and return the results."""
        results = []
        for index, call in enumerate(turn.calls):
            results.append((yield from self._answer(call, index, calls_left)))
        return results

    def _answer(self, call: WrittenCall, index: int, calls_left: int) -> Generator[Script, Outcome, CallResult]:
        if not self.tools:
            return self._faulty(FaultyCall("unknown_tool", "there are no tools here. Give the final answer."))
        if index >= calls_left:
            return self._faulty(FaultyCall("none_left", "no calls are left. Give the final answer now."))
        if index >= self.max_calls_per_turn:
            message = f"this call was not run: one turn may have {self.max_calls_per_turn}. Call it in the next turn."
            return self._faulty(FaultyCall("too_many", message))
        if not call.is_closed:
            message = f"the call was not run: {self.call_format.unclosed} {self._example}"
            return self._faulty(FaultyCall("cut_off", message))
        try:
            name, arguments = self.call_format.read(
                call.text, {signature.name: signature for signature in self.signatures}
            )
        except MalformedCall as error:
            return self._faulty(FaultyCall("malformed", f"{error} Write it like this: {self._example}"))
        return (yield from self._run(name, arguments))

    def _run(self, name: str, arguments: dict[str, Any]) -> Generator[Script, Outcome, CallResult]:
        tool = self.tools.get(name)
        try:
            if tool is None:
                there = f"There is {listed(self.tools)}. Write it like this: {self._example}"
                raise FaultyCall("unknown_tool", f'there is no tool "{name:.40}". {there}')
            begun = tool.begin(checked_arguments(tool.signature, arguments, self.call_format.example(tool.signature)))
            if isinstance(begun, Script):
                if self.executor is None:
                    raise FaultyCall("failed", "no code can be executed here.")
                begun = tool.end((yield begun))
        except FaultyCall as error:
            return self._faulty(error, tool)
        except ToolDown as down:
            return CallResult("", name, failure=str(down))
        return CallResult(self._truncated(begun, tool), name)

    @property
    def _example(self) -> str:
        """A correct call of the first tool."""
        return self.call_format.example(next(iter(self.tools.values())).signature)

    def _faulty(self, error: FaultyCall, tool: Tool | None = None) -> CallResult:
        text = f"Error: {error}"
        if error.printed:
            room = max(self._longest(tool) - len(str(error)) - 50, 0)
            text += f"\nOutput before the error: {error.printed[:room]}"
        return CallResult(
            self._truncated(text, tool if error.fault == "failed" else None),
            tool.signature.name if tool else "",
            error.fault,
        )

    def _truncated(self, text: str, tool: Tool | None) -> str:
        longest = self._longest(tool)
        if len(text) > longest:
            text = f"{text[:longest]}\n... (cut after {longest} characters)"
        return without_marks(text, self.call_format.marks)

    def _longest(self, tool: Tool | None) -> int:
        return tool.max_result_chars if tool and tool.max_result_chars else self.max_result_chars


def answer_all(turns: Sequence[tuple[Toolbox, ParsedTurn, int]]) -> list[list[CallResult]]:
    """Return the results of all calls of several episodes' turns, `(toolbox, turn, calls left)`.

    The toolboxes must share their executor. The calls of a turn are run one after the other, because later ones may
    use what earlier ones left; those of different episodes in parallel, because some take up to their time limits.
    """
    answers = [toolbox.answer(turn, calls_left) for toolbox, turn, calls_left in turns]
    return _in_parallel(answers, turns[0][0].executor)


def _in_parallel(calls: Iterable[Generator[Script, Outcome, T]], executor: Executor | None) -> list[T]:
    """Return what generators return; the scripts that they yield are executed in parallel."""
    running = dict(enumerate(calls))
    results: dict[int, T] = {}
    outcomes: dict[int, Outcome] = {}
    while running:
        scripts: dict[int, Script] = {}
        for index, call in running.items():
            try:
                scripts[index] = call.send(outcomes[index]) if index in outcomes else next(call)
            except StopIteration as finished:
                results[index] = finished.value
        running = {index: running[index] for index in scripts}
        assert executor is not None or not scripts
        executed = executor.run(scripts.values()) if executor and scripts else ()
        outcomes = dict(zip(scripts, executed, strict=True))
    return [results[index] for index in sorted(results)]


def _tools(choice: ToolName | ToolChoice, folder: Path | None, setup: tuple[str, str]) -> Sequence[Tool]:
    if isinstance(choice, str):
        choice = _plain_choice(choice)
    code = choice.own_code
    tools = own_tools(choice, code) if code else [BUILT_IN[choice.tool](choice, folder, setup)]  # type: ignore[index]
    for tool in tools:
        tool.max_result_chars = choice.max_result_chars
    return tools


@cache
def _plain_choice(name: ToolName) -> ToolChoice:
    return ToolChoice(tool=name)
