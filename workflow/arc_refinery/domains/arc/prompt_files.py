"""Read files of prompts or tasks, ours or those of the original scripts.

`dataset_*.json.gz`        {task_id: {"train": [{"input", "output"}], "test": [...]}}: makes first-turn prompts
`refine_dataset.json.gz`   {task_id: {"prompt": text, "task": {"train", "test"}}}: second turns, whose prompts are ready
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.kaggle import read_json, tasks_in
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.config import Showing
from arc_refinery.domains.arc.domain import Domain as Arc
from arc_refinery.domains.arc.prompts import load_template
from arc_refinery.domains.arc.records import Prompt, ShownTask
from arc_refinery.domains.first_turn import first_turn_prompts
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Sampling


def prompts_in(
    path: Path, sampling: Sampling, shown: Showing, template: str, model_path: str, seed: int
) -> Iterator[Prompt]:
    """Yield the prompts of a file; those for tasks as `sampling` and `shown` say, in the words of `template`."""
    is_json = path.suffix in (".json", ".gz")
    if not is_json and records.kind_of(path) == "prompts":
        yield from records.read(path, Prompt)
        return
    renderer = Renderer(model_path)
    content = read_json(path) if is_json else {}
    if any(isinstance(entry, dict) and "prompt" in entry for entry in content.values()):
        yield from _second_turns(content, path, renderer)
        return
    tasks = tasks_in(content, path) if is_json else records.read(path, Task)
    wording = load_template(template)
    n = sampling.n_predictions
    prompts = first_turn_prompts(Arc(), tasks, n, sampling, wording, renderer, seed, own=shown)
    yield from (prompt for prompt in prompts if isinstance(prompt, Prompt))


def _second_turns(content: Mapping[str, Any], path: Path, renderer: Renderer) -> Iterator[Prompt]:
    for task_id, entry in content.items():
        text = entry.get("prompt") if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise InputError(f"{path}: task {task_id}: field 'prompt' is missing or no text; expected {{prompt, task}}")
        (task,) = tasks_in({task_id: entry.get("task")}, path)
        yield Prompt(
            prompt_id=f"{task_id}/turn2-000",
            task_id=task_id,
            turn=2,
            parent_id="",
            messages=(),
            text=text,
            n_tokens=renderer.count(text),
            n_predictions=1,
            # the task is recorded as the model sees it
            detail=ShownTask(IDENTITY, tuple(range(len(task.train))), task.train, task.test),
        )
