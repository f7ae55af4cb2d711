"""Arithmetic by walking Python's syntax tree; nothing is executed.

Numbers are exact rationals as long as possible, so 0.1 + 0.2 is 0.3 and 1/3*3 is 1; irrational roots and fractional
powers become floats. `//`, `%`, rounding and precedence are Python's.
"""

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

Number: TypeAlias = Fraction | float  # a float only if the value is not rational

_MAX_CHARS = 400
_MAX_DEPTH = 200
_MAX_BITS = 1024  # per numerator or denominator, about 300 digits
_SIGNIFICANT_DIGITS = 12  # for a result that is not a short decimal
_MAX_DECIMALS = 15
_MAX_DIGITS = 60  # in a result written without an exponent

_OPERATORS = "+ - * / // % ** and parentheses"
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})


class CalculatorError(Exception):
    """An expression has no value; the message is for the model."""


def calculate(expression: str) -> str:
    """Return the value of an expression as a decimal: exact if that is short, else rounded to 12 significant digits.

    For any text, raise nothing but `CalculatorError`.
    """
    text = expression.translate(_SIGNS).strip()
    if len(text) > _MAX_CHARS:
        raise CalculatorError(f"the expression has {len(text)} characters, at most {_MAX_CHARS} are read")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CalculatorError(f"not an arithmetic expression: {_hint(text)}") from None
    return written(_Evaluation(text).value(tree.body, _MAX_DEPTH))


def written(value: Number) -> str:
    """Return a number as a decimal, without an exponent up to 60 digits."""
    if isinstance(value, Fraction):
        decimals = _decimals(value)
        if decimals is not None and value.numerator.bit_length() * math.log10(2) < _MAX_DIGITS:
            sign = "-" if value < 0 else ""
            digits = str(abs(value.numerator) * 10**decimals // value.denominator).zfill(decimals + 1)
            whole, part = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
            return f"{sign}{whole}.{part}" if decimals else f"{sign}{whole}"
        value = _as_float(value)
    return f"{value:.{_SIGNIFICANT_DIGITS}g}"


def _decimals(value: Fraction) -> int | None:
    """Return the number of decimals that are exact; None if too many."""
    return next((n for n in range(_MAX_DECIMALS + 1) if 10**n % value.denominator == 0), None)


def _hint(text: str) -> str:
    """Return what to change. Not the parser's words, which depend on Python's version."""
    if "$" in text or "€" in text:
        return "write numbers without a currency"
    if "%" in text and re.search(r"%\s*(?:$|[-+*/)])", text):
        return "% is the remainder; write 20 percent as 20/100"
    if "=" in text:
        return "write only what is to be computed, without ="
    if text.count("(") != text.count(")"):
        return "each ( needs its )"
    return f"write numbers, {_OPERATORS}"


class _Evaluation:
    """Evaluates the nodes of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text

    def value(self, node: ast.expr, depth: int) -> Number:
        if depth == 0:
            raise CalculatorError(f"nested deeper than {_MAX_DEPTH}")
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return self._literal(node)
            case ast.Constant():
                raise CalculatorError(f"{self._source(node)} is not a number")
            case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
                number = self.value(operand, depth - 1)
                return -number if isinstance(sign, ast.USub) else number
            case ast.BinOp(left=left, op=operation, right=right):
                return _operate(operation, self.value(left, depth - 1), self.value(right, depth - 1))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                return _apply(name, [self.value(argument, depth - 1) for argument in arguments])
            case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
                raise CalculatorError(f"{name} takes no named arguments")
            case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name):
                raise CalculatorError(f"unknown name {name}; there are {', '.join(_FUNCTIONS)}")
            case ast.Tuple():
                raise CalculatorError("a comma stands between arguments only: write 1200, not 1,200")
            case _:
                raise CalculatorError(f"{self._source(node)} is not supported; write numbers, {_OPERATORS}")

    def _source(self, node: ast.expr) -> str:
        return (ast.get_source_segment(self.text, node) or type(node).__name__)[:40]

    def _literal(self, node: ast.Constant) -> Number:
        if isinstance(node.value, int):
            return _checked(Fraction(node.value))
        digits = ast.get_source_segment(self.text, node) or repr(node.value)
        exponent = re.search(r"[eE][-+]?0*([0-9_]+)$", digits)
        if exponent and len(exponent[1]) > 3:  # Fraction would write out all zeros
            raise CalculatorError(f"the number {digits:.20} is too large or too small")
        return _checked(Fraction(digits))


def _operate(operation: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(operation, ast.Pow):
        return _power(left, right)
    if isinstance(operation, ast.BitXor):
        raise CalculatorError("^ is not supported: write ** for a power")
    function = _OPERATIONS.get(type(operation))
    if function is None:
        raise CalculatorError("there are only the operators + - * / // % **")
    try:
        return _checked(function(*_alike(left, right)))
    except ZeroDivisionError:
        raise CalculatorError("division by zero") from None
    except OverflowError:
        raise CalculatorError("the number is too large") from None


def _power(base: Number, exponent: Number) -> Number:
    if base == 0 and exponent < 0:
        raise CalculatorError("division by zero")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
        if abs(base) != 1 and bits * abs(exponent) > _MAX_BITS:
            raise CalculatorError("the power is too large")
        return _checked(base ** int(exponent)) if abs(base) != 1 else base ** int(exponent % 2)
    if base < 0 and exponent != int(exponent):
        raise CalculatorError("a fractional power of a negative number")
    try:
        return _checked(_as_float(base) ** _as_float(exponent))
    except OverflowError:
        raise CalculatorError("the power is too large") from None


def _apply(name: str, arguments: list[Number]) -> Number:
    function, (least, most) = _FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        wanted = f"{least}" if least == most else f"{least} or more" if most > 2 else f"{least} or {most}"
        raise CalculatorError(f"{name} got {len(arguments)} arguments, expected {wanted}")
    return _checked(function(*arguments))


def _sqrt(number: Number) -> Number:
    if number < 0:
        raise CalculatorError("the square root of a negative number")
    if isinstance(number, Fraction):
        roots = math.isqrt(number.numerator), math.isqrt(number.denominator)
        if (roots[0] ** 2, roots[1] ** 2) == (number.numerator, number.denominator):
            return Fraction(*roots)
    return math.sqrt(_as_float(number))


def _round(number: Number, digits: Number = Fraction(0)) -> Number:
    indices = int(digits)
    if digits != indices or abs(indices) > _MAX_DIGITS:
        raise CalculatorError("the second argument of round is a small whole number")
    return number.__round__(indices)


def _alike(left: Number, right: Number) -> tuple[Number, Number]:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left, right
    return _as_float(left), _as_float(right)


def _as_float(number: Number) -> float:
    try:
        return float(number)
    except OverflowError:
        raise CalculatorError("the number is too large") from None


def _checked(number: Number) -> Number:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise CalculatorError("the number is too large")
    elif max(number.numerator.bit_length(), number.denominator.bit_length()) > _MAX_BITS:
        raise CalculatorError("the number has too many digits")
    return number


_OPERATIONS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}
# With the minimum and maximum number of arguments
_FUNCTIONS: dict[str, tuple[Callable[..., Number], tuple[int, int]]] = {
    "sqrt": (_sqrt, (1, 1)),
    "abs": (abs, (1, 1)),
    "round": (_round, (1, 2)),
    "min": (min, (2, _MAX_CHARS)),
    "max": (max, (2, _MAX_CHARS)),
    "floor": (lambda number: Fraction(math.floor(number)), (1, 1)),
    "ceil": (lambda number: Fraction(math.ceil(number)), (1, 1)),
}
