"""Rewards by hand, and what executing completions in the real sandbox earns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arc_refinery.augment import IDENTITY
from arc_refinery.grids import UNKNOWN
from arc_refinery.records import Prompt
from arc_refinery.sandbox import Executor, Limits
from arc_refinery.tasks import Pair
from arc_refinery.training.grpo import dataset
from arc_refinery.training.rewards import REWARDS, ExecutionReward, arc_v1, arc_v2_no_pixel_score

ONE, TWO = np.array([[1, 2], [3, 4]], np.uint8), np.array([[5, 6], [7, 8]], np.uint8)
NEAR_TWO = np.array([[5, 6], [0, 0]], np.uint8)  # 2 of 4 cells

PAIRS = [
    {"input": [[1, 2], [3, 4]], "output": [[1, 2], [3, 4]]},
    {"input": [[1, 2], [3, 4]], "output": [[1, 0], [0, 0]]},
]
RIGHT_IN_HALF = "```python\ndef transform(grid):\n    return grid\n```"
RIGHT = "```python\ndef transform(grid):\n    return grid + 1\n```"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)) as executor:
        yield executor


def said(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def rewards(executor: Executor, name: str, *texts: str, pairs: list[list[dict[str, Any]]] | None = None) -> list[float]:
    return ExecutionReward(name, executor)(completions=said(*texts), pairs=pairs or [PAIRS] * len(texts))


@pytest.mark.parametrize(
    ("outputs", "v1", "v2"),
    [
        ((ONE, TWO), 10.0, 10.0),  # 1 + 8 + 1; 1 + 9
        ((ONE, NEAR_TWO), 1 + 8 * 1 / 2 + (1 + 1 / 2) / 2, 1 + 9 * 1 / 2),
        ((TWO, ONE), 1.0, 1.0),  # no cell is right
        ((ONE, TWO[:1]), 1 + 8 * 1 / 2 + (1 + 2 / 4) / 2, 1 + 9 * 1 / 2),  # a row of two in a box of four cells
        ((), 0.0, 0.0),
    ],
)
def test_rewards_by_hand(outputs: tuple[np.ndarray, ...], v1: float, v2: float) -> None:
    assert arc_v1(outputs, (ONE, TWO)) == pytest.approx(v1)
    assert arc_v2_no_pixel_score(outputs, (ONE, TWO)) == pytest.approx(v2)


def test_rewards_are_found_by_their_published_names() -> None:
    assert {"arc-v1": arc_v1, "arc-v2-no-pixel-score": arc_v2_no_pixel_score} == REWARDS


@pytest.mark.parametrize("name", ["arc-v1", "arc-v2-no-pixel-score"])
@pytest.mark.parametrize(
    "text",
    [
        "def transform(grid): return grid",  # no code block
        "```python\ndef transform(grid):\n    return grid[9, 9]\n```",
        "```python\nimport os\ndef transform(grid):\n    os._exit(1)\n```",
        "```python\ndef transform(grid):\n    return [[10]]\n```",
        "```python\ndef transform(grid\n```",
        "```python\ndef transform(grid):\n    while True: pass\n```",
    ],
    ids=["no code", "exception", "crash", "invalid output", "syntax error", "endless"],
)
def test_a_completion_without_valid_outputs_earns_nothing(executor: Executor, name: str, text: str) -> None:
    assert rewards(executor, name, text) == [0.0]


def test_half_of_the_grids_right_earn_half_of_the_nine(executor: Executor) -> None:
    assert rewards(executor, "arc-v2-no-pixel-score", RIGHT_IN_HALF) == [5.5]


def test_half_of_the_grids_right_and_one_cell_in_four_of_the_other(executor: Executor) -> None:
    assert rewards(executor, "arc-v1", RIGHT_IN_HALF) == [pytest.approx(1 + 8 / 2 + (1 + 1 / 4) / 2)]


def test_rewards_come_in_order_and_each_completion_has_its_own_task(executor: Executor) -> None:
    plus_one = [{"input": [[1]], "output": [[2]]}, {"input": [[8, 0]], "output": [[9, 1]]}]
    given = rewards(
        executor, "arc-v2-no-pixel-score", RIGHT, "none", RIGHT_IN_HALF, RIGHT, pairs=[plus_one, PAIRS, PAIRS, PAIRS]
    )
    assert given == [10.0, 0.0, 5.5, 1.0]


def test_other_columns_of_the_data_set_are_ignored(executor: Executor) -> None:
    reward = ExecutionReward("arc-v2-no-pixel-score", executor)
    assert reward(completions=said(RIGHT_IN_HALF), pairs=[PAIRS], prompts=["x"], task_id=["y"]) == [5.5]


def test_an_answer_is_executed_with_what_it_began_with(executor: Executor) -> None:
    head, tail = RIGHT_IN_HALF[:20], RIGHT_IN_HALF[20:]
    reward = ExecutionReward("arc-v2-no-pixel-score", executor)
    assert reward(completions=said(tail, tail), pairs=[PAIRS] * 2, assistant_prefix=[head, ""]) == [5.5, 0.0]


def test_the_name_that_metrics_carry(executor: Executor) -> None:
    assert ExecutionReward("arc-v1", executor).__name__ == "arc-v1"


def test_a_test_pair_whose_output_nobody_knows_is_not_asked_for() -> None:
    asked = ({"role": "user", "content": "?"},)
    train, test = (Pair(ONE, TWO),), (Pair(ONE, UNKNOWN), Pair(TWO, ONE))
    (row,) = dataset([Prompt("p", "t", 1, "", IDENTITY, (0,), asked, "?", 1, 1, train, test)])
    known = [(ONE, TWO), (TWO, ONE)]
    assert row["pairs"] == [{"input": given.tolist(), "output": wanted.tolist()} for given, wanted in known]
