"""Settings of pretraining the embedded models; the shipped weights were made with the defaults."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PretrainingSettings:
    # `refining` continues `tasks`, `reading` that, `insisting` that; `search` continues `tool-use`
    model: Literal["tasks", "refining", "reading", "insisting", "tool-use", "search"] = "tasks"
    start: str = ""  # folder of the weights that are continued
    start_share: float = 0.0  # of the start's weights in the mean, with those after training, that is written
    seed: int = 0  # seeds every random choice
    n_chunks: int = 246  # the corpus is generated and shuffled chunk by chunk
    chunk_size: int = 512  # conversations per chunk
    batch_tokens: int = 6144  # per optimizer step, including padding
    muon_learning_rate: float = 0.01  # for matrices
    adamw_learning_rate: float = 0.003  # for embeddings and norms
    warmup: float = 0.01  # share of the training
    decay: float = 0.5  # share of the training over which the learning rates fall linearly to zero
    window: int = 2048  # context length in tokens
    n_threads: int = 2  # CPU threads; results depend on it
    compile: bool = True  # about 25 % faster; needs a C++ compiler
    chunks_per_checkpoint: int = 10  # chunks between checkpoints
