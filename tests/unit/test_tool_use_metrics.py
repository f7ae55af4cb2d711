"""Votes on answers, and sizes of an episode's texts."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from factories import make_episode

from arc_refinery.evaluation.attempts import Results
from arc_refinery.records.tool_use import Call, EpisodeMessage
from arc_refinery.tool_use.calls.formats import FORMATS, HERMES
from arc_refinery.tool_use.report.calls import answers_found, majority
from arc_refinery.tool_use.report.rows import columns_of_texts


def votes(answers: str, correct: str = "R") -> float:
    """Each episode's answer is a letter; a point is none."""
    texts = ["" if letter == "." else letter for letter in answers]
    rows = pd.DataFrame({"task_id": "q", "answer": texts, "solved": [text == correct for text in texts]})
    return majority(Results("set", {"q": ""}, rows, ()), rows)[0]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("RRw", 1.0),
        ("wwR", 0.0),
        ("Rwv", 1.0),  # a tie of three, and R was first
        ("wRv", 0.0),
        ("wRvR", 1.0),  # two votes of four are most
        ("wRRw", 0.0),  # a tie: w was first
        ("..R.", 1.0),  # episodes without an answer do not vote
        ("....", 0.0),
    ],
)
def test_the_answer_with_most_votes_counts_and_of_equals_the_first(answers: str, expected: float):
    assert votes(answers) == expected


def test_ties_broken_by_order_are_fair_on_average():
    """Over all orders of the same answers, a tie of m answers is won by each in 1 of m orders."""
    for answers in ("Rw", "RRww", "RwvvwR", "Rwv.", "RRwv"):
        orders = set(itertools.permutations(answers))
        counts = Counter(answers.replace(".", ""))
        most = max(counts.values())
        winners = [letter for letter, count in counts.items() if count == most]
        expected = Fraction("R" in winners, len(winners))
        assert Fraction(float(np.mean([votes("".join(order)) for order in orders]))).limit_denominator(100) == expected


def assistant(text: str) -> EpisodeMessage:
    return EpisodeMessage("assistant", text)


def test_thoughts_and_results_are_counted_in_characters_and_calls_in_turns():
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2*3"}}\n</tool_call>'
    messages = (
        assistant(f"<think>\nfour\n</think>\n\n{call}\n{call}"),
        EpisodeMessage("tool", "6"),
        EpisodeMessage("tool", "sixty"),
        assistant("<think>\nan open thought"),
    )
    columns = columns_of_texts(
        make_episode(messages=messages, calls=(Call("calculator", ""),) * 2, ending="truncated"), HERMES, ""
    )
    assert columns["n_thought_chars"] == len("four") + len("an open thought")
    assert columns["result_chars"] == [1, 5]
    assert columns["calls_of_turns"] == [2, 0]


def test_calls_whose_results_had_no_room_belong_to_the_last_turn():
    messages = (assistant("one call"), EpisodeMessage("tool", "6"), assistant("two calls"))
    columns = columns_of_texts(
        make_episode(messages=messages, calls=(Call("calculator", ""),) * 3, ending="tokens"), HERMES, ""
    )
    assert (columns["calls_of_turns"], columns["result_chars"]) == ([1, 2], [1])


@pytest.mark.parametrize(
    ("results", "answer", "expected"),
    [
        (["[1] Box 85\nBox 85 is in room 7."], "7", True),
        (["Box 857 is in room 17."], "7", False),
        (["Room 7.5", "1.7", "-7"], "7", False),
        (["In the town of  New\nHaven"], "new haven", True),
        (["in Oslo", "in Rome"], "Oslo", True),
        ([], "Oslo", False),
        (["Oslo"], "", False),  # no text
        (["a, b"], "?", False),
    ],
)
def test_an_answer_is_found_where_a_result_has_its_words(results: list[str], answer: str, expected: bool):
    messages = (assistant("calls"), *(EpisodeMessage("tool", result) for result in results))
    assert columns_of_texts(make_episode(messages=messages), HERMES, answer)["shows_answer"] == expected


def test_found_answers_and_correct_ones_are_counted():
    cases = [(True, 1.0), (True, 0.0), (True, 1.0), (False, 0.0), (False, 0.0)]
    episodes = pd.DataFrame([(shown, reward == 1.0) for shown, reward in cases], columns=["shows_answer", "solved"])
    assert answers_found(episodes).to_dict("records") == [
        {"found": True, "episodes": 3, "correct": 2},
        {"found": False, "episodes": 2, "correct": 0},
    ]


JSON_CALL = '{"name": "calculator", "parameters": {"expression": "2*3"}}'


@pytest.mark.parametrize(
    ("text", "call_format", "expected"),
    [
        (JSON_CALL, "hermes", True),
        (f"```json\n{JSON_CALL}\n```", "hermes", True),
        ('<function=calculator>{"expression": "2*3"}</function>', "hermes", True),
        ("[calculator(expression='2*3')]", "hermes", True),
        (JSON_CALL, "qwen-xml", True),
        (f"<think>\n{JSON_CALL}\n</think>\n\n#### 6", "hermes", False),
        ("#### 6", "hermes", False),
        ("[6]", "hermes", False),
        ("f(x) is [f(1), 2]", "hermes", False),
    ],
)
def test_answers_that_look_like_calls_are_found(text: str, call_format: str, expected: bool):
    for ending, looks_like_call in (("answer", expected), ("truncated", False)):
        episode = make_episode(messages=(assistant(text),), ending=ending)
        assert columns_of_texts(episode, FORMATS[call_format], "")["answers_with_call"] == looks_like_call
