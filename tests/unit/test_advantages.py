"""Advantages: by hand, what a policy whose exact gradient is known learns from them on average, and a user's own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch

from arc_refinery.config import PolicyGradient
from arc_refinery.config.own_code import OwnCode
from arc_refinery.errors import InputError
from arc_refinery.training.advantages import OwnAdvantage, best_of_k_credit, of_completions, of_turns
from arc_refinery.training.rewards import ScoredCompletion

# A first answer is right with chance P, earns 1 and ends the episode; else a second one is right with chance Q
P, Q = 0.3, 0.6
N_EPISODES, GROUP = 100_000, 4


def group_of(rewards: Sequence[float], parents: Sequence[Sequence[float]] = ()) -> list[ScoredCompletion]:
    refined = parents or [()] * len(rewards)
    return [
        ScoredCompletion(
            [7], False, float(reward), "ok", reward == 1.0, "sums/7", range(1, 2 + len(earlier)), tuple(earlier)
        )
        for reward, earlier in zip(rewards, refined, strict=True)
    ]


def advantages_of_turns(rewards: Sequence[float], parents: Sequence[Sequence[float]], name: str) -> list[list[float]]:
    """By name; `group`: one number for all turns of an episode."""
    if name == "group":
        mean = float(np.mean(rewards))
        return [[reward - mean] * (1 + len(refined)) for reward, refined in zip(rewards, parents, strict=True)]
    return of_turns(group_of(rewards, parents))


def settings(**changes: object) -> PolicyGradient:
    common = {"learning_rate": 1e-3, "num_generations": 4, "gradient_accumulation_steps": 1, "scale_rewards": "none"}
    return PolicyGradient.model_validate(common | changes)


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
@pytest.mark.parametrize("name", ["group", "others"])
@pytest.mark.slow
def test_every_advantage_has_the_exact_gradient_as_its_mean(name: str, of_second: float):
    first, _, rewards = episodes(of_second)
    parents = [[[] if is_first else [0.0] for is_first in group] for group in first]
    advantages = [advantages_of_turns(own, refined, name) for own, refined in zip(rewards, parents, strict=True)]
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


def test_what_turns_earn_counts_from_there_on():
    # a turn with a faulty call costs 1, a right answer earns 4
    def episode(*earned: float) -> ScoredCompletion:
        turns = range(1, 1 + len(earned))
        return ScoredCompletion([7], False, sum(earned), "", True, "sums/7", turns, earned=earned)

    group = [episode(4.0), episode(-1.0, 4.0), episode(-1.0, 0.0), episode(0.0, -1.0, 4.0)]
    assert of_turns(group) == [
        [1.75],
        [0.75, (4 - 1.5) * 3 / 4],
        [-3.25, (0 - 3.5) * 3 / 4],
        [0.75, (3 - 2) * 3 / 4, (4 - 2) * 3 / 4],  # nobody else has a third turn: they earn 4, 3 and -1
    ]


def test_an_episode_that_failed_counts_nowhere():
    group = group_of([1.0, 0.5, 0.0], [[], [0.0], [0.0]])
    failed = replace(group_of([7.0], [[0.0]])[0], failed=True)
    alone = of_turns(group)
    with_failed = of_turns([*group, failed])
    assert with_failed[3] == [0.0, 0.0]
    assert with_failed[:3] == alone
    # 1, 0, 0.3 and a failed one: the first turn is worth 1 - 1.3 / 3, the second 2 / 3 of 1 - (0 + 0.3) / 2
    unsolved = group_of([1.0, 0.0, 0.3], [[0.0]] * 3)
    assert of_turns([*unsolved, failed])[0] == pytest.approx([17 / 30, 17 / 30])


def test_advantages_of_turns_by_hand():
    # three episodes: right at once; a second answer that earns 0.5; three answers, the last one wrong
    episodes = group_of([1.0, 0.5, 0.0], [[], [0.25], [0.0, 0.1]])
    # the last turn has no others, so it is compared with both
    assert of_turns(episodes) == [
        [0.5],
        [0.0, pytest.approx(0.5 * 2 / 3)],
        [-0.5, pytest.approx(-0.5 * 2 / 3), pytest.approx(-0.75 * 2 / 3)],
    ]


@pytest.mark.parametrize(
    ("p", "q", "group", "least"), [(0.3, 0.6, 16, "others"), (0.3, 0.6, 4, "group"), (0.8, 0.1, 4, "group")]
)
def test_which_has_the_least_noise_depends_on_the_policy(p: float, q: float, group: int, least: str):
    uniform = np.random.default_rng(1).random((2, 1000, group))
    first, second = uniform[0] < p, uniform[1] < q
    noise = {}
    for name in ("group", "others"):
        gradient = np.zeros(len(first))
        for index, (is_first, is_second) in enumerate(zip(first, second, strict=True)):
            rewards = [float(answer) for answer in is_first | is_second]
            turns = advantages_of_turns(rewards, [[] if answer else [0.0] for answer in is_first], name)
            gradient[index] = sum(
                own[1] * (answer - q) for own, answer in zip(turns, is_second, strict=True) if len(own) == 2
            )
        noise[name] = gradient.std()
    assert min(noise, key=noise.__getitem__) == least


# ---- of completions ----


@pytest.mark.parametrize("k", [2, 3, 5])
def test_credit_for_the_best_of_k_equals_that_over_all_sets(k: int):
    rewards = [1.0, 5.5, 1.0, 0.0, 10.0]
    for index, credit in enumerate(best_of_k_credit(rewards, k)):
        sets = [subset for subset in combinations(range(5), k) if index in subset]
        without = [max([rewards[other] for other in subset if other != index], default=0.0) for subset in sets]
        expected = sum(max(rewards[i] for i in subset) - less for subset, less in zip(sets, without, strict=True))
        assert credit == pytest.approx(expected / len(sets))


def test_advantages_for_the_best_of_two():
    rewards = torch.tensor([[0.0, 10.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    scaled = of_completions(rewards, settings(advantage="best-of-2", scale_rewards="group"))
    assert scaled[0].tolist() == pytest.approx([value / (5 + 1e-4) for value in (0.0, 10.0, 0.0, 0.0)])
    advantages = of_completions(rewards, settings(advantage="best-of-2"))
    assert advantages.tolist() == [[0.0, 10.0, 0.0, 0.0], [0.0] * 4]


@pytest.mark.parametrize(("k", "n"), [(2, 4), (3, 4), (2, 3)])
def test_the_best_of_k_has_the_exact_gradient_as_its_mean(k: int, n: int):
    # a softmax policy over three answers: enumerate all groups of n, and all sets of k for the expected best
    chances, rewards = np.array([0.574, 0.348, 0.078]), np.array([0.0, 0.4, 1.0])
    scores = np.eye(3) - chances  # gradient of log p(answer) for the logits

    def weighted(size: int, value: Callable[[list[int]], np.ndarray]) -> np.ndarray:
        draws = (list(answers) for answers in product(range(3), repeat=size))
        return np.asarray(sum(np.prod(chances[answers]) * value(answers) for answers in draws))

    def estimate(answers: list[int]) -> np.ndarray:
        (credit,) = of_completions(torch.tensor(rewards[answers])[None], settings(advantage=f"best-of-{k}"))
        return np.asarray((credit.numpy()[:, None] * scores[answers]).mean(0))

    exact_gradient = weighted(k, lambda answers: rewards[answers].max() * scores[answers].sum(0))
    assert weighted(n, estimate) == pytest.approx(exact_gradient / k, abs=1e-6)


def test_leaving_one_out_compares_with_the_others():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.5]])
    advantages = of_completions(rewards, settings(advantage="leave-one-out"))
    expected = [1 - 0.5 / 3, -0.5, -0.5, 0.5 - 1 / 3]
    assert advantages[0].tolist() == pytest.approx(expected)


# ---- of the user ----


def own(tmp_path: Path, body: str) -> OwnAdvantage:
    path = tmp_path / f"{abs(hash(body))}.py"
    path.write_text(f"def mine(group):\n    {body}\n")
    return OwnAdvantage(OwnCode(path, "mine"))


def test_an_own_function_gives_a_number_or_one_per_turn(tmp_path: Path):
    group = group_of([1.0, 0.0], [[], [0.5]])
    assert own(tmp_path, "return [one.reward - 0.5 for one in group]")(group) == [[0.5], [-0.5]]
    by_turn = "return [[one.reward] + [one.reward - parent for parent in one.parents] for one in group]"
    assert own(tmp_path, by_turn)(group) == [[1.0], [0.0, -0.5]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [1.0]", "expected a list of 2"),
        ("return None", "expected a list of 2"),
        ("return [1.0, [1.0, 2.0, 3.0]]", "expected 2 numbers, or one"),
        ("return [1.0, float('nan')]", "returned nan; expected numbers"),
        ("return ['1', 1]", "returned '1'; expected numbers"),
        ("return [10 ** 400, 1]", "expected numbers of at most 1e"),
        ("return [one.missing for one in group]", "raised AttributeError in line 2"),
    ],
)
def test_what_an_own_function_may_not_return_is_refused(tmp_path: Path, body: str, message: str):
    with pytest.raises(InputError, match=r"mine, on the prompt sums/7: ") as error:
        own(tmp_path, body)(group_of([1.0, 0.0], [[], [0.5]]))
    assert message in str(error.value)
