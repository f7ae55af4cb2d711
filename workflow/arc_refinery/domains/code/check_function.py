"""Read the function `check(candidate)` of a row in HumanEval's form.

for x, y in zip([2, 5], [6, 15]):        assert triple(2) == 6
    assert candidate(x) == y             assert triple(5) == 15
"""

import ast
import builtins
import contextlib
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from arc_refinery.errors import InputError
from arc_refinery.programs import UNREADABLE, parsed

_MAX_ITEMS = 10_000  # values of a loop


class CheckFunction(ast.NodeTransformer):
    """Reads the statements of a function `check(candidate)`, with the entry point for `candidate`.

    A loop over literals is one test for each of its values. A call of a function of the test's own that checks
    the candidate, `assertion(candidate(2), 6)`, is an assert: it raises or returns None.
    """

    def __init__(self, source: str, entry: str, where: str) -> None:
        self.tests: list[str] = []
        self.imports: list[str] = []
        self.setup: list[str] = []
        body = (parsed(source) or ast.Module([], [])).body
        check = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == "check" and n.args.args), None)
        self._candidate = check.args.args[0].arg if check else ""
        calls = [call for node in body for call in _calls_of(node, "check")]
        names = [call.args[0].id for call in calls if call.args and isinstance(call.args[0], ast.Name)]
        own_name = "" if self._candidate == "candidate" else self._candidate
        self.entry = entry.strip() or next(iter(names), own_name)
        if not self.entry:
            raise InputError(f"{where}: field 'entry_point' is missing; expected the name of the function to write")
        try:
            self._target = ast.parse(self.entry, mode="eval").body
        except UNREADABLE:
            self._target = ast.Constant(None)
        self.root = next((node.id for node in ast.walk(self._target) if isinstance(node, ast.Name)), "")
        if not self.root:
            raise InputError(f"{where}: field 'entry_point' is {entry!r:.60}; expected the name of a function")
        self._values: dict[str, Any] = {}  # of names of literals that nothing changes
        self._changed = _changed_names(body)
        self._bound: dict[str, Any] = {}  # of the variables of loops
        self._aliases: dict[str, ast.expr] = {}  # of what the candidate gave
        self._read([node for node in body if node is not check and not any(_calls_of(node, "check"))])
        self._read(check.body if check else [])

    def _read(self, statements: Sequence[ast.stmt]) -> bool:
        """Read statements; return whether one of them ends the function."""
        for statement in statements:
            own = {self._candidate, *self._aliases}
            is_test = any(isinstance(node, ast.Name) and node.id in own for node in ast.walk(statement))
            match statement:
                case ast.Return():
                    return True
                case ast.Pass() | ast.Assert(test=ast.Constant()) | ast.Expr(value=ast.Constant() | ast.Name()):
                    pass  # checks nothing
                case ast.Import() | ast.ImportFrom():
                    self.imports.append(ast.unparse(statement))
                case ast.For(target=target, iter=values, body=body, orelse=[]) if is_test:
                    if self._read_loop(statement, target, values, body):
                        return True
                case ast.Assert(test=condition):
                    self.tests.append(ast.unparse(ast.Assert(self.visit(condition), None)))
                case ast.Expr(value=ast.Call(func=ast.Name()) as call) if is_test:
                    self.tests.append(f"assert {ast.unparse(self.visit(call))} is None")
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_test:
                    self._aliases[name] = self.visit(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if not (self._bound or name in self._changed):
                    with contextlib.suppress(*UNREADABLE, TypeError):
                        self._values[name] = ast.literal_eval(value)
                    self.setup.append(ast.unparse(self.visit(statement)))
                case ast.Assign() | ast.AnnAssign() | ast.FunctionDef() if not (self._bound or is_test):
                    self.setup.append(ast.unparse(self.visit(statement)))
                case _ if not is_test and not self._bound:
                    self.setup.append(ast.unparse(statement))
                case _:
                    self.tests.append(ast.unparse(self.visit(statement)))  # refused later: not an assert
        return False

    def _read_loop(self, loop: ast.For, target: ast.expr, values: ast.expr, body: Sequence[ast.stmt]) -> bool:
        outer = self._bound
        try:
            items = list(islice(self._evaluated(values), _MAX_ITEMS + 1))
            bound = [dict(_assigned(target, item)) for item in items]
            if len(items) > _MAX_ITEMS:
                raise ValueError("too many")
        except (*UNREADABLE, TypeError, LookupError):
            self.tests.append(ast.unparse(self.visit(loop)))
            return False
        is_ended = False
        for variables in bound:
            self._bound = outer | variables
            if is_ended := self._read(copy.deepcopy(body)):
                break
        self._bound = outer
        return is_ended

    def _evaluated(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name) if name in self._bound or name in self._values:
                return self._bound.get(name, self._values.get(name))
            case ast.Call(
                func=ast.Name(id="zip" | "enumerate" | "range" | "len" | "reversed" as name), args=args, keywords=[]
            ):
                return getattr(builtins, name)(*map(self._evaluated, args))
            case ast.Call(func=ast.Attribute(value=inner, attr="items"), args=[], keywords=[]):
                return self._evaluated(inner).items()
            case _:
                return ast.literal_eval(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self._candidate:
            return self._target
        if node.id in self._bound and isinstance(node.ctx, ast.Load):
            return _literal(self._bound[node.id])
        return copy.deepcopy(self._aliases.get(node.id, node)) if isinstance(node.ctx, ast.Load) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        try:
            item = self._evaluated(node.value)[self._evaluated(node.slice)]
        except (*UNREADABLE, TypeError, LookupError):
            return self.generic_visit(node)
        return _literal(item)

    def _visit_inner(self, node: ast.AST) -> ast.AST:
        """Visit what has variables of its own, which hide those of loops and names outside."""
        own = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
        own |= {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
        outer = self._bound, self._values, self._aliases
        self._bound, self._values = ({k: v for k, v in names.items() if k not in own} for names in outer[:2])
        self._aliases = {name: value for name, value in self._aliases.items() if name not in own}
        node = self.generic_visit(node)
        self._bound, self._values, self._aliases = outer
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = _visit_inner

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Also write `f(*[1, 2])` as `f(1, 2)`, to be recognized among shown tests."""
        self.generic_visit(node)
        args: list[ast.expr] = []
        for arg in node.args:
            is_list = isinstance(arg, ast.Starred) and isinstance(arg.value, ast.List | ast.Tuple)
            args += arg.value.elts if is_list else [arg]  # type: ignore[attr-defined]
        node.args = args
        return node


def _changed_names(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that are bound again, or whose values may be changed."""
    bound, changed = Counter[str](), set()
    for node in (inner for statement in statements for inner in ast.walk(statement)):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound[name] += 1
            case (
                ast.Attribute(value=ast.Name(id=name))
                | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
            ) if not (isinstance(node, ast.Attribute) and node.attr in ("items", "copy")):
                changed.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                changed.add(name)
            case _:
                pass
    return changed | {name for name, times in bound.items() if times > 1}


def _literal(value: Any) -> ast.expr:
    match value:
        case list() | tuple() | set():
            kind = {list: ast.List, tuple: ast.Tuple, set: ast.Set}[type(value)]
            items = list(map(_literal, value))
            return ast.Set(items) if kind is ast.Set else kind(items, ast.Load())
        case dict():
            return ast.Dict([*map(_literal, value)], [*map(_literal, value.values())])
        case _:
            return ast.Constant(value)


def _calls_of(statement: ast.stmt, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _assigned(target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        for inner, item in zip(target.elts, value, strict=True):
            yield from _assigned(inner, item)
    else:
        raise TypeError("not a variable")
