"""Feedback of domain `code`: what a program gave on the shown tests, and nothing about the hidden ones.

A program that returns 5 for `double(3)`, and one that divides by zero:

failing-tests   Your program passes 1 of 2 tests.             Your program passes 0 of 1 tests.

                assert double(3) == 6                         assert double(3) == 6
                double(3) returned 5, expected 6              double(3) raised ZeroDivisionError: [...] (line 2)

traceback       Traceback (most recent call last):            Traceback (most recent call last):
                  File "test.py", line 2                        File "test.py", line 1
                    assert double(3) == 6                         assert double(3) == 6
                AssertionError                                  File "program.py", line 2
                                                                  return n / 0
                                                              ZeroDivisionError: division by zero

verdict-only    Your program passes 1 of 2 tests.             Your program passes 0 of 1 tests.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace

from arc_refinery.asserts.run import AssertOutcome
from arc_refinery.refining.domains.code.grading import CodeGrade, ShownTest
from arc_refinery.refining.domains.code.wording import Wording
from arc_refinery.refining.prompts import fill


def feedback(grade: CodeGrade, wording: Wording) -> str:
    """Return what the model reads about its program, in the wording's form."""
    failing = [(number, test) for number, test in enumerate(grade.shown, 1) if test.outcome != AssertOutcome.passed]
    n_passed = len(grade.shown) - len(failing)
    passed = fill(wording.passed, {"n_passed": n_passed, "n_tests": len(grade.shown)})
    first = failing[0][1] if failing else None
    if wording.form == "verdict-only":
        parts = [passed]
    elif wording.form == "traceback":
        same = first is not None and first.is_before_call
        parts = [_traceback(number, test, wording) for number, test in (failing[:1] if same else failing)]
    elif first and first.is_before_call:  # then no test was run
        parts = [fill(wording.not_run, {"error": _error(first), "code": first.code}).rstrip()]
    else:
        parts = [passed, *(f"{test.test}\n{_result(test, wording)}" for _, test in failing)]
    return "\n\n".join(filter(None, [*parts, wording.correct]))


def with_results(test: ShownTest, results: Sequence[ShownTest]) -> ShownTest:
    """Return a test with the first of these results, of another task's tests, that is not what the test expects."""
    call, expected = _equality(test.test)
    calls = [value.call for value in test.values] or [test.raised or call or test.test]
    others = (result for result in results if expected not in [value.value for value in result.values])
    result = next(others, results[0])
    values = tuple(replace(value, call=own) for value, own in zip(result.values, calls, strict=False))
    return replace(result, test=test.test, values=values, raised=calls[0] if result.raised else "")


def _result(test: ShownTest, wording: Wording) -> str:
    """Return what a failing test gave: values and an exception, or why it was stopped."""
    call, expected = _equality(test.test)
    lines = [
        fill(
            wording.compared if value.call == call else wording.returned,
            {"call": value.call, "value": value.value, "expected": expected},
        )
        for value in test.values
    ]
    if test.raised:
        lines.append(fill(wording.raised, {"call": test.raised, "error": _error(test)}))
    elif test.error:
        lines.append(_error(test))
    return "\n".join(lines)


def _equality(test: str) -> tuple[str, str]:
    """Return the call and the expected value of `assert call == value`; two empty texts for other tests."""
    match ast.parse(test).body:
        case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
            return ast.unparse(left), ast.get_source_segment(test, right) or ""
        case _:
            return "", ""


def _traceback(number: int, test: ShownTest, wording: Wording) -> str:
    frames = [("test.py", number, test.test)] if not test.is_before_call else []
    frames += [("program.py", test.line, test.code)] if test.line else []
    lines = [fill(wording.frame, {"file": file, "line": line, "code": code}) for file, line, code in frames]
    exception = _exception(test) or "AssertionError"
    head = "" if test.is_before_call and exception.startswith("SyntaxError") else wording.traceback
    return "\n".join(filter(None, [head, *lines, exception]))


def _error(test: ShownTest) -> str:
    first, *others = _exception(test).split("\n")
    return "\n".join([f"{first} (line {test.line})" if test.line else first, *others])


def _exception(test: ShownTest) -> str:
    """Return an exception in Python's words, for a time limit, too."""
    if test.outcome == AssertOutcome.timeout:
        return test.error.replace("Timeout:", "TimeoutError:")
    return test.error
