"""Choose what to train on by pass rates: where all completions of a group are wrong, or right, GRPO learns nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from arc_refinery.refining.domain import GradedAttempt

# Notes of a file of prompts: tasks that are left out
TOO_LOW, TOO_HIGH = "n_below_min_pass_rate", "n_above_max_pass_rate"


def with_pass_rate(
    graded: Iterable[GradedAttempt], lowest: float, highest: float, n_considered: int, counts: Counter[str]
) -> Iterator[GradedAttempt]:
    """Yield the attempts of tasks whose pass rate over the first `n_considered` lies in [`lowest`, `highest`].

    The attempts at a task are consecutive. `counts` gets the numbers of tasks that are left out.
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
