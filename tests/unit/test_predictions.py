"""Predictions of the original scripts: which forms are read, what augmentation means, and that they can be graded."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import TINY
from experiments import do
from factories import make_grid, make_task
from messages import Wording

from arc_refinery import records
from arc_refinery.arc.augment import IDENTITY, Augmentation
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.cli.programs import ImportPredictions
from arc_refinery.domains.arc.predictions import Keywords, augmentation_of, read_predictions
from arc_refinery.domains.arc.records import Attempt, Prompt, Verdict
from arc_refinery.errors import InputError

COLORS = [0, 7, 3, 9, 1, 5, 2, 8, 6, 4]
COLOR_MAP = {str(old): new for old, new in enumerate(COLORS)}
GIVEN = make_grid("120", "345")
TASK = make_task(train=(Pair(GIVEN, GIVEN), Pair(make_grid("6"), make_grid("6"))), test=(Pair(GIVEN.T, GIVEN.T),))


def read(tmp_path: Path, content: Any) -> list[Attempt]:
    path = tmp_path / "x_predictions.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return list(read_predictions(path, {"t": TASK}, "some model"))


@pytest.mark.parametrize("colors", [None, COLOR_MAP], ids=["plain", "recoloured"])
@pytest.mark.parametrize("n_rot90", range(-1, 5))
@pytest.mark.parametrize("hflip", [False, True])
def test_augmentation_flips_then_turns_then_recolours(hflip: bool, n_rot90: int, colors: dict[str, int] | None):
    expected = np.rot90(np.fliplr(GIVEN) if hflip else GIVEN, n_rot90)
    if colors:
        expected = np.vectorize(lambda color: colors[str(color)])(expected)
    augmentation = augmentation_of(Keywords(hflip=hflip, n_rot90=n_rot90, color_map=colors))
    assert augmentation.apply(GIVEN).tolist() == expected.tolist()
    assert augmentation.undo(augmentation.apply(GIVEN)).tolist() == GIVEN.tolist()


def test_colours_that_a_map_leaves_out_stay():
    assert augmentation_of(Keywords(color_map={"1": 2, "2": 1})).colors == (0, 2, 1, 3, 4, 5, 6, 7, 8, 9)


def executed(text: str, augmentation: dict[str, Any] | None = None) -> dict[str, Any]:
    """A prediction whose program ran, as the script writes it; other fields are left out."""
    return {"text_prediction": text, "code": "pass", "task_id": "t", "data_augmentation_params": augmentation}


FAILED = {"code": "x = 1", "error_type": "NameError", "error_message": "no transform", "task_id": "t"}
CODELESS = {"error_type": "ParsingCodeFailed", "error_message": "", "text_prediction": "no idea", "task_id": "t"}


def test_predictions_that_were_executed(tmp_path: Path):
    attempts = read(tmp_path, {"t": [executed("a"), executed("b", {}), executed("c", {"n_rot90": 1})]})
    assert [(attempt.completion, attempt.detail.augmentation) for attempt in attempts] == [
        ("a", IDENTITY),
        ("b", IDENTITY),
        ("c", Augmentation(1)),
    ]


def test_failed_predictions_were_asked_for_as_the_others_of_their_task(tmp_path: Path):
    attempts = read(tmp_path, {"t": [FAILED, executed("a", {"n_rot90": 1}), CODELESS]})
    assert [attempt.completion for attempt in attempts] == ["```python\nx = 1\n```", "a", "no idea"]
    assert {attempt.detail.augmentation for attempt in attempts} == {Augmentation(1)}
    assert {attempt.prompt_id for attempt in attempts} == {"t/turn1-000"}


def test_without_another_prediction_a_failed_one_counts_as_not_augmented(tmp_path: Path):
    assert [attempt.detail.augmentation for attempt in read(tmp_path, {"t": [FAILED, CODELESS]})] == [IDENTITY] * 2


def test_predictions_that_were_not_executed(tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording):
    attempts = read(tmp_path, {"t": {"text_predictions": ["a", "b"], "data_augmentation_params": {"hflip": True}}})
    assert [(attempt.completion, attempt.attempt_id) for attempt in attempts] == [
        ("a", "t/turn1-000/000"),
        ("b", "t/turn1-000/001"),
    ]
    assert [attempt.detail.augmentation for attempt in attempts] == [augmentation_of(Keywords(hflip=True))] * 2
    (message,) = caplog.messages
    assert str(tmp_path / "x_predictions.json.gz") in message
    wording(message)
    caplog.clear()
    assert read(tmp_path, {"t": {"text_predictions": ["a"], "data_augmentation_params": None}})
    assert not caplog.text


def test_predictions_with_one_augmentation_in_a_row_answer_one_prompt(tmp_path: Path):
    plain, turned = executed(""), executed("", {"n_rot90": 2})
    attempts = read(tmp_path, {"t": [plain, plain, turned, turned, plain]})
    assert [attempt.attempt_id for attempt in attempts] == [
        "t/turn1-000/000",
        "t/turn1-000/001",
        "t/turn1-001/000",
        "t/turn1-001/001",
        "t/turn1-002/000",
    ]
    assert {attempt.attempt_id.rpartition("/")[0] for attempt in attempts} == {
        attempt.prompt_id for attempt in attempts
    }


def test_what_the_file_does_not_say_has_values_that_no_sampled_attempt_has(tmp_path: Path):
    (one,) = read(tmp_path, {"t": [executed("a")]})
    assert (one.task_id, one.turn, one.parent_id, one.model, one.adapter) == ("t", 1, "", "some model", "")
    assert (one.seed, one.n_prompt_tokens, one.n_tokens, one.finish_reason) == (-1, 0, 0, "unknown")
    assert all(math.isnan(value) for value in (one.temperature, one.top_p, one.logprob))
    assert one.detail.train_order == (0, 1)


BAD: dict[str, tuple[Any, str]] = {
    "another task": ({"u": []}, "task u "),
    "a text": ({"t": "a"}, "task t holds a text"),
    "a number": ({"t": [executed("a"), 5]}, "task t, prediction 1 is a number"),
    "no text": ({"t": [{"prediction": "a"}]}, "task t, prediction 0 is an object"),
    "no augmentation": ({"t": {"text_predictions": ["a"]}}, "task t holds an object"),
    "an unknown key": (
        {"t": [{"text_prediction": "a", "data_augmentation_params": {"vflip": True}}]},
        "task t, prediction 0: field 'data_augmentation_params': field 'vflip' is True",
    ),
    "two colours that become one": (
        {"t": [{"text_prediction": "a", "data_augmentation_params": {"color_map": {"1": 2}}}]},
        "task t, prediction 0: field 'data_augmentation_params': color_map is {'1': 2}",
    ),
    "a truth value for a number": (
        {"t": [{"text_prediction": "a", "data_augmentation_params": {"n_rot90": True}}]},
        "task t, prediction 0: field 'data_augmentation_params': field 'n_rot90' is True",
    ),
    "half a color": (
        {"t": [{"text_prediction": "a", "data_augmentation_params": {"color_map": {"1": 1.5}}}]},
        "task t, prediction 0: field 'data_augmentation_params': field 'color_map.1' is 1.5",
    ),
    "augmentation as text": (
        {"t": [{"text_prediction": "a", "data_augmentation_params": "hflip"}]},
        "task t, prediction 0: field 'data_augmentation_params': ",
    ),
}


@pytest.mark.parametrize(("content", "expected"), BAD.values(), ids=BAD.keys())
def test_other_forms_are_named_with_task_and_prediction(tmp_path: Path, content: Any, expected: str, wording: Wording):
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'x_predictions.json.gz'}: {expected}")
    wording(caught.value)


def test_imported_predictions_are_graded_in_the_form_that_the_model_saw(tmp_path: Path):
    # the rule of the task is the identity; the program raises unless it is given the task's first grid as it was seen
    turned = {"hflip": True, "n_rot90": 1, "color_map": COLOR_MAP}
    seen = np.array(COLORS)[np.rot90(np.fliplr(GIVEN))].tolist()
    code = f"def transform(grid):\n    assert grid.size == 1 or grid.tolist() == {seen}\n    return grid"
    completion = f"```python\n{code}\n```"
    tasks, attempts = tmp_path / "tasks.parquet", tmp_path / "attempts.parquet"
    records.write(tasks, Task, [replace(TASK, test=TASK.train[:1])], 0, {})
    predictions = tmp_path / "x_predictions.json.gz"
    listed = [executed(completion), executed(completion, turned)]
    predictions.write_bytes(gzip.compress(json.dumps({"t": listed}).encode()))
    prompts = tmp_path / "prompts.parquet"
    ImportPredictions(
        predictions=predictions, tasks_path=tasks, output=attempts, prompts_output=prompts, model_path=TINY
    ).run()
    verdicts = tmp_path / "verdicts.parquet"
    do("grade", {"sandbox": {"cpu_seconds": 30.0}}, attempts=attempts, tasks=tasks, output=verdicts)
    plain, flipped = records.read(verdicts, Verdict)
    assert (plain.status, flipped.status, flipped.score, flipped.solved) == ("error", "ok", 1.0, True)
    assert flipped.detail.train_outputs[0].tolist() == GIVEN.tolist()
    read_prompts = list(records.read(prompts, Prompt))
    assert [prompt.prompt_id for prompt in read_prompts] == [
        attempt.prompt_id for attempt in records.read(attempts, Attempt)
    ]
    assert read_prompts[1].detail.train[0].input.tolist() == seen


def test_prompts_need_a_model_whose_template_renders_them(tmp_path: Path, wording: Wording):
    tasks, predictions = tmp_path / "tasks.parquet", tmp_path / "p.json"
    records.write(tasks, Task, [TASK], 0, {})
    predictions.write_text(json.dumps({TASK.task_id: []}))
    with pytest.raises(InputError) as caught:
        ImportPredictions(
            predictions=predictions,
            tasks_path=tasks,
            output=tmp_path / "a.parquet",
            prompts_output=tmp_path / "q.parquet",
        ).run()
    assert "--prompts-output" in str(caught.value) and "--model-path" in str(caught.value)
    wording(caught.value)
