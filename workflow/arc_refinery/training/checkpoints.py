"""Checkpoints of a training run, in a folder that no rule owns, because Snakemake deletes the outputs of failed jobs.

They have three uses: to resume after a kill (the newest), to roll back before a collapse, and to choose the adapter
from at the end (the best on held-out prompts).
"""

import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from arc_refinery.errors import InputError

logger = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)")
_IDENTITY = "settings.txt"


class CheckpointError(InputError):
    """Training cannot continue; the message says why."""


def claim(work: Path, identity: str) -> None:
    """Remove checkpoints made with other settings or data, and record the identity of this training run."""
    note = work / _IDENTITY
    if work.exists() and (not note.exists() or note.read_text() != identity):
        logger.info("%s: removing checkpoints of another training run", work)
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    note.write_text(identity)


def take_over(part: Path, work: Path) -> None:
    """Fill the folder `work`, if it is only claimed yet, with the folder `part` of an earlier part of the training."""
    if any(path.name != _IDENTITY for path in work.iterdir()):
        return
    note, own = part / _IDENTITY, work / _IDENTITY
    if not note.exists() or note.read_text() != own.read_text():
        raise CheckpointError(
            f"{part}: is not an earlier part of this training; its settings or data differ. Train that part again"
        )
    copy = work.with_name(f"{work.name}.copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(part, copy)
    shutil.rmtree(work)
    copy.rename(work)


def steps_of(work: Path) -> dict[int, Path]:
    """Return the folder's complete checkpoints by step, oldest first.

    A kill may leave one half-written. The trainer state is written last; without a valid one, a checkpoint is skipped.
    """
    found = {int(match[1]): path for path in work.iterdir() if (match := _NAME.fullmatch(path.name))}
    return {step: path for step, path in sorted(found.items()) if _is_complete(path)}


def _is_complete(checkpoint: Path) -> bool:
    from transformers.trainer import TRAINER_STATE_NAME  # only training calls this, after it has imported transformers

    try:
        json.loads((checkpoint / TRAINER_STATE_NAME).read_text())
    except (FileNotFoundError, ValueError):
        return False
    return True


def newest(work: Path) -> Path | None:
    return next(reversed(steps_of(work).values()), None)


def best(rewards: Mapping[int, float]) -> int:
    """Return the step with the highest held-out reward; the earliest of ties."""
    return max(sorted(rewards), key=lambda step: rewards[step])


def prune(work: Path, rewards: Mapping[int, float], n_best: int) -> None:
    """Keep the two newest checkpoints and those with the best held-out rewards (by step)."""
    saved = steps_of(work)
    by_reward = sorted((step for step in saved if step in rewards), key=lambda step: (-rewards[step], step))
    kept = {*list(saved)[-2:], *by_reward[:n_best]}
    for step, path in saved.items():
        if step not in kept:
            shutil.rmtree(path)


def drop_after(work: Path, step: int) -> None:
    """Remove the checkpoints after a step."""
    for saved, path in steps_of(work).items():
        if saved > step:
            shutil.rmtree(path)
