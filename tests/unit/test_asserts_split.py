"""The part of an assert that the candidate computes, and the check that it never reaches."""

import re

import pytest
from messages import Wording

from arc_refinery.asserts.split import Asserts, AssertsPlan, Check, Unsupported, plan

PROGRAM = "def f(x):\n    data = [x]\n    return data\n"


def planned(*statements: str, program: str = PROGRAM, imports: tuple[str, ...] = (), setup: str = "") -> AssertsPlan:
    return plan(Asserts(statements, imports, setup), program)


def check(statement: str, program: str = PROGRAM, setup: str = "") -> tuple[tuple[str, ...], str]:
    """Calls, and the check with values as v0, v1, ..."""
    plan = planned(statement, program=program, imports=("import math",), setup=setup)
    (only,) = plan.checks
    assert isinstance(only, Check), only
    return plan.calls, only.expression.replace("value_", "v").replace("_of_the_candidate", "")


@pytest.mark.parametrize(
    ("statement", "calls", "expression"),
    [
        ("assert f(1) == [1]", ("f(1)",), "v0 == [1]"),
        ("assert f(1) == [1], 'f is wrong'", ("f(1)",), "v0 == [1]"),
        ("assert (f(1))", ("not not (f(1))",), "v0"),
        ("assert not f(1)", ("not not (f(1))",), "not v0"),
        (
            "assert bool(f(1)) and (f(2) or f(3) == 1)",
            ("not not (f(1))", "not not (f(2))", "f(3)"),
            "bool(v0) and (v1 or v2 == 1)",
        ),
        ("assert (f(1) or 2) == 2", ("f(1)",), "(v0 or 2) == 2"),
        ("assert set(f(1)) == set([1])", ("f(1)",), "set(v0) == set([1])"),
        ("assert math.isclose(f(1)[0], 1.0)", ("f(1)",), "math.isclose(v0[0], 1.0)"),
        ("assert next(f(1)) == 1", ("next(f(1))",), "v0 == 1"),
        ("assert next(f(1), 2) == 2", ("f(1)",), "next(v0, 2) == 2"),  # an argument may be what is expected
        ("assert f(1).count(1) == 1", ("f(1)",), "v0.count(1) == 1"),
        ("assert f(f(1)) == [[1]]", ("f(f(1))",), "v0 == [[1]]"),
        ("assert f(1)(2) == 3", ("f(1)(2)",), "v0 == 3"),
        ("assert f(1) == f(2) or not f(3)", ("f(1)", "f(2)", "not not (f(3))"), "v0 == v1 or not v2"),
        ("assert f(*[1], **{}) == [1]", ("f(*[1], **{})",), "v0 == [1]"),
        ("assert sorted(f(1), key=lambda x: -x) == [1]", ("f(1)",), "sorted(v0, key=lambda x: -x) == [1]"),
        ("assert all(x > 0 for x in f(1))", ("f(1)",), "all((x > 0 for x in v0))"),
        ("assert all(f(1)[i] == 1 for i in range(1))", ("f(1)",), "all((v0[i] == 1 for i in range(1)))"),
        ("assert f([x for x in range(3)]) == 1", ("f([x for x in range(3)])",), "v0 == 1"),
    ],
)
def test_the_candidate_computes_its_calls_and_nothing_else(statement: str, calls: tuple[str, ...], expression: str):
    assert check(statement) == (calls, expression)


def test_a_name_of_a_builtin_is_the_candidates_where_the_reference_defines_it():
    program = "def sum(a, b): return a + b"
    assert check("assert sum(1, 2) == max(3, 0)", program) == (("sum(1, 2)",), "v0 == max(3, 0)")


def test_values_of_the_program_are_taken_as_they_are():
    program = "f = lambda x: x\nTABLE = {}\n"
    assert check("assert f('a').startswith('a')", program) == (("f('a')",), "v0.startswith('a')")
    assert check("assert TABLE['a'] == 1", program) == (("TABLE",), "v0['a'] == 1")


