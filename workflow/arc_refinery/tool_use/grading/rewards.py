"""Rewards of answers: 1 if the domain of the question says that its task is solved, hidden checks included, else 0."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arc_refinery.domains.domain import Answer
from arc_refinery.domains.grading import grades_of
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.grading.domains import domain_of, subject_of

Executors = tuple[Executor, ...]  # those of the domain `code`: for visible tests, for hidden ones, for comparisons


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """Grade of an episode's last turn."""

    reward: float
    answer: str  # what the domain found in the text; empty if there is no answer
    progress: float  # share of the hidden checks that are right; without such, the reward


def grade_episodes(
    turns: Sequence[str], questions: Sequence[Question], executors: Executors, call_format: CallFormat = HERMES
) -> list[EpisodeGrade]:
    """Grade the last turns of episodes, without their thinking; a turn with a call is not an answer.

    A failing answer is a grade; a failing sandbox raises.
    """
    both = list(zip((parse_turn(turn, call_format).answer for turn in turns), questions, strict=True))
    answered: dict[str, list[tuple[str, Question]]] = {}
    for text, question in both:
        if text is not None:
            answered.setdefault(question.domain, []).append((text, question))
    graded = {name: _graded(of_domain, executors) for name, of_domain in answered.items()}
    return [EpisodeGrade(0.0, "", 0.0) if text is None else next(graded[question.domain]) for text, question in both]


def _graded(answered: Sequence[tuple[str, Question]], executors: Executors) -> Iterator[EpisodeGrade]:
    """Yield the grades of answers to questions of one domain."""
    domain = domain_of(answered[0][1].domain)
    asked = [Answer(text, subject_of(question)[1]) for text, question in answered]
    names = [question.question_id for _, question in answered]
    grades = grades_of(domain, asked, executors[: domain.n_executors], names, is_final=True)
    for (text, _), grade in zip(answered, grades, strict=True):
        answer = text if grade.code is None and grade.is_valid else grade.code or ""
        yield EpisodeGrade(float(grade.is_solved), answer, float(grade.progress))
