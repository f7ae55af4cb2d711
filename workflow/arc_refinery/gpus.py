"""Complete the GPU names that a scheduler sets, for vLLM.

HTCondor may set CUDA_VISIBLE_DEVICES to the first digits of a UUID (`GPU-6a96bd13`). CUDA completes them itself; vLLM
0.31 accepts only whole UUIDs and numbers (vLLM issue 51677).
"""

import logging
import os
import re
import subprocess

VARIABLE = "CUDA_VISIBLE_DEVICES"
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_PREFIX = re.compile(r"(GPU|MIG)-[0-9a-f-]+")

logger = logging.getLogger(__name__)


def complete_visible_devices() -> None:
    """Replace prefixes of UUIDs in CUDA_VISIBLE_DEVICES by whole UUIDs; call this before importing vLLM.

    Other forms (numbers, whole UUIDs, `MIG-GPU-.../1/0`) are kept. A prefix that matches no GPU, or several, is also
    kept, with a warning.
    """
    names = os.environ.get(VARIABLE, "").split(",")
    short = [name for name in names if _UUID_PREFIX.fullmatch(name) and not _UUID.fullmatch(name)]
    if not short:
        return
    known = _known_uuids()
    whole = {name: [uuid for uuid in known if uuid.startswith(name)] for name in short}
    for name, found in whole.items():
        if len(found) == 1:
            logger.info("%s: %s is %s", VARIABLE, name, found[0])
        else:
            logger.warning(
                "%s: %s is the start of %d names in `nvidia-smi -L` (%s), expected 1: vLLM will not find it",
                VARIABLE, name, len(found), ", ".join(known) or "none",
            )  # fmt: skip
    os.environ[VARIABLE] = ",".join(whole[name][0] if len(whole.get(name, [])) == 1 else name for name in names)


def _known_uuids() -> list[str]:
    """Return the UUIDs of GPUs and of their MIG instances."""
    try:
        output = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s: `nvidia-smi -L`, which would complete names of GPUs, failed: %s", VARIABLE, error)
        return []
    return [found[0] for found in _UUID.finditer(output)]
