"""Checkpoints of a training: in a folder that no rule owns, because Snakemake deletes the outputs of failed jobs.

They are kept for three reasons: to go on after a kill (the newest), to go back to before a collapse, and to choose from
in the end (the best on held-out prompts).
"""

import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)")


def claim(work: Path, identity: str) -> None:
    """Make the folder ours: forget what was made with other settings or data, and note what decides ours."""
    note = work / "settings.txt"
    if work.exists() and (not note.exists() or note.read_text() != identity):
        logger.info("%s: holds checkpoints of another training; they are removed", work)
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    note.write_text(identity)


def steps_of(work: Path) -> dict[int, Path]:
    """The checkpoints in the folder by their step, oldest first.

    A kill may come while one is written: the state is the last file of a checkpoint, and without a whole one none
    counts.
    """
    found = {int(match[1]): path for path in work.iterdir() if (match := _NAME.fullmatch(path.name))}
    return {step: path for step, path in sorted(found.items()) if _is_whole(path)}


def _is_whole(checkpoint: Path) -> bool:
    from transformers.trainer import TRAINER_STATE_NAME  # only trainers ask, and they have imported it

    try:
        json.loads((checkpoint / TRAINER_STATE_NAME).read_text())
    except (FileNotFoundError, ValueError):
        return False
    return True


def newest(work: Path) -> Path | None:
    return next(reversed(steps_of(work).values()), None)


def best(rewards: Mapping[int, float]) -> int:
    """The step with the highest held-out reward, the earliest of equal ones."""
    return max(sorted(rewards), key=lambda step: rewards[step])


def prune(work: Path, rewards: Mapping[int, float], n_best: int) -> None:
    """Keep the two newest checkpoints and those with the best held-out rewards (by step)."""
    there = steps_of(work)
    by_reward = sorted((step for step in there if step in rewards), key=lambda step: (-rewards[step], step))
    kept = {*list(there)[-2:], *by_reward[:n_best]}
    for step, path in there.items():
        if step not in kept:
            shutil.rmtree(path)


def drop_after(work: Path, step: int) -> None:
    """Forget what a training made after a step."""
    for made, path in steps_of(work).items():
        if made > step:
            shutil.rmtree(path)
