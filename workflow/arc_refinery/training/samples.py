"""Completions that a training samples, with their rewards: `samples.parquet` beside the adapter, one row for each.

While it trains, rows are in files of its folder of checkpoints, each with the steps since the one before:

    samples-10.parquet    steps 1 to 10
    samples-20.parquet    steps 11 to 20

A file is written before the checkpoint of its last step. Training that resumes from a checkpoint removes later files,
and samples their steps again: no row is missing or there twice.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery import records

FILE = "samples.parquet"
PIECE = re.compile(r"samples-(\d+)\.parquet")
MOST_WAITING = 2048  # completions in memory


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of a completion: a turn of the model, or what is between two of them."""

    text: str
    n_tokens: int
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class TermValue:
    """A term of the reward, without its weight."""

    term: str
    value: float


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A completion that GRPO learned from."""

    KIND: ClassVar = "training samples"
    sample_id: str  # <step>/<number in the step>; completions of a group are consecutive
    step: int  # the first one that learned from it
    name: str  # id of its prompt or question
    spans: tuple[Span, ...]
    is_truncated: bool
    status: str  # outcome of its program; empty if there was none to run
    solved: bool
    reward: float
    terms: tuple[TermValue, ...]
    advantages: tuple[float, ...]  # one for all turns, or one for each
    # Mean log-probability of the sampled tokens (nats), by the sampler and by the trainer before the step; None if this
    # training does not compute it
    sampler_logprob: float | None
    trainer_logprob: float | None


class Samples:
    """The completions of a training; `work` is the folder of checkpoints."""

    def __init__(self, work: Path, seed: int) -> None:
        self._work = work
        self._seed = seed
        self._waiting: list[TrainingSample] = []

    def resume(self, step: int) -> None:
        """Forget the completions after a step."""
        for last, path in pieces(self._work).items():
            if last > step:
                path.unlink()

    def add(self, step: int, completions: Sequence[Mapping[str, Any]]) -> None:
        """Keep the completions that a step is the first one to learn from: the other fields of `TrainingSample`."""
        if len(self._waiting) > MOST_WAITING:
            self.save(step - 1)
        self._waiting += [
            TrainingSample(f"{step}/{number:04d}", step, **completion) for number, completion in enumerate(completions)
        ]

    def save(self, step: int) -> None:
        """Write those up to a step that are not written yet."""
        done = [sample for sample in self._waiting if sample.step <= step]
        if done:
            path = self._work / f"samples-{step}.parquet"
            records.write(path, TrainingSample, done, self._seed, {})
        self._waiting = self._waiting[len(done) :]  # only now: SIGTERM may have come, and have saved them, too

    def write(self, path: Path) -> None:
        """Write one file of all completions; none if an earlier version kept none."""
        kept = pieces(self._work)
        if not kept:
            return
        with records.writer(path, TrainingSample, self._seed, {}) as add:
            for piece in kept.values():
                for batch in pq.ParquetFile(piece).iter_batches(records.ROWS_PER_GROUP):
                    add(pa.Table.from_batches([batch]))


def pieces(work: Path) -> dict[int, Path]:
    """Return the files in a folder of checkpoints by their last step, in order."""
    matches = ((PIECE.fullmatch(path.name), path) for path in work.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def spans(tokenizer: Any, ids: Sequence[int], is_sampled: Sequence[bool]) -> tuple[Span, ...]:
    """Return the tokens of a completion as texts, with special tokens, split where sampled ones begin or end."""
    groups = (
        (kind, [token for _, token in group])
        for kind, group in groupby(zip(is_sampled, ids, strict=True), itemgetter(0))
    )
    return tuple(Span(tokenizer.decode(tokens), len(tokens), kind) for kind, tokens in groups)


def copy_checkpoints(folder: Path, copy: Path) -> None:
    """Copy a folder of checkpoints, but link its files of samples, which never change, where the file system can."""

    def copy_file(source: str, target: str) -> None:
        if PIECE.fullmatch(Path(source).name):
            try:
                os.link(source, target)
            except OSError:
                pass
            else:
                return
        shutil.copy2(source, target)

    shutil.copytree(folder, copy, copy_function=copy_file)
