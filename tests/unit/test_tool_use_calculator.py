"""The calculator: values by hand, and what is said of expressions that have none."""

import random
from decimal import Decimal
from fractions import Fraction

import pytest

from arc_refinery.calculator import CalculatorError, calculate, written


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1+2", "3"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("2 - 3 - 4", "-5"),
        ("-3 ** 2", "-9"),
        ("2 ** 3 ** 2", "512"),
        ("--3", "3"),
        ("4837 * 629", "3042473"),
        ("12.50 * 4", "50"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "0.333333333333"),
        ("1 / 3 * 3", "1"),
        ("100 / 8", "12.5"),
        ("-1 / 8", "-0.125"),
        ("2 / 3", "0.666666666667"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7.5 // 2", "3"),
        ("2 ** 10", "1024"),
        ("2 ** -3", "0.125"),
        ("2 ** 0.5", "1.41421356237"),
        ("0 ** 0", "1"),
        ("(-1) ** 10000001", "-1"),
        ("10 ** 20", "100000000000000000000"),
        ("10 ** 100", "1e+100"),
        ("1e3", "1000"),
        ("1_000 * 2", "2000"),
        ("sqrt(16)", "4"),
        ("sqrt(1 / 4)", "0.5"),
        ("sqrt(2)", "1.41421356237"),
        ("abs(-3.5)", "3.5"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.5)", "2"),
        ("round(1234, -2)", "1200"),
        ("min(3, 1, 2) + max(4, 5)", "6"),
        ("floor(-1.5)", "-2"),
        ("ceil(1.2)", "2"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("(((1)))", "1"),
        ("1 + " * 90 + "1", "91"),
        ("123456789.123456789 * 10", "1234567891.23456789"),
        ("0.015", "0.015"),
        ("7.5 / 100", "0.075"),
        ("30 / 2000", "0.015"),
        ("1 / 16", "0.0625"),
        ("-0.24 * 0.201", "-0.04824"),
    ],
)
def test_values(expression: str, value: str):
    assert calculate(expression) == value


@pytest.mark.parametrize("n_decimals", range(6))
def test_every_short_decimal_is_written_exactly(n_decimals: int):
    for digits in range(-12_345, 12_345):
        value = Fraction(digits, 10**n_decimals)
        assert Fraction(written(value)) == value
        assert Decimal(written(value)) == Decimal(digits).scaleb(-n_decimals)


def random_expression(rng: random.Random, depth: int) -> tuple[str, Fraction]:
    """An expression, and its value by exact arithmetic."""
    if depth == 0 or rng.random() < 0.2:
        digits, decimals = rng.randrange(2000), rng.randrange(4)
        text = str(Decimal(digits).scaleb(-decimals))
        return text, Fraction(text)
    (left, a), (right, b) = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    sign = rng.choice("+-*/" if b else "+-*")
    match sign:
        case "+":
            value = a + b
        case "-":
            value = a - b
        case "*":
            value = a * b
        case _:
            value = a / b
    return f"({left} {sign} {right})", value


def test_random_expressions_have_their_exact_value_or_twelve_digits_of_it():
    rng = random.Random(0)
    n_exact = 0
    for _ in range(5000):
        text, value = random_expression(rng, depth=3)
        result = Fraction(calculate(text))
        assert abs(result - value) <= abs(value) * Fraction(6, 10**12), text
        n_exact += result == value
        if 10**15 % value.denominator == 0:
            assert result == value, text
    assert n_exact > 1000


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("1,200 * 3", "write 1200, not 1,200"),
        ("3 ^ 2", r"write \*\* for a power"),
        ("$5 + 1", "without a currency"),
        ("20%", "write 20 percent as 20/100"),
        ("2 * 3 =", "without ="),
        ("a + 1", "unknown name a; there are sqrt, abs"),
        ("sqrt(-1)", "square root of a negative number"),
        ("(-8) ** (1/3)", "a fractional power of a negative number"),
        ("sqrt()", "sqrt got 0 arguments, expected 1"),
        ("round(1, 2, 3)", "round got 3 arguments, expected 1 or 2"),
        ("min(1)", "min got 1 arguments, expected 2 or more"),
        ("sqrt(x=4)", "sqrt takes no named arguments"),
        ("round(1, 1e30)", "a small whole number"),
        ("", "not an arithmetic expression"),
        ("two plus two", r"write numbers, \+ - \* / // % \*\* and parentheses"),
        (
            "12abc",
            r"write numbers, \+ - \* / // % \*\* and parentheses",
        ),  # the parser's own words depend on its version
        # nothing of Python but arithmetic
        ("__import__('os').system('true')", "not supported"),
        ("__import__('os')", "unknown name __import__"),
        ("().__class__", "not supported"),
        ("lambda: 1", "not supported"),
        ("[1][0]", "not supported"),
        ("1 if 1 else 2", "not supported"),
        ("1 < 2", "not supported"),
        ("'a' * 5", "'a' is not a number"),
        ("True + 1", "True is not a number"),
        ("1j", "1j is not a number"),
        ("...", "is not a number"),
        # sizes
        ("9 ** 9 ** 9", "the power is too large"),
        ("2.5 ** 9999", "the power is too large"),
        ("10 ** 300 * 10 ** 300", "too many digits"),
        ("1e400", "too many digits"),
        ("1e999999999", "too large or too small"),
        ("1e-999999999", "too large or too small"),
        ("sqrt(2) * 1e300 * 1e300", "too"),
        ("sqrt(2) * 1e200 * sqrt(2) * 1e200 ** 1.1", "too large"),
        ("9" * 401, "401 characters"),
        ("-" * 399 + "1", "nested deeper"),
        ("(" * 399, r"each \( needs its \)"),
        ("[" * 199 + "]" * 199, "not supported"),
        ("\0", "not an arithmetic expression"),
        ("\ud800", "not an arithmetic expression"),
    ],
)
def test_messages(expression: str, message: str):
    with pytest.raises(CalculatorError, match=message):
        calculate(expression)
