"""Sets of questions: what is in them, what is left out, what is kept apart, and that files give back what they got."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import gsm8k_question, make_episode, make_question

from arc_refinery import records
from arc_refinery.domains.gsm8k.generator import gsm8k_row
from arc_refinery.records.tool_use import Call, Conversation, EpisodeMessage, Question, Segment
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.grading.domains import subject_of
from arc_refinery.tool_use.questions.sources import (
    questions_of,
    without_heldout,
)

Executors = tuple[Executor, Executor]

SUM = {"question": "Ann has 2 hats and buys 3. How many?", "answer": "2+3=<<2+3=5>>5\n#### 5"}
DOUBLE = {"text": "Double it.", "code": "def double(n): return 2 * n", "test_list": ["assert double(2) == 4"]}
CAPITAL = {"question": "Capital of Peru?", "answer": "Lima"}


def generated(levels: tuple[int, ...] = (1,), n: int = 6, name: str = "mine", seed: int = 0) -> Questions:
    settings = {"name": name, "domain": "gsm8k", "source": "generator", "levels": levels, "n_tasks": n, "seed": seed}
    return Questions.model_validate(settings)


def of_file(path: Path, domain: str, rows: list[dict[str, Any]], **changes: Any) -> Questions:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Questions.model_validate({"name": "mine", "domain": domain, "source": "file", "path": str(path)} | changes)


# what is in a set


def test_generated_sums_come_from_each_level_in_turn():
    questions = list(questions_of(generated(levels=(1, 3), n=5, seed=7), "train"))
    seed = stream_seed(7, "mine")
    rows = [gsm8k_row(level, "train", seed, number) for number, level in enumerate((1, 3, 1, 3, 1))]
    assert [(question.question_id, question.text) for question in questions] == [
        (f"mine/{number:06d}", row["question"]) for number, row in enumerate(rows)
    ]
    assert questions == [
        replace(gsm8k_question(row, f"{number:06d}"), question_id=f"mine/{number:06d}")
        for number, row in enumerate(rows)
    ]


def test_questions_depend_on_the_seed_and_the_name_of_their_set():
    first, again, seeded = (list(questions_of(generated(seed=seed), "train")) for seed in (0, 0, 1))
    named = list(questions_of(generated(name="other"), "train"))
    assert first == again
    assert len({question.text for question in first + seeded + named}) == 18


def test_no_text_is_on_both_sides_whatever_the_seeds():
    train = {question.text.partition("\n")[0] for question in questions_of(generated((1, 2), 60), "train")}
    heldout = {
        question.text.partition("\n")[0]
        for seed in (0, 1)
        for question in questions_of(generated((1, 2), 60, seed=seed), "heldout")
    }
    assert not train & heldout


@pytest.mark.parametrize(
    ("form", "row", "expected"),
    [
        ("gsm8k", SUM, ("5", "2+3=<<2+3=5>>5")),
        ("text", CAPITAL, ("Lima", None)),
    ],
)
def test_rows_of_a_file(tmp_path: Path, form: str, row: dict[str, Any], expected: tuple[str, str | None]):
    (question,) = questions_of(of_file(tmp_path / "rows.jsonl", form, [row]), "heldout")
    assert (question.question_id, question.text, question.domain) == ("mine/rows-000001", row["question"], form)
    domain, task = subject_of(question)
    assert (domain.correct(task), domain.worked(task)) == expected


def test_of_a_file_the_first_questions_are_taken_and_the_others_not_even_read(tmp_path: Path):
    rows = [SUM, SUM, {"question": "no answer"}]
    settings = of_file(tmp_path / "rows.jsonl", "gsm8k", rows, n_tasks=2)
    assert [question.question_id for question in questions_of(settings, "train")] == [
        "mine/rows-000001",
        "mine/rows-000002",
    ]


def test_rows_are_skipped_and_programs_are_asked_for_with_so_many_tests(tmp_path: Path):
    sums = of_file(tmp_path / "sums.jsonl", "gsm8k", [SUM, SUM, SUM], first_row=1, n_tasks=1)
    assert [question.question_id for question in questions_of(sums, "train")] == ["mine/sums-000002"]
    rows = [DOUBLE, DOUBLE | {"test_list": [f"assert double({n}) == {2 * n}" for n in (3, 5, 7)]}]
    for n_shown, shown in ((None, [3]), (1, [3]), (2, [3, 5])):
        settings = of_file(tmp_path / "programs.jsonl", "code", rows, first_row=1, n_shown_tests=n_shown)
        (question,) = questions_of(settings, "train")
        assert [n for n in (2, 3, 5, 7) if f"double({n})" in question.text] == shown


# what is left out, and what must be kept apart


def test_questions_that_are_held_out_are_not_trained_on():
    train = [make_question(question_id=f"train/{number}", text=f"{number} + 1?") for number in range(5)]
    heldout = [make_question(question_id=f"heldout/{number}", text=f"{number} + 1?") for number in (1, 4, 5)]
    remaining = [train[0], train[2], train[3]]
    assert without_heldout(train, iter(heldout)) == (remaining, {"held out, by content": 2})
    assert without_heldout(train, []) == (train, {})


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
    remaining, _ = without_heldout([make_question("q-000001", ours)], [make_question("q-000001", theirs)])
    assert (remaining == []) == is_held_out


# files give back what they got


def test_questions_are_read_as_they_were_written(tmp_path: Path):
    questions = [
        make_question("a/1", "2 + 3?\n“Hats” | ✓", "5", solution="<<2+3=5>>5"),
        make_question("a/4", "Where?", "Here", "text"),
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
