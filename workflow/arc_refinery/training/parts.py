"""Parts of a training, each in a process of its own: one ends after `until_step`, the next continues from its folder.

    part@1000/               the adapter of step 1000, training.jsonl
    part@1000/checkpoints/   all that the next part needs

Parts change no weights: the last one ends with the bytes of a training without them.
"""

from pathlib import Path

from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, decode_json, read_text
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS
from arc_refinery.training.checkpoints import IDENTITY, STATE, fault_of, identity_of, steps_of
from arc_refinery.training.log import Choice
from arc_refinery.training.samples import copy_checkpoints

FOLDER = "checkpoints"
KEPT_STEP = "a step to keep"  # why a part has its adapter


def last_step_of(until_step: int, last_step: int) -> Choice:
    """Return the adapter of a part that no collapse has ended."""
    if last_step < until_step:
        raise InputError(
            f"training ended after step {last_step}, but the adapter of step {until_step} is to be kept: remove that "
            "step from training.keep_steps, or train for longer"
        )
    return Choice(until_step, KEPT_STEP)


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
    saved = part / f"checkpoint-{step}"
    if step not in steps_of(part):
        fault = f"{saved / STATE}: is missing or cannot be read"
    elif not (fault := fault_of(saved)) and not _have_equal_weights(part.parent, saved):
        fault = f"{saved / ADAPTER_WEIGHTS}: holds other weights than {part.parent}"
    if fault:
        raise InputError(
            f"{fault}, so training cannot continue from there. Make that part again: delete {part.parent}, then run "
            f"snakemake {part.parent}, or do its own job with until_step {step}"
        )


def _have_equal_weights(first_folder: Path, second_folder: Path) -> bool:
    import torch
    from safetensors.torch import load_file

    first, second = (load_file(folder / ADAPTER_WEIGHTS) for folder in (first_folder, second_folder))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
