"""Read the original scripts' `*_predictions.json.gz` as attempts."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import nan
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import N_COLORS
from arc_refinery.arc.kaggle import read_json
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.domain import first_turn_in
from arc_refinery.domains.arc.prompts import Template
from arc_refinery.domains.arc.records import Attempt, Prompt, View
from arc_refinery.domains.first_turn import rendered
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.files import checked, in_words
from arc_refinery.records import attempt_id

FORMS = "expected {text_prediction or code, data_augmentation_params}"
OUT_OF_STEP = (
    "was written without executing, where the original script records an augmentation for another task than it used: "
    "most of these predictions are executed on grids that the model did not see (docs/internals.md)"
)

logger = logging.getLogger(__name__)


class Keywords(BaseModel):
    """An augmentation as the scripts record it."""

    model_config = ConfigDict(extra="forbid")
    hflip: bool | None = None
    n_rot90: int | None = None
    color_map: dict[str, int] | None = None  # new colors by old ones


def read_predictions(path: Path, tasks: Mapping[str, Task], model: str) -> Iterator[Attempt]:
    """Yield the attempts of a .json or .json.gz file of predictions; raises `InputError`.

    The file is that of one round of the script: ``{task_id: predictions}``. Predictions that the script executed are a
    list of objects with `text_prediction`, or `code` if it failed; others are ``{"text_predictions": [text, ...],
    "data_augmentation_params"}``. An augmentation has the keys `hflip`, `n_rot90` and `color_map`, or is null. Failed
    predictions have none: as a round asks for each task once, they get that of the task's other predictions.

    Fields that the file lacks get values that no sampled attempt has: no tokens, an unknown finish reason, NaN for
    temperature, top_p and log-probability, seed -1. Predictions with the same augmentation in a row count as answers to
    one prompt, with the train pairs in the task's order.
    """
    predictions_by_task = read_json(path)
    if not predictions_by_task:
        raise InputError(f"{path}: has no tasks; expected at least one")
    if any(isinstance(entry, dict) and entry.get("data_augmentation_params") for entry in predictions_by_task.values()):
        logger.warning("%s: %s", path, OUT_OF_STEP)
    for task_id, predictions in predictions_by_task.items():
        where = f"{path}: task {task_id}"
        if task_id not in tasks:
            raise InputError(f"{where} is not among the tasks; give the tasks that were predicted")
        read = _texts_and_augmentations(predictions, where)
        order = tuple(range(len(tasks[task_id].train)))
        for number, (augmentation, group) in enumerate(groupby(read, key=itemgetter(1))):
            prompt_id = f"{task_id}/turn1-{number:03d}"
            for index, (text, _) in enumerate(group):
                yield Attempt(
                    attempt_id=attempt_id(prompt_id, index),
                    prompt_id=prompt_id,
                    task_id=task_id,
                    turn=1,
                    parent_id="",
                    model=model,
                    adapter="",
                    seed=-1,
                    temperature=nan,
                    top_p=nan,
                    completion=text,
                    n_prompt_tokens=0,
                    n_tokens=0,
                    finish_reason="unknown",
                    logprob=nan,
                    detail=View(augmentation, order),
                )


def prompts_of(
    attempts: Iterable[Attempt], tasks: Mapping[str, Task], template: Template, renderer: Renderer
) -> Iterator[Prompt]:
    """Yield our prompts for attempts read from a file, so that `refine` can continue from them."""
    for task_id, task_attempts in groupby(attempts, key=attrgetter("task_id")):
        for prompt_id, answers in groupby(task_attempts, key=attrgetter("prompt_id")):
            first, *others = answers
            shown = first_turn_in(tasks[task_id], first.detail.augmentation, first.detail.train_order, template)
            yield rendered(Prompt, shown, prompt_id, task_id, 1 + len(others), renderer)


def augmentation_of(keywords: Keywords) -> Augmentation:
    """Convert a left-right flip (`hflip`), then `n_rot90` turns of `np.rot90`, then colours; raises `ValueError`.

    A left-right flip is a transposition followed by three quarter turns.
    """
    flip, turns = bool(keywords.hflip), keywords.n_rot90 or 0
    names = [str(color) for color in range(N_COLORS)]
    colors = dict(zip(names, range(N_COLORS), strict=True)) | (keywords.color_map or {})
    if sorted(colors) != names or sorted(colors.values()) != list(range(N_COLORS)):
        raise ValueError(f"color_map is {keywords.color_map}, expected a permutation of 0..{N_COLORS - 1}")
    return Augmentation((turns + 3 * flip) % 4, flip, tuple(colors[name] for name in names))


def _texts_and_augmentations(predictions: Any, where: str) -> list[tuple[str, Augmentation]]:
    """Return the text and the augmentation of each prediction on one task."""
    match predictions:
        case {"text_predictions": list(texts), "data_augmentation_params": augmentation}:
            predictions = [{"text_prediction": text, "data_augmentation_params": augmentation} for text in texts]
        case list():
            pass
        case _:
            raise InputError(f"{where} holds {in_words(predictions)}, expected a list; of each, {FORMS}")
    read = [_prediction(entry, f"{where}, prediction {number}") for number, entry in enumerate(predictions)]
    distinct = list(dict.fromkeys(augmentation for _, augmentation in read if augmentation is not None))
    usual = distinct[0] if len(distinct) == 1 else Augmentation()
    return [(text, augmentation or usual) for text, augmentation in read]


def _prediction(entry: Any, where: str) -> tuple[str, Augmentation | None]:
    match entry:
        case {"text_prediction": str(text)}:
            pass
        case {"code": str(code)}:
            text = f"```python\n{code}\n```"
        case _:
            raise InputError(f"{where} is {in_words(entry)} of another form; {FORMS}")
    if "data_augmentation_params" not in entry:
        return text, None
    where = f"{where}: field 'data_augmentation_params'"
    expected = f"the keys {', '.join(Keywords.model_fields)}, or null"
    keywords = entry["data_augmentation_params"]
    checked(Keywords | None, keywords, where, expected)
    try:
        return text, augmentation_of(Keywords(**(keywords or {})))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
