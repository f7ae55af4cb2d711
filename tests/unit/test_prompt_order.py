"""Prompts of a resumed training, against those of one that was not disturbed, with the loaders of the real trainer."""

from typing import Any

import pytest
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import DataLoaderShard
from torch.utils.data import DataLoader
from trl.trainer.utils import RepeatSampler

from arc_refinery.training.trainer import PromptOrder

pytestmark = pytest.mark.model  # imports TRL

ROWS: Any = [f"prompt {place}" for place in range(7)]
N_EPOCHS, N_BATCHES = 3, 6  # batches of two prompts, each read twice in a row and each pair repeated: 7 // 2 * 2


def loader() -> DataLoaderShard:
    sampler = PromptOrder(RepeatSampler(ROWS, mini_repeat_count=2, batch_size=2, repeat_count=2, seed=5))
    return Accelerator(cpu=True).prepare_data_loader(DataLoader(ROWS, batch_size=4, sampler=sampler))


def read(epoch: int, batches: DataLoaderShard) -> list[list[str]]:
    batches.set_epoch(epoch)
    return list(batches)


def undisturbed() -> list[list[list[str]]]:
    batches = loader()
    return [read(epoch, batches) for epoch in range(N_EPOCHS)]


def test_undisturbed_epochs_are_those_of_trl():
    sampler = RepeatSampler(ROWS, mini_repeat_count=2, batch_size=2, repeat_count=2, seed=5)
    rows = [[ROWS[place] for place in sampler] for _ in range(N_EPOCHS)]
    assert [[row for batch in epoch for row in batch] for epoch in undisturbed()] == rows
    assert rows[0] != rows[1] != rows[2] != rows[0]


@pytest.mark.parametrize("n_done", range(N_EPOCHS * N_BATCHES))
def test_a_training_resumed_after_any_batch_reads_what_is_left(n_done: int):
    epochs = undisturbed()
    first, n_skipped = divmod(n_done, N_BATCHES)
    batches = loader()
    left = [read(first, skip_first_batches(batches, n_skipped))]
    left += [read(epoch, batches) for epoch in range(first + 1, N_EPOCHS)]
    assert left == [epochs[first][n_skipped:], *epochs[first + 1 :]]
