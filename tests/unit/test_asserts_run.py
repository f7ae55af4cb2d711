"""Programs against asserts: verdicts of honest programs, right and wrong. Cheats are in tests/hostile."""

import pytest
from mbpp_rows import mbpp_row

from arc_refinery.asserts.run import AssertsReport, run_asserts
from arc_refinery.asserts.split import Asserts, Suite, hidden_checks
from arc_refinery.sandbox import Executor, Limits

Executors = tuple[Executor, Executor]


def question(reference: str, *asserts: str, imports: tuple[str, ...] = (), setup: str = "") -> Suite:
    return Suite(Asserts(asserts, imports, setup), reference)


def report(executors: Executors, program: str | None, source: Suite) -> AssertsReport:
    (only,) = run_asserts([program], [source], *executors)
    return only


def verdicts(report: AssertsReport) -> list[tuple[str, str]]:
    return [(str(tested.outcome), tested.reason) for tested in report.asserts]


NODE = """
class Node:
    def __init__(self, v):
        self.v = v
"""
STACK = """
class Stack:
    def __init__(self):
        self.items = []
    def push(self, x):
"""
DOUBLE = question("def double(n):\n    return 2 * n", "assert double(2) == 4", "assert double(-3) == -6")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (DOUBLE.reference, [("passed", ""), ("passed", "")]),
        ("double = lambda n: n + n", [("passed", ""), ("passed", "")]),
        ("import numpy\ndef double(n): return numpy.int64(2 * n)", [("passed", ""), ("passed", "")]),
        ("from __future__ import annotations\ndef double(n: Number): return 2 * n", [("passed", ""), ("passed", "")]),
        ("def double(n): return n + 2", [("passed", ""), ("failed", "it is false")]),
        (
            "def double(n):\n    return 2 * n if n > 0 else 1 / 0",
            [("passed", ""), ("error", "ZeroDivisionError: division by zero")],
        ),
        ("def twice(n): return 2 * n", 2 * [("error", "NameError: name 'double' is not defined")]),
        ("def double(n) return n", 2 * [("error", "SyntaxError: expected ':' (line 1)")]),
        ("def double(n): return None", 2 * [("failed", "it is false")]),
        ("def double(n): print(2 * n)", 2 * [("failed", "it is false")]),
        ("def double(n): return lambda: n", 2 * [("not_plain", "a value of type function")]),
        pytest.param(
            "def double(n):\n    while n > 0: pass\n    return 2 * n",
            2 * [("timeout", "Timeout: more than 1 s of CPU time")],
            marks=pytest.mark.slow,
        ),
        ("def double(n): return [n] * 10**9", 2 * [("memory", "MemoryError: more than 256 MB")]),
        ("", 2 * [("error", "NameError: name 'double' is not defined")]),
        (None, 2 * [("no_code", "")]),
    ],
)
def test_verdicts(executors: Executors, program: str | None, expected: list[tuple[str, str]]):
    graded = report(executors, program, DOUBLE)
    assert verdicts(graded) == expected
    assert graded.is_passed == (expected == 2 * [("passed", "")])


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        # a name of a builtin, and the builtin beside it
        (
            question("def sum(a, b): return a + b", "assert sum(1, 2) == max([3])"),
            "def sum(x, y): return x + y",
            "def sum(x, y): return x - y",
        ),
        # imports of the test, of the reference, of the setup
        (
            question(
                "def root(n): return n**0.5",
                "assert math.isclose(root(2), 1.414, rel_tol=0.01)",
                imports=("import math",),
            ),
            "def root(n): return math.sqrt(n)",
            "def root(n): return n / 2",
        ),
        (
            question(
                "from collections import Counter\ndef count(s): return Counter(s)",
                "assert count('aab') == Counter('aba')",
                "assert count(Counter('a')) == {'a': 1}",
            ),
            "def count(s):\n    import collections\n    return collections.Counter(list(s))",
            "def count(s): return {}",
        ),
        (
            question("def f(x): return x", "assert f(pi) > 3", setup="from math import pi"),
            "def f(x): return x",
            "def f(x): return 2",
        ),
        # setup code that is needed on both sides
        (
            question("def f(x): return x[::-1]", "assert f(data) == wanted", setup="data = [1, 2]\nwanted = [2, 1]"),
            "def f(x): return list(reversed(x))",
            "def f(x): return wanted",
        ),
        # a class that the program defines, made in the setup
        (
            question(
                f"{NODE}        self.next = None\ndef size(n): return 1 + size(n.next) if n else 0",
                "assert (size(root)) == 2",
                "assert root.next.v == 5",
                setup="root = Node(3)\nroot.next = Node(5)",
            ),
            f"{NODE}    next = None\ndef size(n):\n    k = 0\n    while n: n, k = n.next, k + 1\n    return k",
            f"{NODE}def size(n): return 1",
        ),
        # methods of an instance; what they did before is kept
        (
            question(
                f"{STACK}        self.items.append(x)\n        return self",
                "assert s.push(1).items == [1]",
                "assert s.push(2).items == [1, 2]",
                "assert Stack().items == []",
                setup="s = Stack()",
            ),
            f"{STACK}        self.items += [x]\n        return self",
            f"{STACK}        return self",
        ),
        # iterators are taken for what they give, and stay iterators
        (
            question("def up(n): yield from range(n)", "assert list(up(3)) == [0, 1, 2]", "assert next(up(1)) == 0"),
            "def up(n): return iter(range(n))",
            "def up(n): return iter([n])",
        ),
        (
            question(
                "def up():\n    n = 0\n    while True:\n        yield n\n        n += 2",
                "assert next(up()) == 0",
                "assert list(islice(up(), 3)) == [0, 2, 4]",
                imports=("from itertools import islice",),
            ),
            "import itertools\ndef up(): return itertools.count(0, 2)",
            "import itertools\ndef up(): return itertools.count(0, 3)",
        ),
        # identity of constants, truth, sets, nested data
        (question("def f(x): return None", "assert f(1) is None"), "def f(x): pass", "def f(x): return 0"),
        (
            question("def even(x): return x % 2 == 0", "assert even(2)", "assert not even(3)"),
            "def even(x): return not x & 1",
            "def even(x): return True",
        ),
        (
            question("def f(x): return {(1, 2): {3}}", "assert f(1) == {(1, 2): {3}}"),
            "def f(x): return dict([((1, 2), set([3]))])",
            "def f(x): return {(1, 2): {4}}",
        ),
        # values that only the reference's own name has
        (
            question("K = 3\ndef f(): return K", "assert K == 3", "assert f() == K"),
            "K = 3\nf = lambda: K",
            "K = 4\nf = lambda: K",
        ),
    ],
)
def test_right_programs_pass_and_wrong_ones_do_not(executors: Executors, source: Suite, right: str, wrong: str):
    for program, is_right in ((source.reference, True), (right, True), (wrong, False)):
        graded = report(executors, program, source)
        assert graded.is_passed == is_right, (program, verdicts(graded))


