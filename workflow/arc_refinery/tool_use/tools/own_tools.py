"""Tools of the user: a Python function, or a class with state per episode (docs/tool-use.md).

In the job's process, the file is imported once, and each episode has an instance of the class. In the sandbox, no
process outlives a call: the file is executed for each, and the episode's earlier successful calls of the class are run
again before the new one.
"""

import ast
import inspect
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import TimeIsUp, defined_by, reason_of, time_limit, without_exit
from arc_refinery.errors import InputError
from arc_refinery.sandbox import Executor, Outcome, Script, Status, plain
from arc_refinery.tool_use.calls.tool import FaultyCall, Tool, ToolDown
from arc_refinery.tool_use.config.experiment import ToolChoice
from arc_refinery.tool_use.config.tool_signatures import ToolSignature, signatures

PROCESS_SECONDS = 10.0  # limit of a call in the job's process, unless the config gives one
RETRY_AFTER = (1.0, 5.0)  # seconds before the second and the third try of a call to a tool that cannot work
_is_down: dict[str, bool] = {}  # tools that could not work when they were last called: their next call is tried once
_INSTANCE = "_instance_of_this_episode"


def own_tools(choice: ToolChoice, code: OwnCode) -> list[Tool]:
    """Return the tools of an episode."""
    tools = _signatures(code)
    if choice.where == "sandbox":
        calls: list[str] | None = [] if _is_class(code) else None  # shared by the methods of an instance
        return [SandboxedTool(choice, code, tool, calls) for tool in tools]
    defined = defined_by(code)
    if not _is_class(code):
        return [ProcessTool(choice, tools[0], defined)]

    @cache
    def instance() -> Any:
        return defined()

    def method(name: str) -> Callable[..., Any]:
        return lambda **arguments: getattr(instance(), name)(**arguments)

    return [ProcessTool(choice, tool, method(tool.name)) for tool in tools]


def check_own_tools(choices: Iterable[ToolChoice], executor: Executor) -> None:
    """Raise `InputError` unless the files can be executed where their tools will run."""
    for choice in choices:
        code = choice.own_code
        if code is None:
            continue
        if choice.where == "process":
            _check_in_process(choice, code)
            continue
        is_there = f"if not callable({code.name}): raise TypeError('{code.name} is not a function or class')"
        (outcome,) = executor.run([Script("", (*_before(code), is_there), cpu_seconds=choice.seconds)])
        if outcome.status is not Status.ok:
            raise InputError(
                f"{code}: cannot be executed in the sandbox: {outcome.error}. It may import only what "
                "docs/internals.md names, and read no files: change it, or set `where: process`"
            )


def _check_in_process(choice: ToolChoice, code: OwnCode) -> None:
    defined = defined_by(code)
    if not _is_class(code):
        return
    try:
        with time_limit(seconds := choice.seconds or PROCESS_SECONDS), without_exit():
            defined()
    except TimeIsUp:
        raise InputError(
            f"{code}: creating it takes more than {seconds:g} s; make it faster, or raise `seconds`"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(
            f"{code}: cannot be created: {reason_of(error)}. Each episode creates one; correct it"
        ) from error


class ProcessTool(Tool):
    """A function or method that runs in this process."""

    def __init__(self, choice: ToolChoice, signature: ToolSignature, function: Callable[..., Any]) -> None:
        self.signature = signature
        self._seconds = choice.seconds or PROCESS_SECONDS
        self._choice = choice
        self._function = function

    def begin(self, arguments: dict[str, Any]) -> str:
        waits = [] if _is_down.get(self._choice.tool) else [*RETRY_AFTER]
        while True:
            try:
                with time_limit(self._seconds), without_exit():
                    result = _result_as_text(self._function(**arguments))
            except TimeIsUp:
                raise FaultyCall("failed", f"Timeout: more than {self._seconds:g} s") from None
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if {kind.__name__ for kind in type(error).__mro__}.isdisjoint(self._choice.retry_on):
                    raise FaultyCall("failed", reason_of(error)) from None
                if not waits:
                    _is_down[self._choice.tool] = True
                    raise ToolDown(f"{self._choice.tool} cannot work: {reason_of(error)}") from error
                time.sleep(waits.pop(0))
            else:
                _is_down[self._choice.tool] = False
                return result


class SandboxedTool(Tool):
    """A function or method that runs in the sandbox."""

    def __init__(self, choice: ToolChoice, code: OwnCode, signature: ToolSignature, earlier: list[str] | None) -> None:
        """`earlier` are the successful calls of the episode's instance, shared by its methods; None for a function."""
        self.signature = signature
        self._seconds = choice.seconds
        self._code = code
        self._earlier = earlier
        self._call = ""

    def begin(self, arguments: dict[str, Any]) -> Script:
        earlier = self._earlier or []
        owner = "" if self._earlier is None else f"{_INSTANCE}."
        self._call = f"{owner}{self.signature.name}(**{arguments!a})"
        return Script(
            "",
            (*_before(self._code), *earlier),
            (f"{_result_as_text.__name__}({self._call})",),
            n_replayed=len(earlier),
            cpu_seconds=self._seconds,
        )

    def end(self, outcome: Outcome) -> str:
        if outcome.status is not Status.ok:
            raise FaultyCall("failed", f"{outcome.error_type}: {outcome.error_message}".removesuffix(": "))
        (value,) = outcome.values
        if value.kind != "plain":
            raise FaultyCall("failed", value.error)
        try:
            text = plain.unpack_text(value.data)
        except plain.MalformedError:  # a tool that executes what the model writes can be made to forge its result
            raise FaultyCall("failed", "the result is not a text") from None
        if self._earlier is not None:
            self._earlier.append(self._call)
        return text


def _result_as_text(value: object) -> str:
    """Return a tool's result as text: a text as it is, other plain data as JSON, cut at more than any limit."""
    import json  # the sandbox executes this function's source, beside the user's names

    if value is None:
        return "(no result)"
    try:
        text = str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text[:10_000]  # the sandbox sends 64 kB
    except (TypeError, ValueError) as error:
        raise TypeError(f"the tool returned neither a text nor what JSON can hold ({error})") from None


def _before(code: OwnCode) -> tuple[str, ...]:
    """Return the sources that define a tool: the file, and for a class an instance."""
    instance = (f"{_INSTANCE} = {code.name}()",) if _is_class(code) else ()
    return (_source(code), inspect.getsource(_result_as_text), *instance)


# Read once: each of thousands of episodes has its own tools.
_signatures = cache(signatures)


@cache
def _source(code: OwnCode) -> str:
    return code.source()


@cache
def _is_class(code: OwnCode) -> bool:
    return isinstance(code.definition(), ast.ClassDef)
