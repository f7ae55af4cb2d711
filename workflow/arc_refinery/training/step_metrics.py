"""Metrics of a GRPO step in addition to TRL's: pure functions of the step's completions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import fmean

NGRAM = 4  # tokens
REWARD_TERM = "reward_term/"  # prefix of a term of the reward: mean of its values, without its weight


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """One completion of a step."""

    token_ids: Sequence[int]  # the sampled ones, of all turns
    truncated: bool
    reward: float
    status: str  # outcome of running its program; empty if there is none to run
    solved: bool  # the answer is right
    name: str = ""  # id of the prompt or question
    turns: Sequence[int] = ()  # number of the turn of each token, 0 between two of them; empty: one turn
    parents: Sequence[float] = ()  # rewards of the answers that turns 2, 3, ... refine
    failed: bool = False  # a tool could not work: it carries no loss
    earned: Sequence[float] = ()  # what each turn earns, in sum the reward; empty: the last one earns it all

    @property
    def n_turns(self) -> int:
        return max(self.turns, default=1)

    def return_from(self, turn: int) -> float:
        """Return what is earned from a turn on; turns are numbered from 1."""
        return fsum(self.earned[turn - 1 :]) if self.earned else self.reward


@dataclass(frozen=True, slots=True)
class Scored:
    """The completions of a step in this process, and each one's values of the terms of the reward, without weights."""

    completions: Sequence[ScoredCompletion]
    terms: Mapping[str, Sequence[float]] = field(default_factory=dict)


def unique_token_ratio(ids: Sequence[int]) -> float:
    """Distinct tokens / tokens; 1 without tokens."""
    return len(set(ids)) / len(ids) if ids else 1.0


def ngram_repetition(ids: Sequence[int]) -> float:
    """Share of a completion's n-grams that repeat earlier ones; 0 with fewer than `NGRAM` tokens."""
    ngrams = [tuple(ids[start : start + NGRAM]) for start in range(len(ids) - NGRAM + 1)]
    return 1.0 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def step_metrics(
    completions: Sequence[ScoredCompletion], group_size: int, failures: Sequence[str] = ()
) -> dict[str, float]:
    """Return the metrics of one step by their names in training.jsonl, without those of empty sets of completions.

    Completions of one prompt are consecutive, `group_size` of each. Raise ValueError if the last group is incomplete.
    `failures` are the statuses whose shares are metrics.
    """
    if not completions or len(completions) % group_size:
        raise ValueError(f"{len(completions)} completions do not form groups of {group_size}")
    groups = [completions[start : start + group_size] for start in range(0, len(completions), group_size)]
    truncated = [completion for completion in completions if completion.truncated]
    finished = [completion for completion in completions if not completion.truncated]
    metrics = {
        "reward/max": max(completion.reward for completion in completions),
        "reward/min": min(completion.reward for completion in completions),
        "share/solved": fmean(completion.solved for completion in completions),
        "share/zero_variance": fmean(len({completion.reward for completion in group}) == 1 for group in groups),
        "share/truncated": len(truncated) / len(completions),
        "repetition": fmean(ngram_repetition(completion.token_ids) for completion in completions),
    }
    for status in failures:
        metrics[f"share/{status}"] = fmean(completion.status == status for completion in completions)
    for name, members in (("truncated", truncated), ("finished", finished)):
        if members:
            metrics[f"reward/{name}"] = fmean(completion.reward for completion in members)
            metrics[f"unique_tokens/{name}"] = fmean(unique_token_ratio(completion.token_ids) for completion in members)
            metrics[f"repetition/{name}"] = fmean(ngram_repetition(completion.token_ids) for completion in members)
    return metrics
