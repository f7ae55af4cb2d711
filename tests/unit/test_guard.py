"""The collapse guard's criteria, and which checkpoints are kept, by hand."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from arc_refinery.config import Guard
from arc_refinery.training import checkpoints
from arc_refinery.training.guard import Symptom, first_symptom, symptom
from arc_refinery.training.log import Journal

GUARD = Guard(window=3, max_truncated=0.5, max_repetition=0.5, min_reward=0.5)
WELL = {"reward": 4.0, "share/truncated": 0.1, "repetition": 0.05, "kl": 0.3, "loss": 0.1}


def steps(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": number} | WELL | changed for number, changed in enumerate(changes, 1)]


def near(value: float) -> Any:
    return pytest.approx(value)


def test_nothing_is_seen_on_a_healthy_run() -> None:
    noisy = steps(*({"reward": reward} for reward in (4, 1, 7, 3, 2, 5, 0, 6, 4, 3)))
    assert [symptom(noisy[:n], GUARD) for n in range(11)] == [None] * 11


@pytest.mark.parametrize(
    ("criterion", "figure", "values", "value"),
    [
        ("truncated", "share/truncated", (0.1, 0.4, 0.6, 0.9), (0.4 + 0.6 + 0.9) / 3),
        ("repetition", "repetition", (0.1, 0.5, 0.5, 0.6), 1.6 / 3),
    ],
)
def test_a_figure_over_its_limit_over_the_window(
    criterion: str, figure: str, values: tuple[float, ...], value: float
) -> None:
    run = steps(*({figure: one} for one in values))
    assert symptom(run[:3], GUARD) is None
    assert symptom(run, GUARD) == Symptom(4, criterion, near(value), 0.5)


def test_a_model_that_answers_alike_has_collapsed_unless_it_is_right() -> None:
    wrong, right = ({"share/zero_variance": 1.0, "share/solved": solved} for solved in (0.1, 0.9))
    assert symptom(steps(*[wrong] * 3), GUARD) == Symptom(3, "zero_variance", 1.0, 0.9)
    assert symptom(steps(*[right] * 3), GUARD) is None


def test_two_bad_steps_are_no_window() -> None:
    assert symptom(steps(*[{"share/truncated": 1.0}] * 2), GUARD) is None


def test_a_reward_below_half_of_what_it_was() -> None:
    run = steps(*({"reward": reward} for reward in (4, 5, 6, 5, 3, 2, 2)))
    assert symptom(run[:6], GUARD) is None  # (5 + 3 + 2) / 3 is not below half of 5
    assert symptom(run, GUARD) == Symptom(7, "reward", near(7 / 3), 0.5 * 5.0)


def test_a_training_that_continues_after_a_collapse_collapsed_at_its_first_step() -> None:
    run = steps(*({"reward": reward} for reward in (4, 5, 6, 5, 3, 2, 2, 1, 9, 9, 9)))
    assert symptom(run, GUARD) is None
    assert first_symptom(run, GUARD) == Symptom(7, "reward", near(7 / 3), 0.5 * 5.0)
    assert first_symptom(run[:6], GUARD) is None


def test_kl_is_looked_at_only_where_it_has_a_limit() -> None:
    run = steps(*[{"kl": 9.0}] * 4)
    assert symptom(run, GUARD) is None
    found = symptom(run, GUARD.model_copy(update={"max_kl": 1.0}))
    assert found == Symptom(4, "kl", 9.0, 1.0)


def test_a_loss_that_is_no_number_counts_at_once() -> None:
    found = symptom(steps({"loss": float("nan")}), GUARD)
    assert found is not None and (found.step, found.criterion) == (1, "loss")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for step in (2, 4, 6, 8, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}/trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-12").mkdir()  # half written
    (tmp_path / "settings.txt").write_text("0" * 16)
    return tmp_path


def test_the_newest_two_and_the_best_are_kept(work: Path) -> None:
    checkpoints.prune(work, {0: 9.0, 2: 3.0, 4: 5.0, 6: 5.0, 8: 1.0, 10: 0.0}, 1, 2, 10, window=1)
    assert list(checkpoints.steps_of(work)) == [4, 8, 10]
    assert checkpoints.best({2: 3.0, 4: 5.0, 6: 5.0}) == 4


def test_without_held_out_prompts_the_newest_two_are_kept(work: Path) -> None:
    checkpoints.prune(work, {}, 3, 2, 10, window=1)
    assert list(checkpoints.steps_of(work)) == [8, 10]


def test_what_an_interruption_saved_is_no_place_to_go_back_to(work: Path) -> None:
    """Else an interrupted training would end in other weights than one that was not."""
    shutil.move(work / "checkpoint-6", work / "checkpoint-7")
    assert checkpoints.planned(work, 2, 10) == [2, 4, 8, 10]
    assert checkpoints.planned(work, 4, 10) == [4, 8, 10]  # training ended there
    journal = Journal(work, GUARD, 1e-3, save_steps=2)
    journal.roll_back(Symptom(10, "kl", 9.0, 1.0), [])  # steps 8 to 10, the first of them sampled with weights 7
    assert list(checkpoints.steps_of(work)) == [2, 4]


def test_a_rollback_is_possible_with_a_window_of_many_checkpoints(work: Path) -> None:
    checkpoints.prune(work, {}, 0, 2, 10, window=5)
    assert list(checkpoints.steps_of(work)) == [4, 6, 8, 10]
    checkpoints.prune(work, {}, 0, 2, 10, window=20)
    assert list(checkpoints.steps_of(work)) == [4, 6, 8, 10]


def test_the_weights_that_the_first_bad_step_was_sampled_with_are_not_returned_to(work: Path) -> None:
    Journal(work, GUARD, 1e-3, save_steps=2).roll_back(Symptom(9, "kl", 9.0, 1.0), [])  # steps 7 to 9
    assert list(checkpoints.steps_of(work)) == [2, 4]


def test_a_batch_of_several_steps_was_sampled_before_its_first(work: Path) -> None:
    journal = Journal(work, GUARD, 1e-3, save_steps=2, steps_per_batch=2)
    journal.roll_back(Symptom(9, "kl", 9.0, 1.0), [])  # steps 7 to 9, the first of them sampled with weights 6
    assert list(checkpoints.steps_of(work)) == [2, 4]
    journal.roll_back(Symptom(8, "kl", 9.0, 1.0), [])  # steps 6 to 8; 6 was sampled with weights 4
    assert list(checkpoints.steps_of(work)) == [2]


def test_what_an_interruption_saved_takes_no_place_of_a_planned_checkpoint(work: Path) -> None:
    shutil.move(work / "checkpoint-6", work / "checkpoint-9")
    checkpoints.prune(work, {}, 3, 2, 10, window=1)
    assert list(checkpoints.steps_of(work)) == [8, 10]


def test_a_rollback_forgets_what_came_after(work: Path) -> None:
    checkpoints.drop_after(work, 4)
    assert list(checkpoints.steps_of(work)) == [2, 4]


def test_checkpoints_of_other_settings_are_not_gone_on_from(work: Path) -> None:
    checkpoints.claim(work, "0" * 16)
    assert checkpoints.newest(work) == work / "checkpoint-10"
    checkpoints.claim(work, "1" * 16)
    assert checkpoints.newest(work) is None


@pytest.mark.parametrize("written", [None, "", '{"epoch": 1.0, "log_hist'])
def test_a_checkpoint_whose_state_was_cut_off_by_a_kill_does_not_count(work: Path, written: str | None):
    state = work / "checkpoint-10/trainer_state.json"
    state.unlink()
    if written is not None:
        state.write_text(written)
    assert checkpoints.newest(work) == work / "checkpoint-8"
