"""Checkpoints of a training run, in a folder that no rule owns, because Snakemake deletes the outputs of failed jobs.

They have two uses: to resume after a kill (the newest), and to choose the adapter from at the end (the best on held-out
prompts, and only those from before a collapse).

A training may be done in parts, each in a process of its own: one ends after `until_step`, the next continues from its
folder. Parts change no weights: the last one ends with the bytes of a training without them.

    part@1000/               the adapter of step 1000, training.jsonl
    part@1000/checkpoints/   all that the next part needs
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

from safetensors import SafetensorError, safe_open

from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, decode_json, read_text, writing
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS
from arc_refinery.training.samples import PIECE, copy_checkpoints

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"  # of a part
KEPT_STEP = "a step to keep"  # why a part has its adapter
_NAME = re.compile(r"checkpoint-(\d+)")
IDENTITY = "settings.txt"
STATE, _OPTIMIZER, _SCHEDULER = "trainer_state.json", "optimizer.pt", "scheduler.pt"  # written by transformers
_HASH = re.compile(rb"[0-9a-f]{16}|\0*")  # zeros: what some file systems leave after a power failure
# README.md: TRL's; the last but one: of `samples.Samples`
_OWN = re.compile(rf"{_NAME.pattern}|{re.escape(IDENTITY)}|README\.md|{PIECE.pattern}|\..*\.tmp")


def claim(work: Path, identity: str) -> None:
    """Remove checkpoints made with other settings or data, and record the identity of this training run.

    Raises `InputError` for a folder with anything else in it.
    """
    with writing(work / IDENTITY):
        work.mkdir(parents=True, exist_ok=True)
        if stranger := foreign(work):
            raise InputError(f"{work}: is not a folder of checkpoints: {stranger}. Name another, or move it away")
        if identity_of(work) != identity:  # else a kill while it is written again would cost the checkpoints
            if any(work.iterdir()):
                logger.info("%s: removing checkpoints of another training run", work)
                remove(work)
                work.mkdir(exist_ok=True)
            (work / IDENTITY).write_text(identity)


def foreign(work: Path) -> str:
    """Return what a folder holds that no training saves among its checkpoints; empty if there is nothing."""
    names = sorted(path.name for path in work.iterdir())
    if others := [name for name in names if not _OWN.fullmatch(name)]:
        return f"it holds {others[0]}"
    if not names:
        return ""
    if IDENTITY not in names:
        return f"it holds {names[0]}, but no {IDENTITY}"
    return "" if _HASH.fullmatch((work / IDENTITY).read_bytes()) else f"its {IDENTITY} is not that of a training"


def remove(work: Path) -> None:
    """Remove a training's own files in a folder, and the folder if that is all.

    A kill may come in between. So the newest checkpoint is the first: a training that resumes from an older one makes
    it again. Samples are needed as long as there is a checkpoint; the note that tells whose they are is the last.
    """
    note = work / IDENTITY
    saved = {int(match[1]): path for path in work.iterdir() if (match := _NAME.fullmatch(path.name))}
    for _, path in sorted(saved.items(), reverse=True):
        shutil.rmtree(path)
    for path in work.iterdir():
        if path != note and _OWN.fullmatch(path.name):
            path.unlink()
    note.unlink(missing_ok=True)
    if not any(work.iterdir()):
        work.rmdir()


def identity_of(work: Path) -> str:
    note = work / IDENTITY
    return note.read_bytes().decode(errors="replace") if note.is_file() else ""


def steps_of(work: Path) -> dict[int, Path]:
    """Return the folder's complete checkpoints by step, oldest first.

    A kill may leave one half-written. The trainer state is written last; without a valid one, a checkpoint is skipped.
    """
    saved = {int(match[1]): path for path in work.iterdir() if (match := _NAME.fullmatch(path.name))}
    return {step: path for step, path in sorted(saved.items()) if _is_complete(path)}


def _is_complete(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / STATE).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True


def newest(work: Path, until_step: int | None = None) -> Path | None:
    """Return the newest complete checkpoint up to `until_step`; remove newer ones, and those with damaged files."""
    for step, path in reversed(steps_of(work).items()):
        if until_step is None or step <= until_step:
            if not (fault := fault_of(path)):
                return path
            logger.warning("%s; training resumes from the checkpoint before it, if there is one", fault)
        shutil.rmtree(path)
    return None


def fault_of(checkpoint: Path) -> str:
    """Return which file of a complete checkpoint is missing, cut short or of another step; empty if none is.

    The libraries do not: without a file, training would continue with a new optimizer, or with other random numbers.
    """
    for name in (ADAPTER_WEIGHTS, _OPTIMIZER, _SCHEDULER):
        if not (checkpoint / name).is_file():
            return f"{checkpoint / name}: is missing"
    if len(list(checkpoint.glob("rng_state*.pth"))) != int(os.environ.get("WORLD_SIZE", "1")):  # one per process
        return f"{checkpoint / 'rng_state.pth'}: is missing"
    for path in sorted(checkpoint.rglob("*")):
        if path.suffix == ".safetensors":
            try:
                with safe_open(path, "pt"):
                    continue
            except SafetensorError:
                return f"{path}: is damaged"
        if path.suffix in (".pt", ".pth") and not is_zipfile(path):  # torch writes zip files, their index last
            return f"{path}: is damaged"
    return _fault_of_step(checkpoint)


def _fault_of_step(checkpoint: Path) -> str:
    """Return which file is of another step than the checkpoint's name says."""
    import torch

    step = int(checkpoint.name.rpartition("-")[2])
    read: dict[str, Any] = {STATE: json.loads((checkpoint / STATE).read_bytes())}
    for name in (_OPTIMIZER, _SCHEDULER):
        try:
            read[name] = torch.load(checkpoint / name, "cpu", weights_only=True)
        except (RuntimeError, UnpicklingError, EOFError, ValueError, KeyError):
            return f"{checkpoint / name}: is damaged"
    try:
        steps_in = {STATE: {read[STATE]["global_step"]}, _SCHEDULER: {read[_SCHEDULER]["last_epoch"]}}
        steps_in[_OPTIMIZER] = {int(row["step"]) for row in read[_OPTIMIZER]["state"].values() if "step" in row}
    except (KeyError, TypeError, AttributeError, ValueError):
        return f"{checkpoint}: its files are not those of a training"
    may_skip = (checkpoint / "scaler.pt").exists()  # in float16, steps whose gradients overflow
    for name, steps in steps_in.items():
        if others := [n for n in steps if n != step and not (may_skip and name != STATE and n < step)]:
            return f"{checkpoint / name}: is of step {others[0]}"
    return ""


