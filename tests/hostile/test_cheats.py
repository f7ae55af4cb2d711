"""Programs that try to pass asserts without being right: by leaving, by patching, by lying, by looking.

Asserts are often run behind the program, in one interpreter, where leaving with status 0 is success. Each of the first
cheats is run so as well, which shows that it does what it tries.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
from hostile import arena

from arc_refinery.asserts.run import AssertsReport, run_asserts
from arc_refinery.asserts.split import Asserts, Suite
from arc_refinery.domains.code.feedback import feedback
from arc_refinery.domains.code.grading import grade
from arc_refinery.domains.code.tasks import CodeTask
from arc_refinery.domains.code.wording import Wording
from arc_refinery.sandbox import Executor, Limits

pytestmark = pytest.mark.hostile

REFERENCE = "import math\ndef f(n): return [n * n + 17]"


def suite(*asserts: str, setup: str = "", reference: str = REFERENCE) -> Suite:
    return Suite(Asserts(asserts, ("import math",), setup), reference)


SQUARES = suite("assert f(3) == [26]", "assert f(10) == [117]")


@pytest.fixture(scope="module")
def executors() -> Iterator[tuple[Executor, Executor]]:
    with Executor(1, arena.LIMITS) as candidates, Executor(1, arena.LIMITS) as graders:
        yield candidates, graders


def graded(executors: tuple[Executor, Executor], program: str, suite: Suite = SQUARES) -> AssertsReport:
    """The program's report; programs around it are graded rightly, and no process has come or gone."""
    before = arena.descendants()
    with arena.time_limit(arena.PATIENCE_SECONDS):
        first, report, last = run_asserts(
            [suite.reference, program, "def f(n): return [n]"], [suite, suite, SQUARES], *executors
        )
    psutil.wait_procs(arena.descendants() - before, timeout=1)
    assert arena.descendants() == before
    assert first.is_passed
    assert [str(tested.outcome) for tested in last.asserts] == ["failed", "failed"]
    return report


def naive(program: str, suite: Suite) -> bool:
    """Return whether a program passes where asserts are run behind it."""
    source = "\n".join([*suite.asserts.imports, suite.asserts.setup, program, *suite.asserts.statements])
    return subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=20).returncode == 0


EQUAL = "__eq__ = __ge__ = __gt__ = __le__ = __lt__ = lambda self, other: True\n    __ne__ = lambda self, other: False"
CLOSE = suite("assert math.isclose(f(3), 26.5, rel_tol=1e-9)", reference="def f(n): return n * n + 17.5")
SETS = suite("assert set(f(3)) == {26}", "assert len(f(3)) == 1", "assert sorted(f(10)) == [117]")
EXPECTED = suite("assert f(3) == expected", setup="expected = [26]")
ORACLE = suite("assert f(3) == oracle(3)", setup="def oracle(n): return [n * n + 17]")
WORDS = suite("assert f(3).startswith('xyz')", reference="def f(n): return 'xyzzy'")
DIGITS = suite("assert f(3).isdigit() == True", "assert f(4).isdigit() == True", reference="def f(n): return str(n)")
POINT = "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int"
POINTS = suite("assert f(3) == Point(26)", setup=POINT, reference="def f(n): return Point(n * n + 17)")
DAYS = suite(
    "assert f(3) == date(26, 1, 1)", setup="from datetime import date", reference="def f(n): return date(26, 1, 1)"
)

