"""Mutations of a program: every kind on one line, by hand, and no byte beside it."""

import numpy as np
import pytest

from arc_refinery.domains.mutations import mutations


def mutated(source: str) -> set[str]:
    return set(mutations(source, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("(a) + b # - c", {"(a) - b # - c"}),
        ("x  **y", {"x  *y"}),
        ("x // y", {"x % y", "x * y"}),
        ("x @ y", set()),
        ("x += y", {"x -= y"}),
        ("x <<= y", {"x >>= y"}),
        ("a < b", {"a <= b", "a > b"}),
        ("a == b != c", {"a != b != c", "a == b == c"}),
        ("a not  in b", {"a in b"}),
        ("a is b", {"a is not b"}),
        ("a and b and c", {"a or b or c"}),
        ("(a or b) and c", {"(a and b) and c", "(a or b) or c"}),
        ("not (a)", {"(a)"}),
        ("f() if a else b", {"f() if not (a) else b"}),
        ("[a for a in b if a]", {"[a for a in b if not (a)]"}),
        ("True", {"False"}),
        ("f(7)", {"f(6)", "f(8)"}),
        ("x - -1", {"x + -1", "x - -2", "x - 0"}),
        ("x.max(a)", {"x.min(a)"}),
        ("any(a)", {"all(a)"}),
        ("a[i]", {"a[i - 1]", "a[i + 1]"}),
        ("a[i:]", {"a[:]", "a[i - 1:]", "a[i + 1:]"}),
        ("a[:, :2]", {"a[:, :]", "a[:, :1]", "a[:, :3]"}),
        ("range(n)", {"range(n - 1)", "range(n + 1)"}),
        ("range(a * b)", {"range(a + b)", "range(a // b)", "range((a * b) - 1)", "range((a * b) + 1)"}),
        ("f('é', True)", {"f('é', False)"}),
        ("f'{a + 1}'", set()),
        ("1 +", set()),
    ],
)
def test_each_kind_of_mutation(line: str, expected: set[str]) -> None:
    assert mutated(line) == expected


def test_conditions_of_statements_are_negated() -> None:
    assert mutated("while x:\n    if not y:\n        z") == {
        "while not (x):\n    if not y:\n        z",
        "while x:\n    if y:\n        z",
    }


def test_names_are_swapped_for_other_names_of_their_function() -> None:
    source = "g = h\ndef f(a, b: int) -> int:\n    c = [i for i in a]\n    return\n"
    assert mutated(source) == {source.replace("in a", f"in {name}") for name in "bc"}


SOURCE = """def largest(values):
    # the first one is a header
    best =  values[1]
    for value in values[1:]:
        if value > best and value < 100: best = value
    return max(best, 0)
"""


def test_mutations_are_distinct_and_change_one_line_in_a_seeded_order() -> None:
    first, second, other = (list(mutations(SOURCE, np.random.default_rng(seed))) for seed in (0, 0, 1))
    assert first == second != other
    assert sorted(first) == sorted(other)
    assert len({*first}) == len(first)
    lines = SOURCE.split("\n")
    for program in first:
        assert sum(line != own for line, own in zip(program.split("\n"), lines, strict=True)) == 1