KEYS, VALUES, ITEMS = "{1: 0, 2: 5}.keys()", "{0: 1, 5: 2}.values()", "{1: 2, 3: 4}.items()"
COUNT, DEQUE, ARRAY = "range(1, 3)", "collections.deque([1, 2], 5)", "np.array([1, 2])"
VALUES_AND_CHECKS = {
    "f(3) == [1, 2]": [KEYS, VALUES, COUNT, DEQUE, ARRAY, "[1, 2]", "np.array([1])", "(1, 2)"],
    "f(3) == (1, 2)": [COUNT, DEQUE, "(1, 2)", "[1, 2]"],
    "f(3) != [1, 2]": [KEYS, VALUES, COUNT, DEQUE, "[1, 2]"],
    **{
        f"{name}(f(3)) == {value}": [KEYS, VALUES, COUNT, DEQUE, ARRAY, "[2, 1]", "iter([2, 1])", "[1, 1]"]
        for name, value in {
            "sorted": "[1, 2]",
            "set": "{1, 2}",
            "list": "[1, 2]",
            "tuple": "(1, 2)",
            "frozenset": "{1, 2}",
            "sum": "3",
            "max": "2",
            "min": "1",
            "len": "2",
            "[x for x in f(3)] == [1, 2] and bool": "True",
            "2 in f(3) and 3 not in": "True",
        }.items()
    },
    "len(f(3)) == 2": [KEYS, VALUES, COUNT, DEQUE, ARRAY, "iter([1, 2])"],
    "list(reversed(f(3))) == [2, 1]": [KEYS, VALUES, COUNT, DEQUE, ARRAY],
    "f(3)[0] == 1": [KEYS, VALUES, COUNT, DEQUE, ARRAY],
    "f(3) == {1, 2}": [KEYS, VALUES, COUNT],
    "f(3) == {(1, 2), (3, 4)}": [ITEMS, "[(1, 2), (3, 4)]"],
    "dict(f(3)) == {1: 2, 3: 4}": [ITEMS],
    "f(3) == range(1, 3)": [COUNT, "range(1, 4)", "[1, 2]"],
    "(f(3) == np.array([1, 2])).all()": [ARRAY, "np.array([1, 3])"],
    "np.array_equal(f(3), [[1, 2], [3, 4]])": [
        "np.array([[1, 2], [3, 4]])",
        "np.array([1, 2, 3, 4])",
        "[[1, 2], [3, 4]]",
    ],
    "f(3).tolist() == [[1.5]]": ["np.array([[1.5]])", "np.array([[2.5]])"],
    "f(3).shape == (0, 2)": ["np.zeros((0, 2))", "np.zeros((2, 0))"],
    "f(3)": [COUNT, DEQUE, "range(0)", "collections.deque()", "np.array([0])", "np.array([3])", KEYS],
    "not f(3)": ["range(0)", "collections.deque()", "{}.keys()", COUNT],
    "f(3) == 0.5": ["fractions.Fraction(1, 2)", "decimal.Decimal('0.5')", "decimal.Decimal('0.51')"],
    "f(3) == b'ab'": ["bytearray(b'ab')", "bytearray(b'ac')"],
    "f(3) == {'a': [1, 2]}": ["{'a': range(1, 3)}", "{'a': [1, 2]}"],
    "[list(x) for x in f(3)] == [[1, 2]]": ["[range(1, 3)]", "[{1: 0, 2: 0}.keys()]", "collections.deque([(1, 2)])"],
}


