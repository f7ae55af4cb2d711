"""Rows of programming contests as tasks: programs that read an input and print, and functions called by name.

APPS           `question`, `input_output` {"inputs": [...], "outputs": [...], "fn_name": "f"}, `solutions`,
               `starter_code`
CodeContests   `description`, `public_tests`, `private_tests`, `generated_tests` {"input": [...], "output": [...]},
               `solutions` {"language": [...], "solution": [...]}, of which language 3 is Python
LiveCodeBench  `question_content`, `public_test_cases` [{"input", "output", "testtype"}, ...], `private_test_cases`, the
               same or base64 of zlib of pickle, `metadata` {"func_name": "f"}, `starter_code`

Objects may be JSON in a text. A test of a program that reads and prints is an assert, too:

    assert run('3\\n1 2 3\\n') == Printed('6\\n')

`run` gives what the program prints for an input; it reads `sys.stdin`, `input` or file 0. `Printed` compares words in
order: whole numbers exactly, others up to 1e-6, as most judges do. A function's result may be a tuple where a list is
expected and, in APPS, the only item of the expected list.
"""

import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.errors import InputError
from arc_refinery.files import in_words
from arc_refinery.programs import parsed
from arc_refinery.rows import text_field

# in the process that compares: a program never sees what is expected
PRINTED = """class Printed(str):
    __hash__ = str.__hash__

    def __eq__(self, other):
        if type(other) is not str:  # a program's own kind of text could be equal to everything
            return False
        words, wanted = other.split(), str(self).split()
        return len(words) == len(wanted) and all(map(self._is_same, words, wanted))

    def _is_same(self, word, wanted):
        if word == wanted:
            return True
        try:
            ours, theirs = (int(text) if text.lstrip("+-").isdigit() else float(text) for text in (word, wanted))
        except ValueError:
            return False
        if isinstance(theirs, int):
            return ours == theirs
        return theirs - theirs == 0 and abs(ours - theirs) <= 1e-6 * max(1.0, abs(theirs))
"""
_RUN = """

def run(text):
    import io, sys

    class Kept(io.BytesIO):
        def close(self):
            pass

    standard, printed = (sys.stdin, sys.stdout), Kept()
    given, written = (io.TextIOWrapper(file, "utf-8") for file in (io.BytesIO(text.encode()), printed))

    def opened(file, *arguments, **named):
        return given if file in (0, "/dev/stdin") else open(file, *arguments, **named)

    sys.stdin, sys.stdout = given, written
    try:
        exec(_program, {"__name__": "__main__", "open": opened})
    except SystemExit:
        pass
    finally:
        sys.stdin, sys.stdout = standard
    if not written.closed:
        written.flush()
    return printed.getvalue().decode()
"""
RUN = "run"
READS = (
    "The program reads from standard input and prints. In tests, run(text) is what it prints for the input text; only "
    "its words and numbers count."
)
_PYTHON_3 = 3  # in CodeContests
# which judges of functions have, and starters use
_IMPORTS = """import bisect, collections, functools, heapq, itertools, math
from collections import Counter, defaultdict, deque
from typing import Dict, List, Optional, Set, Tuple"""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a row has, for a task of domain `code`."""

    text: str
    name: str  # what tests call
    shown: tuple[str, ...]  # tests that the row calls public
    others: tuple[str, ...]
    starter: str
    reference: str  # the first solution that Python 3 can read
    is_script: bool


def runnable(program: str) -> str:
    """Return a program that reads and prints as one that defines `run`; lines of errors are its own."""
    try:
        compile(program, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return program  # whose own error then says where
    return f'_program = compile({program!r}, "<program>", "exec"){_RUN}'


def judged(row: Mapping[str, Any], where: str) -> Judged | None:
    """Return what a row of these three forms has; None for another row. Raises `InputError`."""
    if "input_output" in row:
        tests = _json(row["input_output"] or {}, where, "input_output", dict)
        name = str(tests.get("fn_name") or "")
        public, private = [], _paired(tests, "inputs", "outputs", f"{where}: field 'input_output'")
        text, solutions = (
            text_field(row, "question", where),
            _json(row.get("solutions") or [], where, "solutions", list),
        )
    elif "public_test_cases" in row:
        metadata = _json(row.get("metadata") or {}, where, "metadata", dict)
        name = str(metadata.get("func_name") or "")
        fields = ("public_test_cases", "private_test_cases")
        public, private = (_cases(_unpacked(row.get(field) or []), where, field) for field in fields)
        if name:
            public, private = ([_called_with(case, where) for case in cases] for cases in (public, private))
        text, solutions = text_field(row, "question_content", where), []
    elif "public_tests" in row:
        name = ""
        public, *more = (
            _paired(_json(row.get(field) or {}, where, field, dict), "input", "output", f"{where}: field {field!r}")
            for field in ("public_tests", "private_tests", "generated_tests")
        )
        private = [test for tests in more for test in tests]
        written = _json(row.get("solutions") or {}, where, "solutions", dict)
        pairs = zip(written.get("language", ()), written.get("solution", ()), strict=False)
        text, solutions = text_field(row, "description", where), [code for kind, code in pairs if kind == _PYTHON_3]
    else:
        return None
    is_method = "class Solution" in (starter := str(row.get("starter_code") or "").strip("\n"))
    as_assert = _call_assert(name, is_method, "input_output" in row, where) if name else _print_assert
    shown, others = ({repr(given): as_assert(given, wanted) for given, wanted in tests} for tests in (public, private))
    if not name:
        text, starter = f"{text.strip()}\n\n{READS}", ""
    elif starter:
        starter = f"{_IMPORTS}\n\n{starter}"
    return Judged(
        text.strip(),
        "Solution" if is_method else name or RUN,
        tuple(shown.values()),
        tuple(test for given, test in others.items() if given not in shown),
        starter,
        next((code for code in map(str, solutions) if parsed(code)), ""),
        is_script=not name,
    )


def _print_assert(given: Any, printed: Any) -> str:
    given, printed = ("\n".join(map(str, text)) if isinstance(text, list) else str(text) for text in (given, printed))
    return f"assert run({given!r}) == Printed({printed!r})"


def _call_assert(name: str, is_method: bool, is_apps: bool, where: str) -> Any:
    called = f"Solution().{name}" if is_method else name

    def written(arguments: Any, result: Any) -> str:
        if not isinstance(arguments, list):
            raise InputError(f"{where}: a test calls {name} with {in_words(arguments)}; expected a list of arguments")
        given = ", ".join(map(repr, arguments))
        wanted = [result, *(result[:1] if is_apps and isinstance(result, list) and len(result) == 1 else [])]
        wanted += [tuple(value) for value in wanted if isinstance(value, list)]
        return f"assert {called}({given}) " + (f"== {wanted[0]!r}" if len(wanted) == 1 else f"in {wanted!r}")

    return written


def _called_with(case: tuple[Any, Any], where: str) -> tuple[list[Any], Any]:
    """Return arguments and result of a test of LiveCodeBench: each is JSON, arguments on lines of their own."""
    given, result = case
    try:
        return [json.loads(line) for line in str(given).split("\n") if line.strip()], json.loads(str(result))
    except ValueError as error:
        raise InputError(
            f"{where}: a test of a function is not JSON ({error}); expected an argument per line"
        ) from None


def _cases(cases: Any, where: str, field: str) -> list[tuple[Any, Any]]:
    try:
        return [(case["input"], case["output"]) for case in _json(cases, where, field, list)]
    except (KeyError, TypeError):
        raise InputError(f"{where}: field {field!r} has a test without input or output; expected both") from None


def _paired(tests: Mapping[str, Any], given: str, wanted: str, where: str) -> list[tuple[Any, Any]]:
    inputs, outputs = tests.get(given) or [], tests.get(wanted) or []
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
        raise InputError(f"{where} has {given} and {wanted} that do not match; expected lists of one length")
    return list(zip(inputs, outputs, strict=True))


def _json(value: Any, where: str, field: str, kind: type[Any]) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"{where}: field {field!r} is not JSON ({error})") from None
    if not isinstance(value, kind):
        raise InputError(f"{where}: field {field!r} is {in_words(value)}; expected a {kind.__name__}")
    return value


class _TextAlone(pickle.Unpickler):
    """Reads a pickled text; anything else that a file could make it load is an error."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"has {module}.{name}, and only texts are read")


def _unpacked(value: Any) -> Any:
    """Return private tests as JSON, also those that are packed."""
    if not isinstance(value, str) or value.lstrip().startswith("["):
        return value
    try:
        return _TextAlone(io.BytesIO(zlib.decompress(base64.b64decode(value)))).load()
    except (ValueError, zlib.error, pickle.UnpicklingError, EOFError):
        return value  # the message then says that it is not JSON
