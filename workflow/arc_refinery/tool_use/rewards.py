"""What answers earn: 1 for a right one, 0 for any other. Pure functions, but for the sandbox that runs programs.

gsm8k        the number that the answer gives equals the reference, exactly (answers.py: which number counts)
exact_match  the marked answer, or the whole text, equals the reference but for case, white space and marks around it
code_exec    the last block of Python passes all asserts that can be checked (code_exec.py)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from arc_refinery.prompts import extract_code
from arc_refinery.records.questions import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.answers import final_number, final_text, normalized
from arc_refinery.tool_use.code_exec import Report, run_asserts
from arc_refinery.tool_use.turns import parse_turn


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """What an episode's last turn earned."""

    reward: float
    answer: str  # what was held against the reference; empty where there is no answer
    report: Report | None = None  # of code_exec


def gsm8k(text: str, reference: str) -> float:
    """Whether the number that a text gives as its answer is the reference."""
    number = final_number(text)
    return float(number is not None and number == final_number(f"#### {reference}"))


def exact_match(text: str, reference: str) -> float:
    """Whether the text that is given as the answer is the reference."""
    wanted = normalized(reference)
    return float(bool(wanted) and final_text(text) == wanted)


def grade_episodes(
    turns: Sequence[str], questions: Sequence[Question], candidates: Executor | None, graders: Executor | None
) -> list[EpisodeGrade]:
    """Grade the last turns of episodes, as the model wrote them: thinking is left out, a turn with a call is no answer.

    The executors are needed where there are questions of kind `code_exec` (`run_asserts` says which is which). That an
    answer fails is its grade; that the sandbox fails is an exception.
    """
    answers = [parse_turn(turn).answer for turn in turns]
    indices = [index for index, question in enumerate(questions) if question.kind == "code_exec"]
    reports: dict[int, Report] = {}
    if indices:
        if candidates is None or graders is None:
            raise ValueError("questions of kind code_exec need executors")
        programs = [extract_code(answers[index] or "") for index in indices]
        asked = [questions[index] for index in indices]
        reports = dict(zip(indices, run_asserts(programs, asked, candidates, graders), strict=True))
    return [
        _graded(answer, question, reports.get(index))
        for index, (answer, question) in enumerate(zip(answers, questions, strict=True))
    ]


def _graded(answer: str | None, question: Question, report: Report | None) -> EpisodeGrade:
    if answer is None:
        return EpisodeGrade(0.0, "", report)
    match question.kind:
        case "gsm8k":
            number = final_number(answer)
            return EpisodeGrade(gsm8k(answer, question.reference), "" if number is None else str(number))
        case "exact_match":
            return EpisodeGrade(exact_match(answer, question.reference), final_text(answer))
        case "code_exec":
            assert report is not None
            return EpisodeGrade(float(report.is_passed), extract_code(answer) or "", report)
