"""Kaggle's submission.json: two guesses for each test input, by vote among a task's attempts.

The vote is that of the published runs. Each attempt with valid outputs votes for its grid for each test input. Grids
are ranked by the share of correct train grids of their best attempts, then by the number of these, then by the mean
length of their programs, shorter first. The top two are the guesses; with fewer than two, the test input is submitted.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from arc_refinery import records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.records import Verdict
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write

ATTEMPTS = ("attempt_1", "attempt_2")  # Kaggle's keys of the two guesses
MATCHING = "give verdicts and challenges of the same tasks"

logger = logging.getLogger(__name__)

Vote = tuple[float, int]  # share of correct train grids, characters of the program
SubmissionContent = dict[str, list[dict[str, list[list[int]]]]]  # by task, one entry per test input


@dataclass(slots=True)
class Ballot:
    """Votes on one test input, by distinct grid (its shape and bytes)."""

    votes: dict[tuple[tuple[int, ...], bytes], list[Vote]] = field(default_factory=dict)

    def add(self, grid: Grid, vote: Vote) -> None:
        self.votes.setdefault((grid.shape, grid.tobytes()), []).append(vote)

    def leaders(self, n: int) -> list[Grid]:
        """Return the n grids that rank first, or all if there are fewer; ties go to the grid seen first."""
        ranked = sorted(self.votes, key=lambda key: _rank(self.votes[key]))
        return [np.frombuffer(cells, np.uint8).reshape(shape) for shape, cells in ranked[:n]]


def _rank(votes: Sequence[Vote]) -> tuple[float, int, float]:
    best = max(score for score, _ in votes)
    lengths = [length for score, length in votes if score == best]
    return -best, -len(lengths), fmean(lengths)


@dataclass(frozen=True, slots=True)
class Score:
    """Score of a submission, by test inputs (as Kaggle counts) and by whole tasks."""

    n_right: int  # test inputs with a correct guess
    n_inputs: int
    n_solved: int  # tasks with a correct guess for every test input
    n_tasks: int

    def __str__(self) -> str:
        return (
            f"score {100 * self.n_right / self.n_inputs:.2f} %: correct guesses for {self.n_right} of {self.n_inputs} "
            f"test inputs; {self.n_solved} of {self.n_tasks} tasks are solved"
        )


def count_votes(paths: Iterable[Path], tasks: Mapping[str, Task]) -> dict[str, list[Ballot]]:
    """Return the ballots of each task's test inputs. Verdicts are streamed; a file that is named twice counts once."""
    ballots = {task_id: [Ballot() for _ in task.test] for task_id, task in tasks.items()}
    for path, verdict in records.read_all(dict.fromkeys(paths), Verdict):
        if verdict.task_id not in ballots:
            raise InputError(f"{path}: grades task {verdict.task_id}, which is not in the challenges; {MATCHING}")
        on_task, outputs = ballots[verdict.task_id], verdict.detail.test_outputs
        if outputs and len(outputs) != len(on_task):
            raise InputError(
                f"{path}: task {verdict.task_id}: an attempt has {len(outputs)} test outputs, expected one for each of "
                f"the challenge's {len(on_task)} test inputs; {MATCHING}"
            )
        for ballot, grid in zip(on_task, outputs, strict=False):
            ballot.add(grid, (verdict.detail.train_correct_grids, verdict.program_length))
    return ballots


def make_submission(tasks: Mapping[str, Task], ballots: Mapping[str, Sequence[Ballot]]) -> SubmissionContent:
    """Return guesses for all test inputs, in task order; log the number of tasks without any valid output."""
    submission: SubmissionContent = {}
    for task_id, task in tasks.items():
        submission[task_id] = []
        for pair, ballot in zip(task.test, ballots[task_id], strict=True):
            guesses = [*ballot.leaders(len(ATTEMPTS)), *[pair.input] * len(ATTEMPTS)]
            submission[task_id].append({name: guess.tolist() for name, guess in zip(ATTEMPTS, guesses, strict=False)})
    n_without = sum(not any(ballot.votes for ballot in on_task) for on_task in ballots.values())
    logger.info("%d of %d tasks have no valid output: their test inputs are submitted", n_without, len(tasks))
    return submission


def write_submission(submission: SubmissionContent, path: Path) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(submission))


def score(submission: SubmissionContent, tasks: Mapping[str, Task]) -> Score:
    """Score the guesses against the tasks' test outputs."""
    right = {
        task_id: [
            any(np.array_equal(entry[name], pair.output) for name in ATTEMPTS)
            for entry, pair in zip(submission[task_id], task.test, strict=True)
        ]
        for task_id, task in tasks.items()
    }
    n_right, n_inputs = sum(map(sum, right.values())), sum(map(len, right.values()))
    return Score(n_right, n_inputs, sum(map(all, right.values())), len(tasks))