def best(rewards: Mapping[int, float]) -> int:
    """Return the step with the highest held-out reward; the earliest of ties."""
    return max(sorted(rewards), key=lambda step: rewards[step])


def planned(work: Path, save_steps: int, last_step: int) -> list[int]:
    """Return the steps whose checkpoints every run of a training has; an interrupted one may have others, too."""
    return [step for step in steps_of(work) if step % save_steps == 0 or step == last_step]


def before_window(steps: Iterable[int], last_step: int, window: int) -> list[int]:
    """Return the steps whose weights sampled nothing in the last `window` steps.

    Step n samples with the weights of step n - 1. With several steps per batch, some sample with older ones: add
    `steps_per_batch` - 1 to the window.
    """
    return [step for step in steps if step < last_step - window]


def prune(work: Path, rewards: Mapping[int, float], n_best: int, save_steps: int, last_step: int, window: int) -> None:
    """Keep those of the planned checkpoints that are needed later.

    These are the best by held-out reward (`rewards`, by step), and the newest one from before a collapse at
    `last_step`, which is saved, with all after it: at least two, if there are two.
    """
    steps = planned(work, save_steps, last_step)
    by_reward = sorted((step for step in steps if step in rewards), key=lambda step: (-rewards[step], step))
    oldest = max(before_window(steps, last_step, window), default=0)
    needed = {*by_reward[:n_best], *(step for step in steps if step >= oldest)}
    for step, path in steps_of(work).items():
        if step not in needed:
            shutil.rmtree(path)


def take_over(part: Path, work: Path, until_step: int | None = None) -> None:
    """Fill the folder `work`, if it is only claimed yet, with the folder `part` of an earlier part of the training.

    The part must end before `until_step`.
    """
    if any(path.name != IDENTITY for path in work.iterdir()):
        return
    if not part.is_dir() or identity_of(part) != identity_of(work):
        raise InputError(
            f"{part}: is not an earlier part of this training; its settings or data differ. Train that part again"
        )
    _check_part(part, until_step)
    with atomic_write(work) as copy:
        copy_checkpoints(part, copy)


def _check_part(part: Path, until_step: int | None) -> None:
    """Raise unless a part of a training, if no collapse ended it, holds the whole state after its last step."""
    log = part.parent / "training.jsonl"
    last = decode_json(
        read_text(log, "a training log").rstrip().rpartition("\n")[2], f"{log}: its last line", "a choice"
    )
    match last:
        case {"chosen": {"step": int(step), "why": str(why)}}:
            if why != KEPT_STEP:
                return
        case _:
            raise InputError(f"{log}: does not end with the step that was chosen; train that part again")
    if until_step is not None and until_step <= step:
        raise InputError(
            f"until_step is {until_step}, but the part before, {part.parent}, ends after step {step}; expected a later "
            "step"
        )
    import torch
    from safetensors.torch import load_file

    saved = part / f"checkpoint-{step}"
    if step not in steps_of(part):
        fault = f"{saved / STATE}: is missing or cannot be read"
    elif not (fault := fault_of(saved)):
        ours, theirs = (load_file(folder / ADAPTER_WEIGHTS) for folder in (part.parent, saved))
        is_same = ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
        fault = "" if is_same else f"{saved / ADAPTER_WEIGHTS}: holds other weights than {part.parent}"
    if fault:
        raise InputError(
            f"{fault}, so training cannot continue from there. Make that part again: delete {part.parent}, then run "
            f"snakemake {part.parent}, or do its own job with until_step {step}"
        )