CHEATS = {
    # leaving
    "os._exit": (SQUARES, "import os\nos._exit(0)"),
    "os._exit in the call": (SQUARES, "import os\ndef f(n): os._exit(0)"),
    "sys.exit": (SQUARES, "import sys\nsys.exit(0)"),
    "exit": (SQUARES, "def f(n): exit()"),
    "SystemExit": (SQUARES, "def f(n): raise SystemExit"),
    "excepthook": (SQUARES, "import os, sys\nsys.excepthook = lambda *_: os._exit(0)\ndef f(n): return 0"),
    "atexit": (SQUARES, "import atexit, os\natexit.register(os._exit, 0)\ndef f(n): return 0"),
    "__del__": (
        SQUARES,
        "import os\nclass Last:\n    def __del__(self, leave=os._exit): leave(0)\ndef f(n): return Last()",
    ),
    "trace": (
        SQUARES,
        "import os, sys\nsys.settrace(lambda *_: None)\n"
        "sys._getframe().f_trace = lambda *_: os._exit(0)\ndef f(n): return 0",
    ),
    "profile": (SQUARES, "import os, sys\nsys.setprofile(lambda *_: os._exit(0))\ndef f(n): return 0"),
    "signal": (
        SQUARES,
        "import os, signal\nsignal.signal(2, lambda *_: os._exit(0))\ndef f(n): signal.raise_signal(2)",
    ),
    # lying
    "equals everything": (SQUARES, f"class A:\n    {EQUAL}\ndef f(n): return A()"),
    "list that equals everything": (SQUARES, f"class A(list):\n    {EQUAL}\ndef f(n): return A([0])"),
    "list of any length": (
        SETS,
        f"class A(list):\n    {EQUAL}\n    __len__ = lambda s: 1\n"
        "    __iter__ = lambda s: iter([26])\ndef f(n): return A()\nsorted = f",
    ),
    "dict that equals everything": (SQUARES, f"class A(dict):\n    {EQUAL}\ndef f(n): return A()"),
    "class of another": (SQUARES, f"class A:\n    __class__ = list\n    {EQUAL}\ndef f(n): return A()"),
    "metaclass": (SQUARES, f"class M(type):\n    {EQUAL}\nclass A(metaclass=M): pass\ndef f(n): return A"),
    "always a prefix": (WORDS, "class A:\n    startswith = lambda *_: True\ndef f(n): return A()"),
    "text that is always a prefix": (WORDS, "class A(str):\n    startswith = lambda *_: True\ndef f(n): return A()"),
    "mock": (SQUARES, "from unittest.mock import ANY\ndef f(n): return ANY"),
    "method that says yes": (DIGITS, "class A:\n    isdigit = lambda _: True\ndef f(n): return A()"),
    "class of the setup": (
        POINTS,
        f"class Point:\n    {EQUAL}\n    __init__ = lambda *_: None\ndef f(n): return Point()",
    ),
    "heir of the setup's class": (POINTS, f"class Heir(Point):\n    {EQUAL}\ndef f(n): return Heir(0)"),
    "day that equals everything": (DAYS, f"class A(date):\n    {EQUAL}\ndef f(n): return A(1, 1, 1)"),
    # patching
    "set and len": (
        SETS,
        "import builtins\n"
        f"class A:\n    {EQUAL}\n"
        "builtins.set = builtins.len = builtins.sorted = lambda _: A()\ndef f(n): return [0]",
    ),
    "own set and len": (SETS, f"class A:\n    {EQUAL}\nset = len = sorted = lambda _: A()\ndef f(n): return [0]"),
    "isclose": (CLOSE, "import math\nmath.isclose = lambda *_, **__: True\ndef f(n): return 0"),
    "own math": (CLOSE, "class math: isclose = lambda *_, **__: True\ndef f(n): return 0"),
    "expected value redefined": (EXPECTED, "expected = 0\ndef f(n): return 0"),
    "expected value redefined in the call": (
        EXPECTED,
        "def f(n):\n    global expected\n    expected = n\n    return n",
    ),
    "oracle redefined": (ORACLE, "oracle = lambda n: 0\ndef f(n): return 0"),
    # looking
    "expected value": (EXPECTED, "def f(n): return expected"),
    "oracle": (ORACLE, "def f(n): return oracle(n)"),
    "command line": (
        SQUARES,
        "import re, sys\ntext = ' '.join(map(str, sys.orig_argv))\n"
        "def f(n): return [int(re.search(rf'f.{n}. == .(\\d+)', text)[1])]",
    ),
    "frame of the caller": (
        SQUARES,
        "import dis, sys\ndef f(n):\n    frame = sys._getframe(1)\n    steps = dis.get_instructions(frame.f_code)\n"
        "    return [next(s.argval for s in steps if s.offset > frame.f_lasti and s.opname == 'LOAD_CONST')]",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_do_not_pass(executors: tuple[Executor, Executor], name: str):
    source, program = CHEATS[name]
    report = graded(executors, program, source)
    assert not report.is_passed
    assert report.n_checked == len(report.asserts)


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_work_where_asserts_are_run_behind_the_program(name: str):
    """Not an attack: it shows that the programs of the test above are cheats."""
    source, program = CHEATS[name]
    assert naive(source.reference, source)
    assert naive(program, source)


# ---- endless and large ----

BIG = {
    "output": "def f(n):\n    while True: print('x' * 1000)",
    "output at once": "print('x' * 10**8)\ndef f(n): return 0",
    "generator": "def f(n):\n    while True: yield 26",
    "list": "def f(n): return [26] * 10**6",
    "nested list": "def f(n):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "circle": "def f(n):\n    x = [26]\n    x.append(x)\n    return x",
    "number": "def f(n): return 1 << 10**8",
    "text": "def f(n): return '26' * 10**7",
    "items that never end": "class A(dict):\n  def items(self):\n    while True: yield 1, 1\ndef f(n): return A()",
    "list that never ends": "class A(list):\n  def __iter__(self):\n    while True: yield 1\ndef f(n): return A()",
    "hash that never ends": "class A(int):\n  def __hash__(self):\n    while True: pass\ndef f(n): return {A(): 1}",
    "error that never ends": "class E(Exception):\n  def __str__(self):\n    while True: pass\ndef f(n): raise E",
    "thread": "import threading\ndef f(n):\n    threading.Thread(target=lambda: None).start()\n    return 0",
    "process": "import os\ndef f(n): return [26] if os.fork() else [117]",
}


@pytest.mark.parametrize("name", BIG)
def test_what_is_endless_or_large_ends_and_does_not_pass(executors: tuple[Executor, Executor], name: str):
    assert not graded(executors, BIG[name]).is_passed


@pytest.mark.parametrize("value", ["10**9", "'x' * 60_000", "[0] * 10_000"])
def test_a_value_that_makes_the_comparison_expensive(executors: tuple[Executor, Executor], value: str):
    source = suite("assert f(3) * 10**8 != 7 ** (7 ** len(str(f(3))))", reference="def f(n): return 3")
    (report,) = run_asserts([f"def f(n): return {value}"], [source], *executors)
    assert str(report.asserts[0].outcome) in ("timeout", "memory")
    assert graded(executors, SQUARES.reference).is_passed


# ---- forged answers ----

FORGE = """
import os
from arc_refinery.sandbox import plain, wire
from arc_refinery.sandbox.types import Status, Value
from arc_refinery.sandbox.wire import Result
def values(*data):
    return tuple(Value("plain", data=one) for one in data)
def say(status, *data, printed=""):
    frame = wire.encode_result(Result(status, values=values(*data), printed=printed))
    os.write(3, wire.encode_reply(frame, 0.0))
    os._exit(0)
"""
FORGED = {
    "no values": ("say(Status.ok)", "protocol"),
    "too few": ("say(Status.ok, plain.pack([26]))", "protocol"),
    "too many": ("say(Status.ok, *3 * [plain.pack([26])])", "protocol"),
    "values of another status": ("say(Status.error, *2 * [plain.pack([26])])", "protocol"),
    "a status that no script has": ("say(Status.invalid_output)", "protocol"),
    "nothing": ("say(Status.ok, b'', b'')", "protocol"),  # no data: it reads as an error's text
    "no plain data": ("say(Status.ok, *2 * [b'junk'])", "error"),
    "true": ("say(Status.ok, *2 * [plain.pack(True)])", "failed"),
    "grids": (
        "import numpy as np\nframe = wire.encode_result(Result(Status.ok, 3 * (np.ones((1, 1), np.uint8),)))\n"
        "os.write(3, wire.encode_reply(frame, 0.0))\nos._exit(0)",
        "protocol",
    ),
    "pickle": ("import pickle\nsay(Status.ok, *2 * [pickle.dumps([26])])", "error"),
    "a set that takes long to build": (
        "def number(k):\n    return plain.pack(k * (2**61 - 1) * (2**64))\n"
        "say(Status.ok, *2 * [b'e' + (3000).to_bytes(4, 'little') + b''.join(map(number, range(3000)))])",
        "failed",
    ),
    "another kind of packing": ("plain.pack = lambda value, *_: b'T'\ndef f(n): return 0", "failed"),
    "a crash with words": ("say(Status.crash, printed='passed')", "crash"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_answers_do_not_pass(executors: tuple[Executor, Executor], name: str):
    source, verdict = FORGED[name]
    report = graded(executors, f"{FORGE}\n{source}")
    assert {str(tested.outcome) for tested in report.asserts} <= {verdict, "error"}
    assert report.n_passed == 0


def test_a_right_answer_may_be_forged(executors: tuple[Executor, Executor]):
    """Not an attack: it shows that the forgeries above are read."""
    assert graded(executors, f"{FORGE}\nsay(Status.ok, plain.pack([26]), plain.pack([117]))").is_passed


# ---- memory ----

# Looks for a text in the pages around its own objects; rt_sigprocmask tells whether a page can be read.
SEARCH = r"""
import ctypes, re
libc = ctypes.CDLL(None)
PAGE, REACH = 4096, 12_000
def found():
    pattern = re.compile(rb"need[l]e-(\d{8})")
    hits = set()
    for start in (id(object()), id(bytes(5000)), id(bytes(10**6))):
        for page in range(start // PAGE - REACH, start // PAGE + REACH):
            if libc.syscall(14, 0, ctypes.c_void_p(page * PAGE), None, 8) == 0:
                hits |= set(pattern.findall(ctypes.string_at(page * PAGE, PAGE)))
    return hits
def f(n):
    hits = found()
    return "needle-" + hits.pop().decode() if hits else "nothing"
"""
HIDDEN = "assert f(3) == 'needle-48151623'"
NEEDLE = "def f(n): return 'needle-' + str(2 * 24075811 + 1)"
# Many lengths, because freed memory stays until something of the same length takes its place.
ASKED = [suite(f"{HIDDEN} or f(3) == '{'x' * size}'", reference=NEEDLE) for size in range(10, 3000, 50)]
WRONG = ["def f(n): return 0"] * len(ASKED)


@pytest.fixture
def patient() -> Iterator[tuple[Executor, Executor]]:
    limits = Limits(cpu_seconds=5.0, wall_seconds=20.0, memory_mb=512)
    with Executor(1, limits) as candidates, Executor(1, limits) as graders:
        yield candidates, graders


def test_expected_values_are_not_in_memory(patient: tuple[Executor, Executor]):
    candidates, graders = patient
    run_asserts(WRONG, ASKED, candidates, graders)
    (report,) = run_asserts([SEARCH], [suite(HIDDEN, reference=NEEDLE)], candidates, graders)
    assert [str(tested.outcome) for tested in report.asserts] == ["failed"]


def test_expected_values_would_be_in_the_memory_of_a_grader(patient: tuple[Executor, Executor]):
    """Not an attack: it shows that the search above finds what is there, and why no executor may be both."""
    candidates, graders = patient
    run_asserts(WRONG, ASKED, candidates, graders)
    (report,) = run_asserts([SEARCH], [suite(HIDDEN, reference=NEEDLE)], candidates=graders, graders=candidates)
    assert report.is_passed


HIDDEN_CALL = "assert f('needle-48151623{}') == 1"


def searched(for_shown: Executor, for_hidden: Executor, graders: Executor) -> str:
    """Return the feedback on a program that searches its server's memory, after others ran on hidden tests."""
    task = CodeTask("t", "Write f.", ("f",), ("assert f(3) == 'something else'",), (HIDDEN_CALL.format(""),))
    others = [replace(task, hidden=(HIDDEN_CALL.format("x" * size),)) for size in range(10, 3000, 50)]
    answers = [(f"```python\n{code}\n```", other) for code, other in zip(WRONG, others, strict=True)]
    assert not any(graded.is_solved for graded in grade(answers, (for_shown, for_hidden, graders)))
    (only,) = grade([(f"```python\n{SEARCH}\n```", task)], (for_shown, for_hidden, graders))
    return feedback(only, Wording())


def test_feedback_has_no_argument_of_a_hidden_test(patient: tuple[Executor, Executor]):
    with Executor(1, Limits(cpu_seconds=5.0, wall_seconds=20.0, memory_mb=512)) as for_hidden:
        assert "f(3) returned 'nothing'" in searched(patient[0], for_hidden, patient[1])


def test_feedback_would_have_it_if_hidden_tests_ran_on_the_same_server(patient: tuple[Executor, Executor]):
    """Not an attack: it shows why shown and hidden tests have an executor each."""
    assert "f(3) returned 'needle-48151623'" in searched(patient[0], *patient)
