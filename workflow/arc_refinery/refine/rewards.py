"""Rewards: pure functions of what executing an answer gave on all pairs of its task, train and test pooled."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from arc_refinery.grids import Grid
from arc_refinery.metrics import correct_grids, mean_pixel_score
from arc_refinery.prompts import extract_code
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Outcome, Program, Status


@dataclass(frozen=True, slots=True)
class Graded:
    """What executing one answer gave."""

    status: str  # no_code, or the sandbox's verdict
    error: str = ""
    outputs: tuple[Grid, ...] = ()  # one for each pair; empty unless status is ok
    correct_grids: float = 0.0  # share of the pairs
    pixel_score: float = 0.0  # mean over the pairs

    @property
    def is_valid(self) -> bool:
        return self.status == Status.ok

    @property
    def is_solved(self) -> bool:
        return self.correct_grids == 1.0


def arc_v1(graded: Graded) -> float:
    """1 + 8 x share of correct grids + pixel score, 0..10; 0 where the outputs are not all valid."""
    return 1.0 + 8.0 * graded.correct_grids + graded.pixel_score if graded.is_valid else 0.0


def arc_v2_no_pixel_score(graded: Graded) -> float:
    """1 + 9 x share of correct grids, 0..10; 0 where the outputs are not all valid."""
    return 1.0 + 9.0 * graded.correct_grids if graded.is_valid else 0.0


def staged(graded: Graded) -> float:
    """1 for code, 1 for code that runs to valid outputs, and the share of correct grids: 0..3."""
    return float(graded.status != NO_CODE) + float(graded.is_valid) + graded.correct_grids


REWARDS: dict[str, Callable[[Graded], float]] = {
    "arc-v1": arc_v1,
    "arc-v2-no-pixel-score": arc_v2_no_pixel_score,
    "staged": staged,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, and the pairs that its program is executed on."""

    text: str
    inputs: tuple[Grid, ...]
    truths: tuple[Grid, ...]


def grade(answers: Sequence[Answer], executor: Executor) -> list[Graded]:
    """Execute all answers in one batch. That a program fails is its grade; that the sandbox fails is an exception."""
    codes = [extract_code(answer.text) for answer in answers]
    outcomes = executor.run(_programs(codes, answers))
    return [
        Graded(NO_CODE) if code is None else _graded(next(outcomes), answer.truths)
        for code, answer in zip(codes, answers, strict=True)
    ]


def _programs(codes: Iterable[str | None], answers: Sequence[Answer]) -> Iterator[Program]:
    for number, (code, answer) in enumerate(zip(codes, answers, strict=True)):
        if code is not None:
            yield Program(str(number), code, answer.inputs)


def _graded(outcome: Outcome, truths: Sequence[Grid]) -> Graded:
    if outcome.status is not Status.ok:
        return Graded(str(outcome.status), outcome.error)
    outputs = outcome.outputs
    return Graded(str(outcome.status), "", outputs, correct_grids(outputs, truths), mean_pixel_score(outputs, truths))
