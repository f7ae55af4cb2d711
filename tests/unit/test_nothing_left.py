"""No stage works on nothing in silence: without a prompt, an attempt or a question it ends with the numbers."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout import TINY
from experiments import do
from factories import first_turns, make_task
from handmade import finished, settings

from arc_refinery import records
from arc_refinery.arc.tasks import Task
from arc_refinery.cli.published import Sample
from arc_refinery.domains.arc.prompts import load_template
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.records import Overlap
from arc_refinery.refining.config import Sampling
from arc_refinery.training.trainer import TrainingData

TASKS = [make_task(name, train=make_task().train * 6) for name in "ab"]
MODEL = {"path": TINY, "template": "compact"}
REFINES = {"refine": [{"n_predictions": 2}, {"n_predictions": 2}]}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    records.write(tmp_path / "tasks.parquet", Task, TASKS, 0, {})
    return tmp_path / "tasks.parquet"


def first_prompts(tasks: Path, window: int, **flags: Any) -> None:
    sampling = {"n_predictions": 4, "batch_size": 2, "max_output_tokens": 8}
    settings = {"model": MODEL | {"window": window}, "sampling": sampling, "branch": "turn1"}
    settings["own"] = {"use_data_augmentation": False}
    do("first_prompts", settings, tasks=tasks, output=tasks.with_name("prompts.parquet"), **flags)


def n_tokens(renderer: Renderer, template: str = "compact") -> int:
    """Length of the prompts of the two tasks, which are alike."""
    (one, two) = first_turns(TASKS, 1, Sampling(max_output_tokens=8), load_template(template), renderer)
    assert one.n_tokens == two.n_tokens
    return one.n_tokens


def refused(stage: Callable[..., object], *arguments: Any, **flags: Any) -> str:
    with pytest.raises(InputError) as caught:
        stage(*arguments, **flags)
    return str(caught.value)


def test_first_turns_that_all_are_too_long_end_the_run(tasks: Path, renderer: Renderer) -> None:
    n = n_tokens(renderer)
    message = refused(first_prompts, tasks, n + 7)
    for fact in ("none of 4 prompts fits", f" {n} tokens", f"leaves {n - 1}.", "model.window", str(tasks.parent)):
        assert fact in message
    assert not tasks.with_name("prompts.parquet").exists()
    first_prompts(tasks, n + 8)
    assert records.count(tasks.with_name("prompts.parquet")) == 4


def test_tasks_that_all_are_evaluated_leave_nothing_to_train_on(tasks: Path) -> None:
    overlap = tasks.with_name("overlap.parquet")
    rows = [Overlap(f"o/{task.task_id}", "own", task.task_id, "heldout", task.task_id, "id") for task in TASKS]
    records.write(overlap, Overlap, rows, 0, {})
    message = refused(first_prompts, tasks, 500, overlap=overlap)
    assert str(tasks) in message
    assert "all of its 2 tasks" in message
    records.write(overlap, Overlap, rows[:1], 0, {})
    first_prompts(tasks, 500, overlap=overlap)
    assert set(records.texts(tasks.with_name("prompts.parquet"), Prompt, "task_id")) == {"b"}


def test_tasks_that_are_sampled_by_hand_have_to_fit(tasks: Path, renderer: Renderer) -> None:
    n = n_tokens(renderer)
    output = tasks.with_name("attempts")
    sample = Sample(
        dataset_path=tasks,
        output=output,
        model_path=TINY,
        template="compact",
        use_data_augmentation=False,
        max_model_len=n + 7,
        max_output_tokens=8,
    )
    message = refused(sample.run)
    for fact in (str(output), "none of 2 prompts fits", f"leaves {n - 1}."):
        assert fact in message


def refine(results: Path, letters: dict[str, str], window: int = 500, longer: bool = False) -> Path:
    """Write the prompts of a second turn; `longer`: their tasks are."""
    finished(results, settings(REFINES), {"turn1": letters}, list(letters))
    prompts, output = results / "tiny/small/turn1/prompts.parquet", results / "next/prompts.parquet"
    if longer:
        messages = (Message(role="user", content="\ninput 1x2\n12" * 20),)
        rows = [replace(prompt, messages=messages) for prompt in records.read(prompts, Prompt)]
        records.write(prompts, Prompt, rows, 0, {})
    job = {
        "model": MODEL | {"window": window},
        "sampling": {"n_predictions": 2, "batch_size": 2, "max_output_tokens": 8},
        "refinement": {"n_parents": 1},
        "feedback": "real",
        "select": {},
        "n_considered": 2,
        "branch": "refine-turn2",
        "n_shards": 1,
        "shards_per_grading_job": 1,
        "tasks_per_batch": 1,
    }
    do("refining_prompts", job, prompts=prompts, output=output)
    return output


def test_second_turns_that_all_are_too_long_end_the_run(tmp_path: Path) -> None:
    message = refused(refine, tmp_path, {"a": "wS", "b": "ww"}, window=80, longer=True)
    assert "none of 2 prompts fits" in message
    assert "leaves 72." in message


def refused_training(prompts: Path) -> str:
    job = {
        "model": MODEL | {"window": 100},
        "lora": {},
        "grpo": {"learning_rate": 1e-5},
        "lengths": {"max_completion_length": 8, "max_seq_length": 100},
        "guard": {},
        "refinement": {},
        "sandbox": {},
    }
    beside = {name: prompts.with_name(name) for name in ("checkpoints", "measurements", "tensorboard")}
    return refused(do, "train", job, data=prompts, output=prompts.with_name("adapter"), **beside)


def test_where_nothing_can_be_refined_the_log_and_the_training_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        output = refine(tmp_path, {"a": "nS", "b": "ne"})  # an arm without a second turn is a result
    counts = ("none of 4 attempts", "2 no_code", "1 ok", "1 error")
    assert all(fact in caplog.text for fact in counts)
    message = refused_training(output)
    assert all(fact in message for fact in (*counts, str(output)))


def test_a_training_of_any_kind_has_prompts() -> None:
    with pytest.raises(InputError, match="no prompts to train on"):
        TrainingData.split([], 0, seed=0)
