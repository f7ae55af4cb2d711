"""Questions are tasks of a domain: how they are asked and graded, what tools have of them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from arc_refinery.config.loading import domain_sources
from arc_refinery.domains.domain import Domain, load_domain
from arc_refinery.files import content_hash
from arc_refinery.records.tool_use import Question

domain_of = cache(load_domain)


def question_of(domain: Domain, task: Any) -> Question:
    with domain.calling("asked", task.task_id):
        return Question(task.task_id, domain.asked(task), domain.package, domain.to_json(task))


def subject_of(question: Question) -> tuple[Domain, Any]:
    """Return the domain and the task of a question."""
    domain = domain_of(question.domain)
    return domain, domain.from_json(question.task)


def setup_of(question: Question) -> tuple[str, str]:
    """Return the code that a tool runs before the model's, and what it defines in words; both may be empty."""
    domain, task = subject_of(question)
    return domain.tool_setup(task), domain.given_to_tools


def modules_hash(questions: Iterable[Question]) -> dict[str, str]:
    """Return a hash of the modules of each domain of the user's own, by its name, for settings."""
    sources = {name: domain_sources(name) for name in {question.domain for question in questions}}
    return {f"domain {name}": content_hash(paths) for name, paths in sorted(sources.items()) if paths}
