"""Run a training in several processes: `accelerate launch` starts this command again, once per process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType

from arc_refinery.errors import InputError
from arc_refinery.runs.ending import SNAKEMAKE
from arc_refinery.sampling.library_arguments import ENDING_VARIABLE, accelerate_launch

ENDING_SECONDS = 300  # for the first process, to save after SIGTERM; then all are killed
MESSAGE = "arc-refinery: "  # begins the message with which a command ends


def is_launched() -> bool:
    """Whether this is one of the processes."""
    return "LOCAL_RANK" in os.environ


def run_until(is_done: Callable[[], bool], n_processes: int) -> None:
    """Run this command in `n_processes`, which end as one; again after a collapse, until it is done."""
    _run(n_processes)
    while not is_done():
        _run(n_processes)


def _run(n_processes: int) -> None:
    command = accelerate_launch(n_processes, [sys.executable, *sys.orig_argv[1:]])
    variables = {ENDING_VARIABLE: str(ENDING_SECONDS), SNAKEMAKE: str(os.getpid())}  # they end with this process
    has_to_end, message = False, ""

    def end(number: int, _: FrameType | None) -> None:
        nonlocal has_to_end
        has_to_end = True
        launcher.send_signal(number)  # to all processes

    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, errors="replace", env=os.environ | variables
    ) as launcher:
        before = signal.signal(signal.SIGTERM, end)
        assert launcher.stderr
        for line in launcher.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            if line.startswith(MESSAGE):
                message = message or line.removeprefix(MESSAGE).strip()
    signal.signal(signal.SIGTERM, before)
    if has_to_end:
        os.kill(os.getpid(), signal.SIGTERM)
    if launcher.returncode:
        raise InputError(message or f"one of {n_processes} processes failed; the first traceback above says why")