@pytest.mark.parametrize("statement", VALUES_AND_CHECKS)
def test_values_are_compared_as_python_compares_them(executors: Executors, statement: str):
    imports = "import collections, decimal, fractions\nimport numpy as np\n"
    programs = [f"{imports}def f(n): return {value}" for value in VALUES_AND_CHECKS[statement]]
    source = question(f"{imports}def f(n): return [1]", f"assert {statement}")
    for program, graded in zip(programs, run_asserts(programs, [source] * len(programs), *executors), strict=True):
        assert graded.is_passed == _passes(f"{program}\nassert {statement}"), (program, verdicts(graded))
        assert "not_plain" not in {outcome for outcome, _ in verdicts(graded)}


def _passes(code: str) -> bool:
    try:
        exec(code, {})
    except (AssertionError, AttributeError, TypeError, ValueError):
        return False
    return True


POINT = "from dataclasses import dataclass\n@dataclass{}\nclass Point:\n    x: float\n    y: float"
COLOR = "from enum import Enum\nclass Color(Enum):\n    BLACK = 0\n    WHITE = 1"


@pytest.mark.parametrize(
    ("setup", "statement", "right", "wrong"),
    [
        ("from datetime import date", "f(1) == date(2024, 1, 1)", "datetime.date(2024, 1, 1)", "datetime.date.min"),
        (
            "from datetime import datetime, timedelta, timezone",
            "f(1) == datetime(2024, 1, 1, 5, tzinfo=timezone(timedelta(hours=1)))",
            "datetime.datetime(2024, 1, 1, 4, tzinfo=datetime.timezone.utc)",
            "datetime.datetime(2024, 1, 1, 5)",
        ),
        ("from datetime import timedelta", "f(1) == timedelta(1)", "datetime.timedelta(hours=24)", "24"),
        ("", "f(1).hour == 4", "datetime.time(4, 30)", "datetime.time(5)"),
        ("", "f(1).group(1) == '2'", "re.search('a(.)', 'xa2')", "re.search('a(.)', 'xa3')"),
        ("", "f(1).span() == (0, 2)", "re.fullmatch('a|ab', 'ab')", "re.match('a|ab', 'ab')"),
        ("", "f(1).pattern == 'a'", "re.compile('a')", "re.compile('b')"),
        ("", "f(1).most_common(1) == [('a', 2)]", "collections.Counter('aab')", "collections.Counter('abb')"),
        (COLOR, "f(1) == Color.WHITE", "Color.WHITE", "Color.BLACK"),
        (COLOR, "f(1) is Color.WHITE", "Color(1)", "Color(0)"),
        ("from enum import Enum\nC = Enum('C', 'A B')", "f(1) == [C.B]", "[C.B]", "[C.A]"),
        ("from enum import Flag\nclass P(Flag):\n    R = 1\n    W = 2", "f(1) == P.R | P.W", "P(3)", "P(1)"),
        (POINT.format(""), "f(1) == Point(1, 2)", "Point(1.0, 2.0)", "Point(2, 1)"),
        (POINT.format("(frozen=True, slots=True)"), "f(1) == Point(1, 2)", "Point(1.0, 2.0)", "(1, 2)"),
        ("from collections import namedtuple\nP = namedtuple('P', 'x y')", "f(1).x == 2", "P(2, 1)", "P(1, 2)"),
        (f"{NODE}    def double(self): return 2 * self.v", "f(1).double() == 4", "Node(2)", "Node(3)"),
        ("class Box(list): pass", "f(1)[0] == 2 and len(f(1)) == 1", "Box([2])", "Box([2, 3])"),
    ],
)
def test_times_matches_and_instances_of_the_setups_classes_are_compared(
    executors: Executors, setup: str, statement: str, right: str, wrong: str
):
    source = question("def f(n): pass", f"assert {statement}", setup=setup)
    program = "import collections, datetime, re\ndef f(n): return {}"
    assert verdicts(report(executors, program.format(right), source)) == [("passed", "")]
    assert not report(executors, program.format(wrong), source).is_passed


