"""Advantages of one's own: `advantage: examples/advantages.py:above_the_mean`, with `scale_rewards: none`."""

from statistics import fmean


def above_the_mean(group):
    """Learn from what is better than the group's mean, and from nothing that is worse."""
    mean = fmean(completion.reward for completion in group)
    return [max(0.0, completion.reward - mean) for completion in group]
