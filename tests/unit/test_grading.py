"""Verdicts, with the real sandbox: what is executed, what it is compared with, in whose form outputs are kept."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import pytest
from factories import ARC, make_attempt, make_grid, make_prompt, make_task

from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.records import Attempt, Outputs, Verdict
from arc_refinery.refining.grading import ATTEMPTS_AT_ONCE, grade_attempts
from arc_refinery.sandbox import Executor

# The rule: mirror left and right, then blue (1) becomes red (2).
MIRROR = make_task(
    "mirror",
    train=(
        Pair(make_grid("123", "045"), make_grid("322", "540")),
        Pair(make_grid("10"), make_grid("02")),
        Pair(make_grid("6", "1"), make_grid("6", "2")),
    ),
    test=(Pair(make_grid("1789"), make_grid("9872")), Pair(make_grid("31", "30"), make_grid("23", "03"))),
)
SAME = make_task(
    "same",
    train=(Pair(make_grid("12", "34"), make_grid("12", "34")), Pair(make_grid("12", "34"), make_grid("10", "00"))),
    test=(Pair(make_grid("5"), make_grid("56", "65")),),
)
TASKS = {"mirror": MIRROR, "same": SAME}
# turned counter-clockwise, 1 -> 5, 2 -> 7, 5 -> 1, 7 -> 2
TURNED = Augmentation(n_rotations=1, transpose=False, colors=(0, 5, 7, 3, 4, 1, 6, 2, 8, 9))


def block(code: str) -> str:
    return f"Let me see.\n```python\nimport numpy as np\n\n{code}\n```\nThat is it."


def attempt(completion: str, task: Task = SAME, name: str = "a", **prompt: Any) -> Attempt:
    """An answer in the second turn."""
    prompt = {"prompt_id": "p", "turn": 2} | prompt
    return make_attempt(make_prompt(task, **prompt), attempt_id=name, completion=completion)


def verdicts_on(attempts: Iterable[Attempt], tasks: Mapping[str, Task], executor: Executor) -> Iterator[Verdict]:
    return cast(Iterator[Verdict], grade_attempts(ARC, attempts, tasks, (executor,)))


def correct(verdict: Verdict) -> tuple[bool, bool]:
    """Whether all train grids are right, and all test grids."""
    return verdict.detail.train_correct_grids == 1.0, verdict.detail.test_correct_grids == 1.0


def graded(executor: Executor, *attempts: Attempt) -> list[Verdict]:
    return list(verdicts_on(attempts, TASKS, executor))


IDENTITY_PROGRAM = block("def transform(grid):\n    return grid")


def test_verdicts_come_in_the_order_of_the_attempts(executor: Executor) -> None:
    codes = ["return grid", "return grid[:1]", "raise ValueError", "return grid.T", "return grid"]
    attempts = [attempt(block(f"def transform(grid): {code}"), name=str(n)) for n, code in enumerate(codes)]
    attempts.insert(2, attempt("no idea", name="nothing"))
    verdicts = graded(executor, *attempts)
    assert [verdict.attempt_id for verdict in verdicts] == ["0", "1", "nothing", "2", "3", "4"]
    assert [verdict.status for verdict in verdicts] == ["ok", "ok", "no_code", "error", "ok", "ok"]
    assert verdicts[1].detail.train_outputs[0].tolist() == [[1, 2]]
    assert verdicts[4].detail.train_outputs[0].tolist() == [[1, 3], [2, 4]]


def test_a_verdict_carries_the_names_of_its_attempt(executor: Executor) -> None:
    (verdict,) = graded(executor, attempt(IDENTITY_PROGRAM, name="n", prompt_id="q"))
    assert (verdict.attempt_id, verdict.prompt_id, verdict.task_id, verdict.turn) == ("n", "q", "same", 2)


def test_a_completion_without_a_program_is_no_code(executor: Executor) -> None:
    (verdict,) = graded(executor, attempt("def transform(grid): return grid"))
    assert (verdict.status, verdict.program_hash, verdict.error, verdict.fingerprint) == ("no_code", "", "", "")
    assert verdict.detail == Outputs((), (), 0.0, 0.0, 0.0, 0.0)
    assert (verdict.score, verdict.solved) == (0.0, False)


@pytest.mark.parametrize(
    ("answer", "closed"),
    [
        (IDENTITY_PROGRAM, True),
        (IDENTITY_PROGRAM.rpartition("```")[0], False),
        (f"{IDENTITY_PROGRAM}\nOr, shorter:\n```python\ndef transf", True),
        (IDENTITY_PROGRAM.replace("```python", "```"), False),
        ("no idea", False),
    ],
)
def test_the_published_valid_code_is_a_python_block_that_ends(executor: Executor, answer: str, closed: bool) -> None:
    (verdict,) = graded(executor, attempt(answer))
    assert verdict.has_closed_code == closed


def test_no_attempts_give_no_verdicts(executor: Executor) -> None:
    assert graded(executor) == []


def test_a_program_that_solves_the_task_as_it_was_shown_is_correct(executor: Executor) -> None:
    # mirroring left and right is mirroring up and down after a quarter turn; 1 and 2 are shown as 5 and 7
    code = "def transform(grid):\n    grid = np.flipud(grid)\n    return np.where(grid == 5, 7, grid)"
    (verdict,) = graded(executor, attempt(block(code), MIRROR, augmentation=TURNED, train_order=(2, 0, 1)))
    assert (verdict.status, correct(verdict)) == ("ok", (True, True))
    assert (verdict.score, verdict.solved) == (1.0, True)
    assert [out.tolist() for out in verdict.detail.train_outputs] == [pair.output.tolist() for pair in MIRROR.train]
    assert [out.tolist() for out in verdict.detail.test_outputs] == [pair.output.tolist() for pair in MIRROR.test]


def test_a_program_for_the_task_as_it_is_fails_where_another_form_was_shown(executor: Executor) -> None:
    code = "def transform(grid):\n    grid = np.fliplr(grid)\n    return np.where(grid == 1, 2, grid)"
    plain, shown_turned = graded(
        executor,
        attempt(block(code), MIRROR, prompt_id="plain"),
        attempt(block(code), MIRROR, prompt_id="turned", augmentation=TURNED),
    )
    assert correct(plain) == (True, True)
    assert correct(shown_turned) == (False, False)


def test_the_program_gets_the_inputs_as_they_were_shown(executor: Executor) -> None:
    # an exception carries out the first input: the third train pair's, turned and recoloured
    code = "def transform(grid):\n    raise ValueError(grid.tolist())"
    (verdict,) = graded(executor, attempt(block(code), MIRROR, augmentation=TURNED, train_order=(2, 0, 1)))
    assert verdict.error == "ValueError: [[6, 5]] (line 4)"


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("n_rotations", range(4))
def test_outputs_are_kept_in_the_original_form_under_every_symmetry(
    executor: Executor, n_rotations: int, transpose: bool
) -> None:
    form = Augmentation(n_rotations, transpose, (3, 1, 4, 0, 5, 9, 2, 6, 8, 7))
    order = (1, 2, 0)
    (verdict,) = graded(executor, attempt(IDENTITY_PROGRAM, MIRROR, augmentation=form, train_order=order))
    outputs = [out.tolist() for out in (*verdict.detail.train_outputs, *verdict.detail.test_outputs)]
    assert outputs == [pair.input.tolist() for pair in MIRROR.pairs]


def test_scores_of_a_wrong_program(executor: Executor) -> None:
    (verdict,) = graded(executor, attempt(IDENTITY_PROGRAM))
    # the first train pair is right, the second in 1 of 4 cells; the test's one cell in 1 of the 2 x 2 that are wanted
    assert verdict.detail.train_correct_grids == 0.5
    assert verdict.detail.train_pixel_score == pytest.approx((1 + 1 / 4) / 2)
    assert verdict.detail.test_correct_grids == 0.0
    assert verdict.detail.test_pixel_score == pytest.approx(1 / 4)
    assert (verdict.score, verdict.solved) == (0.5, False)


def test_a_program_may_be_right_on_the_test_pairs_alone(executor: Executor) -> None:
    code = "def transform(grid):\n    return [[5, 6], [6, 5]]"
    (verdict,) = graded(executor, attempt(block(code)))
    assert (verdict.detail.train_correct_grids, verdict.detail.test_correct_grids) == (0.0, 1.0)
    assert (verdict.score, verdict.solved) == (0.0, False)


def test_a_program_answers_hidden_pairs_too(executor: Executor) -> None:
    hidden = (Pair(make_grid("21"), make_grid("22")), Pair(make_grid("33"), make_grid("11")))
    task = replace(MIRROR, hidden=hidden)
    code = "def transform(grid):\n    grid = np.fliplr(grid)\n    grid[grid == 1] = 2\n    return grid"
    with_hidden, without = (
        next(verdicts_on([attempt(block(code), answered)], {"mirror": answered}, executor))
        for answered in (task, MIRROR)
    )
    assert [grid.tolist() for grid in with_hidden.detail.test_outputs[2:]] == [[[2, 2]], [[3, 3]]]
    assert (without.detail.test_correct_grids, with_hidden.detail.test_correct_grids) == (1.0, 3 / 4)
    assert [(verdict.score, verdict.solved) for verdict in (without, with_hidden)] == [(1.0, True), (1.0, False)]
    assert with_hidden.fingerprint == without.fingerprint  # it covers what the prompt shows: parents are chosen by it


def test_hidden_pairs_are_executed_in_the_form_of_the_prompt(executor: Executor) -> None:
    task = replace(SAME, hidden=(Pair(make_grid("57"), make_grid("57")),))
    turned = attempt(IDENTITY_PROGRAM, task, augmentation=TURNED, train_order=(1, 0))
    (verdict,) = verdicts_on([turned], {"same": task}, executor)
    assert verdict.detail.test_outputs[-1].tolist() == [[5, 7]]


def test_an_exception_is_reported_with_type_message_and_line(executor: Executor) -> None:
    code = "def transform(grid):\n    raise IndexError('too far')"
    (verdict,) = graded(executor, attempt(block(code)))
    # line 1 is the import, line 2 is empty, line 3 the def
    assert (verdict.status, verdict.error) == ("error", "IndexError: too far (line 4)")
    assert (verdict.detail.train_outputs, verdict.fingerprint, verdict.detail.train_pixel_score) == ((), "", 0.0)
    assert verdict.program_hash


def test_one_failing_input_leaves_no_outputs(executor: Executor) -> None:
    code = "def transform(grid):\n    return grid if grid.size > 1 else 1 / 0"
    (verdict,) = graded(executor, attempt(block(code)))
    assert (verdict.status, verdict.detail.train_outputs, verdict.detail.test_outputs) == ("error", (), ())
    assert verdict.error == "ZeroDivisionError: division by zero (line 4)"


def test_an_output_that_is_no_grid_is_invalid(executor: Executor) -> None:
    (verdict,) = graded(executor, attempt(block("def transform(grid):\n    return [[11]]")))
    assert verdict.status == "invalid_output"
    assert "11" in verdict.error


def test_equal_programs_give_equal_verdicts(executor: Executor) -> None:
    one, other, longer = graded(
        executor,
        attempt(IDENTITY_PROGRAM, name="a"),
        attempt(IDENTITY_PROGRAM, name="b"),
        attempt(IDENTITY_PROGRAM + "\nHope that helps.", name="c"),
    )
    for again in (other, longer):
        second, first = (repr(asdict(replace(verdict, attempt_id=""))) for verdict in (again, one))
        assert second == first


def test_equal_programs_on_equal_inputs_are_executed_once(executor: Executor) -> None:
    now = block("import time\ndef transform(grid): raise ValueError(time.time_ns())")
    attempts = [attempt(now, name=f"{prompt}{n}", prompt_id=prompt) for prompt in "pq" for n in range(3)]
    turned = attempt(now, name="turned", augmentation=TURNED)
    errors = [verdict.error for verdict in graded(executor, *attempts, turned)]
    assert len(set(errors[:6])) == 1
    assert errors[6] != errors[0]


def test_attempts_are_read_a_bounded_number_ahead(executor: Executor) -> None:
    taken = itertools.count()
    endless = (attempt("no program", name=str(number)) for number in taken)
    verdicts = verdicts_on(endless, TASKS, executor)
    assert [next(verdicts).status for _ in range(3)] == ["no_code"] * 3
    assert next(taken) == ATTEMPTS_AT_ONCE


def test_equal_programs_of_two_prompts_are_graded_on_their_own_tasks(executor: Executor) -> None:
    one, other = graded(
        executor, attempt(IDENTITY_PROGRAM, prompt_id="p"), attempt(IDENTITY_PROGRAM, MIRROR, prompt_id="q")
    )
    assert one.program_hash == other.program_hash
    assert one.fingerprint != other.fingerprint
    assert (len(one.detail.train_outputs), len(other.detail.train_outputs)) == (2, 3)


def test_equal_outputs_have_equal_fingerprints_and_others_not(executor: Executor) -> None:
    codes = ["return grid", "return grid + 0", "return grid.T"]
    same, too, other = graded(executor, *(attempt(block(f"def transform(grid): {code}")) for code in codes))
    assert same.fingerprint == too.fingerprint != other.fingerprint
    assert same.program_hash != too.program_hash


def test_a_fingerprint_does_not_depend_on_how_the_task_was_shown(executor: Executor) -> None:
    plain, turned = graded(
        executor,
        attempt(IDENTITY_PROGRAM, MIRROR, prompt_id="plain"),
        attempt(IDENTITY_PROGRAM, MIRROR, prompt_id="turned", augmentation=TURNED, train_order=(2, 1, 0)),
    )
    assert plain.fingerprint == turned.fingerprint