OBJECT = "class A:\n    def __init__(self, n): self.n, self.me = n, self\n    def total(self): return self.n\n"


@pytest.mark.parametrize(
    ("statement", "program", "is_right"),
    [
        ("make(3).total() == 3", f"{OBJECT}make = A", True),
        ("make(3).total() == 3", f"{OBJECT}def make(n): return A(n + 1)", False),
        ("make(3).n == 3 and make(3).me.total() > 2 and make(3)", f"{OBJECT}make = A", True),
        ("[make(3).me.n] == [3]", f"{OBJECT}make = A", True),
        (
            "make(3).total() == 3",
            "from types import SimpleNamespace\ndef make(n): return SimpleNamespace(total=lambda: n)",
            True,
        ),
        (
            "make(3).n == 3",
            f"{OBJECT}made = []\ndef make(n):\n    made.append(n)\n    return A(n / (len(made) == 1))",
            True,
        ),
        ("make(3).n == 3", "from collections import namedtuple\nmake = namedtuple('A', 'n')", True),
        ("make(3).n == 3", "class make(int):\n    n = property(lambda self: self + 1)", False),
        # what could be said without knowing
        ("make(3).n == True", "class make(int):\n    n = True", False),
        (
            "make(3).upper().startswith('A')",
            f"{OBJECT}    startswith = lambda *_: True\n    upper = lambda self: self\nmake = A",
            False,
        ),
        ("make(3).count(3) == 1", f"{OBJECT}    count = lambda *_: 1\nmake = A", False),
        ("make(3).isdigit() == True", f"{OBJECT}    isdigit = lambda _: True\nmake = A", False),
        ("make(3).isdigit()", f"{OBJECT}    isdigit = lambda _: True\nmake = A", False),
    ],
)
def test_the_end_of_a_chain_from_an_own_object_is_compared(
    executors: Executors, statement: str, program: str, is_right: bool
):
    source = question("def make(n): pass", f"assert {statement}")
    assert report(executors, program, source).is_passed == is_right


def test_a_class_of_the_same_name_has_the_setups_methods(executors: Executors):
    """An answer may define the class again, but what that says about equality is not asked."""
    source = question("def f(n): pass", "assert f(1) == Point(1, 2)", setup=POINT.format(""))
    own = (
        "class Point:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __eq__(self, other): return True\n"
    )
    assert report(executors, f"{own}def f(n): return Point(1, 2)", source).is_passed
    assert not report(executors, f"{own}def f(n): return Point(2, 2)", source).is_passed
    heir = "class Heir(Point):\n    def __eq__(self, other): return True\n"
    assert not report(executors, f"{heir}def f(n): return Heir(2, 2)", source).is_passed


def test_an_iterator_is_no_list(executors: Executors):
    source = question("def f(): return [1]", "assert f() == [1]")
    assert not report(executors, "def f(): return iter([1])", source).is_passed


