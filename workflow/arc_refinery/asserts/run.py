"""Run programs against asserts so that only a correct program passes.

The candidate's program and the calls of its functions run in a child process of one executor. Their values go as plain
data to a child process of another executor, which compares them with the expected values (split.py). There are two
executors because a server that has read an expected value may keep it in memory, and so may the children it forks.

A candidate cannot patch the comparison, return an object that equals everything, exit early, or look up the expected
values: they were never in its process.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from arc_refinery.asserts.split import (
    VALUE,
    AssertsPlan,
    Check,
    Suite,
    Unsupported,
    assigned,
    expected_values,
    plan,
    without_truth,
)
from arc_refinery.sandbox import Executor, Outcome, Script, Status, Value, plain
from arc_refinery.sandbox.child import without_addresses

TRUE, FALSE = plain.pack(True), plain.pack(False)
SHOWN_CHARS = 300


class AssertOutcome(StrEnum):
    """The result of one assert, or of a whole program."""

    passed = "passed"
    failed = "failed"  # the assert is false
    error = "error"  # a call, the comparison, or the program raised
    not_plain = "not_plain"  # a call returned something other than plain data, or more than 64 kB of it
    unsupported = "unsupported"  # the assert cannot be split (split.py): the data's fault
    no_code = "no_code"  # the answer has no program
    timeout = "timeout"
    memory = "memory"
    crash = "crash"  # the program's process ended, for example by os._exit
    protocol = "protocol"  # the program wrote to the pipe of its results


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an assert, as the candidate's program evaluated it."""

    source: str
    value: Value
    text: str = ""  # the value as Python shows it, cut at `SHOWN_CHARS`; a program can forge it


@dataclass(frozen=True, slots=True)
class AssertResult:
    """One assert's outcome, and why."""

    outcome: AssertOutcome
    reason: str = ""
    line: int | None = None  # line of the program that raised
    calls: tuple[Call, ...] = ()  # empty unless the program ran to its end


@dataclass(frozen=True, slots=True)
class AssertsReport:
    """The results of a program's asserts, in order."""

    asserts: tuple[AssertResult, ...]

    @property
    def is_passed(self) -> bool:
        """Whether every assert that can be checked passes, and there is at least one."""
        return self.n_checked > 0 and self.n_passed == self.n_checked

    @property
    def n_checked(self) -> int:
        return sum(result.outcome is not AssertOutcome.unsupported for result in self.asserts)

    @property
    def n_passed(self) -> int:
        return sum(result.outcome is AssertOutcome.passed for result in self.asserts)


def run_asserts(
    programs: Sequence[str | None],
    suites: Sequence[Suite],
    candidates: Executor,
    graders: Executor,
    with_texts: bool = False,
) -> list[AssertsReport]:
    """Check each program against the asserts of its suite; None is an answer without a program.

    `candidates` runs the programs, `graders` the comparisons; `graders` must never run a program, before or after.
    Raises if the sandbox itself fails. `with_texts` also takes the values as text.
    """
    if candidates is graders:
        raise ValueError(
            "programs and comparisons need an executor each: a server's children can find what it has read"
        )
    runs = [
        _Run(code, plan(suite.asserts, suite.reference), suite.provided, with_texts)
        for code, suite in zip(programs, suites, strict=True)
    ]
    executed = [run for run in runs if run.code is not None and run.plan.calls]
    for run, outcome in zip(executed, candidates.run(run.call_script() for run in executed), strict=True):
        run.called = outcome
    compared = [run for run in executed if run.comparable]
    for run, outcome in zip(compared, graders.run(run.check_script() for run in compared), strict=True):
        run.compared = outcome
    return [AssertsReport(tuple(run.results())) for run in runs]


def problems(suites: Sequence[Suite], graders: Executor) -> Iterator[str]:
    """Yield for each suite why no program could pass it, or an empty text.

    What it imports, defines or provides fails, or it compares with a value that is not plain.
    """
    plans = [plan(suite.asserts, suite.reference) for suite in suites]
    expected = [
        tuple(value for check in plan.checks if isinstance(check, Check) for value in expected_values(check))
        for plan in plans
    ]
    scripts = (
        Script("", (plan.before, suite.provided, plan.around), values, program=3, classes=plan.classes)  # 3: none
        for suite, plan, values in zip(suites, plans, expected, strict=True)
    )
    for outcome in graders.run(scripts):
        not_plain = (value.error for value in outcome.values if value.kind == "not_plain")
        yield outcome.error or next(not_plain, "")


