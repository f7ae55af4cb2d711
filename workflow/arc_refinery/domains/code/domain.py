"""The domain `code`: a program defines functions that pass tests, some of which its prompt shows."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from arc_refinery import records
from arc_refinery.asserts.rows import KnownTasks
from arc_refinery.asserts.run import AssertOutcome
from arc_refinery.asserts.split import plan
from arc_refinery.config import Sandbox
from arc_refinery.domains import domain
from arc_refinery.domains.code import feedback, grading, two_rules, wording
from arc_refinery.domains.code.config import FORMS, PLAIN, REWARDS, TEXTS, Problems, TaskSet
from arc_refinery.domains.code.grading import FAILURES_TO_REFINE, CodeGrade, Prompt, Verdict, usable_tasks
from arc_refinery.domains.code.tasks import CodeTask, LeftOutRows, described
from arc_refinery.domains.code.wording import Wording, load_wording, save_wording
from arc_refinery.domains.domain import Answer, GradedAttempt, LeftOut, Question, Result
from arc_refinery.evaluation.metrics import Metric
from arc_refinery.programs import after_thought, last_program
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refining.config import Split
from arc_refinery.sandbox import Executor, Status


class Domain(domain.Domain):
    program_rewards = REWARDS
    task_class, prompt_class, verdict_class = CodeTask, Prompt, Verdict

    # Tasks

    def training_tables(
        self, problems: Problems, n_wanted: int, seed: int, n_jobs: int, left_out: LeftOut, sandbox: Sandbox
    ) -> Iterator[pa.Table]:
        yield from records.tables(CodeTask, self._usable(problems, sandbox, n_jobs, left_out.problems))

    def tasks_of_set(
        self, task_set: TaskSet, left_out: Counter[str], sandbox: Sandbox, split: Split
    ) -> Iterator[CodeTask]:
        return self._usable(task_set, sandbox, 1, left_out, task_set.first_row)

    def _usable(
        self, source: Problems | TaskSet, sandbox: Sandbox, n_jobs: int, counts: Counter[str], first_row: int = 0
    ) -> Iterator[CodeTask]:
        """Yield the tasks whose own programs pass; count other rows by reason, and name the first ones."""
        path, n_shown, n_wanted = Path(source.path or source.source), source.n_shown_tests, source.n_tasks
        n_pairs, n_revealed = (first_row + int(n_wanted or 0)) // 2, source.n_revealed
        rows = two_rules.rows(n_pairs, source.seed) if source.source == two_rules.NAME else None
        left_out: LeftOutRows = {}
        with self.executors(sandbox, n_jobs) as executors:
            try:
                yield from usable_tasks(path, n_shown, executors, left_out, first_row, n_wanted, n_revealed, rows)  # type: ignore[arg-type]
            finally:  # also if only the first ones are wanted
                counts.update(described(left_out))

    def same_tasks(self, sets: Mapping[str, Iterable[CodeTask]]) -> Callable[[CodeTask], dict[tuple[str, str], str]]:
        known = KnownTasks(((name, task.task_id), task.identity) for name, tasks in sets.items() for task in tasks)

        def same_as(task: CodeTask) -> dict[tuple[str, str], str]:
            return {key: "id" if by == "task_id" else "content" for key, by in known.same_as(task.identity).items()}

        return same_as

    # Prompts

    def wording(self, template: str, form: str) -> Wording:
        return load_wording(template or PLAIN, form or FORMS[0])

    wording_files = tuple(f"{text}.txt" for text in TEXTS)

    def save_wording(self, texts: Wording, folder: Path) -> None:
        save_wording(texts, folder)

    def texts(self, texts: Wording) -> dict[str, str]:
        return texts.texts()

    def first_turn(self, task: CodeTask, rng: np.random.Generator, own: None, texts: Wording) -> Question:
        return Question(wording.first_turn(task, texts), task)

    def feedback(self, prompt: Prompt, grade: CodeGrade, texts: Wording) -> str:
        return feedback.feedback(grade, texts)

    def stale(self, prompt: Prompt, grade: CodeGrade) -> CodeGrade | None:
        passed = next((test for test in grade.revealable if test.outcome == AssertOutcome.passed), None)
        return None if passed is None else replace(grade, stale=passed)

    def fresh(self, parent: GradedAttempt, texts: Wording) -> Question:
        task = parent.prompt.detail
        revealed = feedback.revealed(self.grade_of(parent), texts)
        shown = (*task.shown, revealed.test) if revealed else task.shown
        return Question(wording.first_turn(replace(task, shown=shown), texts), task)

    def no_feedback(self, texts: Wording) -> str:
        return texts.correct

    # Grading

    failures_to_refine, n_executors = FAILURES_TO_REFINE, 3

    def program(self, text: str, task: CodeTask) -> str | None:
        return grading.program(text, task)

    def has_closed_code(self, text: str) -> bool:
        return text.count("```") % 2 == 0 and last_program(after_thought(text), ()) is not None

    def grade(self, answers: Sequence[Answer], executors: Any) -> Generator[CodeGrade, None, None]:
        return grading.grade(answers, executors)

    def result(self, grade: CodeGrade, attempt: Any, task: CodeTask) -> Result:
        return Result(grade.score, grade.is_solved, grade.fingerprint, grade.detail)

    def grade_of(self, graded: GradedAttempt) -> CodeGrade:
        verdict = graded.verdict
        return CodeGrade(verdict.status, verdict.error, None, verdict.detail.shown, verdict.detail.revealable)

    # Metrics

    columns = ("passed", "shown_passed", "hidden_passed", "shown_raised")
    flags = (*domain.Domain.flags, "raised")

    def derive(self, attempts: pd.DataFrame) -> pd.DataFrame:
        """Add whether the program raised, also if only a call of a shown test did."""
        raised = (attempts["status"] == Status.error) | (attempts["shown_raised"] > 0)
        return super().derive(attempts).assign(raised=raised)

    metrics = (
        Metric("tests passed", "passed", is_of_turns=True),
        Metric("shown tests passed", "shown_passed"),
        Metric("hidden tests passed", "hidden_passed"),
        Metric("passes shown", "shown_solved"),
        Metric("shown_is_correct", "shown_solved", is_any=True),
    )
    metrics_explained = (
        "- A program that raises an exception in a test has valid outputs, too; one that fails before it is called, or "
        "is stopped, has none. Outputs are what it gives on the shown tests.\n"
        "- **tests passed**: share of a task's tests that an attempt passes, 0 if it has no program; **shown tests "
        "passed**, **hidden tests passed**: of those that the prompt shows or feedback may reveal, and of the others; "
        "**passes shown**: attempts that pass all shown tests.\n"
        "- **shown_is_correct**: tasks with an attempt that passes all shown tests; **solved**: tasks with one that "
        "passes all tests."
    )

    # Report

    language = "python"
    checks, shown, hidden = "tests", "shown tests", "hidden tests"
    outcomes = (
        "*correct*: passes all tests; *shown tests only*: passes all shown tests, not all hidden ones; *wrong*: ran, "
        "but fails a shown test; errors of programs that could not be called, by type."
    )

    def verdict_lines(self, graded: GradedAttempt) -> Iterator[str]:
        verdict, detail = graded.verdict, graded.verdict.detail
        if verdict.status == NO_CODE:
            yield "no program in the answer"
            return
        if verdict.status != Status.ok:
            yield verdict.error or verdict.status
        n_hidden_passed = round(detail.hidden_passed * detail.n_hidden)
        n_passed = sum(test.outcome == AssertOutcome.passed for test in detail.visible)
        shown = "shown or revealable" if detail.revealable else "shown"
        yield (
            f"passes {n_passed} of {len(detail.visible)} {shown} tests and {n_hidden_passed} of {detail.n_hidden} "
            "hidden tests"
        )
        for test in detail.visible:
            if test.outcome != AssertOutcome.passed:
                gave = ", ".join(f"{value.call} gave {value.value}" for value in test.values)
                yield f"  {test.test}: {'; '.join(filter(None, [gave, test.error])) or test.outcome}"

    # With tools

    def correct(self, task: CodeTask) -> str:
        return "\n".join(task.tests)

    def final_answer(self, task: CodeTask) -> str | None:
        return f"```python\n{task.reference.strip()}\n```" if task.reference else None

    def trial(self, task: CodeTask) -> tuple[str, str] | None:
        suite = task.suite(task.tests)
        calls = plan(suite.asserts, suite.reference).calls if task.reference and not task.is_script else ()
        code = "\n".join(filter(None, [*task.imports, task.setup, task.reference.strip()]))
        return (f"{code}\n\n{calls[0]}", calls[0]) if calls else None

    # Demonstrations

    def source_answers(
        self, tasks: Iterable[CodeTask], texts: Wording, executors: tuple[Executor, ...]
    ) -> dict[str, str]:
        return {task.task_id: answer for task in tasks if (answer := self.final_answer(task))}
