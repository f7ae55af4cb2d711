"""Rows of MBPP: small functions to write."""

from typing import Any


def mbpp_row(index: int) -> dict[str, Any]:
    """Return a row with three asserts in `test_list` and two in `challenge_test_list`."""
    name, k = f"add_{index}", index + 11
    examples = [[n * index - 7, n, *range(n)] for n in range(5)]
    asserts = [f"assert {name}({values}) == {sum(value + k for value in values)}" for values in examples]
    return {
        "text": f"Write a function {name} that adds {k} to each of some numbers, and returns their sum.",
        "code": f"def {name}(values):\n    values = [value + {k} for value in values]\n    return sum(values)",
        "task_id": index,
        "test_list": asserts[:3],
        "test_setup_code": "",
        "challenge_test_list": asserts[3:],
    }
