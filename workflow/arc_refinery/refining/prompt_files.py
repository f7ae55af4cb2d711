"""Write prompts that fit the model's window, and say why there are none."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from arc_refinery import records
from arc_refinery.errors import NoRoomError
from arc_refinery.records import Prompt
from arc_refinery.refining.pass_rates import nothing_selected

MAKE_ROOM = (
    "Raise model.window (to train, training.max_seq_length, too), lower the longest answer "
    "(sampling.max_output_tokens; to train, training.max_completion_length), or choose tasks with shorter prompts: "
    "`only` of a set, arc-refinery tasks select"
)

STATUSES = "statuses"  # note of a file without prompts

logger = logging.getLogger(__name__)


def write_prompts(
    cls: type[Prompt],
    path: Path,
    prompts: Iterable[Prompt],
    window: int,
    answer: int,
    seed: int,
    settings: Mapping[str, Any],
    made_from: Sequence[Path] = (),
    statuses: Mapping[str, int] | None = None,
    counts: Mapping[str, int] | None = None,
) -> None:
    """Write the prompts that leave room for `answer` tokens in the window; raise `NoRoomError` if none does.

    Notes: `longest_allowed`, `n_dropped`, `dropped` ({turn: [tokens, ...]}). `statuses` counts the verdicts on the
    attempts of the turn before; it is a note, too, if none of these can be refined. `counts` are always notes.
    """
    longest = window - answer
    fitting_lengths: list[int] = []
    dropped: dict[int, list[int]] = {}

    def fitting() -> Iterator[Prompt]:
        for prompt in prompts:
            if prompt.n_tokens <= longest:
                fitting_lengths.append(prompt.n_tokens)
                yield prompt
            else:
                dropped.setdefault(prompt.turn, []).append(prompt.n_tokens)
        if dropped and not fitting_lengths:
            lengths = list(chain.from_iterable(dropped.values()))
            raise NoRoomError(path, len(lengths), lengths, window, answer, MAKE_ROOM)

    def facts() -> dict[str, Any]:
        notes = {"longest_allowed": longest, "n_dropped": sum(map(len, dropped.values())), "dropped": dropped}
        notes |= counts or {}
        return notes if statuses is None or fitting_lengths else notes | {STATUSES: dict(statuses)}

    records.write(path, cls, fitting(), seed, settings, facts, made_from)
    if statuses is not None and not fitting_lengths:
        logger.warning("%s: %s", path, nothing_selected(counts or {}) or nothing_to_refine(statuses))
    if dropped:
        n_dropped, n = sum(map(len, dropped.values())), len(fitting_lengths)
        logger.warning("%d of %d prompts are too long for the window and were dropped", n_dropped, n_dropped + n)
    if lengths := [*fitting_lengths, *chain.from_iterable(dropped.values())]:
        tokens = np.percentile(lengths, shares := (50, 95, 100), method="inverted_cdf")
        percentiles = ", ".join(f"{share} %: {n}" for share, n in zip(shares, tokens, strict=True))
        logger.info("tokens of %d prompts: %s; longest allowed: %d", len(lengths), percentiles, longest)


def nothing_to_refine(statuses: Mapping[str, int]) -> str:
    """Say why attempts with these verdicts give no next turn."""
    n = sum(statuses.values())
    counts = ", ".join(f"{count:,} {status}" for status, count in sorted(statuses.items(), key=lambda item: -item[1]))
    return (
        f"none of {n:,} attempts can be refined ({counts or 'there are none'}): a next turn needs one that ran to its "
        "end (ok) and is wrong on a check that its prompt shows; with refinement.include_errors, one that raised "
        "(error) will do. If most have no_code, are model.template and sampling.max_output_tokens right for the model? "
        "If all are ok, choose harder tasks"
    )
