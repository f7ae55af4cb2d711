"""Advantages by name: what each completion of a group, or each of its turns, is worth beside the others.

An episode of several turns has one reward, that of its last answer, and ends with its first solved one. So what a turn
could still earn depends on the answers before it: a wrong second answer should not be measured against episodes that
the first answer had solved. With `others`, from turn 2 on, the reward is compared with the mean of the group's other
episodes that have this turn; if none has, of all others. This baseline knows the turn, but not its answer.

Such a baseline changes the variance of the policy gradient, not its mean (Williams 1992; Greensmith
et al. 2004). Rewards that are normalised over the episodes that have a turn, and then summed over turns, do change the
mean: the policy decides who has a second turn.
"""

from collections.abc import Sequence
from math import comb
from statistics import fmean

import torch
from torch import Tensor

from arc_refinery.config import PolicyGradient
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import OwnFunction, number_in
from arc_refinery.training.rewards import ScoredCompletion

MAX_ADVANTAGE = 1e6  # from a function of the user

Group = Sequence[ScoredCompletion]


def of_completions(rewards: Tensor, settings: PolicyGradient) -> Tensor:
    """Return `leave-one-out` or `best-of-...`: (groups, completions) of rewards -> same shape, scaled as by TRL.

    Nothing is subtracted from the credit of `best-of-...`: its baseline is the best without the completion, and with
    the mean of the group subtracted, too, the gradient would no longer be that of the best of k.
    """
    n = rewards.shape[1]
    if settings.best_of is None:
        advantages = (rewards - rewards.mean(1, keepdim=True)) * (n / (n - 1))  # reward minus the mean of the others
    else:
        advantages = torch.tensor([best_of_k_credit(group, settings.best_of) for group in rewards.tolist()])
    if settings.scale_rewards == "none":
        return advantages
    deviation = advantages.std() if settings.scale_rewards == "batch" else advantages.std(1, keepdim=True)
    return advantages / (deviation + 1e-4)


def best_of_k_credit(rewards: Sequence[float], k: int) -> list[float]:
    """Credit of each completion: mean of (best - best without it) over the sets of k completions that contain it.

    The leave-one-out estimator of Walder and Karkhanis 2025 (arXiv 2505.15201), for any real rewards. Only completions
    that are the best of some set get credit, so rare good ones weigh heavily.
    """
    n = len(rewards)
    ascending = sorted(range(n), key=lambda index: rewards[index])
    credit = [0.0] * n
    for rank, index in enumerate(ascending):
        second_best = ((rewards[ascending[below]], comb(below, k - 2)) for below in range(rank))
        credit[index] = sum((rewards[index] - reward) * sets for reward, sets in second_best) / comb(n - 1, k - 1)
    return credit


def of_turns(group: Group) -> list[list[float]]:
    """Return `others` of each turn of each episode of a group.

    GRPO compares a completion with the mean of its group, itself included, which shortens the gradient by 1 - 1 / n. So
    is it here, for all turns. An episode that failed counts nowhere, not in n either.
    """
    present = [episode for episode in group if not episode.failed]
    mean, shortening = _mean(present), 1 - 1 / max(len(present), 1)
    advantages: list[list[float]] = []
    for index, episode in enumerate(group):
        if episode.failed:
            advantages.append([0.0] * episode.n_turns)
            continue
        others = [other for number, other in enumerate(group) if number != index and not other.failed]
        advantages.append([episode.reward - mean])
        for turn in range(2, episode.n_turns + 1):
            returns = [other.return_from(turn) for other in others if other.n_turns >= turn]
            baseline = fmean(returns) if returns else _mean(others or [episode])
            advantages[-1].append((episode.return_from(turn) - baseline) * shortening)
    return advantages


def _mean(episodes: Group) -> float:
    return fmean(episode.reward for episode in episodes) if episodes else 0.0


class OwnAdvantage:
    """A function of the user: a group -> for each completion a number, or a list of one for each of its turns."""

    def __init__(self, code: OwnCode) -> None:
        """Import the file; raises `InputError`."""
        self._function = OwnFunction(code)

    def __call__(self, group: Group) -> list[list[float]]:
        """Return what the function says, one number for all turns or one for each."""
        about = f"the prompt {group[0].name}"
        values = self._function(list(group), about)
        listed = values if isinstance(values, list | tuple) else []
        numbers = [list(value) if isinstance(value, list | tuple) else [value] for value in listed]
        if len(numbers) != len(group):
            fault = f"returned {values!r:.80}; expected a list of {len(group)}, one for each completion"
            raise self._function.error(about, fault)
        for completion, own in zip(group, numbers, strict=True):
            if len(own) not in (1, n_turns := completion.n_turns):
                fault = f"returned {own!r:.80} for a completion of {n_turns} turns; expected {n_turns} numbers, or one"
                raise self._function.error(about, fault)
        return [[self._number(value, about) for value in own] for own in numbers]

    def _number(self, value: object, about: str) -> float:
        number = number_in(value)
        if not abs(number) <= MAX_ADVANTAGE:
            fault = f"returned {value!r:.80}; expected numbers of at most {MAX_ADVANTAGE:g} in size"
            raise self._function.error(about, fault)
        return number
