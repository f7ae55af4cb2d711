"""Metrics of a GRPO step in addition to TRL's: pure functions of the step's completions."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Status

NGRAM = 4  # tokens
REWARD_TERM = "reward_term/"  # prefix of a term of the reward: mean of its values, without its weight
FAILURES = (NO_CODE, *(str(status) for status in Status if status is not Status.ok))


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """One completion of a step."""

    token_ids: Sequence[int]  # the sampled ones, of all turns
    truncated: bool
    reward: float
    status: str  # of the sandbox, or `no_code`; empty if the task is not to write a program
    solved: bool  # the answer is right


def unique_token_ratio(ids: Sequence[int]) -> float:
    """Distinct tokens / tokens; 1 without tokens."""
    return len(set(ids)) / len(ids) if ids else 1.0


def ngram_repetition(ids: Sequence[int], n: int = NGRAM) -> float:
    """Share of a completion's n-grams that repeat earlier ones; 0 with fewer than n tokens."""
    ngrams = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return 1.0 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def step_metrics(completions: Sequence[ScoredCompletion], group_size: int) -> dict[str, float]:
    """Return the metrics of one step by their names in training.jsonl, without those of empty sets of completions.

    Completions of one prompt are consecutive, `group_size` of each. Raise ValueError if the last group is incomplete.
    """
    if not completions or len(completions) % group_size:
        raise ValueError(f"{len(completions)} completions do not form groups of {group_size}")
    groups = [completions[start : start + group_size] for start in range(0, len(completions), group_size)]
    truncated = [one for one in completions if one.truncated]
    finished = [one for one in completions if not one.truncated]
    metrics = {
        "reward/max": max(one.reward for one in completions),
        "reward/min": min(one.reward for one in completions),
        "share/solved": fmean(one.solved for one in completions),
        "share/zero_variance": fmean(len({one.reward for one in group}) == 1 for group in groups),
        "share/truncated": len(truncated) / len(completions),
        "repetition": fmean(ngram_repetition(one.token_ids) for one in completions),
    }
    if any(one.status for one in completions):
        metrics |= {f"share/{status}": fmean(one.status == status for one in completions) for status in FAILURES}
    for name, members in (("truncated", truncated), ("finished", finished)):
        if members:
            metrics[f"reward/{name}"] = fmean(one.reward for one in members)
            metrics[f"unique_tokens/{name}"] = fmean(unique_token_ratio(one.token_ids) for one in members)
            metrics[f"repetition/{name}"] = fmean(ngram_repetition(one.token_ids) for one in members)
    return metrics
