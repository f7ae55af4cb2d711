"""Select tasks by pass rates, write prompts that fit the model's window, and say why there are none."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from arc_refinery import records
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.errors import NoRoomError
from arc_refinery.records import Prompt

MAKE_ROOM = (
    "Raise model.window (to train, training.max_seq_length, too), lower the longest answer "
    "(sampling.max_output_tokens; to train, training.max_completion_length), or choose tasks with shorter prompts: "
    "`only` of a set, arc-refinery tasks select"
)

STATUSES = "statuses"  # note of a file without prompts
# Notes of a file of prompts: tasks that are left out
TOO_LOW, TOO_HIGH = "n_below_min_pass_rate", "n_above_max_pass_rate"

logger = logging.getLogger(__name__)


def with_pass_rate(
    graded: Iterable[GradedAttempt], lowest: float, highest: float, n_considered: int, counts: Counter[str]
) -> Iterator[GradedAttempt]:
    """Yield the attempts of tasks whose pass rate over the first `n_considered` lies in [`lowest`, `highest`].

    GRPO learns nothing from groups that are all wrong, or all right. The attempts at a task are consecutive.
    `counts` gets the numbers of tasks that are left out.
    """
    for _, group in groupby(graded, key=lambda attempt: attempt.attempt.task_id):
        attempts = list(group)
        considered = attempts[:n_considered]
        rate = sum(attempt.verdict.solved for attempt in considered) / len(considered)
        if rate < lowest:
            counts[TOO_LOW] += 1
        elif rate > highest:
            counts[TOO_HIGH] += 1
        else:
            yield from attempts


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


def nothing_selected(notes: Mapping[str, int]) -> str:
    """Say why files of prompts with these notes, added up, have none because of `training.select`; empty if not."""
    reasons = [
        f"{notes.get(name, 0)} {words}"
        for name, words in (
            (TOO_LOW, "tasks have fewer right first attempts than min_pass_rate"),
            (TOO_HIGH, "tasks have more than max_pass_rate"),
        )
        if notes.get(name)
    ]
    if not reasons:
        return ""
    return f"training.select leaves none: {'; '.join(reasons)}. Change these keys, or choose other tasks"