def test_instances_are_followed_as_far_as_they_go():
    program = "class Node:\n    pass\ndef depth(node): return 1"
    setup = "root = Node(1)\nroot.left = Node(2)"
    assert check("assert depth(root) == 2", program, setup) == (("depth(root)",), "v0 == 2")
    assert check("assert root.left.value() == 2", program, setup) == (("root.left.value()",), "v0 == 2")
    assert check("assert Node(3).value == 3", program) == (("Node(3).value",), "v0 == 3")


def test_what_a_function_gives_in_the_setup_is_a_value():
    """Else an object whose `startswith` is always true would pass."""
    assert check("assert r.startswith('a')", setup="r = f(1)") == (("r",), "v0.startswith('a')")


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("assert list(map(f, [1])) == [[1]]", "f"),
        ("assert f.__name__ == 'f'", "f"),
        ("assert all(f(x) == y for x, y in [(1, [1])])", "x"),
        ("assert [f(i) for i in range(2)] == [0, 1]", "i"),
        ("assert (lambda n: f(n))(1) == [1]", "n"),
        ("assert all(f for f in f(1))", "f"),
        ("assert (y := f(1)) == [1]", "assignment"),
        ("assert g(1) == 1", "g"),
        ("assert f(g(1)) == 1", "g"),
        ("assert eval('f(1)') == [1]", "eval"),
        ("assert f(1) == isclose(1, 1)", "isclose"),
        ("assert 1 == 1", "program"),
        ("x = f(1)\nassert x == [1]", "statements"),
        ("f(1) == [1]", "statements"),
        ("try:\n    f(1)\nexcept ValueError:\n    pass", "statements"),
        ("", "statements"),
        ("assert f(1", "read"),
        ("assert '\ud800' == f(1)", "read"),
    ],
)
def test_other_forms_are_unsupported_and_say_why(statement: str, names: str, wording: Wording):
    (only,) = planned(statement).checks
    assert isinstance(only, Unsupported)
    assert names in re.findall(r"\w+", only.reason)
    wording(only.reason)


def test_a_class_itself_is_no_value(wording: Wording):
    (only,) = planned("assert isinstance(f(1), C)", program="class C: pass\ndef f(x): return C()").checks
    assert isinstance(only, Unsupported)
    assert only.reason.startswith("C ")
    wording(only.reason)


def test_without_a_readable_reference_nothing_is_supported():
    plan = planned("assert f(1) == 1", "assert f(2) == 2", program="def f(x) return x")
    assert [type(check) for check in plan.checks] == [Unsupported, Unsupported]


def test_several_asserts_in_one_entry_are_each_checked():
    plan = planned("assert f(1) == [1]\nassert f(2) == [2]", "assert f(3) == [3]")
    assert [check.values for check in plan.checks if isinstance(check, Check)] == [(0,), (1,), (2,)]


def test_imports_are_there_where_they_are_used():
    program = "import re, math\nfrom collections import Counter\ndef f(x): return 1"
    plan = planned("assert f(Counter('a')) == math.floor(1.5)", program=program, imports=("import math as m",))
    assert plan.before == "from collections import Counter\nimport math as m"
    assert plan.around == "import re, math"


SETUP = """
import string
data = [3]
data.append(4)
expected = [[3, 4]]
def oracle(x):
    return [x]
def helper(x):
    return K
K = 2
"""


def test_the_candidate_gets_of_the_setup_only_what_it_needs():
    """`expected` and `oracle` are where the comparison is; `helper` is needed, for the reference calls it."""
    program = "def f(x):\n    expected = x\n    return [helper(expected)]"
    plan = planned("assert f(data) == expected", "assert f(1) == oracle(1)", program=program, setup=SETUP)
    assert plan.before == "import string\ndata = [3]\ndata.append(4)\ndef helper(x):\n    return K\nK = 2"
    assert plan.after == ""
    assert plan.around == "expected = [[3, 4]]\ndef oracle(x):\n    return [x]"


def test_a_setup_that_needs_the_program_runs_after_it():
    plan = planned("assert f(root) == 1", program="class Node: pass\ndef f(x): return 1", setup="root = Node()")
    assert (plan.before, plan.after) == ("", "root = Node()")


def test_a_module_that_the_reference_calls_is_not_the_programs():
    program = "import random\nrandom.seed(0)\ndef f(x): return x"
    assert check("assert f(1) == random.choice([1])", program) == (("f(1)",), "v0 == random.choice([1])")
