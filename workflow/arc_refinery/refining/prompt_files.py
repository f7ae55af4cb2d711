"""Files of prompts: read ours or those of the original scripts, and write prompts that fit the model's window.

`dataset_*.json.gz`        {task_id: {"train": [{"input", "output"}], "test": [...]}}: makes first-turn prompts
`refine_dataset.json.gz`   {task_id: {"prompt": text, "task": {"train", "test"}}}: second turns, whose prompts are ready
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from arc_refinery import records
from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.kaggle import read_json, tasks_in
from arc_refinery.arc.tasks import Task
from arc_refinery.errors import InputError
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.first_turn import first_turn_prompts
from arc_refinery.refining.prompts import Renderer, load_template

logger = logging.getLogger(__name__)


def write_prompts(
    path: Path,
    prompts: Iterable[Prompt],
    longest: int,
    seed: int,
    settings: Mapping[str, Any],
    made_from: Sequence[Path] = (),
) -> None:
    """Write the prompts of at most `longest` tokens; the file's notes contain the lengths of longer ones, by turn.

    Notes: `longest_allowed`, `n_dropped`, `dropped` ({turn: [tokens, ...]}).
    """
    fitting_lengths: list[int] = []
    dropped: dict[int, list[int]] = {}

    def fitting() -> Iterator[Prompt]:
        for prompt in prompts:
            if prompt.n_tokens <= longest:
                fitting_lengths.append(prompt.n_tokens)
                yield prompt
            else:
                dropped.setdefault(prompt.turn, []).append(prompt.n_tokens)

    def facts() -> dict[str, Any]:
        return {"longest_allowed": longest, "n_dropped": sum(map(len, dropped.values())), "dropped": dropped}

    records.write(path, Prompt, fitting(), seed, settings, facts, made_from)
    if lengths := [*fitting_lengths, *chain.from_iterable(dropped.values())]:
        tokens = np.percentile(lengths, shares := (50, 95, 100), method="inverted_cdf")
        percentiles = ", ".join(f"{share} %: {n}" for share, n in zip(shares, tokens, strict=True))
        logger.info("tokens of %d prompts: %s; longest allowed: %d", len(lengths), percentiles, longest)


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
    if any(isinstance(entry, dict) and "prompt" in entry for entry in content.values()):
        yield from _second_turns(content, path, renderer)
        return
    tasks = tasks_in(content, path) if is_json else records.read(path, Task)
    wording = load_template(template, colors)
    yield from first_turn_prompts(tasks, sampling.n_predictions, sampling, wording, renderer, seed)


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
            augmentation=IDENTITY,  # the task is recorded as the model sees it
            train_order=tuple(range(len(task.train))),
            messages=(),
            text=text,
            n_tokens=renderer.count(text),
            n_predictions=1,
            train=task.train,
            test=task.test,
        )
