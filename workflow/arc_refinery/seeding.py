"""Independent random streams, addressed by name.

Every random choice draws from the stream of the thing it decides (an experiment seed, a stage's name, a task id, ...),
never from a shared generator: so results depend neither on the order of work nor on the number of cores and shards.
"""

import hashlib

import numpy as np


def stream_seed(*address: int | str) -> int:
    """A 63-bit seed from an address such as ``(seed, "augment", task_id)``; equal addresses give equal seeds."""
    digest = hashlib.sha256("\x1f".join(map(str, address)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(*address: int | str) -> np.random.Generator:
    """The random generator that belongs to an address."""
    return np.random.default_rng(stream_seed(*address))
