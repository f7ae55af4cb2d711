"""Credit per turn: what a policy whose exact gradient is known learns from it, on average."""

from typing import get_args

import numpy as np
import pytest

from arc_refinery.config.grpo import Credit
from arc_refinery.training.credit import turn_advantages

# A first answer is right with chance P, earns 1 and ends the episode; else a second one is right with chance Q
P, Q = 0.3, 0.6
N_EPISODES, GROUP = 100_000, 4


def exact(of_second: float) -> tuple[float, float]:
    """The gradient of P + (1 - P) Q r for the logits of P and Q; r is what a right second answer earns."""
    return P * (1 - P) * (1 - Q * of_second), (1 - P) * Q * (1 - Q) * of_second


def episodes(of_second: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether first and second answers are right, and rewards: each (groups, GROUP)."""
    uniform = np.random.default_rng(0).random((2, N_EPISODES // GROUP, GROUP))
    first, second = uniform[0] < P, uniform[1] < Q
    return first, second, np.where(first, 1.0, second * of_second)


def gradients(of_second: float, advantages: list[list[list[float]]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the policy gradient over all episodes, and its standard error: each (2,)."""
    first, second, _ = episodes(of_second)
    terms = np.zeros((2, N_EPISODES))
    turns = [turns for group in advantages for turns in group]
    for index, (is_first, is_second, own) in enumerate(zip(first.flat, second.flat, turns, strict=True)):
        terms[0, index] = own[0] * (is_first - P)
        if not is_first:
            terms[1, index] = own[1] * (is_second - Q)
    terms *= GROUP / (GROUP - 1)  # the first turn's mean has its own episode, and other turns follow it
    groups = terms.reshape(2, -1, GROUP).mean(2)
    return groups.mean(1), groups.std(1) / groups.shape[1] ** 0.5


@pytest.mark.parametrize("of_second", [1.0, 2.0])
@pytest.mark.parametrize("credit", ["episode", "gain", "others"])
def test_every_credit_has_the_exact_gradient_as_its_mean(credit: Credit, of_second: float):
    first, _, rewards = episodes(of_second)
    parents = [[[] if is_first else [0.0] for is_first in group] for group in first]
    advantages = [turn_advantages(list(own), refined, credit) for own, refined in zip(rewards, parents, strict=True)]
    mean, error = gradients(of_second, advantages)
    assert (np.abs(mean - exact(of_second)) < 4 * error).all()
    assert (error < 0.01).all()


@pytest.mark.parametrize("of_second", [1.0, 2.0])
def test_rewards_normalised_turn_by_turn_have_another_mean(of_second: float):
    # turn 1 earns nothing unless right, turn 2 is compared with the second turns of the group; both are summed
    first, second, _ = episodes(of_second)
    advantages = []
    for group, refined in zip(first, second, strict=True):
        own = refined * of_second - np.mean(refined[~group] * of_second) if not group.all() else refined * 0.0
        of_first = group - group.mean()
        advantages.append(
            [[a] if is_first else [a + b, b] for is_first, a, b in zip(group, of_first, own, strict=True)]
        )
    mean, error = gradients(of_second, advantages)
    assert abs(mean[0] - exact(of_second)[0]) > 10 * error[0]
    assert of_second == 1.0 or mean[0] * exact(of_second)[0] < 0, "even the wrong sign"


def test_advantages_by_hand():
    # three episodes: right at once; a second answer that earns 0.5 after 0.25; three answers, the last one wrong
    rewards, parents = [1.0, 0.5, 0.0], [[], [0.25], [0.0, 0.1]]
    assert turn_advantages(rewards, parents, "episode") == [[0.5], [0.0, 0.0], [-0.5, -0.5, -0.5]]
    assert turn_advantages(rewards, parents, "gain") == [
        [0.5],
        [0.0, pytest.approx(0.25 * 2 / 3)],
        [-0.5, 0.0, pytest.approx(-0.1 * 2 / 3)],
    ]
    # the last turn has no others, so it is compared with both
    assert turn_advantages(rewards, parents, "others") == [
        [0.5],
        [0.0, pytest.approx(0.5 * 2 / 3)],
        [-0.5, pytest.approx(-0.5 * 2 / 3), pytest.approx(-0.75 * 2 / 3)],
    ]


@pytest.mark.parametrize(
    ("p", "q", "group", "least", "most"),
    [(0.3, 0.6, 16, "others", "gain"), (0.3, 0.6, 4, "gain", "others"), (0.8, 0.1, 4, "episode", "gain")],
)
def test_which_credit_has_the_least_noise_depends_on_the_policy(p: float, q: float, group: int, least: str, most: str):
    uniform = np.random.default_rng(1).random((2, 1000, group))
    first, second = uniform[0] < p, uniform[1] < q
    noise = {}
    for credit in get_args(Credit):
        gradient = np.zeros(len(first))
        for index, (is_first, is_second) in enumerate(zip(first, second, strict=True)):
            rewards = [float(answer) for answer in is_first | is_second]
            turns = turn_advantages(rewards, [[] if answer else [0.0] for answer in is_first], credit)
            gradient[index] = sum(
                own[1] * (answer - q) for own, answer in zip(turns, is_second, strict=True) if len(own) == 2
            )
        noise[credit] = gradient.std()
    assert (min(noise, key=noise.__getitem__), max(noise, key=noise.__getitem__)) == (least, most)
