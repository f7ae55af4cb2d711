"""The order of prompts in an epoch, as a function of the epoch's number.

TRL's sampler draws the next order from a generator that only ever runs forward, so a training that is resumed in its
third epoch would begin with the order of the first.
"""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler
from trl.trainer.utils import RepeatSampler


class PromptOrder(Sampler[int]):
    """Rows of a dataset in the order of `sampler`; transformers calls `set_epoch` before each epoch."""

    def __init__(self, sampler: RepeatSampler) -> None:
        self.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        self.sampler.generator.manual_seed(self.sampler.seed)
        for _ in range(epoch):
            torch.randperm(self.sampler.num_samples, generator=self.sampler.generator)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)
