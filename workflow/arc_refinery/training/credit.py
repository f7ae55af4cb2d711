"""Advantages of the turns of an episode, where it has one reward: that of its last answer.

An episode ends with its first solved answer, so what a turn could still earn depends on the answers before it. A wrong
second answer should not be measured against episodes that the first answer had solved. From turn 2 on, the reward is
compared with a baseline that knows the turn, but not its answer:

    gain     the reward of the answer that the turn refines
    others   the mean of the other episodes of the group that have this turn; if none has, of all others

Such a baseline changes the variance of the policy gradient, not its mean (Williams 1992; Greensmith et al. 2004).
Rewards that are normalised over the episodes that have a turn, and then summed over turns, do change the mean: the
policy decides who has a second turn.
"""

from collections.abc import Sequence
from statistics import fmean

from arc_refinery.config.grpo import Credit


def turn_advantages(rewards: Sequence[float], parents: Sequence[Sequence[float]], credit: Credit) -> list[list[float]]:
    """Return the advantage of each turn of each episode of a group.

    `parents` has the rewards of the answers that turns 2, 3, ... of each episode refine, `rewards` those of the last
    answers. The first turn is compared with the mean of the group, itself included, as in GRPO, which shortens the
    gradient by 1 - 1 / n; so does every other turn here.
    """
    n, mean = len(rewards), fmean(rewards)
    advantages = [[reward - mean] for reward in rewards]
    for index, (reward, refined) in enumerate(zip(rewards, parents, strict=True)):
        for turn, parent in enumerate(refined):
            if credit == "episode":
                advantages[index].append(reward - mean)
                continue
            baseline = parent if credit == "gain" else _mean_of_others(rewards, parents, index, turn)
            advantages[index].append((reward - baseline) * (1 - 1 / n))
    return advantages


def _mean_of_others(rewards: Sequence[float], parents: Sequence[Sequence[float]], own: int, turn: int) -> float:
    others = [index for index in range(len(rewards)) if index != own]
    there = [index for index in others if len(parents[index]) > turn]
    return fmean(rewards[index] for index in there or others)
