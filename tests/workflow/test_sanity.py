"""The check that training updates the policy that samples, as users run it."""

import json

import pytest
from checkout import Checkout

pytestmark = [pytest.mark.snakemake, pytest.mark.training]

CONFIG = "config/one-task-sanity-cpu.yaml"


def test_the_reward_rises_with_a_proper_learning_rate_and_stays_flat_with_a_tiny_one(fresh: Checkout):
    done = fresh.snakemake("--cores", "2", "--configfile", CONFIG, "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    proper, tiny = (rise_of_reward(fresh, run) for run in ("learning-rate-0.001", "learning-rate-1e-9"))
    assert proper > 4  # rewards are 10 at most, in means of 80 completions
    assert abs(tiny) < 1
    report = (fresh.folder / "results/one-task-sanity-cpu.md").read_text()
    assert "| `learning-rate-0.001` | 20 |" in report
    assert "| `learning-rate-1e-9` | 20 |" in report


def rise_of_reward(checkout: Checkout, run: str) -> float:
    """Mean reward of the last quarter of the steps, less that of the first."""
    log = checkout.folder / "results/one-task-sanity-cpu/adapters" / run / "training.jsonl"
    lines = map(json.loads, log.read_text().splitlines())
    rewards: list[float] = [line["reward"] for line in lines if "reward" in line]  # the other lines are no steps
    assert len(rewards) == 20
    return sum(rewards[-5:]) / 5 - sum(rewards[:5]) / 5
