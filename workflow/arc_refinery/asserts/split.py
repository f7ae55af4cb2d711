"""Split asserts into calls, evaluated next to the candidate's program, and checks, evaluated elsewhere.

    assert   assert set(similar((3, 4), (4, 5))) == {4}
    call     similar((3, 4), (4, 5))
    check    set(value_0_of_the_candidate) == {4}

So a candidate may return anything, but it never sees the expected value and cannot influence the comparison.

The candidate owns the names that the reference program defines, including redefined builtins (`sum`):

- A function can only be called. The call with its arguments is the candidate's, any use of its value is not: of
  `words("a b").count("a")` the candidate evaluates `words("a b")`. Chained calls such as `adder(2)(3)` are its own.
- The whole chain from a class is the candidate's, because an instance is not plain data: `Stack().pushed(3).top()`.
- Any other value is evaluated as it is.
- An instance of a class that the setup code defines alone is data: the checks have the class, too.
- What a chain of attributes and calls without arguments gives, `make(2).total()`, is the candidate's if the value it
  starts from is not plain, or has no such attribute as plain data, as of a named tuple. Arguments are never the
  candidate's: they may be what is expected, as of `startswith`.
- `next` and `islice` of such a call are the candidate's, too, because its iterator may be endless.
- What matters only as true or false is reduced to that by the candidate, because it need not be plain data:
  `assert matched("ab")` may return a `re.Match`.
- Names that the setup code computes from classes alone (`root = Node(1)`) are instances; from functions or values,
  values. Names that it computes from none of these are defined on both sides, for the candidate only if needed.

An assert that cannot be split this way is `Unsupported`, with a reason: a function passed to another one, a call whose
arguments come from a comprehension around it, undefined names, other kinds of statements, or no call of the program.
All calls of an assert are made, including those that `and`, `or` and `if` would skip.

An assert is hidden unless the text that a model reads shows what it calls: the assert itself, another one with the same
calls, or the calls as an example.
"""

import ast
import builtins
import symtable
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import dropwhile
from typing import Any

from arc_refinery.programs import UNREADABLE, parsed

VALUE = "value_{}_of_the_candidate"
_CHAIN = "_of_the_candidate."  # what follows a value
_TRUTH = "not not ("
_ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
_MAKERS = {"namedtuple", "NamedTuple", "make_dataclass"}
# Builtins whose result depends on where they are evaluated
_LOCAL = {"breakpoint", "compile", "dir", "eval", "exec", "exit", "globals", "input", "locals", "open", "quit", "vars"}
_BUILTINS = {name for name in vars(builtins) if not name.startswith("_")} - _LOCAL


@dataclass(frozen=True, slots=True)
class Asserts:
    """Tests of a program: statements like `assert f(2) == 4`."""

    statements: tuple[str, ...]
    imports: tuple[str, ...] = ()  # imports that the statements need
    setup: str = ""  # code that the statements need, such as arguments for the program


@dataclass(frozen=True, slots=True)
class Suite:
    """Asserts with a program that passes them, which defines the names that belong to a candidate."""

    asserts: Asserts
    reference: str
    text: str = ""  # as the model reads it
    provided: str = ""  # code that runs before a candidate's program, whose definitions replace this one's


