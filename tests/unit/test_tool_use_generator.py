"""Generated problems: their numbers, their forms, their sides, and that they repeat."""

import re
from fractions import Fraction

import pytest
from factories import correct_answer, gsm8k_question

from arc_refinery.domains.gsm8k.generator import LEVELS, gsm8k_row, split_of

N = 200
each_level = pytest.mark.parametrize("level", LEVELS)


@each_level
def test_each_marked_calculation_is_right_and_the_last_one_is_the_answer(level: int):
    """Python's own arithmetic is the other implementation, with `/` on exact numbers."""
    for index in range(N):
        answer = gsm8k_row(level, "train", 0, index)["answer"]
        marks = re.findall(r"<<(.*?)=(\d+)>>(\d+)", answer)
        assert marks
        for calculation, value, repeated in marks:
            exact = re.sub(r"\d+", r"Fraction(\g<0>)", calculation)
            assert eval(exact, {"Fraction": Fraction}) == int(value) == int(repeated)
        assert answer.endswith(f"\n#### {marks[-1][1]}")


@each_level
def test_the_numbers_of_a_story_are_those_of_its_calculations(level: int):
    stories = [row for row in (gsm8k_row(level, "train", 0, index) for index in range(N)) if " has " in row["question"]]
    assert len(stories) > N / 10
    for row in stories:
        numbers = set(map(int, re.findall(r"\d+", row["question"])))
        results = set(map(int, re.findall(r"=(\d+)>>", row["answer"])))
        used = {int(n) for marked in re.findall(r"<<(.*?)=", row["answer"]) for n in re.findall(r"\d+", marked)}
        assert numbers <= used
        assert used <= numbers | results


def test_levels_have_so_many_calculations():
    for level, (least, most) in {1: (1, 1), 2: (2, 2), 3: (3, 4)}.items():
        stories = (gsm8k_row(level, "train", 0, index) for index in range(N))
        counts = {row["answer"].count("<<") for row in stories if " has " in row["question"]}
        assert counts == set(range(least, most + 1))


def test_rows_are_read_as_those_of_the_data_sets():
    question = gsm8k_question(gsm8k_row(2, "train", 0, 0), "g")
    assert correct_answer(question).isdigit()


def test_no_text_is_on_both_sides():
    train = {gsm8k_row(1, "train", 0, index)["question"] for index in range(N)}
    heldout = {
        gsm8k_row(level, "heldout", seed, index)["question"]
        for level in LEVELS
        for seed in (0, 1)
        for index in range(50)
    }
    assert {split_of(text) for text in train} == {"train"}
    assert {split_of(text) for text in heldout} == {"heldout"}


def test_a_problem_belongs_to_its_seed_and_index():
    assert gsm8k_row(2, "train", 0, 5) == gsm8k_row(2, "train", 0, 5)
    rows = [gsm8k_row(2, "train", seed, index) for seed in (0, 1) for index in range(20)]
    assert len({str(row) for row in rows}) == 40


def test_generated_problems_do_not_change_unnoticed():
    """Models and reports name problems by their index: another text under an index is another data set."""
    assert gsm8k_row(1, "train", 0, 0) == {
        "question": "Calculate 5799 * 341.",
        "answer": "5799 * 341 = <<5799*341=1977459>>1977459\n#### 1977459",
    }