@dataclass(slots=True)
class _Run:
    """One program with its outcomes in both executors."""

    code: str | None
    plan: AssertsPlan
    provided: str
    with_texts: bool
    called: Outcome | None = None
    compared: Outcome | None = None

    def call_script(self) -> Script:
        expressions, n_direct = self.plan.calls, self.plan.n_direct
        names = [VALUE.format(index) for index in range(len(expressions))]
        if self.with_texts or n_direct < len(expressions):
            direct = expressions[:n_direct]
            chains = (_on_value(chain, direct) for chain in expressions[n_direct:])
            expressions = tuple(map(assigned, names, (*direct, *chains)))
        if self.with_texts:  # by no name that a program may redefine
            expressions += tuple(f"f'{{{name}!r:.{SHOWN_CHARS + 1}}}'" for name in names)
        sources = (self.plan.before, self.provided, self.code or "", self.plan.after)
        return Script("", sources, expressions, program=2, classes=self.plan.classes)

    @property
    def checks(self) -> list[Check | Unsupported]:
        """The plan's checks, with the values of whole chains where others are not plain."""
        checks = [*self.plan.checks]
        for index, check in enumerate(checks):
            if isinstance(check, Check) and any(value.kind == "not_plain" for value in self._values(check)):
                checks[index] = self._of_chains(check) or check
        return checks

    @property
    def comparable(self) -> list[Check]:
        """The checks whose values are all available."""
        if self.called is None or self.called.status is not Status.ok:
            return []
        checks = (check for check in self.checks if isinstance(check, Check))
        return [check for check in checks if all(value.kind == "plain" for value in self._values(check))]

    def _of_chains(self, check: Check) -> Check | None:
        """Return the check with the values of whole chains, if they are known.

        A truth value of a chain is not taken: any object could say yes.
        """
        if not check.of_chains or not self._all_values:
            return None
        direct = self.plan.calls[: self.plan.n_direct]
        values = [self._all_values[index] for index in check.of_chains.values if self.plan.calls[index] not in direct]
        is_known = all(value.kind == "plain" and value.data not in (TRUE, FALSE) for value in values)
        return check.of_chains if is_known else None

    @property
    def _fallbacks(self) -> dict[Check, Check]:
        """Checks of whole chains, for values that are data but had attributes of their own, as named tuples have."""
        return {check: of_chains for check in self.comparable if (of_chains := self._of_chains(check))}

    def check_script(self) -> Script:
        checks = [*self.comparable, *self._fallbacks.values()]
        indices = sorted({index for check in checks for index in check.values})
        names = tuple((VALUE.format(index), self._all_values[index].data) for index in indices)
        expressions = tuple(f"bool({check.expression})" for check in checks)
        return Script("", (self.plan.around,), expressions, names, self.plan.classes)

    def results(self) -> Iterator[AssertResult]:
        comparable, fallbacks = self.comparable, self._fallbacks
        compared = self.compared.values if self.compared is not None else ()
        answers, of_chains = iter(compared), dict(zip(fallbacks, compared[len(comparable) :], strict=False))
        for check in self.checks:
            if isinstance(check, Unsupported):
                yield AssertResult(AssertOutcome.unsupported, check.reason)
            elif self.called is None:
                yield AssertResult(AssertOutcome.no_code)
            elif self.called.status is not Status.ok:
                yield AssertResult(AssertOutcome(self.called.status), self.called.error, line=self.called.error_line)
            elif check not in comparable:
                value = next(value for value in self._values(check) if value.kind != "plain")
                yield AssertResult(AssertOutcome(value.kind), value.error, line=value.line, calls=self._calls(check))
            elif self.compared is not None and self.compared.status is not Status.ok:
                status, error = self.compared.status, self.compared.error
                yield AssertResult(AssertOutcome(status), error, calls=self._calls(check))
            else:
                answer = next(answers)
                if answer.error.startswith("AttributeError"):
                    answer = of_chains.get(check, answer)
                if answer.kind == "error":
                    yield AssertResult(AssertOutcome.error, answer.error, calls=self._calls(check))
                elif answer.data == TRUE:
                    yield AssertResult(AssertOutcome.passed, calls=self._calls(check))
                else:
                    yield AssertResult(AssertOutcome.failed, "it is false", calls=self._calls(check))

    @property
    def _all_values(self) -> tuple[Value, ...]:
        """The values of the plan's calls, without their texts."""
        return self.called.values[: len(self.plan.calls)] if self.called is not None else ()

    def _values(self, check: Check) -> list[Value]:
        """Return the values of a check's calls; none if the program has not run to its end."""
        return [self._all_values[index] for index in check.values] if self._all_values else []

    def _calls(self, check: Check) -> tuple[Call, ...]:
        assert self.called is not None
        texts = list(map(_text, self.called.values[len(self.plan.calls) :])) or [""] * len(self.plan.calls)
        return tuple(
            Call(without_truth(self.plan.calls[index]), self._all_values[index], texts[index]) for index in check.values
        )


def _on_value(chain: str, calls: Sequence[str]) -> str:
    """Return a chain that begins with one of these calls, with the name of its value instead: none is made twice."""
    bare, values = without_truth(chain), [without_truth(call) for call in calls]
    start = max((call for call in values if bare == call or bare.startswith(f"{call}.")), key=len)
    return chain.replace(start, VALUE.format(values.index(start)), 1)


def _text(value: Value) -> str:
    try:
        text = plain.unpack_text(value.data)
    except plain.MalformedError:  # its `__repr__` raised, or the program forged it
        return "a value that cannot be shown"
    text = without_addresses(text.encode(errors="backslashreplace").decode())
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
