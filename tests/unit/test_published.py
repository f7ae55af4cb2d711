"""The published experiment's figures, and what statistics say of them: against textbook formulas written out here."""

from math import comb, erfc, sqrt

import pandas as pd
import pytest
from messages import Wording

from arc_refinery.domains.arc.report import published
from arc_refinery.domains.arc.report.published import Published, tasks_needed, unpaired

Z = 1.959963984540054  # 95 %, two-sided


def test_shares_are_those_of_65_64_and_71_of_400_tasks():
    arms = published.arms()
    assert {name: arm.n_solved for name, arm in arms.items()} == {
        "independent": 65,
        "refine-base": 64,
        "refine-trained": 71,
    }
    # no other number of tasks is published as that share: neighbours are a quarter of a point away
    for arm in arms.values():
        near = [k for k in range(401) if abs(100 * k / 400 - arm.solved_percent) <= 0.051]
        assert near == [arm.n_solved]
        assert arm.first_turn + arm.second_turn == 128
        assert arm.source == "Iteration 34"


def test_a_share_that_no_number_of_tasks_has_is_refused(wording: Wording):
    with pytest.raises(ValueError) as caught:
        _ = Published("e", "s", "x", 128, 0, "none", 400, "", {"is_correct": 16.4}).n_solved
    assert "400 tasks" in str(caught.value) and "16.4 %" in str(caught.value)
    wording(caught.value)


def test_the_published_difference_has_p_057():
    arms = published.arms()
    pooled = (65 + 71) / 800
    z = (71 - 65) / 400 / sqrt(pooled * (1 - pooled) * 2 / 400)
    p = erfc(z / sqrt(2))
    assert unpaired(arms["refine-trained"], arms["independent"]) == pytest.approx(p, abs=1e-9)
    assert round(p, 2) == 0.57


def test_tasks_needed_for_the_published_difference():
    # Fleiss, Levin and Paik, chapter 4, without correction, step by step for p = 0.1775, q = 0.1625
    null = 1.959964 * sqrt(2 * 0.17 * 0.83)
    alternative = 0.841621 * sqrt(0.1775 * 0.8225 + 0.1625 * 0.8375)
    assert tasks_needed(71 / 400, 65 / 400) == pytest.approx((null + alternative) ** 2 / 0.015**2, abs=1)
    assert tasks_needed(0.5, 0.6) == 388  # a textbook example: 387.3 for 80 % power


def test_the_section_says_what_the_figures_support(wording: Wording):
    text = "\n\n".join(published.section("demo", {}))
    for block in text.split("\n\n"):
        if not block.startswith("|"):
            wording(block)
    assert "| `independent` | 128 | 16.3 % | 65/400 = 16.25 % | [13.0, 20.2] |" in text
    assert "| `refine-trained` | 64 + 64 | 17.8 % | 71/400 = 17.75 % | [14.3, 21.8] |" in text
    multi_turn = "| `multi-turn-rl` | evaluation | `refine-trained` | 64 + 64 | trained | "
    assert f"{multi_turn}93.7 | 76.5 | 42.5 | 48.7 | 3.1 | 1.6 |" in text
    base = "| `arc-training-rl` | evaluation | `base` | 480 | none | "
    assert f"{base}100 | 70.87 | 43.82 | 41.3 | 2.07 | 1.34 | 22.5 | 40.21 | 1.71 | 1.68 | 28.5 | 22.25 |" in text
    assert "| `arc-training-rl` | training | `base` | 240 | none | 100 | 76.4 | 41.1 |" in text
    assert "| `refine-trained` − `independent` | +1.50 | 0.572 | 9844 |" in text
    assert "16.3 and 17.8 % of 400 tasks" in text
    # Fisher's exact test: tables at most as likely as the one found, by the hypergeometric distribution
    weights = {k: comb(400, k) * comb(400, 136 - k) for k in range(137)}
    fisher = sum(weight for weight in weights.values() if weight <= weights[65]) / comb(800, 136)
    assert f"p = {fisher:.3f}" in text
    # six tasks gained and none lost: 2 of 64 sign patterns are that uneven
    assert f"p = {2 / 64:.3f}" in text


@pytest.mark.parametrize("experiment", ["multi-turn-rl", "multi-turn-rl-unsloth"])
def test_an_arm_that_repeats_a_published_one_stands_beside_it(experiment: str):
    ours = pd.DataFrame({metric: [1.0, 0.0, 0.0, 0.0] for metric in published.PUBLISHED_METRICS})
    ours["test_pixel_score"] = [0.5, 0.25, 0.5, 0.75]
    here = {("arc-agi-1-evaluation", "independent"): (96, ours), ("arc-agi-1-evaluation", "of its own"): (96, ours)}
    text = "\n\n".join(published.section(experiment, here))
    table = text.partition("### Published and here")[2]
    assert "| `arc-agi-1-evaluation`, `independent` | published, 128 attempts | here, 96 attempts |" in table
    # Wilson for 65 of 400 and 1 of 4; Student for the mean 0.5: 3.182 x 0.2041 / 2
    assert "| is_correct | 16.3 % [13.0, 20.2] | 25.0 % [4.6, 69.9] |" in table
    assert "| test_pixel_score | 40.9 % | 50.0 % [17.5, 82.5] |" in table
    assert "| train_pass_rate | 1.6 % |" in table
    assert "of its own" not in table
