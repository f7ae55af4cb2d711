"""Sets of questions: what is in them, what is left out, what is kept apart, and that files give back what they got."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from factories import make_episode, make_question
from mbpp_rows import mbpp_row
from messages import Wording

from arc_refinery import records
from arc_refinery.asserts.split import Asserts
from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Call, Conversation, EpisodeMessage, Question, Segment
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.questions.data import mbpp_question
from arc_refinery.tool_use.questions.generator import gsm8k_row
from arc_refinery.tool_use.questions.sources import (
    check_references,
    questions_of,
    without_heldout,
)

Executors = tuple[Executor, Executor]

SUM = {"question": "Ann has 2 hats and buys 3. How many?", "answer": "2+3=<<2+3=5>>5\n#### 5"}
DOUBLE = {"text": "Double it.", "code": "def double(n): return 2 * n", "test_list": ["assert double(2) == 4"]}
CAPITAL = {"question": "Capital of Peru?", "answer": "Lima"}


def generated(levels: tuple[int, ...] = (1,), n: int = 6, name: str = "mine") -> Questions:
    settings = {"name": name, "form": "gsm8k", "source": "generator", "levels": levels, "n_questions": n}
    return Questions.model_validate(settings)


def of_file(path: Path, form: str, rows: list[dict[str, Any]], **changes: Any) -> Questions:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Questions.model_validate({"name": "mine", "form": form, "source": "file", "path": str(path)} | changes)


# what is in a set


def test_generated_sums_come_from_each_level_in_turn():
    questions = list(questions_of(generated(levels=(1, 3), n=5), "train", 7))
    seed = stream_seed(7, "mine")
    rows = [gsm8k_row(level, "train", seed, number) for number, level in enumerate((1, 3, 1, 3, 1))]
    assert [(question.question_id, question.text) for question in questions] == [
        (f"mine/{number:06d}", row["question"]) for number, row in enumerate(rows)
    ]
    assert [f"{question.solution}\n#### {question.reference}" for question in questions] == [
        row["answer"] for row in rows
    ]


def test_questions_depend_on_the_seed_and_the_name_of_their_set():
    first, again, seeded = (list(questions_of(generated(), "train", seed)) for seed in (0, 0, 1))
    named = list(questions_of(generated(name="other"), "train", 0))
    assert first == again
    assert len({question.text for question in first + seeded + named}) == 18


def test_no_text_is_on_both_sides_whatever_the_seeds():
    settings = generated(levels=(1, 2), n=60)
    train = {question.text.partition("\n")[0] for question in questions_of(settings, "train", 0)}
    heldout = {
        question.text.partition("\n")[0] for seed in (0, 1) for question in questions_of(settings, "heldout", seed)
    }
    assert not train & heldout


@pytest.mark.parametrize(
    ("form", "row", "expected"),
    [
        ("gsm8k", SUM, Question("mine/rows-000001", SUM["question"], "gsm8k", "5", solution="2+3=<<2+3=5>>5")),
        (
            "mbpp",
            DOUBLE | {"task_id": 9},
            Question(
                "mine/mbpp-9",
                "Double it.\nOne of its tests: assert double(2) == 4",
                "code_exec",
                "def double(n): return 2 * n",
                asserts=Asserts(("assert double(2) == 4",)),
            ),
        ),
        ("text", CAPITAL, Question("mine/rows-000001", "Capital of Peru?", "exact_match", "Lima")),
    ],
)
def test_rows_of_a_file(tmp_path: Path, form: str, row: dict[str, Any], expected: Question):
    assert list(questions_of(of_file(tmp_path / "rows.jsonl", form, [row]), "heldout", 0)) == [expected]


def test_of_a_file_the_first_questions_are_taken_and_the_others_not_even_read(tmp_path: Path):
    rows = [SUM, SUM, {"question": "no answer"}]
    settings = of_file(tmp_path / "rows.jsonl", "gsm8k", rows, n_questions=2)
    assert [question.question_id for question in questions_of(settings, "train", 0)] == [
        "mine/rows-000001",
        "mine/rows-000002",
    ]


def test_two_rows_of_one_name_are_refused(tmp_path: Path, wording: Wording):
    settings = of_file(tmp_path / "rows.jsonl", "mbpp", [DOUBLE | {"task_id": 9}] * 2)
    with pytest.raises(InputError, match=r"^mine: .*mbpp-9.*task_id") as caught:
        list(questions_of(settings, "train", 0))
    wording(caught.value)


# what is left out, and what must be kept apart


@pytest.mark.slow
def test_programs_that_their_own_asserts_do_not_pass_are_left_out_and_named(executors: Executors, wording: Wording):
    def asked(name: str, *asserts: str, code: str = "def double(n): return 2 * n") -> Question:
        return make_question(question_id=name, kind="code_exec", reference=code, asserts=Asserts(asserts))

    good = asked("good", "assert double(2) == 4")
    in_part = asked("in part", "assert double(2) == 4", "assert list(map(double, [1])) == [2]")  # one can be checked
    sums = make_question(question_id="sum")
    bad = [
        asked("wrong", "assert double(2) == 4", "assert double(3) == 7"),
        asked("raises", "assert double(2) == 4", code="def double(n): return 2 * m"),
        asked("broken", "assert double(2) == 4", code="def double(n) return 2 * n"),
        asked("never ends", "assert double(2) == 4", code="def double(n):\n    while True: pass"),
        asked("cannot be checked", "assert list(map(double, [1])) == [2]"),
        asked("asserts nothing of it", "assert 2 == 2"),
        make_question(question_id="no asserts", kind="code_exec", reference="def double(n): return 2 * n"),
    ]
    failing, unchecked = check_references([bad[0], good, *bad[1:], in_part, sums], *executors)
    facts = {
        "wrong": "assert 2: failed: ",
        "raises": "assert 1: error: NameError: name 'm'",
        "broken": "assert 1: unsupported: ",
        "never ends": "assert 1: timeout: Timeout: ",
        "cannot be checked": "assert 1: unsupported: double ",
        "asserts nothing of it": "assert 1: unsupported: ",
        "no asserts": "it has no asserts",
    }
    assert failing.keys() == facts.keys()
    for name, reason in failing.items():
        assert reason.startswith(facts[name])
        wording(f"{name}: {reason}")
    ((name, reason),) = unchecked.items()
    assert (name, re.findall(r"\d+", reason)) == ("in part", ["1", "2", "2"])  # 1 of 2, the second
    wording(f"{name}: {reason}")


def test_programs_that_pass_their_asserts_are_all_kept(executors: Executors):
    questions = [mbpp_question(mbpp_row(index), "q", "here") for index in range(9)]
    assert check_references(questions, *executors) == ({}, {})


def test_questions_that_are_held_out_are_not_trained_on():
    train = [make_question(question_id=f"train/{number}", text=f"{number} + 1?") for number in range(5)]
    heldout = [make_question(question_id=f"heldout/{number}", text=f"{number} + 1?") for number in (1, 4, 5)]
    remaining = [train[0], train[2], train[3]]
    assert without_heldout(train, iter(heldout)) == (remaining, {"held out, by text": 2})
    assert without_heldout(train, []) == (train, {})


def program(name: str, text: str, *asserts: str) -> Question:
    return make_question(question_id=name, text=text, kind="code_exec", asserts=Asserts(asserts))


FULL = program("train/mbpp-2", "Write a function to find the shared elements.", "assert shared((1,), (1,)) == (1,)")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (program("test/mbpp-2", "Find what two tuples share.", "assert set(shared((3,), (3,))) == {3}"), "by task_id"),
        (program("test/mbpp-3", "Find what two tuples share.", "assert set(shared((3,), (3,))) == {3}"), None),
        (program("test/mbpp-3", "Find it.", "assert shared( (1,),(1,) )==(1,)"), "by asserts"),
        (program("test/mbpp-3", " write a function to find the  shared elements", "assert f() == 1"), "by text"),
        # numbers of rows are no ids, nor are those of other data
        (program("test/2", "Find what two tuples share.", "assert f() == 1"), None),
    ],
)
def test_a_task_in_other_words_is_held_out(other: Question, reason: str | None):
    remaining, reasons = without_heldout([FULL], [other])
    assert (remaining, reasons) == (([], {f"held out, {reason}": 1}) if reason else ([FULL], {}))


def test_the_test_that_a_row_is_shown_with_is_not_a_part_of_its_text(tmp_path: Path):
    (train,) = questions_of(of_file(tmp_path / "rows.jsonl", "mbpp", [DOUBLE]), "train", 0)
    other = DOUBLE | {"text": "double it", "test_list": ["assert double(7) == 14"]}
    (heldout,) = questions_of(of_file(tmp_path / "rows.jsonl", "mbpp", [other]), "heldout", 0)
    assert without_heldout([train], [heldout]) == ([], {"held out, by text": 1})


def test_numbers_of_rows_are_no_ids(tmp_path: Path):
    rows = [{key: value for key, value in DOUBLE.items() if key != "task_id"}]
    (train,) = questions_of(of_file(tmp_path / "rows.jsonl", "mbpp", rows), "train", 0)
    others = [{"text": "Halve it.", "code": "def half(n): return n / 2", "test_list": ["assert half(2) == 1"]}]
    (heldout,) = questions_of(of_file(tmp_path / "rows.jsonl", "mbpp", others), "heldout", 0)
    assert train.question_id == heldout.question_id
    assert without_heldout([train], [heldout]) == ([train], {})


TWO, THREE = ("assert f(1) == 1", "assert f(2) == 4"), ("assert f(2)==4", "assert f(1) == 1", "assert f(3) == 9")


@pytest.mark.parametrize(
    ("ours", "theirs", "is_held_out"),
    [
        (TWO, THREE, True),
        (THREE, TWO, True),
        (TWO[:1], TWO[:1], True),
        (TWO[:1], THREE, False),  # one in common
        (TWO, (TWO[0], "assert f(5) == 25"), False),
        ((), (), False),
    ],
)
def test_the_same_asserts_are_the_same_task(ours: tuple[str, ...], theirs: tuple[str, ...], is_held_out: bool):
    remaining, _ = without_heldout([program("a", "Square.", *ours)], [program("b", "Multiply it.", *theirs)])
    assert (remaining == []) == is_held_out


@pytest.mark.parametrize(
    ("ours", "theirs", "is_held_out"),
    [
        ("How many hats?", "how many  hats", True),
        ("She said: “ten”, then 'two'!", 'She said "ten" then two', True),
        ("It costs 1,000.50 dollars.", "it costs 1,000.50 dollars", True),
        ("twenty-one – or so", "Twenty one - or so", True),
        ("Ａnn has ２ hats", "Ann has 2 hats", True),
        ("What is 3 + 4?", "What is 3 - 4?", False),
        ("What is 2.5 + 1?", "What is 25 + 1?", False),
        ("What is (1 + 2) * 3?", "What is 1 + 2 * 3?", False),
        ("What is -3 + 1?", "What is 3 + 1?", False),
        ("Ann has 12 hats", "Ann has 1 2 hats", False),
        ("Ann has 2 hats", "Ann has 3 hats", False),
    ],
)
def test_texts_are_compared_without_case_space_and_punctuation(ours: str, theirs: str, is_held_out: bool):
    remaining, _ = without_heldout([make_question(text=ours)], [make_question(text=theirs)])
    assert (remaining == []) == is_held_out


# files give back what they got


def test_questions_are_read_as_they_were_written(tmp_path: Path):
    questions = [
        Question("a/1", "2 + 3?\n“Hats” | ✓", "gsm8k", "5", solution="<<2+3=5>>5"),
        Question(
            "a/2",
            "Double it.",
            "code_exec",
            "def f(): ...",
            asserts=Asserts(("assert f()",), ("import math",), "x = 3"),
        ),
        Question("a/3", "Halve it.", "code_exec", "def f(): ...", asserts=Asserts(("assert f()", "assert not f()"))),
        Question("a/4", "Where?", "exact_match", "Here"),
    ]
    records.write(tmp_path / "q.parquet", Question, questions, 0, {})
    assert list(records.read(tmp_path / "q.parquet", Question)) == questions


def test_conversations_are_read_as_they_were_written(tmp_path: Path):
    segments = (Segment("<|im_start|>user\n?<|im_end|>\n", False), Segment("<think>\n…\n</think>\n\n5<|im_end|>", True))
    conversations = [Conversation("a/1", segments, 0), Conversation("a/2", segments * 2, 3)]
    records.write(tmp_path / "c.parquet", Conversation, conversations, 0, {})
    assert list(records.read(tmp_path / "c.parquet", Conversation)) == conversations


def test_episodes_are_read_as_they_were_written(tmp_path: Path):
    episode = make_episode(
        episode_id="a/1/000",
        question_id="a/1",
        adapter="adapters/trained",
        seed=3,
        temperature=0.6,
        top_p=0.95,
        messages=(
            EpisodeMessage("assistant", "<tool_call>"),
            EpisodeMessage("tool", "Error: …"),
            EpisodeMessage("assistant", "5"),
        ),
        calls=(Call("calculator", ""), Call("", "malformed")),
        completion_ids=(151645, 0, 7),
        mask=(1, 0, 1),
        ending="answer",
        n_prompt_tokens=40,
        n_tokens=2,
        answer="5",
        reward=1.0,
    )
    without = make_episode(messages=(), calls=(), ending="truncated", answer="")
    records.write(tmp_path / "e.parquet", records.Episode, [episode, without], 0, {})
    assert list(records.read(tmp_path / "e.parquet", records.Episode)) == [episode, without]
