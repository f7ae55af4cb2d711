"""Grade answers of domain `code`: take out the program, run it on the tests that prompts may show, then on hidden ones.

answer   "```python\\ndef double(n):\\n    return n + 2\\n```", on a task that shows `assert double(3) == 6`
grade    status "ok", score 0.0, shown ("assert double(3) == 6", failed, double(3) gave "5"), hidden_passed 0.5

Each shown test, and each that feedback may reveal, runs in a process of its own, on servers that never receive a hidden
test, so that what a program gives there cannot depend on these: a program that never ends on a hidden test has its
shown values all the same. The score is the share of both that pass. The hidden tests run together, and a program that
does not end on one of them passes none; those of a program that reads and prints run one by one, as in contests. Values
are compared where no program runs (asserts/run.py).
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.asserts.run import AssertOutcome, AssertResult, AssertsReport, problems, run_asserts
from arc_refinery.domains.code.starters import wholes
from arc_refinery.domains.code.tasks import FAILS, UNCHECKABLE, CodeTask, LeftOutRows, described, read_tasks
from arc_refinery.errors import InputError
from arc_refinery.grades import Grade
from arc_refinery.programs import after_thought, defined_names, tested_program
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Status

FAILURES_TO_REFINE = tuple(
    map(str, (Status.error, Status.timeout, Status.memory))
)  # statuses whose error says what to correct
_AT_ONCE = 250  # answers, or rows, in memory

Executors = tuple[Executor, Executor, Executor]  # for programs on visible tests, on hidden ones, and for comparisons


@dataclass(frozen=True, slots=True)
class ShownValue:
    """What a call of a shown test gave."""

    call: str
    value: str  # as Python shows it, cut; a program can forge it


@dataclass(frozen=True, slots=True)
class ShownTest:
    """A test that is, or may be, in a prompt, and what a program gave."""

    test: str
    outcome: str  # an `AssertOutcome`
    values: tuple[ShownValue, ...] = ()
    raised: str = ""  # the call that raised; empty if none did
    error: str = ""  # the exception, or why the program was stopped
    line: int = 0  # line of the program that raised; 0: none
    code: str = ""  # this line
    is_before_call: bool = False  # whether the program failed before it was called


@dataclass(frozen=True, slots=True)
class CodeDetail:
    """A verdict's part that is the domain's."""

    passed: float  # share of all tests that pass, 0..1
    shown_passed: float  # revealable ones included
    hidden_passed: float
    n_hidden: int
    shown_raised: float  # share of the shown tests with a call that raises
    shown: tuple[ShownTest, ...]
    revealable: tuple[ShownTest, ...] = ()

    @property
    def visible(self) -> tuple[ShownTest, ...]:
        return self.shown + self.revealable


@dataclass(frozen=True, slots=True)
class Prompt(records.Prompt):
    detail: CodeTask


@dataclass(frozen=True, slots=True)
class Verdict(records.Verdict):
    detail: CodeDetail


@dataclass(frozen=True, slots=True)
class CodeGrade(Grade):
    """Result of executing one answer; its status is ok if the program and its calls of the visible tests ended."""

    shown: tuple[ShownTest, ...] = ()
    revealable: tuple[ShownTest, ...] = ()
    stale: ShownTest | None = None  # that feedback reveals instead of the first revealable one that fails
    n_hidden: int = 0
    n_hidden_passed: int = 0
    is_constant: bool = False  # whether all calls gave the same
    fingerprint: str = ""  # equal for programs that give the same on the visible tests; empty unless valid
    first_failing: tuple[str, AssertResult] | None = None  # and its test, if that is visible

    @property
    def visible(self) -> tuple[ShownTest, ...]:
        return self.shown + self.revealable

    @property
    def n_visible_passed(self) -> int:
        return sum(test.outcome == AssertOutcome.passed for test in self.visible)

    @property
    def score(self) -> float:
        """Share of the shown and revealable tests that pass."""
        return self.n_visible_passed / max(len(self.visible), 1)

    @property
    def passed(self) -> float:
        """Share of all tests that pass."""
        return (self.n_visible_passed + self.n_hidden_passed) / max(len(self.visible) + self.n_hidden, 1)

    @property
    def hidden_score(self) -> float:
        """Share of the hidden tests that pass; of a task without any, 1 if it is solved."""
        return self.n_hidden_passed / self.n_hidden if self.n_hidden else float(self.is_solved)

    @property
    def progress(self) -> float:
        """Share of the hidden tests that pass; 0 for a program that gives one value whatever its arguments."""
        return 0.0 if self.is_constant and not self.is_solved else self.hidden_score

    @property
    def is_solved(self) -> bool:
        return self.score == 1.0 and self.n_hidden_passed == self.n_hidden

    @property
    def detail(self) -> CodeDetail:
        raised = sum(bool(test.raised) for test in self.visible) / max(len(self.visible), 1)
        return CodeDetail(
            self.passed, self.score, self.hidden_score, self.n_hidden, raised, self.shown, self.revealable
        )


def program(text: str, task: CodeTask) -> str | None:
    """Return the program in an answer, or None without one: the last block that defines what the tests call.

    Without its own tests. A body or methods alone complete the task's starter.
    """
    if task.is_script:
        return tested_program(after_thought(text), ())
    code = tested_program(after_thought(text), task.names)
    if code is None or not task.starter or not defined_names(code).isdisjoint(task.names):
        return code
    return next(
        (whole for whole in wholes(task.starter, task.names, code) if {*task.names} <= defined_names(whole)), code
    )


def grade(answers: Iterable[tuple[str, CodeTask]], executors: Executors) -> Generator[CodeGrade, None, None]:
    """Yield grades in order. A failing program is a grade; a failing sandbox raises."""
    remaining = iter(answers)
    while batch := list(islice(remaining, _AT_ONCE)):
        programs = [program(text, task) for text, task in batch]
        yield from grade_programs(programs, [task for _, task in batch], executors)


def grade_programs(
    programs: Sequence[str | None], tasks: Sequence[CodeTask], executors: Executors
) -> Iterator[CodeGrade]:
    """Yield a grade per program, in order; None is an answer without one."""
    asked = [code and task.runnable(code) for code, task in zip(programs, tasks, strict=True)]
    runs = [(index, test) for index, task in enumerate(tasks) for test in task.visible if programs[index] is not None]
    for_visible, for_hidden, graders = executors
    suites = [tasks[index].suite([test]) for index, test in runs]
    reports = run_asserts([asked[i] for i, _ in runs], suites, for_visible, graders, with_texts=True)
    visible: dict[int, list[AssertResult]] = {}
    for (index, _), report in zip(runs, reports, strict=True):
        visible.setdefault(index, []).extend(report.asserts)
    # a program that ended on none of them is not run again
    hidden_runs = [index for index, results in visible.items() if any(result.calls for result in results)]
    together = [
        (index, tests)
        for index in hidden_runs
        for tests in (zip(tasks[index].hidden) if tasks[index].is_script else [tasks[index].hidden])
    ]
    suites = [tasks[index].suite(tests) for index, tests in together]
    reports = run_asserts([asked[i] for i, _ in together], suites, for_hidden, graders)
    hidden: dict[int, AssertsReport] = {}
    for (index, _), report in zip(together, reports, strict=True):
        before = hidden[index].asserts if index in hidden else ()
        hidden[index] = AssertsReport(before + report.asserts)
    for index, (code, task) in enumerate(zip(programs, tasks, strict=True)):
        yield _grade(code, task, visible[index], hidden.get(index)) if code is not None else CodeGrade(NO_CODE)


def usable_tasks(
    path: Path,
    n_shown_tests: int | None,
    executors: Executors,
    left_out: LeftOutRows,
    first_row: int = 0,
    n_wanted: int | None = None,
    n_revealed: int = 0,
    rows: Iterable[Any] | None = None,
) -> Iterator[CodeTask]:
    """Yield the first tasks of a file whose own programs pass all tests; raise `InputError` if there is none.

    No row is read behind the last task of those that are wanted.
    """
    n_tasks = 0
    remaining = read_tasks(path, n_shown_tests, left_out, first_row, n_revealed, rows)
    while batch := list(islice(remaining, _AT_ONCE if n_wanted is None else min(_AT_ONCE, n_wanted - n_tasks))):
        suites = [task.suite(task.tests) for task in batch]
        uncheckable = list(problems(suites, executors[2]))
        references = [task.reference or None for task in batch]
        grades = grade_programs(references, batch, executors)
        for task, problem, graded in zip(batch, uncheckable, grades, strict=True):
            if not problem and graded.first_failing:
                test, result = graded.first_failing
                if result.outcome == AssertOutcome.not_plain:
                    problem = result.reason
                else:
                    left_out[task.task_id] = (FAILS, f"{test}: {result.reason or result.outcome}")
                    continue
            if problem:
                left_out[task.task_id] = (UNCHECKABLE, problem)
            else:
                n_tasks += 1
                yield task
    if not n_tasks:
        reasons = ", ".join(f"{n} {reason}" for reason, n in described(left_out).most_common()) or "it has no rows"
        raise InputError(f"{path}: no row gives a task: {reasons}. Correct the rows, or give another file")


def _grade(code: str, task: CodeTask, results: Sequence[AssertResult], hidden: AssertsReport | None) -> CodeGrade:
    stopped = next((result for result in results if not result.calls), None)
    values = [
        [(call.value.kind, call.value.data, call.value.error, call.text) for call in result.calls] for result in results
    ]
    outcomes = [
        *zip(task.visible, results, strict=True),
        *(("a hidden test", result) for result in (hidden.asserts if hidden else ())),
    ]
    checked = [*results, *(hidden.asserts if hidden else ())]
    given = {(call.value.kind, call.value.data) for result in checked for call in result.calls}
    tests = tuple(_shown_test(test, result, code) for test, result in zip(task.visible, results, strict=True))
    return CodeGrade(
        status=str(stopped.outcome if stopped else Status.ok),
        error=stopped.reason if stopped else "",
        code=code,
        shown=tests[: len(task.shown)],
        revealable=tests[len(task.shown) :],
        n_hidden=len(task.hidden),
        n_hidden_passed=hidden.n_passed if hidden else 0,
        is_constant=len(given) == 1,
        fingerprint="" if stopped else hashlib.sha256(repr(values).encode()).hexdigest()[:16],
        first_failing=next((both for both in outcomes if both[1].outcome != AssertOutcome.passed), None),
    )


def _shown_test(test: str, result: AssertResult, code: str) -> ShownTest:
    raised = next((call for call in result.calls if call.value.kind == "error"), None)
    error = "" if result.outcome in (AssertOutcome.passed, AssertOutcome.failed) else result.reason
    if result.outcome == AssertOutcome.not_plain:
        error = f"AssertionError: the result cannot be compared: {error}"
    lines = code.split("\n")
    line = result.line if result.line and result.line <= len(lines) else 0
    return ShownTest(
        test=test,
        outcome=str(result.outcome),
        values=tuple(ShownValue(call.source, call.text) for call in result.calls if call.value.kind != "error"),
        raised=raised.source if raised else "",
        error=error.removesuffix(f" (line {result.line})"),
        line=line,
        code=lines[line - 1].strip() if line else "",
        is_before_call=not result.calls and result.outcome == AssertOutcome.error,
    )
