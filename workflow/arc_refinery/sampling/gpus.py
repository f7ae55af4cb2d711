"""The GPUs of a job, and environment variables of CUDA and vLLM.

Names that a scheduler sets are completed, checked, and divided between trainer and sampler.

HTCondor may set CUDA_VISIBLE_DEVICES to the first digits of a UUID (`GPU-6a96bd13`). CUDA completes them itself; vLLM
0.31 accepts only whole UUIDs and numbers (vLLM issue 51677).
"""

import logging
import os
import re
import subprocess
from shutil import which

from arc_refinery.errors import InputError

VARIABLE = "CUDA_VISIBLE_DEVICES"
ALLOCATOR = "PYTORCH_ALLOC_CONF"  # torch 2.10 and newer read it when CUDA starts; older name: PYTORCH_CUDA_ALLOC_CONF
GROWING = "expandable_segments:True"
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_PREFIX = re.compile(r"(GPU|MIG)-[0-9a-f-]+")

logger = logging.getLogger(__name__)


def complete_visible_devices() -> None:
    """Replace prefixes of UUIDs in CUDA_VISIBLE_DEVICES by whole UUIDs; call this before importing vLLM.

    Other forms (numbers, whole UUIDs, `MIG-GPU-.../1/0`) are kept; of MIG, `check_mig` refuses some. A prefix that
    matches no GPU, or several, is also kept, with a warning.
    """
    names = os.environ.get(VARIABLE, "").split(",")
    short = [name for name in names if _UUID_PREFIX.fullmatch(name) and not _UUID.fullmatch(name)]
    if not short:
        return
    all_uuids = _known_uuids()
    whole = {name: [uuid for uuid in all_uuids if uuid.startswith(name)] for name in short}
    for name, uuids in whole.items():
        if len(uuids) == 1:
            logger.info("%s: %s is %s", VARIABLE, name, uuids[0])
        else:
            logger.warning(
                "%s: %s is the start of %d names in `nvidia-smi -L` (%s), expected 1: vLLM will not find it",
                VARIABLE, name, len(uuids), ", ".join(all_uuids) or "none",
            )  # fmt: skip
    os.environ[VARIABLE] = ",".join(whole[name][0] if len(whole.get(name, [])) == 1 else name for name in names)


def check_mig() -> None:
    """Raise `InputError` if vLLM would not find a MIG instance in CUDA_VISIBLE_DEVICES.

    NVML numbers the instances of each GPU from 0. vLLM 0.31 takes this number for that of a GPU, and ends if there is
    none (vllm/platforms/cuda.py, `device_control_id_to_physical_device_id`).
    """
    parts = [name for name in os.environ.get(VARIABLE, "").split(",") if name.startswith("MIG-")]
    if not parts:
        return
    import pynvml

    try:
        pynvml.nvmlInit()
        for name in parts:
            pynvml.nvmlDeviceGetHandleByIndex(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(name)))
    except pynvml.NVMLError as error:
        raise InputError(
            f"{VARIABLE} is {','.join(parts)}, but vLLM 0.31 would not find this MIG instance ({error}): it takes its "
            "number in its GPU for the number of a GPU; pin machines without MIG (requirements, docs/run.md), or "
            "sample with transformers"
        ) from None


def keep_gpus(n_own: int) -> None:
    """Leave the training `n_own` of the visible GPUs; call this before CUDA starts.

    A process that is alone must see one GPU: transformers would spread its batches over all. Raise `InputError` if
    there are too few, but not if there are none at all, because a training can run on CPUs.
    """
    visible = os.environ.get(VARIABLE)
    if visible is None:
        uuids = _known_uuids() if which("nvidia-smi") else []
        names = [name for name in uuids if name.startswith("GPU-")]
    else:
        names = [name for name in visible.split(",") if name]
    if 0 < len(names) < n_own:
        raise InputError(
            f"n_processes = {n_own} need a GPU each, but {len(names)} are visible ({', '.join(names)}); set "
            f"resources.train.gpus to {n_own}, or n_processes to {len(names)}"
        )
    own = ",".join(names[:n_own])
    if len(names) > n_own:
        os.environ[VARIABLE] = own
        logger.info("%s: training uses %s of %s", VARIABLE, own, ", ".join(names))


def let_segments_grow() -> None:
    """Let PyTorch extend its blocks of GPU memory: the rows of each step have other lengths, and would fragment it.

    Call this before CUDA starts. A setting of the user's is kept. vLLM 0.31 turns it off for the memory that its sleep
    mode gives back (vllm/device_allocator/cumem.py).
    """
    if not {ALLOCATOR, "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ[ALLOCATOR] = GROWING


def set_vllm_variables() -> None:
    """Set the variables that the user has not set. Call this before importing vLLM; TRL imports it where it can."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # else it sends usage statistics
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # forking fails once CUDA is initialised
    # FlashInfer's sampler is compiled when the engine starts, which ends where there is no nvcc (vLLM issue 49497). Our
    # requests have seeds or want log-probabilities after top-p, and vLLM takes its own sampler for those anyway.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")


def _known_uuids() -> list[str]:
    """Return the UUIDs of GPUs and of their MIG instances."""
    try:
        output = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s: `nvidia-smi -L`, which would complete names of GPUs, failed: %s", VARIABLE, error)
        return []
    return [uuid[0] for uuid in _UUID.finditer(output)]
