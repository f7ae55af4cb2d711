"""Questions are tasks of a domain: how they are asked and graded, what tools have of them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from arc_refinery.config.loading import domain_sources
from arc_refinery.domains.domain import Domain, load_domain
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.records.tool_use import Question

MAX_EXECUTORS = 3  # of a domain, in tool use

domain_of = cache(load_domain)


def question_of(domain: Domain, task: Any) -> Question:
    """Return a task as a question; raises `InputError` for one that cannot be written, or asks nothing."""
    where = f"domain {domain.package}: {task.task_id}"
    if domain.n_executors > MAX_EXECUTORS:
        raise InputError(f"{where}: n_executors is {domain.n_executors}; expected {MAX_EXECUTORS} at most with tools")
    with domain.calling("asked", task.task_id):
        text = domain.asked(task)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: asked gives {text!r:.60}; expected a text")
    with domain.calling("to_json", task.task_id):
        written = domain.to_json(task)
        if domain.to_json(domain.from_json(written)) != written:
            raise InputError(f"{where}: to_json and from_json make another task of it; correct them, or its fields")
    return Question(task.task_id, text, domain.package, written)


def subject_of(question: Question) -> tuple[Domain, Any]:
    """Return the domain and the task of a question."""
    domain = domain_of(question.domain)
    with domain.calling("from_json", question.question_id):
        return domain, domain.from_json(question.task)


def ask(question: Question, member: str) -> Any:
    """Return what a member of the domain says of a question's task."""
    domain, task = subject_of(question)
    with domain.calling(member, question.question_id):
        return getattr(domain, member)(task)


def setup_of(question: Question) -> tuple[str, str]:
    """Return the code that a tool runs before the model's, and what it defines in words; both may be empty."""
    return ask(question, "tool_setup"), domain_of(question.domain).given_to_tools


def modules_hash(questions: Iterable[Question]) -> dict[str, str]:
    """Return a hash of the modules of each domain of the user's own, by its name, for settings."""
    sources = {name: domain_sources(name) for name in {question.domain for question in questions}}
    return {f"domain {name}": content_hash(paths) for name, paths in sorted(sources.items()) if paths}
