"""Which number, or which text, of an answer counts, and what it earns."""

from fractions import Fraction

import pytest
from factories import make_question

from arc_refinery.answers import final_number, final_text
from arc_refinery.records.tool_use import Question
from arc_refinery.tool_use.grading.rewards import grade_episodes


def reward_of(turn: str, question: Question) -> float:
    (graded,) = grade_episodes([turn], [question], ())
    return graded.reward


@pytest.mark.parametrize(
    ("text", "number"),
    [
        # plain, and with what may stand around a number
        ("#### 18", "18"),
        ("####18", "18"),
        ("####\n\n18", "18"),
        ("#### 18.", "18"),
        ("#### 18.0", "18"),
        ("#### 0.30", "3/10"),
        ("#### .5", "1/2"),
        ("#### 1,234,567", "1234567"),
        ("#### 1,234.50 dollars", "2469/2"),
        ("#### -5", "-5"),
        ("#### −5", "-5"),
        ("#### +5", "5"),
        ("#### $18", "18"),
        ("#### $ 18", "18"),
        ("#### US$18", "18"),
        ("#### -$18", "-18"),
        ("#### $-18", "-18"),
        ("#### €1,200", "1200"),
        ("#### 50%", "50"),
        ("#### 18 apples", "18"),
        ("#### 18th", "18"),
        ("#### 5km", "5"),
        ("#### **18**", "18"),
        ("#### (18)", "18"),
        ("#### ~18", "18"),
        ("#### 3 million", "3000000"),
        ("#### 2.5 thousand dollars", "2500"),
        # scientific notation and fractions
        ("#### 1.5e3", "1500"),
        ("#### 2E-2", "1/50"),
        ("#### 1.5 x 10^3", "1500"),
        (r"#### 1.5 \times 10^{3}", "1500"),
        ("#### 3/4", "3/4"),
        ("#### 3/4 cup", "3/4"),
        ("#### 2 1/2 hours", "5/2"),
        # an unfinished division is not an answer, nor is one by zero
        ("#### 48/4", None),
        ("#### 36/8", None),
        ("#### 5/0", None),
        # not a number, or more than one
        ("#### none", None),
        ("####", None),
        ("#### H2O", None),
        ("#### x2", None),
        ("#### 3:30", None),
        ("#### 13:30", None),
        ("#### 12/31/2026", None),
        ("#### 3.14.15", None),
        ("#### 1_000", None),
        ("#### 1e9999", None),
        (f"#### {'1' * 70}", None),
        ("#### –18", "-18"),  # an en dash
        ("#### $–18", "-18"),
        ("#### 18/1", "18"),
        ("#### 18/0", None),
        # a choice or a range is not an answer
        ("#### 18-20", None),
        ("#### 18–20", None),
        ("#### $18 - $20", None),
        ("#### 18 to 20", None),
        ("#### 18 or 19", None),
        ("#### **18** or **19**", None),
        ("#### 18, 19", None),
        (r"\boxed{18, 19}", None),
        ("The answer is 18 and 19.", None),
        ("#### 18, or 19", None),
        ("#### 18 vs 19", None),
        ("#### 18 apples or 19 apples", None),
        ("#### 18 (or 18.0)", "18"),
        ("#### 18 or 18.0", "18"),
        ("#### 90 minutes or 1.5 hours", "90"),
        ("#### 6 12-packs", "6"),
        ("#### 18; 9 * 2 = 18", "18"),
        ("#### 18 apples, 19 pears", "18"),
        ("#### 18.\n19", "18"),
        # a calculation that leads to it
        ("#### 3 + 4 = 7", "7"),
        ("#### (3+4)*2 = 14", "14"),
        ("#### $5 + $6 = $11", "11"),
        ("#### x = 5", "5"),
        ("#### 3 boxes x 6 = 18", "18"),
        ("#### 18 - it is 20 - 2", "18"),
        (r"\boxed{3 \times 6 = 18}", "18"),
        (r"#### 3 \cdot 6 = 18", "18"),
        (r"The answer is \(36 \div 2 = 18\).", "18"),
        (r"The answer is $90 \times 0.2 = 18$", "18"),
        ("#### 9·2 = 18", "18"),
        ("#### 20% of 90 = 18", "18"),
        ("#### 18 of 20 = 90%", "18"),
        ("#### 3*6=<<3*6=18>>18", "18"),
        ("#### $<<3*6=18>>18", "18"),
        # a power or a root is not computed; that of a unit does not matter
        (r"\boxed{10^3}", None),
        (r"\boxed{2^{10}}", None),
        ("#### 10³", None),
        (r"\boxed{\sqrt{16}}", None),
        (r"\boxed{\sqrt{16} = 4}", "4"),
        ("#### 2^3 = 8", "8"),
        ("#### 18 cm^2", "18"),
        (r"\boxed{18^\circ}", "18"),
        ("The area is 18 cm^2.", "18"),
        (r"The volume is 18 m^{3}.", "18"),
        # a label, or a denial
        ("#### Total cost: 3 * 6 = $18", "18"),
        ("#### Total cost = 20 - 2 = 18", "18"),
        ("#### Number of apples left: 20 - 2 = 18", "18"),
        ("#### cost of 3 hats: 18", "3"),
        ("#### Step 3: 18", "18"),
        ("#### Total: 18", "18"),
        ("#### 18 apples: 3 red", "18"),
        ("#### she earns 18 dollars: 9 eggs at $2 each", "18"),
        ("#### 18 dollars - that is 15% = 0.15 of 120", "18"),
        ("#### not only 18 dollars but 36 with tip", "18"),
        ("The answer is not 19 but 18.", "18"),
        ("The answer is not 3.7 but 18.", "18"),
        # a sign with a space
        ("#### - 18", "-18"),
        ("#### - $18", "-18"),
        ("The answer is:\n- 18", "18"),
        ("The answer is – 18", "18"),
        ("#### Rs.18", "18"),
        ("#### 12 = 3*4", "12"),
        # the last mark of a kind counts, and marks count in their order
        ("#### 1\n#### 2", "2"),
        ("The answer is 1.\n#### 2", "2"),
        (r"\boxed{1} #### 2", "2"),
        (r"The answer is 1: \boxed{2}", "2"),
        ("the answer is 1, no, the answer is 2", "2"),
        # a mark without a number is not an answer
        ("it is 7\n#### seven", None),
        ("it is 7\n####", "7"),  # nothing is marked
        # a heading is not a mark
        ("#### Step 4: Compute 9 * 2\n9 * 2 = 18\nThe answer is 18.", "18"),
        ("#### Step 2: Add\nSo it is 18.", "18"),
        ("#### Final Answer\n\\boxed{18}", "18"),
        ("#### Final Answer\n18", "18"),
        ("#### Final Answer ####\n18", "18"),
        ("##### **Answer**\n\n18 apples, because 3 are gone", "18"),
        ("**Final Answer**\n$18$ for 3 hats", "18"),
        ("### Final Answer: 18\nfor 3 hats", "18"),
        ("**Final Answer:**\n$$\n18\n$$\nfor 3 hats", "18"),
        ("**Final Answer**\n\\[\n18\n\\]\nfor 3 hats", "18"),
        ("The answer is:\n\n\\[ \\frac{36}{2} = 18 \\]\nfor 3 hats", "18"),
        ("#### 1. Understand\nMuch.\n#### 2. Compute\n\\boxed{18}", "18"),
        ("#### **1.** Understand\nMuch.\n#### 2) compute\nThe answer is 18, not 3.", "18"),
        ("#### 2.1 Compute the total\nThe answer is 18.", "18"),
        ("#### Step 1: Add\n3 + 15\n\n#### 18", "18"),
        ("#### 18\n#### Explanation\nTwice 9.", "18"),
        ("#### 18 apples\nI hope that this helps 3 of you.", "18"),
        ("#### x = 18\nAs 3 are gone.", "18"),
        ("#### US$18\nAs 3 are gone.", "18"),
        ("#### \\$18\nAs 3 are gone.", "18"),
        ("#### 18. I hope this helps.", "18"),
        ("#### 18 Apples", "18"),
        ("##### 18", "18"),
        # tags
        ("<answer>18</answer> for 3 hats", "18"),
        ("<answer>\n$18\n</answer>\nAs 3 are gone.", "18"),
        ("<answer>5</answer> No: <answer>18</answer> for 3", "18"),
        ("<answer>The answer is \\boxed{18}</answer> for 3", "18"),
        ("<answer>18", "18"),
        ("<answer></answer> so 18", "18"),
        ("<answer>18 or 19</answer>", None),
        ("<answer>none</answer> 18", None),
        # fractions
        (r"\boxed{3\frac{1}{2}}", "7/2"),
        (r"\boxed{-3\frac{1}{2}}", "-7/2"),
        (r"\boxed{3\,\tfrac12}", "7/2"),
        (r"\boxed{3 \frac{1}{2}}", "7/2"),
        (r"\boxed{\frac12}", "1/2"),
        (r"\boxed{\frac{1}2}", "1/2"),
        (r"\boxed{-\dfrac{1}{2}}", "-1/2"),
        (r"\boxed{\frac{-1}{2}}", "-1/2"),
        (r"\boxed{\frac{6}{4}}", None),
        ("#### 5½", "11/2"),
        ("#### 5 ½ hours", "11/2"),
        ("#### -¾", "-3/4"),
        ("#### 5 1⁄2", "11/2"),
        ("It takes ⅓ of it", "1/3"),
        # what separates thousands
        *((f"#### 8{mark}000", "8000") for mark in (",", " ", "'", "’", "\u00a0", "\u2009", "\u202f", "~")),
        *((rf"\boxed{{8{mark}000}}", "8000") for mark in ("{,}", r"\,", r"\;", r"\:", r"\!", r"\ ", "~", " ")),
        ("#### 1 234 567.5", "2469135/2"),
        ("#### $-1 000", "-1000"),
        ("It is 1 000.", "1000"),
        ("#### ₹1,50,000", "150000"),
        ("#### Rs. 1,50,000 in all", "150000"),
        ("#### ₹ 500", "500"),
        ("#### 3 100/201", "703/201"),
        ("#### 6 12", "6"),
        ("#### 6 1000", "6"),
        # what multiplies
        ("#### 70K", "70000"),
        ("#### 70k dollars", "70000"),
        ("#### $1.5M", "1500000"),
        ("#### $3bn", "3000000000"),
        ("#### €2 m", "2000000"),
        ("#### 5 m", "5"),
        ("#### 5m", "5"),
        ("#### 5kg", "5"),
        ("#### 5 Km", "5"),
        ("#### 10K-20K", None),
        ("#### 4K = 96", "4"),  # a variable
        ("4K - 4 = 92, so K", "92"),
        ("#### 6 200-gram bags", "6"),
        ("He got 24 points/answer = 48.\n#### Final Answer\n18", "18"),
        ("#### 3 millions", "3000000"),
        ("#### 1.5 lakh", "150000"),
        # other digits
        ("#### １８", "18"),
        ("＃＃＃＃ ￥１，０００", "1000"),
        ("#### ١٨", "18"),
        # boxed
        (r"\boxed{18}", "18"),
        (r"\boxed{} 18", "18"),
        (r"$\boxed{\$18}$", "18"),
        (r"\boxed{\frac{3}{4}}", "3/4"),
        (r"\boxed{18\text{ apples}}", "18"),
        (r"\boxed{1{,}234}", "1234"),
        (r"\boxed{18", "18"),
        # said
        ("The answer is 18 because 3 + 15 = 18.0 and 20 is more.", "18"),
        ("**Final Answer:** 18", "18"),
        ("answer = 18", "18"),
        ("The answer is:\n\n18", "18"),
        # unmarked: the last number
        ("He has 3 apples and gets 5, so 8.", "8"),
        ("From 10-18", "18"),
        ("5 - 3", "3"),
        ("5 -3", "-3"),
        ("no number", None),
        ("", None),
    ],
)
def test_which_number_counts(text: str, number: str | None):
    assert final_number(text) == (None if number is None else Fraction(number))


