"""Names of GPUs as a scheduler gives them, completed for vLLM.

HTCondor may put the first digits of a UUID into CUDA_VISIBLE_DEVICES (`GPU-6a96bd13`). CUDA completes them itself;
vLLM 0.31 takes only whole UUIDs and numbers (vLLM issue 51677).
"""

import logging
import os
import re
import subprocess

VARIABLE = "CUDA_VISIBLE_DEVICES"
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BEGINNING = re.compile(r"(GPU|MIG)-[0-9a-f-]+")

logger = logging.getLogger(__name__)


def complete_visible_devices() -> None:
    """Replace beginnings of UUIDs in CUDA_VISIBLE_DEVICES by the whole; call it before vLLM is imported.

    Other forms (numbers, whole UUIDs, `MIG-GPU-.../1/0`) stay as they are. A name that fits no GPU, or several, stays
    too, and a warning says so.
    """
    names = os.environ.get(VARIABLE, "").split(",")
    short = [name for name in names if _BEGINNING.fullmatch(name) and not _UUID.fullmatch(name)]
    if not short:
        return
    known = _known_uuids()
    whole = {name: [uuid for uuid in known if uuid.startswith(name)] for name in short}
    for name, found in whole.items():
        if len(found) == 1:
            logger.info("%s: %s is %s", VARIABLE, name, found[0])
        else:
            logger.warning(
                "%s: %s begins %d of the names that `nvidia-smi -L` shows (%s), expected 1: vLLM will not find it",
                VARIABLE, name, len(found), ", ".join(known) or "none",
            )  # fmt: skip
    os.environ[VARIABLE] = ",".join(whole[name][0] if len(whole.get(name, [])) == 1 else name for name in names)


def _known_uuids() -> list[str]:
    """Of GPUs and of their MIG parts."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s: `nvidia-smi -L`, which would complete names of GPUs, failed: %s", VARIABLE, error)
        return []
    return [found[0] for found in _UUID.finditer(listed)]
