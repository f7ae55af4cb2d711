"""Prompts of a data set: a file of ours, or a JSON file of the original scripts.

`dataset_*.json.gz`        {task_id: {"train": [{"input", "output"}], "test": [...]}}: first-turn prompts are made
`refine_dataset.json.gz`   {task_id: {"prompt": text, "task": {"train", "test"}}}: second turns, whose prompts are ready
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.kaggle import read_json, tasks_in
from arc_refinery.arc.tasks import Task
from arc_refinery.errors import InputError
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.first_turn import first_turn_prompts
from arc_refinery.refining.prompts import load_template
from arc_refinery.refining.rendering import Renderer


def prompts_in(
    path: Path, sampling: Sampling, template: str, colors: tuple[str, ...] | None, model_path: str, seed: int
) -> Iterator[Prompt]:
    """Yield the prompts of a file; those for tasks are made as `sampling` says, in the words of `template`."""
    is_json = path.suffix in (".json", ".gz")
    if not is_json and records.kind_of(path) == "prompts":
        yield from records.read(path, Prompt)
        return
    renderer = Renderer(model_path)
    content = read_json(path) if is_json else {}
    if any(isinstance(one, dict) and "prompt" in one for one in content.values()):
        yield from _second_turns(content, path, renderer)
        return
    tasks = tasks_in(content, path) if is_json else records.read(path, Task)
    wording = load_template(template, colors)
    yield from first_turn_prompts(tasks, sampling.n_predictions, sampling, wording, renderer, seed)


def _second_turns(content: Mapping[str, Any], path: Path, renderer: Renderer) -> Iterator[Prompt]:
    for task_id, one in content.items():
        text = one.get("prompt") if isinstance(one, dict) else None
        if not isinstance(text, str):
            raise InputError(f"{path}: task {task_id}: field 'prompt' is missing or no text; expected {{prompt, task}}")
        (task,) = tasks_in({task_id: one.get("task")}, path)
        yield Prompt(
            prompt_id=f"{task_id}/turn2-000",
            task_id=task_id,
            turn=2,
            parent_id="",
            augmentation=IDENTITY,  # the task is recorded as the model sees it
            train_order=tuple(range(len(task.train))),
            messages=(),
            text=text,
            n_tokens=renderer.count(text),
            n_predictions=1,
            train=task.train,
            test=task.test,
        )
