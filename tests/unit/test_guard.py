"""The collapse guard's criteria, and which checkpoints are kept, by hand."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from messages import Wording
from safetensors.torch import save_file

from arc_refinery.config import Guard, GuardAction, Lora, ModelConfig, PolicyGradient, Sandbox
from arc_refinery.errors import InputError
from arc_refinery.training import checkpoints
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.log import Choice, HeldoutResult, Symptom, first_symptom, symptom

GUARD = Guard(window=3)
WELL = {"reward": 4.0, "share/truncated": 0.1, "repetition": 0.05, "kl": 0.3, "loss": 0.1}


def steps(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": number} | WELL | changed for number, changed in enumerate(changes, 1)]


def training(**changes: Any) -> PolicyGradient:
    return PolicyGradient(learning_rate=1e-3, save_steps=2, **changes)


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
    run = steps(*({figure: value} for value in values))
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


def test_a_loss_that_is_no_number_counts_at_once() -> None:
    collapse = symptom(steps({"loss": float("nan")}), GUARD)
    assert collapse is not None and (collapse.step, collapse.criterion) == (1, "loss")


def write_checkpoint(folder: Path, step: int, weight: float = 0.5) -> None:
    """All files that decide how a training continues."""
    folder.mkdir()
    save_file({"lora_A": torch.tensor([weight])}, folder / "adapter_model.safetensors")
    torch.save({"state": {0: {"step": torch.tensor(float(step))}}, "param_groups": []}, folder / "optimizer.pt")
    torch.save({"last_epoch": step}, folder / "scheduler.pt")
    torch.save({"cpu": torch.tensor([1])}, folder / "rng_state.pth")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for step in (2, 4, 6, 8, 10):
        write_checkpoint(tmp_path / f"checkpoint-{step}", step)
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


def test_one_from_before_a_collapse_is_kept_with_a_window_of_many_checkpoints(work: Path) -> None:
    checkpoints.prune(work, {}, 0, 2, 10, window=5)
    assert list(checkpoints.steps_of(work)) == [4, 6, 8, 10]
    checkpoints.prune(work, {}, 0, 2, 10, window=20)
    assert list(checkpoints.steps_of(work)) == [4, 6, 8, 10]


def choice(work: Path, step: int, *heldout: HeldoutResult, **changes: Any) -> Choice:
    from arc_refinery.training.grpo import choose

    return choose(work, training(**changes), GUARD, heldout, Symptom(step, "kl", 9.0, 1.0), step)


def test_a_collapse_leaves_the_last_weights_that_no_bad_step_was_sampled_with(work: Path) -> None:
    before = "the last one before the collapse"
    assert choice(work, 9) == Choice(4, before)  # steps 7 to 9, the first of them sampled with weights 6
    assert choice(work, 9, steps_per_generation=2) == Choice(4, before)
    assert choice(work, 8, steps_per_generation=2) == Choice(2, before)  # steps 6 to 8; 6 was sampled with weights 4
    shutil.move(work / "checkpoint-4", work / "checkpoint-5")  # saved by an interruption: other runs do not have it
    assert choice(work, 9) == Choice(2, before)
    assert choice(work, 3) == Choice(0, before)


def test_a_collapse_leaves_the_best_weights_from_before_it(work: Path) -> None:
    heldout = [HeldoutResult(step, reward) for step, reward in ((0, 2.0), (2, 3.0), (4, 1.0), (6, 9.0))]
    assert choice(work, 9, *heldout) == Choice(2, "best held-out reward", 3.0)


def test_what_an_interruption_saved_takes_no_place_of_a_planned_checkpoint(work: Path) -> None:
    shutil.move(work / "checkpoint-6", work / "checkpoint-9")
    checkpoints.prune(work, {}, 3, 2, 10, window=1)
    assert list(checkpoints.steps_of(work)) == [8, 10]


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


# the checkpoint that is resumed from, and a part of a training that is continued


def without(name: str) -> Callable[[Path], object]:
    return lambda checkpoint: (checkpoint / name).unlink()


def cut(name: str) -> Callable[[Path], object]:
    return lambda checkpoint: (checkpoint / name).write_bytes((checkpoint / name).read_bytes()[:-30])


def of_another_step(name: str, step: int) -> Callable[[Path], object]:
    def change(checkpoint: Path) -> None:
        other = checkpoint.with_name("other")
        write_checkpoint(other, step)
        shutil.copy2(other / name, checkpoint / name)
        shutil.rmtree(other)

    return change


STATE = ("adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")
FAULTS = {f"without {name}": without(name) for name in STATE}
FAULTS |= {f"cut {name}": cut(name) for name in STATE}
FAULTS |= {
    f"{name} of step {step}": of_another_step(name, step)
    for name in ("optimizer.pt", "scheduler.pt", "trainer_state.json")
    for step in (8, 12)
}


@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS.keys())
def test_a_checkpoint_whose_state_is_not_whole_is_not_resumed_from(work: Path, change: Callable[[Path], object]):
    change(work / "checkpoint-10")
    assert checkpoints.newest(work) == work / "checkpoint-8"
    assert not (work / "checkpoint-10").exists()


@pytest.mark.parametrize(("until_step", "resumed"), [(None, 10), (12, 10), (10, 10), (9, 8)])
def test_a_part_is_not_resumed_from_a_step_after_its_last(work: Path, until_step: int | None, resumed: int):
    assert checkpoints.newest(work, until_step) == work / f"checkpoint-{resumed}"


def test_in_float16_the_optimizer_may_have_made_fewer_steps(work: Path):
    of_another_step("optimizer.pt", 9)(work / "checkpoint-10")
    (work / "checkpoint-10/scaler.pt").write_bytes((work / "checkpoint-10/optimizer.pt").read_bytes())
    assert checkpoints.newest(work) == work / "checkpoint-10"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """The adapter of a part that ended with step 10."""
    folder = tmp_path / "part"
    (folder / "checkpoints").mkdir(parents=True)
    write_checkpoint(folder / "checkpoints/checkpoint-10", 10)
    (folder / "checkpoints/settings.txt").write_text("0" * 16)
    shutil.copy2(folder / "checkpoints/checkpoint-10/adapter_model.safetensors", folder)
    (folder / "training.jsonl").write_text('{"step": 1}\n{"chosen": {"step": 10, "why": "a step to keep"}}\n')
    return folder


def take_over(part: Path, until_step: int | None = None) -> Path:
    work = part.with_name("work")
    checkpoints.claim(work, "0" * 16)
    checkpoints.take_over(part / "checkpoints", work, until_step)
    return work


def test_a_part_is_continued_from_its_last_step(part: Path):
    assert checkpoints.newest(take_over(part)) == part.with_name("work") / "checkpoint-10"
    assert (part / "checkpoints/checkpoint-10").is_dir()


@pytest.mark.parametrize("until_step", [10, 8])
def test_a_part_is_continued_to_a_later_step_only(part: Path, until_step: int):
    with pytest.raises(InputError, match=f"until_step is {until_step}, .*{part}, ends after step 10"):
        take_over(part, until_step)
    assert take_over(part, 12).is_dir()


@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS.keys())
def test_a_part_whose_state_is_not_whole_is_refused(part: Path, change: Callable[[Path], object], wording: Wording):
    change(part / "checkpoints/checkpoint-10")
    with pytest.raises(InputError) as caught:
        take_over(part)
    assert str(part / "checkpoints/checkpoint-10") in str(caught.value)
    assert f"delete {part}" in str(caught.value)
    wording(caught.value)


def of_other_weights(part: Path) -> None:
    path = part / "checkpoints/checkpoint-10/adapter_model.safetensors"
    path.unlink()
    save_file({"lora_A": torch.tensor([float("nan")])}, path)


@pytest.mark.parametrize(
    "change",
    [
        of_other_weights,
        lambda part: shutil.rmtree(part / "checkpoints"),
        lambda part: shutil.rmtree(part / "checkpoints/checkpoint-10"),
        lambda part: (part / "checkpoints/checkpoint-10/trainer_state.json").unlink(),
        lambda part: (part / "checkpoints/checkpoint-10").rename(part / "checkpoints/checkpoint-8"),
        lambda part: (part / "checkpoints/settings.txt").unlink(),
        lambda part: (part / "checkpoints/settings.txt").write_text("1" * 16),
        lambda part: (part / "checkpoints/settings.txt").write_bytes(b"\xff\xfe"),
        lambda part: (part / "training.jsonl").unlink(),
        lambda part: (part / "training.jsonl").write_text(""),
        lambda part: (part / "training.jsonl").write_text('{"step": 1}\n'),
        lambda part: (part / "training.jsonl").write_text('{"chosen": {"step": 8, "why": "a step to keep"}}\n'),
    ],
)
def test_a_part_that_is_not_this_trainings_or_not_whole_is_refused(part: Path, change: Callable[[Path], object]):
    change(part)
    with pytest.raises(InputError, match=str(part)):
        take_over(part)


def test_a_part_that_a_collapse_ended_is_continued_from_any_checkpoint(part: Path):
    (part / "training.jsonl").write_text('{"chosen": {"step": 4, "why": "the last one before the collapse"}}\n')
    assert checkpoints.newest(take_over(part))


@pytest.mark.parametrize(("step", "n_saved", "last"), [(3, 2, 8), (10, 2, 8)])
def test_steps_that_no_part_can_end_with_are_refused_before_training(step: int, n_saved: int, last: int):
    with pytest.raises(InputError, match=f"until_step is {step}"):
        job(save_steps=n_saved, max_steps=last, until_step=step).check_steps()


def test_a_part_ends_with_a_saved_step():
    job(save_steps=2, max_steps=8, until_step=4).check_steps()


def job(until_step: int, **grpo: Any) -> TrainingJob:
    return TrainingJob(
        model=ModelConfig(path="x", window=9),
        lora=Lora(),
        training=PolicyGradient(learning_rate=1e-3, **grpo),
        guard=GUARD,
        sandbox=Sandbox(),
        seed=0,
        start=None,
        output=Path("y"),
        work=Path("z"),
        measurements=None,
        tensorboard=Path("t"),
        until_step=until_step,
    )


def control() -> Any:
    return SimpleNamespace(should_training_stop=False, should_save=True, should_evaluate=False)


def state(log: list[dict[str, Any]], max_steps: int = 20) -> Any:
    return SimpleNamespace(global_step=len(log), max_steps=max_steps, log_history=log)


def watched(log: list[dict[str, Any]], action: GuardAction, model: torch.nn.Module) -> tuple[Symptom | None, Any]:
    """The symptom after the last step of a log, and what the trainer receives."""
    from arc_refinery.training.callbacks import CollapseWatcher

    watcher, flow = CollapseWatcher(GUARD.model_copy(update={"action": action})), control()
    watcher.on_log(None, state(log), flow, model)
    return watcher.symptom, flow


COLLAPSED = steps({}, {}, {"repetition": 0.9}, {"repetition": 0.9}, {"repetition": 0.9})


def test_a_collapse_ends_a_training_before_it_is_saved() -> None:
    symptom, flow = watched(COLLAPSED, "stop", torch.nn.Linear(1, 1))
    assert symptom and (symptom.step, symptom.criterion) == (5, "repetition")
    assert (flow.should_training_stop, flow.should_save) == (True, False)


def test_a_collapse_may_only_be_reported() -> None:
    symptom, flow = watched(COLLAPSED, "none", torch.nn.Linear(1, 1))
    assert symptom and (flow.should_training_stop, flow.should_save) == (False, True)


def test_weights_that_are_not_finite_end_a_training_whose_loss_is() -> None:
    broken = torch.nn.Linear(1, 1)
    broken.bias.data.fill_(float("nan"))
    symptom, flow = watched(steps({}, {}), "stop", broken)
    assert symptom and (symptom.step, symptom.criterion, flow.should_training_stop) == (2, "loss", True)
    with pytest.raises(InputError, match=r"step 2: 1 of .* such as bias, and guard.action is none"):
        watched(steps({}, {}), "none", broken)


def test_a_part_ends_with_its_step_if_the_training_has_it() -> None:
    from arc_refinery.training.callbacks import EndsPart

    flow, ends = control(), EndsPart(2)
    ends.on_train_begin(None, state([], max_steps=2), flow)
    for n, stops in ((1, False), (2, True)):
        ends.on_step_end(None, state(steps(*[{}] * n)), flow)
        assert flow.should_training_stop == stops
    with pytest.raises(InputError, match="until_step is 2, but the training ends after step 1"):
        ends.on_train_begin(None, state([], max_steps=1), flow)


@pytest.mark.parametrize(("n_heldout", "step", "evaluates"), [(2, 20, True), (2, 19, False), (0, 20, False)])
def test_the_last_step_is_evaluated_on_heldout_prompts(n_heldout: int, step: int, evaluates: bool) -> None:
    from arc_refinery.training.callbacks import KeepsCheckpoints

    flow = control()
    KeepsCheckpoints(training(n_heldout=n_heldout), GUARD).on_step_end(None, state([{}] * step), flow)
    assert flow.should_evaluate == evaluates
