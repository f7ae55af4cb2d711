"""The built-in tools: a calculator, programs, files."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from arc_refinery.calculator import CalculatorError, calculate
from arc_refinery.sandbox import Outcome, Script, Status
from arc_refinery.tool_use.calls.tool import FaultyCall, Tool, whole_characters
from arc_refinery.tool_use.config.experiment import ToolChoice, ToolName
from arc_refinery.tool_use.config.tool_signatures import text_signature

MAX_FILE_BYTES = 2**16
LISTED_FILES = 20
# What `python` can import beyond other programs. sympy imports many of its modules only when they are needed; in the
# sandbox, which cannot import anything later, they have to be named.
PYTHON_MODULES = """
    scipy.special sympy sympy.abc sympy.assumptions.facts sympy.assumptions.handlers.calculus
    sympy.assumptions.handlers.common sympy.assumptions.handlers.matrices sympy.assumptions.handlers.ntheory
    sympy.assumptions.handlers.order sympy.assumptions.handlers.sets sympy.assumptions.lra_satask
    sympy.assumptions.satask sympy.assumptions.wrapper sympy.codegen.ast sympy.combinatorics sympy.combinatorics.galois
    sympy.discrete.recurrences sympy.integrals.heurisch sympy.integrals.manualintegrate sympy.integrals.prde
    sympy.integrals.rde sympy.integrals.risch sympy.logic.algorithms.dpll sympy.logic.algorithms.dpll2
    sympy.logic.algorithms.lra_theory sympy.matrices.expressions.factorizations sympy.matrices.expressions.fourier
    sympy.physics.matrices sympy.physics.units sympy.polys.dispersion sympy.polys.distributedmodules
    sympy.polys.domains.old_fractionfield sympy.polys.domains.old_polynomialring sympy.polys.domains.quotientring
    sympy.polys.numberfields.resolvent_lookup sympy.polys.polymatrix sympy.sets.handlers.add
    sympy.sets.handlers.functions sympy.sets.handlers.issubset sympy.sets.handlers.mul sympy.sets.handlers.power
    sympy.sets.setexpr sympy.stats sympy.tensor.array.array_derivatives sympy.tensor.array.expressions
    sympy.tensor.tensor
""".split()  # noqa: SIM905 (one name per line would fill a page)
NO_OUTPUT = "(no output)"


class Calculator(Tool):
    signature = text_signature(
        "calculator",
        "Compute an arithmetic expression.",
        "expression",
        "Numbers, + - * / // % **, parentheses, sqrt, abs, round, min, max, floor, ceil",
        "12 * (3 + 4)",
    )

    def begin(self, arguments: dict[str, Any]) -> str:
        try:
            return calculate(whole_characters(arguments["expression"]))
        except CalculatorError as error:
            raise FaultyCall("failed", f"{error}.") from None


class ExecuteCode(Tool):
    signature = text_signature(
        "execute_code",
        "Run Python code; gives what it prints and the value of its last expression.",
        "code",
        "A Python program",
        "x = 6\nx * 7",
    )

    def __init__(self, choice: ToolChoice, setup: tuple[str, str] = ("", "")) -> None:
        """`setup` is code that runs before each call, and what it defines in words: what a question gives its tools."""
        code, words = setup
        self._seconds = choice.seconds
        self._earlier = [code] if code else []  # and successful calls, for tools with a state
        self._n_given = len(self._earlier)
        if words:
            self.signature = replace(self.signature, description=f"{self.signature.description} {words}".strip())
        self._code = ""

    def begin(self, arguments: dict[str, Any]) -> Script:
        self._code = whole_characters(arguments["code"])
        sources = (*self._earlier, self._code)
        return Script("", sources, interactive=True, n_replayed=len(self._earlier), cpu_seconds=self._seconds)

    def end(self, outcome: Outcome) -> str:
        return printed_result(outcome, outcome.error)


class Python(ExecuteCode):
    """An interpreter whose state lasts for an episode.

    No process outlives a call: the earlier successful ones are run again, in order, before each new one. A call that
    fails is not among them, so it leaves nothing.
    """

    signature = text_signature(
        "python",
        "Run Python code in a session: what a call defines is there in later calls, unless the call fails. Gives what "
        "it prints and the value of its last expression. numpy and sympy can be imported.",
        "code",
        "Python code",
        "x = 6\nx * 7",
    )

    def end(self, outcome: Outcome) -> str:
        error = outcome.error
        n_earlier = len(self._earlier) - self._n_given
        if outcome.status is Status.timeout and n_earlier:
            error += f", including {n_earlier} earlier calls, which are run again"
        result = printed_result(outcome, error)
        self._earlier.append(self._code)
        return result


def printed_result(outcome: Outcome, error: str) -> str:
    """Return what a program printed; raises `FaultyCall` with the error, if there is one."""
    printed = outcome.printed.rstrip()
    if outcome.status is Status.ok:
        return printed or NO_OUTPUT
    raise FaultyCall("failed", error, printed)


class ReadFile(Tool):
    signature = text_signature(
        "read_file",
        "Read a text file of the task's folder.",
        "path",
        "The file's name inside the folder",
        "notes.txt",
    )

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def begin(self, arguments: dict[str, Any]) -> str:
        name = arguments["path"]
        if self._folder is None or not self._folder.is_dir():
            raise FaultyCall("failed", "this task has no files.")
        try:
            return _content(self._folder.resolve(), name)
        except (OSError, ValueError, RuntimeError) as error:  # invalid name, circular links, no permission
            reason = getattr(error, "strerror", None) or "invalid file name"
            raise FaultyCall("failed", f'"{name:.60}": {reason}. {_files(self._folder)}') from None


def _content(folder: Path, name: str) -> str:
    """Return the text of a file below a folder; links are followed if they stay below it."""
    path = (folder / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(folder):
        raise FaultyCall("failed", f'"{name:.60}": outside the folder. {_files(folder)}')
    status = path.stat()
    if S_ISDIR(status.st_mode):
        raise FaultyCall("failed", f'"{name:.60}": is a directory. {_files(path)}')
    if not S_ISREG(status.st_mode):
        raise FaultyCall("failed", f'"{name:.60}": not a regular file')
    if status.st_size > MAX_FILE_BYTES:
        raise FaultyCall("failed", f'"{name:.60}": file too large ({status.st_size} bytes, limit {MAX_FILE_BYTES})')
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise FaultyCall("failed", f'"{name:.60}": not a text file ({len(content)} bytes)')
    return text or "(empty file)"


def _files(folder: Path) -> str:
    names = sorted(os.listdir(folder))
    more = f" and {len(names) - LISTED_FILES} more" if len(names) > LISTED_FILES else ""
    return f"Files: {listed(names[:LISTED_FILES])}{more}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


BUILT_IN: dict[ToolName, Callable[[ToolChoice, Path | None, tuple[str, str]], Tool]] = {
    "calculator": lambda _choice, _folder, _setup: Calculator(),
    "execute_code": lambda choice, _folder, setup: ExecuteCode(choice, setup),
    "python": lambda choice, _folder, setup: Python(choice, setup),
    "read_file": lambda _choice, folder, _setup: ReadFile(folder),
}