@dataclass(frozen=True, slots=True)
class Check:
    """One assert: an expression over the values of some of the candidate's calls."""

    expression: str
    values: tuple[int, ...]  # indices into `AssertsPlan.calls`, named by `VALUE` in the expression
    of_chains: "Check | None" = None  # instead, with the values of whole chains, if a value is not plain


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An assert that cannot be checked without trusting the candidate."""

    reason: str


@dataclass(frozen=True, slots=True)
class AssertsPlan:
    """Plan for checking asserts."""

    before: str  # runs before the candidate's program, in its namespace
    after: str  # runs after it
    calls: tuple[str, ...]  # evaluated after it
    checks: tuple[Check | Unsupported, ...]  # one per assert
    around: str  # runs before the checks, in a process that never ran the candidate
    n_direct: int = 0  # calls; those behind are of whole chains
    classes: tuple[str, ...] = ()  # that it defines, and the candidate may have instances of


@lru_cache(4096)
def plan(asserts: Asserts, reference: str) -> AssertsPlan:
    """Plan how to check these asserts of programs that define the same names as the reference."""
    try:
        program, imports, setup = (_body(code) for code in (reference, "\n".join(asserts.imports), asserts.setup))
        imports += [statement for statement in setup if _is_import(statement)]
        setup = [statement for statement in setup if not _is_import(statement)]
        scope = _Scope(program, imports, setup)
    except UNREADABLE as error:
        reason = f"the reference, the imports or the setup code cannot be read: {error}"
        return AssertsPlan("", "", (), tuple(Unsupported(reason) for _ in asserts.statements), "")
    calls: list[str] = []
    direct = [_checks(statement, scope, calls) for statement in asserts.statements]
    n_direct = len(calls)
    checks: list[Check | Unsupported] = []
    for statement, of_statement in zip(asserts.statements, direct, strict=True):
        split = [check for check in of_statement if isinstance(check, Check)]
        n_calls = len(calls)
        if any(_CHAIN in check.expression for check in split):
            of_chains = [
                check for check in _checks(statement, scope, calls, take_chains=True) if isinstance(check, Check)
            ]
            if of_chains and calls[n_calls:] != [calls[index] for check in split for index in check.values]:
                checks += [replace(check, of_chains=other) for check, other in zip(split, of_chains, strict=True)]
                continue
            del calls[n_calls:]
        checks += of_statement
    used_by_calls = {name for call in calls for name in _used(call)}
    known_to_reference = {name for statement in program for name in _used(statement)}
    known = used_by_calls | known_to_reference
    needed_setup = _needed(setup, known | _shapes(scope.own_setup, asserts.statements))
    classes = {name for node in needed_setup if _is_class(node) for name in _defined(node)}
    classes &= {name for node in scope.own_setup for name in _defined(node)}
    is_derived = any(scope.is_candidates(name) for statement in needed_setup for name in _used(statement))
    compared = {name for check in checks if isinstance(check, Check) for name in _used(check.expression)}
    return AssertsPlan(
        before=_source([*_needed(scope.library, used_by_calls), *imports, *([] if is_derived else needed_setup)]),
        after=_source(needed_setup if is_derived else []),
        calls=tuple(calls),
        checks=tuple(checks),
        around=_source(_needed([*scope.library, *imports, *scope.own_setup], compared | classes)),
        n_direct=n_direct,
        classes=tuple(sorted(classes)),
    )


def expected_values(check: Check) -> Iterator[str]:
    """Yield the expressions that a check compares the candidate's values with."""
    for node in ast.walk(ast.parse(check.expression, mode="eval").body):
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            own = [_used(ast.unparse(side)) for side in (node.left, *node.comparators)]
            candidates = {VALUE.format(index) for index in check.values}
            if any(names & candidates for names in own):
                sides = zip((node.left, *node.comparators), own, strict=True)
                yield from (ast.unparse(side) for side, names in sides if not names & candidates)


@lru_cache(4096)
def hidden_checks(suite: Suite) -> tuple[bool, ...]:
    """Return for each check of a suite's plan whether it needs a call that the suite's text does not show."""
    text, asserts = _squeezed(suite.text), suite.asserts
    visible = replace(asserts, statements=tuple(line for line in asserts.statements if _squeezed(line) in text))
    shown_calls = set(map(without_truth, plan(visible, suite.reference).calls))
    full_plan = plan(asserts, suite.reference)
    calls = [without_truth(call) for call in full_plan.calls]
    is_shown = [call in shown_calls or ("(" in call and _squeezed(call) in text) for call in calls]
    return tuple(
        isinstance(check, Check) and not all(is_shown[index] for index in check.values) for check in full_plan.checks
    )


def canonical_form(statement: str) -> str:
    """Return a statement without differences in layout; as it is if it cannot be read."""
    try:
        return ast.unparse(ast.parse(statement.strip()))
    except UNREADABLE:
        return statement.strip()


