"""Rewards of answers: 1 if correct, else 0. Pure functions, except for the sandbox that runs programs.

gsm8k        the answer's number equals the reference exactly (answers.py: which number counts)
exact_match  the marked answer, or the whole text, equals the reference up to case, white space and outer punctuation
arc          the program's outputs for the tests, or the answer's grids, equal the puzzle's
code_exec    the program (programs.py: which block) passes all asserts that can be checked (asserts/run.py)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from arc_refinery.asserts.run import AssertsReport, run_asserts
from arc_refinery.asserts.split import called_names
from arc_refinery.programs import tested_program
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor, Program
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.grading.answers import final_number, final_text, normalized
from arc_refinery.tool_use.grading.puzzles import grids_of, is_right, program_of, puzzle_of


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """Grade of an episode's last turn."""

    reward: float
    answer: str  # compared with the reference; empty if there is no answer
    report: AssertsReport | None = None  # for code_exec


def grade_episodes(
    turns: Sequence[str],
    questions: Sequence[Question],
    candidates: Executor,
    graders: Executor,
    call_format: CallFormat = HERMES,
) -> list[EpisodeGrade]:
    """Grade the last turns of episodes, without their thinking; a turn with a call is not an answer.

    The executors are those of `run_asserts`, for questions of kind `code_exec`. A failing answer is a grade; a failing
    sandbox raises.
    """
    answers = [parse_turn(turn, call_format).answer for turn in turns]
    indices = [index for index, question in enumerate(questions) if question.kind == "code_exec"]
    tested: dict[int, tuple[str | None, AssertsReport]] = {}
    if indices:
        suites = [questions[index].suite for index in indices]
        programs = [
            final_program(answers[index] or "", suite.asserts.statements)
            for index, suite in zip(indices, suites, strict=True)
        ]
        reports = run_asserts(programs, suites, candidates, graders)
        tested = dict(zip(indices, zip(programs, reports, strict=True), strict=True))
    both = list(zip(answers, questions, strict=True))
    of_puzzles = _puzzle_grades([(answer or "", one) for answer, one in both if one.kind == "arc"], candidates)
    return [
        next(of_puzzles) if question.kind == "arc" else _grade(answer, question, *tested.get(index, (None, None)))
        for index, (answer, question) in enumerate(both)
    ]


def _puzzle_grades(answered: Sequence[tuple[str, Question]], executor: Executor) -> Iterator[EpisodeGrade]:
    """Yield the grades of answers to ARC's puzzles: by a program's outputs, or the grids of an answer without one."""
    programs = [program_of(answer) for answer, _ in answered]
    tests = [puzzle_of(question).test for _, question in answered]
    outcomes = executor.run(
        Program("", program, tuple(pair.input for pair in pairs))
        for program, pairs in zip(programs, tests, strict=True)
        if program is not None
    )
    for (answer, _), program, pairs in zip(answered, programs, tests, strict=True):
        outputs = grids_of(answer, len(pairs)) if program is None else next(outcomes).outputs
        shown = program or "\n\n".join("\n".join("".join(map(str, row)) for row in grid.tolist()) for grid in outputs)
        yield EpisodeGrade(float(is_right(outputs, pairs)), shown)


def _grade(answer: str | None, question: Question, program: str | None, report: AssertsReport | None) -> EpisodeGrade:
    if answer is None:
        return EpisodeGrade(0.0, "", report)
    match question.kind:
        case "gsm8k":
            number = final_number(answer)
            is_right = number is not None and number == final_number(f"#### {question.reference}")
            return EpisodeGrade(float(is_right), "" if number is None else str(number))
        case "exact_match":
            text, wanted = final_text(answer), normalized(question.reference)
            return EpisodeGrade(float(bool(wanted) and text == wanted), text)
        case "code_exec":
            assert report is not None
            return EpisodeGrade(float(report.is_passed), program or "", report)
        case "arc":
            raise AssertionError("puzzles are graded by their grids")


def final_program(text: str, asserts: Iterable[str] = ()) -> str | None:
    """Return the program of an answer, without its own tests: the last block that defines what the asserts call.

    None without a block. programs.py has the rule.
    """
    return tested_program(text, called_names(asserts))
