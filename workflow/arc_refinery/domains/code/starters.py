"""What a starter, a program without its end, gives to the programs that complete it.

import math                              import math
def half(n): return n / 2                def half(n): return n / 2
def root(n):
    'Return the root of a half.'
"""

import ast
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import takewhile
from textwrap import indent

from arc_refinery.programs import defined_names, parsed


@lru_cache(4096)
def completed(starter: str) -> ast.Module | None:
    """Return the tree of a program that may end before a body; None if it cannot be read."""
    return parsed(_with_an_end(starter))


def _with_an_end(starter: str) -> str:
    return starter if parsed(starter) else f"{starter.rstrip()}\n{body_indent(starter)}pass"


def body_indent(starter: str) -> str:
    """Return the indentation of what completes a program."""
    last = (starter.rstrip().split("\n") or [""])[-1]
    indent = last[: len(last) - len(last.lstrip())]
    return f"{indent}    " if last.endswith(":") else indent


@lru_cache(4096)
def provided(starter: str, names: tuple[str, ...]) -> str:
    """Return what a starter does, except for the beginnings of `names` and what uses these."""
    given: list[ast.stmt] = []
    beginnings: set[str] = set()
    for node in (completed(starter) or ast.Module([], [])).body:
        if name_of(node) & set(names) and _is_beginning(node):
            beginnings |= name_of(node)
        elif name_of(node) or beginnings.isdisjoint(name.id for name in ast.walk(node) if isinstance(name, ast.Name)):
            given.append(node)
    return "\n".join(map(ast.unparse, given))


def wholes(starter: str, names: Collection[str], code: str) -> Iterator[str]:
    """Yield programs that code may be a part of: methods of a class that a starter begins, or a function's body."""
    program = completed(starter) or ast.Module([], [])
    begun = [node for node in program.body if name_of(node) & {*names} and _is_beginning(node)]
    for node in begun:
        if isinstance(node, ast.ClassDef) and (given := defined_names(code) & set().union(*map(name_of, node.body))):
            yield "\n".join([code, f"class {node.name}:", *(f"    {name} = {name}" for name in sorted(given))])
    functions = [node for outer in begun for node in ast.walk(outer) if isinstance(node, ast.FunctionDef)]
    tree = parsed(code)
    if functions and (not tree or any(map(_is_end_of_call, _outside_of_functions(tree)))):
        indented = indent(code, " " * functions[-1].body[0].col_offset)
        yield from (_with_body(_with_an_end(starter), functions[-1], body) for body in (indented, code))


def _with_body(program: str, function: ast.FunctionDef, body: str) -> str:
    """Return a program with another body of a function, behind its docstring."""
    own = function.body[ast.get_docstring(function) is not None :]
    start, lines = own[0].lineno - 1 if own else function.end_lineno, program.split("\n")
    return "\n".join([*lines[:start], body, *lines[function.end_lineno :]])


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield inner
            yield from _outside_of_functions(inner)


def _is_end_of_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)


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
