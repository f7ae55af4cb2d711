"""Groups of equal rewards give way to others: which, in what order, and what is counted."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from arc_refinery.refining.refill import Refill

GROUP = 2


class Model:
    """A trainer whose completions are those of a table: by prompt, one reward for each completion."""

    def __init__(self, answers: Sequence[tuple[int, int]], first: Sequence[int], training: bool = True) -> None:
        self.answers = answers
        self.rows: list[dict[str, Any]] = [row(prompt) for prompt in first for _ in range(GROUP)]
        self.model = SimpleNamespace(training=training)
        self.state = SimpleNamespace(global_step=3, num_input_tokens_seen=100)
        self.processing_class = SimpleNamespace(batch_decode=lambda ids, skip_special_tokens: list(map(str, ids)))
        self._metrics: dict[str, Any] = {"train": defaultdict(list)}
        self.sampled: list[list[int]] = []

    def timed(self, part: str) -> Any:
        return nullcontext()

    def rollout(self, rows: Sequence[dict[str, Any]], trainer: Any) -> dict[str, Any]:
        assert trainer is self
        prompts = [row["prompt"] for row in rows]
        self.sampled.append([prompt for (prompt,) in prompts[::GROUP]])
        rewards = [self.answers[prompt][number % GROUP] for number, (prompt,) in enumerate(prompts)]
        return {"prompt_ids": prompts, "completion_ids": [[reward] for reward in rewards], "logprobs": None}


class Scorer:
    """The only sampled token is the reward."""

    reward = SimpleNamespace(values=lambda attempts: {"solved": [attempt.is_solved for attempt in attempts]})

    def attempts(self, indices: Any, texts: Any, ids: Sequence[Any], episode: Any) -> list[Any]:
        assert len(indices) == len(texts) == len(ids)
        return [SimpleNamespace(is_solved=reward) for (reward,) in ids]

    def rewards(self, values: dict[str, list[int]]) -> list[int]:
        return values["solved"]


def row(prompt: int) -> dict[str, Any]:
    return {"prompt": [prompt], "prompt_index": prompt}


def refilled(model: Model, n_rounds: int) -> dict[str, Any]:
    rows = [row(prompt) for prompt in range(len(model.answers))]
    scorer: Any = Scorer()
    refill = Refill(rollout=model.rollout, scorer=scorer, rows=rows, n_rounds=n_rounds, group=GROUP, seed=0)
    return dict(refill(model.rows, model))


def test_other_prompts_take_the_place_of_groups_with_equal_rewards():
    differing = {0, 4, 6}
    model = Model([(0, 1) if prompt in differing else (1, 1) for prompt in range(8)], first=[1, 0, 2])
    in_trl = model.rows
    output = refilled(model, n_rounds=9)
    places = [one["prompt_index"] for one in in_trl[::GROUP]]
    assert (places[1], {places[0], places[2]}) == (0, {4, 6})
    assert [one["prompt_index"] for one in in_trl] == [prompt for (prompt,) in output["prompt_ids"]]
    assert output["completion_ids"] == [[0], [1]] * 3
    assert [attempt.is_solved for attempt in output["attempt"]] == [0, 1] * 3
    assert output["terms"] == [{"solved": 0}, {"solved": 1}] * 3
    assert output["logprobs"] is None
    drawn = [prompt for sampled in model.sampled[1:] for prompt in sampled]
    assert len({*drawn}) == len(drawn) and {*drawn}.isdisjoint({0, 1, 2}), "none twice in a step"
    n_tokens = 2 * GROUP * (3 + len(drawn))  # a token of the prompt and one of the completion
    assert model.state.num_input_tokens_seen == 100 + n_tokens - 2 * GROUP * 3
    assert model._metrics["train"] == {
        "refill/prompts": [len(drawn)],
        "refill/equal_groups": [0],
        "refill/reward_before": [5 / 6],
        "refill/solved_before": [5 / 6],
    }
    in_trl[0]["attempt"] = "TRL adds columns"
    assert "attempt" not in in_trl[1]


@pytest.mark.parametrize(("n_rounds", "n_drawn"), [(1, 2), (2, 4), (9, 6)])
def test_rounds_end_when_there_have_been_enough_or_no_prompt_is_left(n_rounds: int, n_drawn: int):
    model = Model([(0, 0)] * 8, first=[0, 1])
    output = refilled(model, n_rounds)
    assert output["prompt_ids"] == [[0], [0], [1], [1]]
    metrics = model._metrics["train"]
    assert (metrics["refill/prompts"], metrics["refill/equal_groups"]) == ([n_drawn], [2])


def test_the_same_step_draws_the_same_prompts():
    drawn = []
    for _ in range(2):
        model = Model([(0, 0)] * 50, first=[0, 1])
        refilled(model, 2)
        drawn.append(model.sampled)
    model = Model([(0, 0)] * 50, first=[0, 1])
    model.state.global_step = 4
    refilled(model, 2)
    assert drawn[0] == drawn[1] != model.sampled


def test_held_out_prompts_keep_their_places():
    model = Model([(0, 0)] * 8, first=[0, 1], training=False)
    assert refilled(model, 2)["prompt_ids"] == [[0], [0], [1], [1]]
    assert (model.sampled, model._metrics["train"]) == ([[0, 1]], {})
