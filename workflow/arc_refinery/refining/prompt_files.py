"""Files of prompts that fit the model's window, with the lengths of those that do not."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arc_refinery import records
from arc_refinery.records import Prompt

logger = logging.getLogger(__name__)


def write_prompts(
    path: Path,
    prompts: Iterable[Prompt],
    longest: int,
    seed: int,
    settings: Mapping[str, Any],
    made_from: Sequence[Path] = (),
) -> None:
    """Write the prompts of at most `longest` tokens; the file's notes contain the lengths of longer ones, by turn.

    Notes: `longest_allowed`, `n_dropped`, `dropped` ({turn: [tokens, ...]}).
    """
    kept: list[int] = []
    dropped: dict[int, list[int]] = {}

    def fitting() -> Iterator[Prompt]:
        for prompt in prompts:
            if prompt.n_tokens <= longest:
                kept.append(prompt.n_tokens)
                yield prompt
            else:
                dropped.setdefault(prompt.turn, []).append(prompt.n_tokens)

    def facts() -> dict[str, Any]:
        return {"longest_allowed": longest, "n_dropped": sum(map(len, dropped.values())), "dropped": dropped}

    records.write(path, Prompt, fitting(), seed, settings, facts, made_from)
    if lengths := kept + [n_tokens for of_turn in dropped.values() for n_tokens in of_turn]:
        tokens = np.percentile(lengths, shares := (50, 95, 100), method="inverted_cdf")
        percentiles = ", ".join(f"{share} %: {n}" for share, n in zip(shares, tokens, strict=True))
        logger.info("tokens of %d prompts: %s; longest allowed: %d", len(lengths), percentiles, longest)
