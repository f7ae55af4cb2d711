"""What a starter, a program without its end, gives to the programs that complete it.

import math                              import math
def half(n): return n / 2                def half(n): return n / 2
def root(n):
    'Return the root of a half.'
"""

import ast
from functools import lru_cache
from itertools import takewhile

from arc_refinery.programs import parsed


@lru_cache(4096)
def completed(starter: str) -> ast.Module | None:
    """Return the tree of a program that may end before a body; None if it cannot be read."""
    return parsed(starter) or parsed(f"{starter.rstrip()}\n{body_indent(starter)}pass")


def body_indent(starter: str) -> str:
    """Return the indentation of what completes a program."""
    last = (starter.rstrip().split("\n") or [""])[-1]
    indent = last[: len(last) - len(last.lstrip())]
    return f"{indent}    " if last.endswith(":") else indent


@lru_cache(4096)
def provided(starter: str, names: tuple[str, ...]) -> str:
    """Return the imports of a starter, and what it defines, except for the beginnings of `names`."""
    given: list[ast.stmt] = []
    beginnings: set[str] = set()
    for node in (completed(starter) or ast.Module([], [])).body:
        if name_of(node) & set(names) and _is_beginning(node):
            beginnings |= name_of(node)
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and beginnings.isdisjoint(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
        ):
            given.append(node)
    return "\n".join(map(ast.unparse, given))


def name_of(node: ast.stmt) -> set[str]:
    return {node.name} if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else set()


def _is_beginning(node: ast.stmt) -> bool:
    """Return whether a function, or every function of a class, has nothing but its docstring."""
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
            return all(map(_is_beginning, body))
        case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.Raise():
            return True
        case _:
            return False


def helpers_before(program: ast.Module | None, name: str) -> list[ast.stmt]:
    """Return what a program does before it defines a name, except for its imports."""
    body = program.body if program else []
    before = list(takewhile(lambda node: name not in name_of(node), body))
    return [node for node in before if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)]


def begun_names(starter: str) -> set[str]:
    """Return the functions and classes that a starter begins."""
    return set().union(*map(name_of, (completed(starter) or ast.Module([], [])).body))
