"""Run programs against asserts, so that only a right program passes.

The candidate's program and the calls of its functions run in a child of one executor; the values go as plain data into
a child of another one, where they meet what the asserts expect (asserts.py). Two executors, for a server that has read
an expected value may have remains of it in its memory, and so may the children that it forks.

A candidate can return anything that it can write down without knowing what is wanted. It cannot patch what compares,
answer with an object that equals everything, leave early, or look the expected values up: they were never there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from arc_refinery.records.questions import Question
from arc_refinery.sandbox import Executor, Outcome, Script, Status, Value, plain
from arc_refinery.tool_use.asserts import VALUE, Check, Plan, Unsupported, plan

TRUE = plain.pack(True)


class Verdict(StrEnum):
    """What came of one assert, or of a program as a whole."""

    passed = "passed"
    failed = "failed"  # it is false
    error = "error"  # a call or the comparison raised, or the program did not run to its end
    not_plain = "not_plain"  # a call gave no plain data, or more than 64 kB of it
    unsupported = "unsupported"  # its form cannot be checked: the question's fault
    no_code = "no_code"  # the answer holds no program
    timeout = "timeout"
    memory = "memory"
    crash = "crash"  # the program's process ended, for example by os._exit
    protocol = "protocol"  # it wrote to the pipe that its answer goes through


@dataclass(frozen=True, slots=True)
class Tested:
    """One assert's verdict, and why."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts of a program's asserts, in their order."""

    asserts: tuple[Tested, ...]

    @property
    def is_passed(self) -> bool:
        """Whether it passes every assert that can be checked, and there is one."""
        return self.n_checked > 0 and self.n_passed == self.n_checked

    @property
    def n_checked(self) -> int:
        return sum(tested.verdict is not Verdict.unsupported for tested in self.asserts)

    @property
    def n_passed(self) -> int:
        return sum(tested.verdict is Verdict.passed for tested in self.asserts)


def run_asserts(
    programs: Sequence[str | None], questions: Sequence[Question], candidates: Executor, graders: Executor
) -> list[Report]:
    """What the asserts of its question say of each program; None is an answer without one.

    `candidates` runs the programs, `graders` the comparisons; it must never have run, nor ever run, a program. Raises
    what the sandbox raises where it fails itself.
    """
    if candidates is graders:
        raise ValueError(
            "programs and comparisons need an executor each: what one server has read, its children may find"
        )
    plans = [plan(question.asserts, question.reference) if question.asserts else _NO_PLAN for question in questions]
    works = [_Work(code, made) for code, made in zip(programs, plans, strict=True)]
    ran = [work for work in works if work.code is not None and work.plan.calls]
    for work, outcome in zip(ran, candidates.run(work.calling() for work in ran), strict=True):
        work.called = outcome
    compared = [work for work in ran if work.comparable]
    for work, outcome in zip(compared, graders.run(work.comparing() for work in compared), strict=True):
        work.compared = outcome
    return [Report(tuple(work.tested())) for work in works]


_NO_PLAN = Plan("", "", (), (), "")


@dataclass(slots=True)
class _Work:
    """One program on its way through both executors."""

    code: str | None
    plan: Plan
    called: Outcome | None = None
    compared: Outcome | None = None

    def calling(self) -> Script:
        return Script("", (self.plan.before, self.code or "", self.plan.after), self.plan.calls)

    @property
    def comparable(self) -> list[Check]:
        """The checks whose values are all there."""
        if self.called is None or self.called.status is not Status.ok:
            return []
        checks = (check for check in self.plan.checks if isinstance(check, Check))
        return [check for check in checks if all(value.kind == "plain" for value in self._values(check))]

    def comparing(self) -> Script:
        assert self.called is not None
        indices = sorted({index for check in self.comparable for index in check.values})
        names = tuple((VALUE.format(index), self.called.values[index].data) for index in indices)
        expressions = tuple(f"bool({check.expression})" for check in self.comparable)
        return Script("", (self.plan.around,), expressions, names)

    def tested(self) -> Iterator[Tested]:
        answers = iter(self.compared.values if self.compared is not None else ())
        comparable = self.comparable
        for check in self.plan.checks:
            if isinstance(check, Unsupported):
                yield Tested(Verdict.unsupported, check.reason)
            elif self.called is None:
                yield Tested(Verdict.no_code)
            elif self.called.status is not Status.ok:
                yield _broken(self.called)
            elif check not in comparable:
                yield _unusable(self._values(check))
            elif self.compared is not None and self.compared.status is not Status.ok:
                yield _broken(self.compared)
            else:
                yield _answered(next(answers))

    def _values(self, check: Check) -> list[Value]:
        assert self.called is not None
        return [self.called.values[index] for index in check.values]


def _broken(outcome: Outcome) -> Tested:
    return Tested(Verdict(outcome.status), outcome.error)


def _unusable(values: Sequence[Value]) -> Tested:
    value = next(value for value in values if value.kind != "plain")
    return Tested(Verdict(value.kind), value.error)


def _answered(answer: Value) -> Tested:
    if answer.kind == "error":
        return Tested(Verdict.error, answer.error)
    return Tested(Verdict.passed) if answer.data == TRUE else Tested(Verdict.failed, "it is false")
