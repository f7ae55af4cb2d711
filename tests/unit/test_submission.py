"""Two guesses by vote: who votes first, how ties end, the substitutes, and the form of Kaggle's file."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
from factories import make_grid, make_task, make_verdict
from messages import Wording

from arc_refinery import records
from arc_refinery.arc.grids import as_grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.cli.results import Submission
from arc_refinery.domains.arc.records import Verdict
from arc_refinery.domains.arc.submission import Ballot, count_votes, make_submission, score
from arc_refinery.errors import InputError

INPUT = make_grid("00")
SOLVES = (1.0, 1.0)  # share of correct train grids, train pixel score


def a_task(*truths: int, task_id: str = "t") -> Task:
    """A task of these test outputs, one cell each."""
    test = tuple(Pair(INPUT, make_grid(str(color))) for color in truths)
    return make_task(task_id, train=(Pair(INPUT, INPUT),), test=test)


def verdict(outputs: tuple[int, ...], train: tuple[float, float], task_id: str = "t") -> Verdict:
    grids = tuple(make_grid(str(color)) for color in outputs)
    return make_verdict(
        task_id=task_id,
        status="ok" if outputs else "error",
        train_outputs=grids[:1],
        test_outputs=grids,
        train_pixel_score=train[1],
        train_correct_grids=train[0],
    )


def write_verdicts(path: Path, *verdicts: Verdict) -> Path:
    named = (replace(verdict, attempt_id=f"{path.stem}/{number}") for number, verdict in enumerate(verdicts))
    records.write(path, Verdict, named, 0, {})
    return path


def guesses(ballot: Ballot) -> list[int]:
    return [int(guess[0, 0]) for guess in ballot.leaders(2)]


def poll(*votes: tuple[int, float, int]) -> Ballot:
    """A ballot of attempts that gave a color, with their share of correct train grids and length, in this order."""
    ballot = Ballot()
    for color, share, length in votes:
        ballot.add(make_grid(str(color)), (share, length))
    return ballot


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([(1, 1.0, 9), (2, 1.0, 9), (3, 1.0, 9), (3, 1.0, 9), (2, 1.0, 9)], [2, 3]),  # votes; ties: met first
        ([(1, 0.5, 5)] * 9 + [(2, 1.0, 90)], [2, 1]),  # one of a higher train score outvotes all of a lower one
        ([(1, 0.5, 5), (2, 1.0, 9), (1, 0.5, 5), (3, 1.0, 9)], [2, 3]),
        (
            [(1, 1.0, 30), (2, 1.0, 20), (3, 1.0, 10), (3, 0.5, 99)],
            [3, 2],
        ),  # the shorter program; lower scores: no part
        ([(1, 1.0, 10), (1, 1.0, 50), (2, 1.0, 29), (2, 1.0, 30)], [2, 1]),  # on average
        ([(1, 1.0, 9), (2, 0.5, 9), (2, 0.5, 9), (2, 1.0, 10)], [1, 2]),  # votes of a lower score do not count
        ([(1, 1.0, 9)] * 3, [1]),
        ([], []),
    ],
)
def test_the_vote(votes: list[tuple[int, float, int]], expected: list[int]):
    assert guesses(poll(*votes)) == expected


def test_grids_of_equal_cells_and_other_shapes_are_different_guesses():
    ballot = Ballot()
    for rows in ([[1, 1]], [[1], [1]]):
        ballot.add(as_grid(rows), (1.0, 40))
    assert [guess.shape for guess in ballot.leaders(2)] == [(1, 2), (2, 1)]


def test_each_test_input_is_voted_on_by_itself(tmp_path: Path):
    path = write_verdicts(tmp_path / "v.parquet", verdict((1, 5), SOLVES), verdict((2, 5), SOLVES))
    tasks = {"t": a_task(1, 5)}
    assert make_submission(tasks, count_votes([path], tasks)) == {
        "t": [{"attempt_1": [[1]], "attempt_2": [[2]]}, {"attempt_1": [[5]], "attempt_2": [[0, 0]]}]
    }


def test_votes_of_several_files_add_up_and_a_file_named_twice_counts_once(tmp_path: Path):
    first = write_verdicts(tmp_path / "1.parquet", verdict((1,), SOLVES))
    second = write_verdicts(tmp_path / "2.parquet", verdict((2,), SOLVES), verdict((3,), SOLVES))
    third = write_verdicts(tmp_path / "3.parquet", verdict((3,), SOLVES))
    (ballot,) = count_votes([first, first, first, second, third], {"t": a_task(1)})["t"]
    assert guesses(ballot) == [3, 1]


def test_tasks_without_valid_outputs_get_their_test_input_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
):
    caplog.set_level(logging.INFO)
    tasks = {name: a_task(1, task_id=name) for name in ("tried", "never tried", "guessed")}
    verdicts = [verdict((), (0.0, 0.0), "tried"), verdict((7,), (0.0, 0.1), "guessed")]
    result = make_submission(tasks, count_votes([write_verdicts(tmp_path / "v.parquet", *verdicts)], tasks))
    assert result["tried"] == result["never tried"] == [{"attempt_1": [[0, 0]], "attempt_2": [[0, 0]]}]
    assert result["guessed"] == [{"attempt_1": [[7]], "attempt_2": [[0, 0]]}]
    assert list(result) == ["tried", "never tried", "guessed"]
    (message,) = (message for message in caplog.messages if message.startswith("2 of 3 "))
    wording(message)


def test_verdicts_on_a_task_that_the_challenges_do_not_have_are_refused(tmp_path: Path, wording: Wording):
    path = write_verdicts(tmp_path / "v.parquet", verdict((), (0.0, 0.0), "other"))
    with pytest.raises(InputError) as caught:
        count_votes([path], {"t": a_task(1)})
    assert str(caught.value).startswith(f"{path}: ") and "task other" in str(caught.value)
    wording(caught.value)


def test_verdicts_with_another_number_of_test_outputs_are_refused(tmp_path: Path, wording: Wording):
    path = write_verdicts(tmp_path / "v.parquet", verdict((1,), SOLVES))
    with pytest.raises(InputError) as caught:
        count_votes([path], {"t": a_task(1, 2)})
    assert re.match(f"{path}: task t: .* 1 test outputs.* 2 test inputs", str(caught.value))
    wording(caught.value)


def test_the_score_counts_test_inputs_and_whole_tasks(wording: Wording):
    tasks = {"both": a_task(1, 2, task_id="both"), "half": a_task(3, 4, task_id="half"), "none": a_task(5)}
    submission = {
        "both": [{"attempt_1": [[1]], "attempt_2": [[9]]}, {"attempt_1": [[9]], "attempt_2": [[2]]}],
        "half": [{"attempt_1": [[3]], "attempt_2": [[3]]}, {"attempt_1": [[3]], "attempt_2": [[9]]}],
        "none": [{"attempt_1": [[5, 5]], "attempt_2": [[0]]}],
    }
    result = score(submission, tasks)
    assert (result.n_right, result.n_inputs, result.n_solved, result.n_tasks) == (3, 5, 1, 3)
    assert "60.00 %" in str(result)
    wording(result)


def test_the_command_writes_the_file_and_prints_the_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wording: Wording
):
    challenges, solutions = tmp_path / "challenges.json", tmp_path / "solutions.json"
    pairs = [{"input": [[0, 0]], "output": [[0, 0]]}]
    challenges.write_text(json.dumps({name: {"train": pairs, "test": [{"input": [[0, 0]]}]} for name in "ab"}))
    solutions.write_text(json.dumps({"a": [[[4]]], "b": [[[5]]]}))
    path = write_verdicts(tmp_path / "v.parquet", *(verdict((color,), SOLVES, "a") for color in (3, 3, 4)))
    Submission(verdicts=(path,), challenges=challenges, output=tmp_path / "out.json", solutions=solutions).run()
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "a": [{"attempt_1": [[3]], "attempt_2": [[4]]}],
        "b": [{"attempt_1": [[0, 0]], "attempt_2": [[0, 0]]}],
    }
    printed = capsys.readouterr().out
    assert "1 of 2 test inputs" in printed and "1 of 2 tasks" in printed
    wording(printed)


def test_solutions_are_not_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    challenges = tmp_path / "challenges.json"
    challenges.write_text(json.dumps({"t": {"train": [{"input": [[1]], "output": [[1]]}], "test": [{"input": [[1]]}]}}))
    path = write_verdicts(tmp_path / "v.parquet", verdict((3,), SOLVES))
    Submission(verdicts=(path,), challenges=challenges, output=tmp_path / "out.json").run()
    assert (tmp_path / "out.json").exists()
    assert capsys.readouterr().out == ""
