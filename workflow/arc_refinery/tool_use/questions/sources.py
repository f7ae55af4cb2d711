"""Questions of a set: tasks of a domain."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from arc_refinery.asserts.rows import plain_words
from arc_refinery.config import Sandbox
from arc_refinery.records.tool_use import Question
from arc_refinery.refining.config import Split
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.grading.domains import domain_of, question_of, subject_of


def questions_of(
    settings: Questions, split: Split, sandbox: Sandbox | None = None, left_out: Counter[str] | None = None
) -> Iterator[Question]:
    """Yield the questions of a set, with the ids `<set>/<row>`; `left_out` counts by reason what gives no question."""
    domain = domain_of(settings.domain)
    tasks = domain.all_of_set(settings, Counter() if left_out is None else left_out, sandbox or Sandbox(), split)
    for question in (question_of(domain, task) for task in tasks):
        yield replace(question, question_id=f"{settings.name}/{question.question_id}")


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
