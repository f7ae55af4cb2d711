"""Advantages for the best of k completions (`pass_at_k`)."""

from collections.abc import Sequence
from math import comb

import torch
from torch import Tensor


def best_of_k_credit(rewards: Sequence[float], k: int) -> list[float]:
    """Credit of each completion: mean of (best - best without it) over the sets of k completions that contain it.

    The leave-one-out estimator of Walder and Karkhanis 2025 (arXiv 2505.15201), for any real rewards; k = 1 returns
    the rewards. Only completions that are the best of some set get credit, so rare good ones weigh heavily.
    """
    if k == 1:
        return list(rewards)
    n = len(rewards)
    ascending = sorted(range(n), key=lambda index: rewards[index])
    credit = [0.0] * n
    for rank, index in enumerate(ascending):
        second_best = ((rewards[ascending[below]], comb(below, k - 2)) for below in range(rank))
        credit[index] = sum((rewards[index] - reward) * sets for reward, sets in second_best) / comb(n - 1, k - 1)
    return credit


def best_of_k_advantages(rewards: Tensor, k: int, scale: str) -> Tensor:
    """(groups, completions) of rewards -> advantages for the best of k, same shape, scaled as TRL scales its own."""
    credit = torch.tensor([best_of_k_credit(group, k) for group in rewards.tolist()])
    advantages = credit - credit.mean(1, keepdim=True)
    if scale == "none":
        return advantages
    deviation = credit.std() if scale == "batch" else credit.std(1, keepdim=True)
    return advantages / (deviation + 1e-4)
