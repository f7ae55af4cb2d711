"""Take the program out of an answer that asserts test: the last block that defines a function which they call.

prompts/blocks.py has the rule.
"""

import ast
import builtins
from collections.abc import Iterable

from arc_refinery.prompts.blocks import defined_names, last_program, parsed


def final_program(text: str, asserts: Iterable[str] = ()) -> str | None:
    """Return the program of an answer, or None without a block."""
    return last_program(text, _tested(asserts))


def defines_tested(program: str, asserts: Iterable[str]) -> bool:
    """Whether a program defines a function or class that the asserts call; any does if they call none."""
    called = _tested(asserts)
    return not called or bool(called & defined_names(program))


def _tested(asserts: Iterable[str]) -> set[str]:
    called = {name for test in asserts for name in _called(test)}
    return called - set(dir(builtins)) or called  # a program may redefine `sum`


def _called(test: str) -> set[str]:
    tree = parsed(test)
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()
    return {function.id for function in calls if isinstance(function, ast.Name)}