@pytest.mark.parametrize(
    ("text", "reference", "reward"),
    [
        ("#### 70,000", "70000", 1.0),
        ("#### 70000", "70,000", 1.0),
        ("#### 70000.00", "70000", 1.0),
        ("#### 70001", "70000", 0.0),
        ("#### 3.33", "3.3333", 0.0),
        ("#### 1234567890123", "1234567890124", 0.0),  # floats of 7 digits would call them equal
        ("none", "0", 0.0),
    ],
)
def test_numbers_are_compared_exactly(text: str, reference: str, reward: float):
    assert reward_of(text, make_question(reference=reference)) == reward


@pytest.mark.parametrize(
    ("text", "reference", "reward"),
    [
        ("Paris", "paris", 1.0),
        (" the  capital\nof France. ", "The capital of France", 1.0),
        ("I think so.\n#### Paris", "Paris", 1.0),
        ("The answer is **Paris**.", "Paris", 1.0),
        (r"\boxed{Paris}", "Paris", 1.0),
        (r"\boxed{\text{Paris}}", "Paris", 1.0),
        (r"\boxed{\text{Paris}}", r"\text{Paris}", 1.0),
        ("'Paris'", '"paris"', 1.0),
        ("ﬁne", "fine", 1.0),  # NFKC: a ligature
        ("#### Step 1: look\nIt is there.\n#### Paris", "Paris", 1.0),
        ("#### Step 1: look\nThe answer is Paris.", "Paris", 1.0),
        ("#### Final Answer\nParis", "Paris", 1.0),
        ("#### Final Answer\n\\boxed{Paris}", "Paris", 1.0),
        ("**Answer:**\nParis", "Paris", 1.0),
        ("#### Paris\n\nIt was in the first passage.", "Paris", 1.0),
        ("<answer>Paris</answer>, I think", "Paris", 1.0),
        ("Paris or London", "Paris", 0.0),
        ("#### Paris, London", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("...", "!", 0.0),  # an empty reference is matched by nothing
    ],
)
def test_texts_match_but_for_case_white_space_and_marks_around(text: str, reference: str, reward: float):
    assert reward_of(text, make_question(domain="text", reference=reference)) == reward


def test_a_marked_text_is_taken_without_the_rest():
    assert final_text("Because of this:\n#### The  Moon!") == "the moon"


@pytest.mark.parametrize(
    "text",
    [
        "1," * 20_000,
        "1 " * 20_000,
        "$" * 20_000,
        "#### " + "1=" * 10_000,
        r"\text{" * 9_000,
        "1 000 " * 9_000,
        "1" + "~000" * 9_000,
        "####\n" * 9_000,
        "<answer>" * 9_000,
        "answer" + "*" * 50_000,
        "#" * 50_000,
        "½ " * 20_000,
        r"1\," * 20_000,
        "#### 1" + " - 1" * 9_000,
        "#### a" * 9_000,
        f"1{' ' * 50_000}a 1",
    ],
)
def test_long_texts_are_read_in_time(text: str):
    """Some 0.1 s; a pattern that backtracks would take minutes."""
    final_number(text)
    final_text(text)


NUMBER = make_question(reference="42")


@pytest.mark.parametrize(
    ("turn", "reward"),
    [
        ("#### 42", 1.0),
        ("<think>\n#### 41\n</think>\n\n#### 42<|im_end|>", 1.0),
        ("<think>\n#### 42\n</think>\n\n#### 41", 0.0),
        ("<think>\n#### 42", 0.0),  # the thinking has not ended
        ('#### 42\n<tool_call>\n{"name": "calculator"}\n</tool_call>', 0.0),  # a turn that calls is not an answer
    ],
)
def test_the_last_turn_is_graded_without_its_thinking(turn: str, reward: float):
    assert reward_of(turn, NUMBER) == reward


def test_kinds_are_graded_side_by_side():
    text = make_question(domain="text", reference="here")
    graded = grade_episodes(["It is 42", "Here!", "#### 42"], [NUMBER, text, text], ())
    assert [(answer.reward, answer.answer) for answer in graded] == [(1.0, "42"), (1.0, "here"), (0.0, "42")]
