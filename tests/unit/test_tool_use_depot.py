"""The generated depot: each look-up finds the fact that names the next one, and questions of a split share no box."""

import random
import re
from functools import cache

import pytest

from arc_refinery.tool_use.config import Questions, ToolChoice
from arc_refinery.tool_use.config.experiment import LEVELS
from arc_refinery.tool_use.questions.depot import depot, depot_row, make_depot
from arc_refinery.tool_use.questions.generator import QuestionSplit
from arc_refinery.tool_use.questions.sources import questions_of
from arc_refinery.tool_use.tools.toolbox import Toolbox

N = 100
each_level = pytest.mark.parametrize("level", LEVELS)


@cache
def toolbox() -> Toolbox:
    return Toolbox([ToolChoice(tool="search", corpus="generator", passages=2)])


def first_passage(query: str) -> str:
    return toolbox().run("search", {"query": query}).text.partition("\n\n[2] ")[0]


def looked_up(question: str) -> tuple[str, int]:
    """Follow the passages from a question's box, by their words alone; return the answer and the number of look-ups."""
    box = re.findall(r"box \d{4}", question)[0]
    room = re.findall(r"is in (room \d{3})\.", first_passage(box))[0]
    if question == f"In which room is {box}?":
        return room.removeprefix("room "), 1
    facts = re.findall(r"is in (building \d\d)\. (\w+) keeps it\.", first_passage(room))[0]
    if question == f"Who keeps the room of {box}?":
        return facts[1], 2
    if question == f"In which building is {box}?":
        return facts[0].removeprefix("building "), 2
    assert question == f"In which town is {box}?"
    return re.findall(r"is in (\w+)\.", first_passage(facts[0]))[0], 3


@each_level
def test_answers_are_found_with_as_many_look_ups_as_the_level_says(level: int):
    for index in range(N):
        row = depot_row(level, "train", 0, index)
        assert looked_up(row["question"]) == (row["answer"], level)


@each_level
def test_look_ups_are_those_that_lead_to_the_answer(level: int):
    for number, box in enumerate(list(depot().room_of)[:N]):
        question = depot().question(box, level, about_keeper=number % 2 == 0)
        assert looked_up(question.text) == (question.answer, len(question.look_ups))
        assert question.answer in question.choices
        for query, fact in question.look_ups:
            assert fact in first_passage(query)
        for (_, fact), (query, _) in zip(question.look_ups, question.look_ups[1:], strict=False):
            assert fact.endswith(f"{query}.")  # read there, not known before


def test_no_box_is_in_questions_of_both_splits():
    def boxes(split: QuestionSplit) -> set[str]:
        rows = [depot_row(level, split, seed, index) for level in LEVELS for seed in (0, 1) for index in range(300)]
        return {re.findall(r"\d{4}", row["question"])[0] for row in rows}

    train, heldout = boxes("train"), boxes("heldout")
    assert len(train) > 500
    assert len(heldout) > 200
    assert not train & heldout


def test_the_generator_makes_questions_with_a_text_as_the_answer():
    settings = Questions.model_validate(
        {"name": "depot", "form": "text", "source": "generator", "levels": [1, 3], "n_questions": 4}
    )
    questions = list(questions_of(settings, "train", 0))
    assert [question.kind for question in questions] == ["exact_match"] * 4
    assert [looked_up(question.text) for question in questions] == [
        (question.reference, level) for question, level in zip(questions, (1, 3, 1, 3), strict=True)
    ]


def test_another_seed_makes_another_depot():
    assert make_depot(random.Random(1), 5, 3, 2) == make_depot(random.Random(1), 5, 3, 2)
    assert make_depot(random.Random(1), 5, 3, 2) != make_depot(random.Random(2), 5, 3, 2)