def test_what_cannot_be_checked_is_left_out_and_said(executors: Executors):
    mixed = question(DOUBLE.reference, "assert list(map(double, [1])) == [2]", "assert double(2) == 4")
    right, wrong = report(executors, DOUBLE.reference, mixed), report(executors, "def double(n): return 3", mixed)
    assert verdicts(right) == [("unsupported", "double is used otherwise than by a call"), ("passed", "")]
    assert (right.is_passed, right.n_checked, right.n_passed) == (True, 1, 1)
    assert (wrong.is_passed, wrong.n_passed) == (False, 0)
    nothing = question(DOUBLE.reference, "assert list(map(double, [1])) == [2]")
    assert not report(executors, DOUBLE.reference, nothing).is_passed


def test_own_instances_cannot_be_compared(executors: Executors):
    """Only the program itself could, and it would say yes."""
    program = "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x\n"
    source = question(program, "assert P(1) == P(1)", "assert P(1).x == 1")
    assert verdicts(report(executors, program, source)) == [("not_plain", "a value of type P"), ("passed", "")]


def test_programs_of_many_questions_are_graded_in_one_go_and_in_order(executors: Executors):
    rows = [mbpp_row(index) for index in range(6)]
    sources = [question(row["code"], *row["test_list"], *row["challenge_test_list"]) for row in rows]
    programs = [row["code"] if index % 2 else "def other(): pass" for index, row in enumerate(rows)]
    reports = run_asserts([*programs, None], [*sources, sources[0]], *executors)
    assert [report.is_passed for report in reports] == [False, True, False, True, False, True, False]
    assert [len(report.asserts) for report in reports] == [5] * 7


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("assert starts('ab')", "passed"),
        ("assert not starts('ba')", "passed"),
        ("assert starts('ba')", "failed"),
        ("assert starts('ab') and not starts('b')", "passed"),
    ],
)
def test_a_value_that_matters_only_as_truth_need_not_be_plain(executors: Executors, statement: str, outcome: str):
    program = "import re\ndef starts(text):\n    return re.match('a', text)"
    assert [name for name, _ in verdicts(report(executors, program, question(program, statement)))] == [outcome]


def test_a_sandbox_that_fails_is_an_exception(executors: Executors):
    closed = Executor(1, Limits())
    closed.close()
    with pytest.raises(RuntimeError, match="closed"):
        run_asserts([DOUBLE.reference], [DOUBLE], closed, executors[1])
    with pytest.raises(RuntimeError, match="closed"):
        run_asserts([DOUBLE.reference], [DOUBLE], executors[0], closed)


# what a text shows


@pytest.mark.parametrize(
    ("text", "asserts", "hidden"),
    [
        ("Do.", ["assert f(1) == 2"], [True]),
        ("Do. assert f(1) == 2", ["assert f(1) == 2", "assert f(2) == 3"], [False, True]),
        ("Do.\nassert f( 1 )==2", ["assert f(1) == 2"], [False]),
        ("Do.\n>>> f(1)\n2", ["assert f(1) == 2"], [False]),
        ('Do. assert f("a b") == 2', ["assert f('a b') == 2"], [False]),
        ("Do. assert f(1e3) == 2, 'no'", ["assert f(1e3) == 2, 'no'", "assert f(1000.0) == 2"], [False, False]),
        # the same call again
        ("Do. assert f(1) == 2", ["assert f(1) == 2", "assert f(1) == 2", "assert {f(1)} == {2}"], [False] * 3),
        ("Do. assert f(1)", ["assert f(1)", "assert f(1) == True", "assert not f(1)"], [False] * 3),
        ("Do. assert f(1) == 2", ["assert f(1) == 2", "assert f(1) != f(2)"], [False, True]),
        # all of them
        ("assert f(1) == 2\nassert f(2) == 3", ["assert f(1) == 2", "assert f(2) == 3"], [False, False]),
        # several in one entry; one that cannot be checked
        ("Do. assert f(1) == 2", ["assert f(1) == 2", "assert f(2) == 3\nassert f(3) == 4"], [False, True, True]),
        ("Do.", ["assert list(map(f, [1])) == [2]"], [False]),
    ],
)
def test_an_assert_is_hidden_unless_the_text_shows_its_calls(text: str, asserts: list[str], hidden: list[bool]):
    suite = Suite(Asserts(tuple(asserts)), "def f(x): return x + 1", text)
    assert list(hidden_checks(suite)) == hidden


def called(executors: Executors, program: str, statement: str, setup: str = "") -> tuple[str, int | None, list[str]]:
    """Return reason, line, and the texts of the calls' values."""
    suite = Suite(Asserts((statement,), setup=setup), "def double(n): pass")
    ((result,),) = (report.asserts for report in run_asserts([program], [suite], *executors, with_texts=True))
    return result.reason, result.line, [f"{call.source} -> {call.text}" for call in result.calls]


