"""Feedback of domain `code`: what a program gave on the shown tests, and nothing about the hidden ones.

Of the tests that it may reveal, it shows the first one that fails, as if it had been shown before. The control `stale`
reveals one that passes instead. A program that returns 5 for `double(3)`, and one that divides by zero:

failing-tests   Your program passes 1 of 2 tests.             Your program passes 0 of 1 tests.

                assert double(3) == 6                         assert double(3) == 6
                double(3) returned 5, expected 6              double(3) raised ZeroDivisionError: [...] (line 2)

expected-only   Your program passes 1 of 2 tests.             Your program passes 0 of 1 tests.

                assert double(3) == 6                         assert double(3) == 6

traceback       Traceback (most recent call last):            Traceback (most recent call last):
                  File "test.py", line 2                        File "test.py", line 1
                    assert double(3) == 6                         assert double(3) == 6
                AssertionError                                  File "program.py", line 2
                                                                  return n / 0
                                                              ZeroDivisionError: division by zero

verdict-only    Your program passes 1 of 2 tests.             Your program passes 0 of 1 tests.
"""

import ast

from arc_refinery.asserts.run import AssertOutcome
from arc_refinery.domains.code.grading import CodeGrade, ShownTest
from arc_refinery.domains.code.wording import Wording
from arc_refinery.domains.prompts import fill


def feedback(grade: CodeGrade, wording: Wording) -> str:
    """Return what the model reads about its program, in the wording's form."""
    numbered = enumerate(grade.shown, 1)
    failing = [(number, test) for number, test in numbered if test.outcome != AssertOutcome.passed]
    if test := revealed(grade, wording):
        failing.append((len(grade.shown) + 1, test))
    passed = fill(wording.passed, {"n_passed": grade.n_visible_passed, "n_tests": len(grade.visible)})
    not_called = next((test for test in grade.visible if test.is_before_call), None)  # then no test was run
    match wording.form:
        case "verdict-only":
            parts = [passed]
        case "expected-only":
            parts = [passed, *(test.test for _, test in failing)]
        case "traceback" if not_called:
            parts = [_traceback(0, not_called, wording)]
        case "traceback":
            parts = [_traceback(number, test, wording) for number, test in failing]
        case "failing-tests" if not_called:
            parts = [fill(wording.not_run, {"error": _error(not_called), "code": not_called.code}).rstrip()]
        case "failing-tests":
            parts = [passed, *(f"{test.test}\n{_result(test, wording)}" for _, test in failing)]
    return "\n\n".join(filter(None, [*parts, wording.correct]))


def revealed(grade: CodeGrade, wording: Wording) -> ShownTest | None:
    """Return the test that feedback shows and the first turn does not; None of a program that could not be called."""
    if wording.form == "verdict-only":
        return None
    failing = (test for test in grade.revealable if test.outcome != AssertOutcome.passed and not test.is_before_call)
    return grade.stale or next(failing, None)


def _result(test: ShownTest, wording: Wording) -> str:
    """Return what a test gave: values and an exception, or why it was stopped."""
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
    if test.outcome == AssertOutcome.passed:  # the control `stale`: Python would print nothing
        return f"{test.test}\n{_result(test, wording)}"
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
