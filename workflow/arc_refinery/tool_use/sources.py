"""The questions of one set, from the generator or a file, checked."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from arc_refinery.config import Questions
from arc_refinery.errors import InputError
from arc_refinery.hub import FETCH_FIRST
from arc_refinery.records.questions import Question
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.code_exec import run_asserts
from arc_refinery.tool_use.data import gsm8k_question, mbpp_question, read_questions
from arc_refinery.tool_use.generator import Split, gsm8k_row, mbpp_row


def questions_of(settings: Questions, split: Split, seed: int) -> Iterator[Question]:
    """The questions of a set, called `<set>/<row>`. `split` says which side the generator's are on.

    Raises `InputError` where two rows have one name: their episodes could not be told apart.
    """
    names: set[str] = set()
    for question in islice(_rows(settings, split, seed), settings.n_questions):
        if question.question_id in names:
            raise InputError(f"{settings.name}: two rows are called {question.question_id}; give each its own task_id")
        names.add(question.question_id)
        yield replace(question, question_id=f"{settings.name}/{question.question_id}")


def _rows(settings: Questions, split: Split, seed: int) -> Iterator[Question]:
    match settings.source:
        case "generator":
            return _generated(settings, split, seed)
        case "file":
            return read_questions(Path(str(settings.path)), settings.form)
        case "hub":
            raise InputError(f"{settings.name}: {FETCH_FIRST}")


def _generated(settings: Questions, split: Split, seed: int) -> Iterator[Question]:
    seed = stream_seed(seed, settings.name)  # else two sets would have the same questions
    for number in range(settings.n_questions or 0):
        level, name = settings.levels[number % len(settings.levels)], f"{number:06d}"
        if settings.form == "gsm8k":
            yield gsm8k_question(gsm8k_row(level, split, seed, number), name, name)
        else:
            yield replace(mbpp_question(mbpp_row(level, split, seed, number), name, name), question_id=name)


def answerable(
    questions: Sequence[Question], candidates: Executor, graders: Executor
) -> tuple[list[Question], list[str]]:
    """The questions whose own reference program passes its asserts, and the ids of the others.

    A program that is right could not be told from a wrong one: GRPO would learn nothing from them.
    """
    tested = [one for one in questions if one.kind == "code_exec"]
    bad: list[str] = []
    for question in tqdm(tested, unit="question", mininterval=5, desc="reference programs", disable=not tested):
        (report,) = run_asserts([question.reference], [question], candidates, graders)
        if not report.is_passed:
            bad.append(question.question_id)
    left_out = set(bad)
    return [one for one in questions if one.question_id not in left_out], bad


def apart(questions: Sequence[Question], heldout: Iterable[Question]) -> list[Question]:
    """The questions whose texts are not held out."""
    texts = {question.text for question in heldout}
    return [question for question in questions if question.text not in texts]
