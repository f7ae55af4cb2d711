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
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.first_turn import first_turn_prompts
from arc_refinery.refining.prompts import Renderer, load_template

MAKE_ROOM = (
    "Raise model.window (to train, training.max_seq_length, too), lower the longest answer "
    "(sampling.max_output_tokens; to train, training.max_completion_length), or choose tasks with shorter prompts: "
    "`only` of a set, arc-refinery tasks select"
)

STATUSES = "statuses"  # note of a file without prompts

logger = logging.getLogger(__name__)


def write_prompts(
    path: Path,
    prompts: Iterable[Prompt],
    window: int,
    answer: int,
    seed: int,
    settings: Mapping[str, Any],
    made_from: Sequence[Path] = (),
    statuses: Mapping[str, int] | None = None,
) -> None:
    """Write the prompts that leave room for `answer` tokens in the window; raise `NoRoomError` if none does.

    Notes: `longest_allowed`, `n_dropped`, `dropped` ({turn: [tokens, ...]}). `statuses` counts the verdicts on the
    attempts of the turn before; it is a note, too, if none of these can be refined.
    """
    longest = window - answer
    fitting_lengths: list[int] = []
    dropped: dict[int, list[int]] = {}

    def fitting() -> Iterator[Prompt]:
        for prompt in prompts:
            if prompt.n_tokens <= longest:
                fitting_lengths.append(prompt.n_tokens)
                yield prompt
            else:
                dropped.setdefault(prompt.turn, []).append(prompt.n_tokens)
        if dropped and not fitting_lengths:
            lengths = list(chain.from_iterable(dropped.values()))
            raise NoRoomError(path, len(lengths), lengths, window, answer, MAKE_ROOM)

    def facts() -> dict[str, Any]:
        notes = {"longest_allowed": longest, "n_dropped": sum(map(len, dropped.values())), "dropped": dropped}
        return notes if statuses is None or fitting_lengths else notes | {STATUSES: dict(statuses)}

    records.write(path, Prompt, fitting(), seed, settings, facts, made_from)
    if statuses is not None and not fitting_lengths:
        logger.warning("%s: %s", path, nothing_to_refine(statuses))
    if dropped:
        n_dropped, n = sum(map(len, dropped.values())), len(fitting_lengths)
        logger.warning("%d of %d prompts are too long for the window and were dropped", n_dropped, n_dropped + n)
    if lengths := [*fitting_lengths, *chain.from_iterable(dropped.values())]:
        tokens = np.percentile(lengths, shares := (50, 95, 100), method="inverted_cdf")
        percentiles = ", ".join(f"{share} %: {n}" for share, n in zip(shares, tokens, strict=True))
        logger.info("tokens of %d prompts: %s; longest allowed: %d", len(lengths), percentiles, longest)


def nothing_to_refine(statuses: Mapping[str, int]) -> str:
    """Say why attempts with these verdicts give no next turn."""
    n = sum(statuses.values())
    counts = ", ".join(f"{count:,} {status}" for status, count in sorted(statuses.items(), key=lambda item: -item[1]))
    return (
        f"none of {n:,} attempts can be refined ({counts or 'there are none'}): a next turn needs one that ran to "
        "valid outputs (ok) and is wrong on a train pair; with refinement.include_errors, one that raised (error) will "
        "do. If most have no_code, are model.template and sampling.max_output_tokens right for the model? If all are "
        "ok, choose harder tasks"
    )


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
