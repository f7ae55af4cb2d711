"""Answers that a file decides: which one an attempt gets, and rows that are none."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from messages import Wording

from arc_refinery.config import ConfigError, check_files, validate_experiment
from arc_refinery.errors import InputError
from arc_refinery.sampling.backends import Decoding, no_report
from arc_refinery.sampling.decided import Decided
from arc_refinery.sampling.endpoint import Question


def written(folder: Path, rows: Sequence[Any]) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def given(decided: Decided, task: str, turn: int, number: int) -> str:
    question = Question("q", [{"role": "user", "content": "two words"}], 0, {}, task, turn, number)
    ((name, answer),) = decided.answers([question], Decoding(1.0, 1.0, 64), no_report)
    assert (name, answer.n_prompt_tokens, answer.n_tokens) == ("q", 2, len(answer.text.split()))
    return answer.text


def test_an_attempt_gets_the_answer_that_says_most_about_it(tmp_path: Path) -> None:
    rows = [
        {"answer": "of any"},
        {"turn": 2, "answer": "of any in turn 2"},
        {"task_id": "b", "answer": "of b"},
        {"task_id": "b", "turn": 2, "answer": "first of b in turn 2"},
        {"task_id": "b", "turn": 2, "answer": ""},
    ]
    decided = Decided(written(tmp_path, rows))
    assert [given(decided, "a", turn, 5) for turn in (1, 2, 3)] == ["of any", "of any in turn 2", "of any"]
    assert [given(decided, "b", turn, 0) for turn in (1, 2, 3)] == ["of b", "first of b in turn 2", "of b"]
    assert given(decided, "sums/b", 1, 0) == "of b"  # as tool use names it
    assert [given(decided, "b", 2, number) for number in range(4)] == ["first of b in turn 2", ""] * 2


def test_a_task_without_an_answer_is_named(tmp_path: Path, wording: Wording) -> None:
    decided = Decided(written(tmp_path, [{"task_id": "b", "turn": 1, "answer": "x"}]))
    with pytest.raises(InputError, match="no answer for the task b in turn 2") as caught:
        given(decided, "b", 2, 0)
    wording(caught.value)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"answer": "x"}, {"turn": 1}], "row 2: field 'answer' is missing"),
        ([{"answer": "x", "turn": 0}], "row 1: field 'turn' is 0"),
        ([{"answer": "x", "turn": True}], "row 1: field 'turn' is True"),
        ([{"answer": "x", "task": "b"}], "row 1: field 'task' is not known"),
        ([["x"]], "row 1"),
        ([], "has no rows"),
    ],
)
def test_a_wrong_row_is_found_when_a_run_is_planned(
    tmp_path: Path, rows: list[Any], named: str, wording: Wording
) -> None:
    config = {
        "experiment": "x",
        "kind": "tool-use",
        "model": {"path": str(written(tmp_path, rows)), "backend": "answers", "window": 2000},
        "data": {"heldout": [{"name": "a", "domain": "gsm8k", "source": "generator", "n_tasks": 7}]},
        "generation": {"max_turn_tokens": 100, "max_episode_tokens": 500},
        "evaluation": {"arms": [{"name": "calls"}]},
    }
    with pytest.raises(ConfigError) as caught:
        check_files(validate_experiment(config, "x.yaml"), "x.yaml")
    assert named in str(caught.value)
    wording(caught.value)
