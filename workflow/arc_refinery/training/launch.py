"""A GRPO training as a command runs it: its GPUs and processes.

The command of a kind of experiment supplies the environment:

    train(self.job(self.training, window, sandbox), self.environment)

Each process of a training is this command, started again by `accelerate launch`. Nothing here imports torch, because
Unsloth has to be imported first.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from arc_refinery.errors import InputError
from arc_refinery.runs.ending import SNAKEMAKE
from arc_refinery.sampling.gpus import let_segments_grow
from arc_refinery.sampling.library_arguments import ENDING_VARIABLE, accelerate_launch
from arc_refinery.training.job import TrainingJob

if TYPE_CHECKING:
    from arc_refinery.training.environment import Environment

ENDING_SECONDS = 300  # for the first process, to save after SIGTERM; then all are killed
MESSAGE = "arc-refinery: "  # begins the message with which a command ends


def train(job: TrainingJob, open_environment: Callable[[], "Iterator[Environment]"]) -> None:
    """Train until the adapter is written, in as many processes as the settings say.

    `open_environment` yields the environment in each process, and then closes what it has opened, as a pytest fixture.
    """
    n_processes = job.training.n_training_processes
    if n_processes > 1 and "LOCAL_RANK" not in os.environ:
        _run(n_processes)
        return
    if job.training.trains_with_unsloth:
        from arc_refinery.training import unsloth_backend  # noqa: F401  # replaces parts of trl, so it comes first
    let_segments_grow()
    from arc_refinery.training import processes
    from arc_refinery.training.grpo import train_grpo

    processes.join(n_processes)
    with contextmanager(open_environment)() as environment:
        train_grpo(job, environment)


def _run(n_processes: int) -> None:
    """Run this command in `n_processes`, which end as one."""
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
