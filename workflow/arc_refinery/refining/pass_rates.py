"""Choose what to train on by pass rates: where all completions of a group are wrong, or right, GRPO learns nothing.

A group of 16 for a prompt that is answered right once in 20 times has right and wrong completions with a chance of
1 - 0.05^16 - 0.95^16 = 0.56.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from arc_refinery.records import Prompt
from arc_refinery.refining.domain import GradedAttempt

# In the estimate of a prompt's pass rate, the mean of all prompts counts as so many completions: that 8 are wrong does
# not mean that a right one is impossible.
WEIGHT_OF_MEAN = 2

# Notes of a file of prompts: tasks and prompts that are left out
TOO_LOW, TOO_HIGH, MOSTLY_EQUAL = "n_below_min_pass_rate", "n_above_max_pass_rate", "n_mostly_equal"
# What a probe has seen
N_PROBED, N_COMPLETIONS, N_RIGHT = "n_probed", "n_completions", "n_right"


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


def chances_of_mixed_groups(n_right: Mapping[str, int], n_completions: int, group: int) -> dict[str, float]:
    """Return each prompt's chance that a group of completions has right and wrong ones.

    `n_right` of `n_completions` were right. A prompt's pass rate is estimated as these shrunk towards the mean of all
    prompts (`WEIGHT_OF_MEAN`).
    """
    mean = sum(n_right.values()) / (n_completions * len(n_right)) if n_right else 0.0
    rates = {name: (n + WEIGHT_OF_MEAN * mean) / (n_completions + WEIGHT_OF_MEAN) for name, n in n_right.items()}
    return {name: 1 - rate**group - (1 - rate) ** group for name, rate in rates.items()}


def probably_mixed(
    prompts: Iterable[Prompt], probed: Iterable[GradedAttempt], group: int, min_mixed: float, counts: Counter[str]
) -> Iterator[Prompt]:
    """Yield the prompts whose groups have right and wrong completions with a chance of at least `min_mixed`.

    `probed` are completions of these prompts, as many of each. `counts` gets `n_probed`, `n_completions` and
    `n_right` of all prompts, and `n_mostly_equal`, the prompts that are left out.
    """
    n_right: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for attempt in probed:
        sizes[attempt.prompt.prompt_id] += 1
        n_right[attempt.prompt.prompt_id] += attempt.verdict.solved
    n_completions = max(sizes.values(), default=0)
    chances = chances_of_mixed_groups(n_right, n_completions, group)
    counts.update({N_PROBED: len(sizes), N_COMPLETIONS: sizes.total(), N_RIGHT: n_right.total(), MOSTLY_EQUAL: 0})
    for prompt in prompts:
        if chances[prompt.prompt_id] >= min_mixed:
            yield prompt
        else:
            counts[MOSTLY_EQUAL] += 1


def nothing_selected(notes: Mapping[str, int]) -> str:
    """Say why files of prompts with these notes, added up, have none because of `training.select`; empty if not."""
    reasons = [
        f"{notes.get(name, 0)} {words}"
        for name, words in (
            (TOO_LOW, "tasks have fewer right first attempts than min_pass_rate"),
            (TOO_HIGH, "tasks have more than max_pass_rate"),
            (
                MOSTLY_EQUAL,
                f"of {notes.get(N_PROBED, 0)} probed prompts ({notes.get(N_RIGHT, 0)} of {notes.get(N_COMPLETIONS, 0)} "
                "completions right) give a group of right and wrong ones less often than min_mixed",
            ),
        )
        if notes.get(name)
    ]
    if not reasons:
        return ""
    return f"training.select leaves none: {'; '.join(reasons)}. Change these keys, or choose other tasks"
