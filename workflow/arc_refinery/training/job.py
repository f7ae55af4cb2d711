"""A GRPO training as a stage runs it: its settings and paths, in one process or in several of `accelerate launch`.

The stage `train` of a kind of experiment supplies the environment:

    train(TrainingJob(model, lora, ...), environment)

With `n_processes`, the job becomes `accelerate launch` with itself, and each process of the training is this job.
Nothing here imports torch, because Unsloth has to be imported first.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arc_refinery.config import PROMPTS, TUNING, Guard, Lora, ModelConfig, PolicyGradient, Sandbox, marked
from arc_refinery.errors import InputError
from arc_refinery.runs.ending import ending_with
from arc_refinery.sampling.gpus import keep_gpus, let_segments_grow
from arc_refinery.sampling.library_arguments import accelerate_launch

if TYPE_CHECKING:
    from arc_refinery.training.trainer import Environment


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Settings and paths of one training run."""

    model: ModelConfig
    lora: Lora
    training: PolicyGradient
    guard: Guard
    sandbox: Sandbox
    seed: int
    start: Path | None  # adapter to start from; None: a fresh one
    output: Path  # folder: the adapter and training.jsonl
    work: Path  # folder: checkpoints
    measurements: Path | None  # file: seconds and memory per step
    tensorboard: Path  # folder
    until_step: int | None = None  # a part of the run ends after this step; None: the whole run, or its last part
    before: Path | None = None  # `output` of the part before

    def identity(self, environment: "Environment") -> str:
        """Return a hash of everything that affects the adapter."""
        from arc_refinery import records
        from arc_refinery.files import content_hash
        from arc_refinery.sampling.checks import ADAPTER_WEIGHTS

        own = self.training.own_advantage
        return records.settings_hash(
            {
                "model": self.model.model_dump(exclude=marked(type(self.model), PROMPTS)),
                "lora": self.lora.model_dump(),
                "training": self.training.model_dump(exclude=marked(type(self.training), TUNING)),
                "guard": self.guard.model_dump(),
                "sandbox": self.sandbox.model_dump(),
                "seed": self.seed,
                "start": "" if self.start is None else content_hash([self.start / ADAPTER_WEIGHTS]),
                "environment": environment.identity(),
                **({"advantage": content_hash([own.path])} if own else {}),
            }
        )

    def check_steps(self) -> None:
        """Raise `InputError` unless the part of the run ends with a checkpoint."""
        step, last = self.until_step, self.training.max_steps
        if step and step % self.training.save_steps:
            raise InputError(f"until_step is {step}; expected a multiple of save_steps = {self.training.save_steps}")
        if step and 0 < last < step:
            raise InputError(f"until_step is {step}, but the training ends at max_steps = {last}; lower it")


def train(job: TrainingJob, open_environment: Callable[[], "Iterator[Environment]"]) -> None:
    """Train until the adapter is written, in as many processes as the settings say.

    `open_environment` yields the environment in each process, and then closes what it has opened, as a pytest fixture.
    """
    job.check_steps()
    keep_gpus(job.training.n_training_processes)
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