def called_names(statements: Iterable[str]) -> set[str]:
    """Return the functions and classes that asserts call, without builtins unless nothing else is called."""
    trees = filter(None, map(parsed, statements))
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    return called - set(dir(builtins)) or called  # a program may redefine `sum`


def bound_names(code: str) -> set[str]:
    """Return the global names that code binds; raises what `ast.parse` does."""
    return {symbol.get_name() for symbol in _table(code).get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def needed_setup(asserts: Asserts) -> str:
    """Return the part of the setup code that the statements depend on."""
    return _source(_needed(_body(asserts.setup), {name for line in asserts.statements for name in _used(line)}))


def _squeezed(code: str) -> str:
    """Return code without white space, and with one kind of quotes."""
    return "".join(code.split()).replace('"', "'")


def without_truth(call: str) -> str:
    """Return a call as the assert has it."""
    return call.removeprefix(_TRUTH).removesuffix(")") if call.startswith(_TRUTH) else call


def assigned(name: str, call: str) -> str:
    """Return an expression that also assigns the value of a call, even if it matters only as true or false."""
    bare = without_truth(call)
    return f"({name} := {call})" if bare == call else f"{_TRUTH}{name} := {bare})"


class _Scope:
    """Assigns each name to the candidate or to the checks."""

    def __init__(self, program: Sequence[ast.stmt], imports: Sequence[ast.stmt], setup: Sequence[ast.stmt]) -> None:
        self.library = [node for node in program if _is_import(node)]
        self.functions = {node.name for node in program if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.classes = {node.name for node in program if isinstance(node, ast.ClassDef)}
        defined = {name for node in program if not _is_import(node) for name in _defined(node)}
        imported = {name for node in self.library for name in _defined(node)}
        self.values = defined - self.functions - self.classes - imported
        self.instances: set[str] = set()
        self.own_setup: list[ast.stmt] = []  # independent of the candidate
        for node in setup:
            used = {name for name in _used(node) if self.is_candidates(name)}
            if not used:
                self.own_setup.append(node)
            elif used <= self.classes | self.instances:
                self.instances |= _defined(node)
            else:
                self.values |= _defined(node)
        self.is_open = any(map(_is_star, (*self.library, *imports)))  # a star import may define any name
        self.names = _BUILTINS.union(*(_defined(node) for node in (*self.library, *imports, *self.own_setup)))

    def is_candidates(self, name: str) -> bool:
        return any(name in names for names in (self.functions, self.classes, self.values, self.instances))


def _checks(statement: str, scope: _Scope, calls: list[str], take_chains: bool = False) -> list[Check | Unsupported]:
    """Return the checks of one entry of the tests, and append the calls that they need to `calls`."""
    checks: list[Check | Unsupported] = []
    try:
        for node in _body(statement.strip()) or [ast.Pass()]:
            if not isinstance(node, ast.Assert):
                return [Unsupported("expected nothing but assert statements")]
            split = _Split(scope, len(calls), _local(node.test), frozenset(_used_as_truth(node.test)), take_chains)
            expression = ast.unparse(split.visit(node.test))
            split.require_known(expression)
            if not split.calls:
                raise _UnsupportedError("calls nothing of the program")
            checks.append(Check(expression, tuple(range(len(calls), len(calls) + len(split.calls)))))
            calls += split.calls
    except _UnsupportedError as error:
        return [Unsupported(str(error))]
    except UNREADABLE as error:
        return [Unsupported(f"cannot be read: {error}")]
    return checks


class _UnsupportedError(Exception):
    """The message is the reason."""


class _Split(ast.NodeTransformer):
    """Replaces the candidate's expressions in an assert by names."""

    def __init__(
        self, scope: _Scope, first: int, local: Collection[str], truths: Collection[ast.expr], take_chains: bool
    ) -> None:
        self.scope, self.first, self.local, self.truths, self.take_chains = scope, first, local, truths, take_chains
        self.calls: list[str] = []
        self.parts: set[ast.AST] = set()  # of chains with arguments

    def visit(self, node: ast.AST) -> Any:
        scope, links = self.scope, _chain(node)
        root = _root(links)
        if self._takes_items(node):
            return self._taken(node)
        if not scope.is_candidates(root):
            return super().visit(node)
        if root in self.local:
            raise _UnsupportedError(f"{root} is a name of the program and of the assert")
        if root in scope.instances or (root in scope.classes and len(links) > 1):
            return self._taken(node)
        if len(links) == 1 and root in scope.values:
            return self._taken(node)
        if len(links) == 1 or (root not in scope.values and not isinstance(links[1], ast.Call)):
            raise _UnsupportedError(f"{root} is used otherwise than by a call")
        of_call = list(dropwhile(lambda link: isinstance(link, ast.Call), links[1:]))
        is_bare = all(isinstance(link, ast.Attribute) or _has_no_arguments(link) for link in of_call)
        is_whole = self.take_chains and is_bare and node not in self.truths and node not in self.parts
        if not of_call or is_whole:
            return self._taken(node)
        self.parts |= {*links}
        return super().visit(node)

    def _takes_items(self, node: ast.AST) -> bool:
        """Return whether this takes a number of items of an iterator that a call gives, as `next` does."""
        match node:
            case ast.Call(func=ast.Name(id="next"), args=[first], keywords=[]):
                numbers: list[ast.expr] = []
            case ast.Call(
                func=ast.Name(id="islice") | ast.Attribute(value=ast.Name(id="itertools"), attr="islice"),
                args=[first, *numbers],
                keywords=[],
            ):
                pass
            case _:
                return False
        links = _chain(first)
        return (
            len(links) > 1
            and _root(links) in self.scope.functions
            and all(isinstance(call, ast.Call) for call in links[1:])
            and all(isinstance(number, ast.Constant) for number in numbers)
        )

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        raise _UnsupportedError("an assignment inside an assert")

    def _taken(self, node: ast.AST) -> ast.Name:
        call = ast.unparse(node)
        if inner := _used(call) & set(self.local):
            raise _UnsupportedError(f"a call depends on {', '.join(sorted(inner))}, which the assert itself defines")
        mine = {name for name in _used(call) if self.scope.is_candidates(name)}
        self._require(_used(call) - mine - _LOCAL)
        self.calls.append(f"{_TRUTH}{call})" if node in self.truths else call)
        return ast.Name(VALUE.format(self.first + len(self.calls) - 1), ast.Load())

    def require_known(self, expression: str) -> None:
        self._require(_used(expression) - {VALUE.format(self.first + index) for index in range(len(self.calls))})

    def _require(self, names: set[str]) -> None:
        if not self.scope.is_open and (unknown := names - self.scope.names):
            raise _UnsupportedError(f"neither the reference nor the imports define {', '.join(sorted(unknown))}")


def _has_no_arguments(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and not node.args and not node.keywords


def _used_as_truth(expression: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an assert's expression that matter only as true or false."""
    match expression:
        case ast.UnaryOp(op=ast.Not(), operand=inner) | ast.Call(func=ast.Name(id="bool"), args=[inner], keywords=[]):
            yield from _used_as_truth(inner)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _used_as_truth(value)
        case _:
            yield expression


def _needed(statements: Sequence[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """Return only the statements that names depend on, so that the candidate finds no expected values."""
    names: set[str] = set()
    needed: list[ast.stmt] = []
    while not wanted <= names:
        names |= wanted
        # A statement that defines nothing affects the names that it uses.
        needed = [node for node in statements if _is_star(node) or not names.isdisjoint(_defined(node) or _used(node))]
        wanted = {name for node in needed for name in _used(node)}
    return needed


def _used(code: ast.stmt | str) -> set[str]:
    """Return the global names that code reads, at any depth."""
    top = _table(code)
    symbols = ((table, symbol) for table in _tables(top) for symbol in table.get_symbols())
    return {
        symbol.get_name()
        for table, symbol in symbols
        if symbol.is_referenced() and (table is top or symbol.is_global())
    } | _changed(code)


def _defined(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement binds, or whose values it changes."""
    return bound_names(ast.unparse(statement)) | _changed(statement)


def _changed(code: ast.stmt | str) -> set[str]:
    """Return names with an assigned attribute or item, or with a method called for its effect."""
    if isinstance(code, str):
        return set()
    parts = [
        node
        for node in ast.walk(code)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    if isinstance(code, ast.Expr) and isinstance(code.value, ast.Call) and isinstance(code.value.func, ast.Attribute):
        parts.append(code.value.func)
    return {root for part in parts if (root := _root(_chain(part)))}


def _local(expression: ast.expr) -> set[str]:
    """Return the names that an expression binds itself, by comprehensions and lambdas."""
    inner = (table for table in _tables(_table(ast.unparse(expression))) if table.get_type() != "module")
    return {symbol.get_name() for table in inner for symbol in table.get_symbols() if symbol.is_local()}


def _chain(node: ast.AST) -> list[ast.AST]:
    """Return the steps from a name to an expression: f, f(x), f(x).y, f(x).y[0]; empty if there is no name."""
    links = [node]
    while not isinstance(links[-1], ast.Name):
        match links[-1]:
            case ast.Call(func=inner) | ast.Attribute(value=inner) | ast.Subscript(value=inner):
                links.append(inner)
            case _:
                return []
    return links[::-1]


def _root(chain: Sequence[ast.AST]) -> str:
    return chain[0].id if chain and isinstance(chain[0], ast.Name) else ""


class _GeneratorsAlone(ast.NodeTransformer):
    """Writes comprehensions as generator expressions, which have the same names."""

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp) -> ast.GeneratorExp:
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    visit_SetComp = visit_ListComp

    def visit_DictComp(self, node: ast.DictComp) -> ast.GeneratorExp:
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)


def _table(code: ast.stmt | str) -> symtable.SymbolTable:
    """Return the names of code. From Python 3.12 on, those of comprehensions are in no table of their own (PEP 709)."""
    text = code if isinstance(code, str) else ast.unparse(code)
    if sys.version_info >= (3, 12):
        text = ast.unparse(_GeneratorsAlone().visit(ast.parse(text)))
    return symtable.symtable(text, "<code>", "exec")


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _body(source: str) -> list[ast.stmt]:
    return ast.parse(source).body


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _is_star(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def _is_class(statement: ast.stmt) -> bool:
    """Return whether a statement defines a class, by a call, too, as of `namedtuple`."""
    match statement:
        case ast.Assign(value=ast.Call(func=ast.Name(id=maker) | ast.Attribute(attr=maker))):
            return maker in _MAKERS or maker in _ENUMS
        case _:
            return isinstance(statement, ast.ClassDef)


def _shapes(setup: Sequence[ast.stmt], statements: Iterable[str]) -> set[str]:
    """Return the classes of the setup code that a program may know though no call needs them.

    Tests compare with instances of them, `f(1) == Point(1, 2)`, or with members of an Enum. No class that tests read or
    ask, `Expected.value`, `Oracle().solve(2)`, and none that depends on other code: these may hold what is expected.
    """
    classes = [node for node in setup if _is_class(node)]
    by_name = {name: node for node in classes for name in _defined(node)}
    enums: set[str] = set()
    for name, definition in by_name.items():
        made_from = definition.bases if isinstance(definition, ast.ClassDef) else [definition.value.func]  # type: ignore[attr-defined]
        if any(ast.unparse(base).rpartition(".")[2] in _ENUMS | enums for base in made_from):
            enums.add(name)
    asked: set[str] = set()
    for tree in filter(None, map(parsed, statements)):
        named: set[ast.AST] = set()  # that ask nothing of the class
        for node in ast.walk(tree):
            links = _chain(node)
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                    named |= {*ast.walk(kinds)}
                case ast.Compare(left=left, comparators=others):
                    named |= {left, *others}
                case ast.Call(func=ast.Name() as used):
                    named.add(used)
                case ast.Attribute(value=ast.Name(id=root) as used) if root in enums:
                    named.add(used)
            if len(links) > 2:
                asked.add(_root(links))
        asked |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in named}
    return {name for name, node in by_name.items() if name not in asked and all(map(_is_class, _needed(setup, {name})))}


def _source(statements: Sequence[ast.stmt]) -> str:
    return "\n".join(ast.unparse(statement) for statement in statements)
