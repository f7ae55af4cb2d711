"""The processes that share a training: each has a GPU and a share of every step's completions; the first one writes.

`accelerate launch` starts them (`job.train`). In a training with one process, nothing here does anything.
"""

import logging
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import PartialState
from torch import distributed

from arc_refinery.errors import InputError
from arc_refinery.runs.ending import ending_with

T = TypeVar("T")


def join(n: int) -> None:
    """Meet the other processes of a training with `n` of them, and choose this one's GPU. Only the first one logs."""
    if (n_started := int(os.environ.get("WORLD_SIZE", "1"))) != n:
        raise InputError(f"n_processes is {n}, but {n_started} were started; start one, which starts the others")
    if n > 1:
        PartialState(cpu=not torch.cuda.is_available())
        # On CPUs, accelerate calls the device of several processes cpu:0, where torch cannot load an optimizer
        torch.serialization.register_package(
            0, lambda _: None, lambda storage, device: storage if device == "cpu:0" else None
        )
        if not is_first():
            logging.getLogger().setLevel(logging.WARNING)


def count() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def index() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def is_first() -> bool:
    return index() == 0


def broadcast(value: T) -> T:
    """Return the value that the first process has. All must call this, as all functions below."""
    if count() == 1:
        return value
    values = [value]
    distributed.broadcast_object_list(values)
    return values[0]


def on_first(make: Callable[[], T]) -> T:
    """Return the result of a function that only the first process calls; the others wait for it."""
    return broadcast(make() if is_first() else None)  # type: ignore[return-value]


def gather(values: list[T]) -> list[T]:
    """Return the values of all processes, in the order of the processes."""
    if count() == 1:
        return values
    lists: list[list[T]] = [[] for _ in range(count())]
    distributed.all_gather_object(lists, values)
    return [value for values in lists for value in values]


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


def share_random_state() -> None:
    """Continue in all processes with the random state of the first one, whose GPU is the first, too."""
    state = broadcast(RandomState())
    replace(state, gpus=state.gpus[:1] * len(state.gpus)).restore()


@contextmanager
def leaving_signals_to(first: int) -> Iterator[None]:
    """Ignore SIGTERM, after which the first process (its id) saves and ends; then this one ends, too."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with ending_with(first):
        yield
    signal.signal(signal.SIGTERM, before)
