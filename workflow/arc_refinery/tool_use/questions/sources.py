"""Questions of a set, from the generator or a file."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from arc_refinery.asserts.run import AssertOutcome, AssertsReport, run_asserts
from arc_refinery.asserts.split import canonical_form
from arc_refinery.errors import InputError
from arc_refinery.models.hub import FETCH_FIRST
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.questions.data import (
    MBPP_ID,
    SHOWN_TEST,
    gsm8k_question,
    mbpp_question,
    questions_from_file,
    text_question,
)
from arc_refinery.tool_use.questions.depot import depot_row
from arc_refinery.tool_use.questions.generator import QuestionSplit, gsm8k_row, mbpp_row

_ROW_NUMBER = re.compile(r"-\d{6}$", re.ASCII)
_DASHES = re.compile("[‐‑‒–—−]")
# marks beside a digit may be part of a number, and hyphens between digits of a calculation
_PUNCTUATION = re.compile(r"""[.,:](?!\d)|(?<!\d)[.,:]|[;!?"'`“”‘’«»´]|(?<=[^\W\d])-(?=[^\W\d])""")


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
            return _generated(settings, split, seed)
        case "file":
            return questions_from_file(Path(str(settings.path)), settings.form)
        case "hub":
            raise InputError(f"{settings.name}: {FETCH_FIRST}")


def _generated(settings: Questions, split: QuestionSplit, seed: int) -> Iterator[Question]:
    seed = stream_seed(seed, settings.name)  # otherwise two sets would have the same questions
    for number in range(settings.n_questions or 0):
        level, name = settings.levels[number % len(settings.levels)], f"{number:06d}"
        match settings.form:
            case "gsm8k":
                yield gsm8k_question(gsm8k_row(level, split, seed, number), name, name)
            case "mbpp":
                yield replace(mbpp_question(mbpp_row(level, split, seed, number), name, name), question_id=name)
            case "text":
                yield text_question(depot_row(level, split, seed, number), name, name)


@dataclass(frozen=True, slots=True)
class CheckedQuestions:
    """Questions whose reference passes its asserts, and reports on the others, by question id."""

    questions: list[Question]
    failing: dict[str, str]  # why the reference does not pass
    unchecked: dict[str, str]  # why some asserts of a question in `questions` cannot be checked


def with_valid_reference(questions: Sequence[Question], candidates: Executor, graders: Executor) -> CheckedQuestions:
    """Keep the questions whose reference program passes its asserts.

    With the others, correct and wrong programs could not be distinguished, and GRPO would learn nothing.
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
    valid = [question for question in questions if question.question_id not in failing]
    return CheckedQuestions(valid, failing, unchecked)


def _problem(report: AssertsReport) -> str:
    """Return what is wrong with the first assert that a reference does not pass, those first that it fails."""
    wrong = [(n, result) for n, result in enumerate(report.asserts, 1) if result.outcome is not AssertOutcome.passed]
    wrong.sort(key=lambda both: both[1].outcome is AssertOutcome.unsupported)
    return next((f"assert {n}: {result.outcome}: {result.reason}" for n, result in wrong), "")


def without_heldout(
    questions: Sequence[Question], heldout: Iterable[Question]
) -> tuple[list[Question], dict[str, int]]:
    """Return the questions that are not held out, and the number of the others by reason.

    Held out are questions with the `task_id` of a held-out one (MBPP's full and sanitized rows have one, and different
    words), with its text except for case, white space and punctuation, or with its asserts, or some of them.
    """
    task_ids: set[str] = set()
    texts: set[str] = set()
    by_assert: dict[str, list[frozenset[str]]] = {}
    for question in heldout:
        task_ids |= _task_id(question)
        texts.add(_plain_words(question))
        asserts = _assert_texts(question)
        for statement in asserts:
            by_assert.setdefault(statement, []).append(asserts)

    def reason(question: Question) -> str | None:
        if _task_id(question) & task_ids:
            return "held out, by task_id"
        if _plain_words(question) in texts:
            return "held out, by text"
        asserts = _assert_texts(question)
        others = [other for statement in asserts for other in by_assert.get(statement, ())]
        if any(asserts == other or len(asserts & other) == min(len(asserts), len(other)) > 1 for other in others):
            return "held out, by asserts"
        return None

    reasons = [reason(question) for question in questions]
    remaining = [question for question, why in zip(questions, reasons, strict=True) if why is None]
    return remaining, dict(Counter(filter(None, reasons)))


def _task_id(question: Question) -> set[str]:
    """Return the id that a row of MBPP has of its own; empty if its id is its number in the file."""
    name = question.question_id.rpartition("/")[2]
    has_one = name.startswith(MBPP_ID) and not _ROW_NUMBER.search(name)
    return {name.removeprefix(MBPP_ID)} if has_one else set()


def _plain_words(question: Question) -> str:
    """Return a question's text without differences in case, white space and punctuation; what calculates is kept.

    Neither the test that MBPP's are shown with nor characters that cannot be seen are a part of it.
    """
    text = question.text.partition(SHOWN_TEST)[0] if question.asserts else question.text
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    text = _DASHES.sub("-", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_PUNCTUATION.sub(" ", text).split())


def _assert_texts(question: Question) -> frozenset[str]:
    return frozenset(map(canonical_form, question.asserts.statements if question.asserts else ()))
