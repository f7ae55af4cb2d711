"""Settings of pretraining the embedded models; the shipped weights were made with the defaults."""

from dataclasses import dataclass
from typing import Literal

from arc_refinery.config import LineOrNone, PositiveFloat, PositiveInt, Seed, Share, Threads


@dataclass(frozen=True, slots=True)
class PretrainingSettings:
    # `refining` continues `tasks`, `reading` that, `insisting` that; `search` continues `tool-use`
    model: Literal["tasks", "refining", "reading", "insisting", "tool-use", "search"] = "tasks"
    start: LineOrNone = ""  # folder of the weights that are continued
    start_share: Share = 0.0  # of the start's weights in the mean, with those after training, that is written
    seed: Seed = 0  # seeds every random choice
    n_chunks: PositiveInt = 246  # the corpus is generated and shuffled chunk by chunk
    chunk_size: PositiveInt = 512  # conversations per chunk
    batch_tokens: PositiveInt = 6144  # per optimizer step, including padding
    muon_learning_rate: PositiveFloat = 0.01  # for matrices
    adamw_learning_rate: PositiveFloat = 0.003  # for embeddings and norms
    warmup: Share = 0.01  # share of the training
    decay: Share = 0.5  # share of the training over which the learning rates fall linearly to zero
    window: PositiveInt = 2048  # context length in tokens
    n_threads: Threads = 2  # CPU threads; results depend on it
    compile: bool = True  # about 25 % faster; needs a C++ compiler
    chunks_per_checkpoint: PositiveInt = 10  # chunks between checkpoints
