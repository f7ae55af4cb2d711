"""Mutations of a Python program: each changes one node of its syntax tree, and no other byte of its text.

    def largest(values):
        return max(values[1:])

has, among others, `min(values[1:])`, `max(values[0:])`, `max(values[2:])` and `max(values[:])`. Nothing says that a
mutated program is wrong: an exchange of `<` and `<=` may not matter.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from arc_refinery.programs import parsed

_OPERATORS = {  # and what each is exchanged for
    "+": "-", "-": "+", "*": "+ //", "/": "* //", "//": "* %", "%": "//", "**": "*",
    "&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<",
    "<": "<= >", "<=": "< >=", ">": ">= <", ">=": "> <=", "==": "!=", "!=": "==",
    "in": "not_in", "not in": "in", "is": "is_not", "is not": "is", "and": "or", "or": "and",
}  # fmt: skip
_PAIRS = (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"))
_OPPOSITES = {first: second for pair in _PAIRS for first, second in (pair, pair[::-1])}
_COMMENT = re.compile(rb"#[^\n]*")
_SIGNS = re.compile(rb"not\s+in|is\s+not|\b(?:in|is|and|or)\b|[-+*/%@&|^<>=!]+")
_NOT = re.compile(rb"not\b\s*")
_NOT_MUTATED = ("annotation", "returns", "decorator_list")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


class _Edit(NamedTuple):
    """Other text for some bytes of a program; `kind` is the sort of mutation."""

    kind: str
    start: int
    end: int
    text: str


def mutations(source: str, rng: np.random.Generator) -> Iterator[str]:
    """Yield distinct programs with one mutation each, of every kind in turn; none if the source is not Python."""
    tree = parsed(source)
    if tree is None:
        return
    content = source.encode()
    by_kind: defaultdict[str, list[_Edit]] = defaultdict(list)
    for edit in _Edits(content).of(tree, []):
        by_kind[edit.kind].append(edit)
    order = [(rng.permutation(len(edits)).tolist(), edits) for edits in by_kind.values()]
    ranked = sorted(
        (rank, rng.random(), edit) for ranks, edits in order for rank, edit in zip(ranks, edits, strict=True)
    )
    seen = {ast.dump(tree)}
    for _, _, edit in ranked:
        mutated = (content[: edit.start] + edit.text.encode() + content[edit.end :]).decode()
        changed = parsed(mutated)
        if changed is not None and (dumped := ast.dump(changed)) not in seen:
            seen.add(dumped)
            yield mutated


class _Edits:
    """The mutations of one text, by nodes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.line_starts = [0, *accumulate(map(len, content.splitlines(keepends=True)))]  # as `ast` counts lines

    def of(self, node: ast.AST, names: list[str]) -> Iterator[_Edit]:
        """Yield the mutations of a node and of those in it; `names`: local ones that are known there."""
        if isinstance(node, ast.JoinedStr):  # positions in it are wrong before Python 3.12
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = _local_names(node)
        if (number := _integer(node)) is not None:
            yield from (_Edit("constant", *self._span(node), str(other)) for other in (number - 1, number + 1))
            return
        yield from self._of_node(node, names)
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and field not in _NOT_MUTATED:
                    yield from self.of(child, names)

    def _of_node(self, node: ast.AST, names: list[str]) -> Iterator[_Edit]:
        match node:
            case ast.BinOp(left=left, right=right):
                yield from self._operators("operator", left, right)
            case ast.AugAssign(target=target, value=value):
                yield from self._operators("operator", target, value)
            case ast.Compare(left=left, comparators=comparators):
                for first, second in pairwise([left, *comparators]):
                    yield from self._operators("comparison", first, second)
            case ast.BoolOp(values=values):
                yield self._other_connective(values)
            case ast.UnaryOp(op=ast.Not()):
                start, _ = self._span(node)
                if negation := _NOT.match(self.content, start):
                    yield _Edit("condition", *negation.span(), "")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._negated(test)
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield from self._negated(condition)
            case ast.Constant(value=bool() as value):
                yield _Edit("truth", *self._span(node), str(not value))
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                _, end = self._span(node)
                start = end - len(name.encode())
                if name in _OPPOSITES:
                    yield _Edit("opposite", start, end, _OPPOSITES[name])
                elif isinstance(node, ast.Name) and name in names:
                    yield from (_Edit("name", start, end, other) for other in names if other != name)
            case ast.Subscript(slice=ast.Tuple(elts=parts)):
                for part in parts:
                    yield from self._index(part)
            case ast.Subscript(slice=part):
                yield from self._index(part)
            case ast.Call(func=ast.Name(id="range"), args=bounds):
                for bound in bounds:
                    yield from self._off_by_one(bound)
            case _:
                pass

    def _span(self, node: ast.AST) -> tuple[int, int]:
        line, column, end_line, end_column = (
            getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
        )
        return self.line_starts[line - 1] + column, self.line_starts[end_line - 1] + end_column

    def _sign(self, first: ast.AST, second: ast.AST) -> tuple[str, int, int]:
        """Return the operator between two nodes, and where it is."""
        start, end = self._span(first)[1], self._span(second)[0]
        between = _COMMENT.sub(lambda comment: b" " * len(comment[0]), self.content[start:end])
        sign = _SIGNS.search(between)
        assert sign
        return " ".join(sign[0].decode().split()), start + sign.start(), start + sign.end()

    def _operators(self, kind: str, first: ast.AST, second: ast.AST) -> Iterator[_Edit]:
        sign, start, end = self._sign(first, second)
        assigns = sign not in _OPERATORS and sign.endswith("=")  # `+=`
        for other in _OPERATORS.get(sign.removesuffix("=") if assigns else sign, "").split():
            yield _Edit(kind, start, end, other.replace("_", " ") + "=" * assigns)

    def _other_connective(self, values: list[ast.expr]) -> _Edit:
        """Return `a or b or c` for `a and b and c`, which is one node."""
        start, end = self._span(values[0])[0], self._span(values[-1])[1]
        text, last = b"", start
        for first, second in pairwise(values):
            sign, sign_start, sign_end = self._sign(first, second)
            text += self.content[last:sign_start] + _OPERATORS[sign].encode()
            last = sign_end
        return _Edit("connective", start, end, (text + self.content[last:end]).decode())

    def _negated(self, test: ast.expr) -> Iterator[_Edit]:
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):  # its `not` can be left out
            start, end = self._span(test)
            yield _Edit("condition", start, end, f"not ({self.content[start:end].decode()})")

    def _index(self, part: ast.expr) -> Iterator[_Edit]:
        if not isinstance(part, ast.Slice):
            yield from self._off_by_one(part)
            return
        for bound in filter(None, (part.lower, part.upper, part.step)):
            start, end = self._span(bound)
            yield _Edit("bound", start, end, "")
            yield from self._off_by_one(bound)

    def _off_by_one(self, bound: ast.expr) -> Iterator[_Edit]:
        """Yield a bound + 1 and - 1, unless it is a constant, which another kind is about, or a condition."""
        if isinstance(bound, (ast.BinOp, *_ATOMS)):
            start, end = self._span(bound)
            text = self.content[start:end].decode()
            whole = text if isinstance(bound, _ATOMS) else f"({text})"
            for sign in "-+":
                yield _Edit("bound", start, end, f"{whole} {sign} 1")


def _integer(node: ast.AST) -> int | None:
    """Return the value of a whole number such as `-1`; None for another node."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case _:
            return None


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's arguments and variables, in order, without those of comprehensions."""
    names: dict[str, None] = {}
    nodes: list[ast.AST] = [function]
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, ast.arg):
            names[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        if not isinstance(node, _COMPREHENSIONS):
            nodes += ast.iter_child_nodes(node)
    return list(names)
