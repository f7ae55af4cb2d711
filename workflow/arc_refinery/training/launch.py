"""A GRPO training as a command runs it: in one process, or in several that `accelerate launch` starts.

The command of a kind of experiment supplies the environment:

    train(self.job(self.training, window, sandbox), self.environment)

With `n_processes`, the command becomes `accelerate launch` with itself, and each process of the training is this
command. Nothing here imports torch, because Unsloth has to be imported first.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from arc_refinery.errors import InputError
from arc_refinery.runs.ending import ending_with
from arc_refinery.sampling.gpus import let_segments_grow
from arc_refinery.sampling.library_arguments import accelerate_launch
from arc_refinery.training.job import TrainingJob

if TYPE_CHECKING:
    from arc_refinery.training.environment import Environment


def train(job: TrainingJob, open_environment: Callable[[], "Iterator[Environment]"]) -> None:
    """Train until the adapter is written, in as many processes as the settings say.

    `open_environment` yields the environment in each process, and then closes what it has opened, as a pytest fixture.
    """
    n, n_started = job.training.n_training_processes, int(os.environ.get("WORLD_SIZE", "1"))
    if n > 1 and "LOCAL_RANK" not in os.environ:
        command = accelerate_launch(n, [sys.executable, *sys.orig_argv[1:]])
        os.execv(command[0], command)
    if n_started != n:
        raise InputError(f"n_processes is {n}, but {n_started} were started; start one, which starts the others")
    if int(os.environ.get("RANK", "0")):  # only the first process logs
        logging.getLogger().setLevel(logging.WARNING)
    if job.training.trains_with_unsloth:
        from arc_refinery.training import unsloth_backend  # noqa: F401  # replaces parts of trl, so it comes first
    let_segments_grow()
    from arc_refinery.training.grpo import train_grpo

    launcher = ending_with(os.getppid()) if n > 1 else nullcontext()  # torchrun leaves processes behind if it is killed
    with launcher, contextmanager(open_environment)() as environment:
        train_grpo(job, environment)
