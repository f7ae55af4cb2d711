"""Rewards of answers: 1 if correct, else 0.

gsm8k        the answer's number equals the reference exactly (answers.py: which number counts)
exact_match  the marked answer, or the whole text, equals the reference up to case, white space and outer punctuation
a domain     as the domain grades it, on hidden checks, too
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arc_refinery.domains.domain import Answer
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.grading.answers import final_number, final_text, normalized
from arc_refinery.tool_use.grading.domains import OWN, domain_of, subject_of

Executors = tuple[Executor, ...]  # those of the domain `code`: for visible tests, for hidden ones, for comparisons


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """Grade of an episode's last turn."""

    reward: float
    answer: str  # compared with the reference; empty if there is no answer
    progress: float  # share of the hidden checks that are right; without such, the reward


def grade_episodes(
    turns: Sequence[str], questions: Sequence[Question], executors: Executors, call_format: CallFormat = HERMES
) -> list[EpisodeGrade]:
    """Grade the last turns of episodes, without their thinking; a turn with a call is not an answer.

    A failing answer is a grade; a failing sandbox raises.
    """
    answers = [parse_turn(turn, call_format).answer for turn in turns]
    of_domains = {
        kind: _graded([(a or "", q) for a, q in zip(answers, questions, strict=True) if q.kind == kind], executors)
        for kind in {question.kind for question in questions} - {*OWN}
    }
    return [
        next(of_domains[question.kind]) if question.kind in of_domains else _grade(answer, question)
        for answer, question in zip(answers, questions, strict=True)
    ]


def _graded(answered: Sequence[tuple[str, Question]], executors: Executors) -> Iterator[EpisodeGrade]:
    """Yield the grades of answers to questions of one domain."""
    domain = domain_of(answered[0][1].kind)
    asked = [Answer(text, subject_of(question)[1]) for text, question in answered]
    with domain.calling("grade", answered[0][1].question_id):
        for grade in domain.grade_final(asked, executors[: domain.n_executors]):
            yield EpisodeGrade(float(grade.is_solved), grade.code or "", grade.progress)


def _grade(answer: str | None, question: Question) -> EpisodeGrade:
    if answer is None:
        return EpisodeGrade(0.0, "", 0.0)
    if question.kind == "gsm8k":
        number = final_number(answer)
        is_right = number is not None and number == final_number(f"#### {question.reference}")
        return EpisodeGrade(float(is_right), "" if number is None else str(number), float(is_right))
    text, wanted = final_text(answer), normalized(question.reference)
    is_right = bool(wanted) and text == wanted
    return EpisodeGrade(float(is_right), text, float(is_right))
