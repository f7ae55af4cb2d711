"""An environment has the prompts to train on, and says how completions are sampled and scored; each kind has one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from datasets import Dataset, IterableDataset

from arc_refinery.errors import InputError
from arc_refinery.seeding import stream
from arc_refinery.training.trainer import Trainer


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Rows of a TRL dataset: `prompt`, and any other columns that the environment needs."""

    train: Dataset | IterableDataset
    heldout: Dataset | None

    @classmethod
    def split(cls, rows: Sequence[dict[str, Any]], n_heldout: int, seed: int) -> "TrainingData":
        """Hold out `n_heldout` rows from training, at random."""
        if not rows:
            raise InputError("there are no prompts to train on: no row is left of the files that the training reads")
        if n_heldout >= len(rows):
            raise InputError(f"n_heldout = {n_heldout} leaves nothing to train on: there are {len(rows)} prompts")
        held_out = set(stream(seed, "heldout prompts").permutation(len(rows)).tolist()[:n_heldout])
        train = [row for index, row in enumerate(rows) if index not in held_out]
        heldout = [rows[index] for index in sorted(held_out)]
        return cls(Dataset.from_list(train), Dataset.from_list(heldout) if heldout else None)


class Environment(Protocol):
    data: TrainingData

    def identity(self) -> dict[str, Any]:
        """Return everything that affects the trained adapter, for the hash that rejects stale checkpoints."""
        ...

    def arguments(self) -> dict[str, Any]:
        """Return the environment's part of `GRPOConfig`: `max_completion_length`, ..."""
        ...

    @property
    def longest_completion(self) -> int:
        """Tokens of the longest completion, with all of its turns and what is between them."""
        ...

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        """Return the trainer; `ends` are the token ids that end a completion."""
        ...
