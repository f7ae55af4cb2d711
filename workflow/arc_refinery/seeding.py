"""Independent random streams, addressed by name.

    stream(0, "augment", "task-7")    the same generator in every job, whatever else was drawn before

Every random choice has its own stream (addressed by an experiment seed, a stage's name, a task id, ...) instead of a
shared generator, so results do not depend on the order of work or the number of cores and shards.
"""

import hashlib

import numpy as np


def stream_seed(*address: int | str) -> int:
    """Return a 63-bit seed for an address such as ``(seed, "augment", task_id)``; equal addresses give equal seeds."""
    digest = hashlib.sha256("\x1f".join(map(str, address)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(*address: int | str) -> np.random.Generator:
    """Return the random generator for an address."""
    return np.random.default_rng(stream_seed(*address))
