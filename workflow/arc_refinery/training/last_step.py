"""Save the last whole step when SIGTERM ends a training: an evicted job loses a step, not `save_steps` of them.

Weights change only in the optimizer's step. Until then, the state is that after the last whole step, but for the random
numbers drawn and the tokens counted since; so theirs is kept. A signal during the optimizer's step, or during the
logging, evaluation and saving that follow it, waits for their end. Where several steps learn from one batch of
completions, it waits for the last of them: training can resume only before a new batch.

Several processes save nothing then, because their random numbers differ: they resume from the last checkpoint.
"""

import logging
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl

from arc_refinery.files import writing
from arc_refinery.training.checkpoints import steps_of

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:
    Base = object

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RandomState:
    """State of every generator that a checkpoint of transformers holds."""

    python: Any = field(default_factory=random.getstate)
    numpy: Any = field(default_factory=np.random.get_state)
    cpu: torch.Tensor = field(default_factory=torch.get_rng_state)
    gpus: list[torch.Tensor] = field(default_factory=torch.cuda.get_rng_state_all)

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        torch.cuda.set_rng_state_all(self.gpus)


class SavesLastStep(Base):
    """A trainer of transformers that saves its last whole step at SIGTERM, and then ends as it would without.

    Inherit from it before the trainer's class.
    """

    control: TrainerControl
    steps_per_batch = 1  # steps made with one batch of completions
    # After the last whole step of this process
    _random: RandomState | None = None
    _n_tokens = 0
    _is_updating = False
    _has_to_end = False

    def train(self, *arguments: Any, **named: Any) -> Any:
        self.add_callback(_BeginsToUpdate(self))
        with _at_sigterm(self._end) if self.args.world_size == 1 else nullcontext():
            return super().train(*arguments, **named)

    def _run_epoch(self, *arguments: Any, **named: Any) -> None:
        """Train no step after the last one: transformers would, from its checkpoint, if an epoch goes on after it."""
        self.control.should_training_stop |= self.state.global_step >= self.state.max_steps
        if not self.control.should_training_stop:
            super()._run_epoch(*arguments, **named)

    def begin_update(self) -> None:
        self._is_updating = True

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        """Save as the library does; where a file cannot be written, name the folder and what to do."""
        checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        with writing(checkpoint, SafetensorError, RuntimeError):  # RuntimeError: torch's
            super()._save_checkpoint(*arguments, **named)

    def _maybe_log_save_evaluate(self, *arguments: Any, **named: Any) -> None:
        super()._maybe_log_save_evaluate(*arguments, **named)
        self._random, self._n_tokens = RandomState(), self.state.num_input_tokens_seen
        self._is_updating = False
        if self._has_to_end:
            os.kill(os.getpid(), signal.SIGTERM)

    def _end(self) -> bool:
        """Save; return whether the process can end."""
        self._has_to_end = True
        if self._is_updating:
            return False
        if self.control.should_training_stop:  # at its end, or a collapse: all that may be saved is saved
            return True
        step = self.state.global_step
        if step % self.steps_per_batch:
            return False
        if self._random and step not in steps_of(Path(self.args.output_dir)):
            self._random.restore()
            self.state.num_input_tokens_seen = self._n_tokens
            self._save_checkpoint(self.model, trial=None)
            logger.info("SIGTERM: step %d is saved; run the same command again to resume", step)
        return True


class _BeginsToUpdate(TrainerCallback):
    def __init__(self, trainer: SavesLastStep) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.begin_update()


@contextmanager
def _at_sigterm(end: Callable[[], bool]) -> Iterator[None]:
    """Call `end` at SIGTERM; if it returns True, do what SIGTERM did before."""

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one while the first is handled
        if end():
            signal.signal(number, before)
            os.kill(os.getpid(), number)
        else:
            signal.signal(number, handle)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
