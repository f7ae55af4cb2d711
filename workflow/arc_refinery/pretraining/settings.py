"""What decides the embedded model; the defaults are those that the shipped weights were made with."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PretrainingSettings:
    model: Literal["tasks", "tool-use"] = "tasks"  # which of the embedded models
    seed: int = 0  # seeds every random choice
    n_chunks: int = 246  # the corpus is made and shuffled chunk by chunk
    chunk_size: int = 512  # conversations
    batch_tokens: int = 6144  # of one optimizer step, padding included
    muon_learning_rate: float = 0.01  # of matrices
    adamw_learning_rate: float = 0.003  # of embeddings and norms
    warmup: float = 0.01  # share of the training
    decay: float = 0.5  # share of the training over which the learning rates fall linearly to zero
    window: int = 2048  # tokens that the model can hold
    n_threads: int = 2  # CPU threads; results depend on it
    compile: bool = True  # about a quarter faster; needs a C++ compiler
    chunks_per_checkpoint: int = 10  # chunks between checkpoints