@pytest.mark.parametrize(
    ("program", "statement", "reason", "line", "texts"),
    [
        ("def double(n): return n + 3", "assert double(2) == 4", "it is false", None, ["double(2) -> 5"]),
        ("def double(n): return n * 2", "assert double(2) == 4", "", None, ["double(2) -> 4"]),
        ("def double(n): return 'a'", "assert not double(2)", "it is false", None, ["double(2) -> 'a'"]),
        (
            "def double(n): return [n] * 200",
            "assert double(2) == 4",
            "it is false",
            None,
            ["double(2) -> [" + "2, " * 99 + "2,..."],
        ),
        ("def repr(x): return 1\ndouble = str", "assert double(2) == 4", "it is false", None, ["double(2) -> '2'"]),
        (
            "class P: pass\ndef double(n): return P()",
            "assert double(2) == 4",
            "a value of type P",
            None,
            ["double(2) -> <program.P object at 0x...>"],
        ),
        (
            "class P(int):\n    def __repr__(self): raise KeyError\ndouble = P",
            "assert double(2) == 4",
            "it is false",
            None,
            ["double(2) -> a value that cannot be shown"],
        ),
        (
            "class S(str): pass\nclass P(int):\n    def __repr__(self): return '\\ud800'\ndouble = P",
            "assert double(2) == 4",
            "it is false",
            None,
            ["double(2) -> \\ud800"],
        ),
        (
            "def double(n):\n    return helper(n)\ndef helper(n):\n    return n / 0",
            "assert double(2) == 4",
            "ZeroDivisionError: division by zero",
            4,
            ["double(2) -> a value that cannot be shown"],
        ),
        (
            "def twice(n): return 2 * n",
            "assert double(2) == 4",
            "NameError: name 'double' is not defined",
            None,
            ["double(2) -> a value that cannot be shown"],
        ),
        ("x = 1\ny = x / 0", "assert double(2) == 4", "ZeroDivisionError: division by zero (line 2)", 2, []),
        (
            "def double(n): return None",
            "assert double(2) > 3",
            "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
            None,
            ["double(2) -> None"],
        ),
    ],
)
def test_values_as_text_and_lines_of_errors(
    executors: Executors, program: str, statement: str, reason: str, line: int | None, texts: list[str]
):
    assert called(executors, program, statement) == (reason, line, texts)


def test_an_error_in_the_setup_has_the_line_of_the_program_that_led_there(executors: Executors):
    program, setup = "def double(f):\n    return f(1)", "\n\n\ndef helper(n):\n    return n / 0"
    reason, line, _ = called(executors, program, "assert double(helper) == 4", setup)
    assert (reason, line) == ("ZeroDivisionError: division by zero", 2)


@pytest.mark.parametrize(
    ("setup", "expected", "program"),
    [
        ("import json\nTRUTH = json.loads('[0, 1, 4]')", "TRUTH[2]", "TRUTH[x]"),
        ("TRUTH = int('4')", "TRUTH", "TRUTH"),
        ("from decimal import Decimal\nTRUTH = Decimal('4')", "TRUTH", "TRUTH"),
        ("class Expected:\n    value = 4", "Expected.value", "Expected.value"),
        ("class Expected:\n    value = 4", "getattr(Expected, 'value')", "Expected.value"),
        ("class Expected:\n    table = {2: 4}", "Expected.table[2]", "Expected.table[x]"),
        ("ANSWER = 4\nclass Expected:\n    value = ANSWER", "Expected().value", "ANSWER"),
        ("ANSWER = 4\nclass Point:\n    def __eq__(self, other): return other == ANSWER", "Point()", "ANSWER"),
        ("class Oracle:\n    def solve(self, x): return x * x", "Oracle().solve(2)", "Oracle().solve(x)"),
        ("from enum import Enum\nclass Answer(Enum):\n    A = 4", "Answer.A.value", "Answer.A.value"),
    ],
)
def test_what_tests_compare_with_is_not_where_the_program_runs(
    executors: Executors, setup: str, expected: str, program: str
):
    source = question("def f(x): pass", f"assert f(2) == {expected}", setup=setup)
    ((outcome, reason),) = verdicts(report(executors, f"def f(x): return {program}", source))
    assert outcome == "error" and reason.startswith("NameError")
