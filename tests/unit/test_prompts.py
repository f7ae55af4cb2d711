"""Prompts, to the character, and the program that is taken out of an answer."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import ARC, make_task
from messages import Wording

from arc_refinery import cli, programs
from arc_refinery.arc.grids import Grid, as_grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.prompts import (
    COLOR_WORDS,
    COMPACT,
    WORDS,
    Template,
    compact_answer,
    error_feedback,
    execution_feedback,
    first_turn,
    load_template,
    save_template,
)
from arc_refinery.domains.arc.prompts.template import BUILT_IN, FeedbackTexts
from arc_refinery.domains.prompts import Renderer, extract_code, has_closed_code, next_turn, opening, split_prefix
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.refining.config import PromptedModel
from arc_refinery.tool_use.calls.turns import parse_turn


def pair(before: list[Any], wanted: list[Any]) -> Pair:
    return Pair(as_grid(before), as_grid(wanted))


@pytest.fixture
def task() -> Task:
    """Transposition: two train pairs, one test pair."""
    train = (pair([[1, 2]], [[1], [2]]), pair([[0, 3], [4, 0]], [[0, 4], [3, 0]]))
    return make_task(train=train, test=(pair([[5, 6]], [[5], [6]]),))


@pytest.fixture
def three() -> tuple[Task, tuple[Grid, ...]]:
    """Three train pairs that want 12/34, and outputs: the right one, one cell wrong, a row too few."""
    wanted = pair([[0]], [[1, 2], [3, 4]])
    outputs = as_grid([[1, 2], [3, 4]]), as_grid([[1, 2], [3, 0]]), as_grid([[1, 2]])
    return make_task(train=(wanted,) * 3, test=(pair([[5]], [[7, 7]]),)), outputs


def test_a_compact_grid_is_its_shape_and_numbered_rows_of_digits():
    assert COMPACT.notation.write(as_grid([[1, 2, 3], [4, 5, 0]])) == "2x3\n1 123\n2 450"


def test_compact_row_numbers_start_at_one_and_reach_thirty():
    lines = COMPACT.notation.write(np.zeros((30, 1), np.uint8)).split("\n")
    assert (lines[0], lines[1], lines[30]) == ("30x1", "1 0", "30 0")
    assert len(lines) == 31


def test_a_grid_in_words_is_a_row_a_line_in_the_ten_color_words():
    grid = as_grid([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    assert WORDS.notation.write(grid) == "Black Blue Red Green Yellow\nGray Pink Orange Purple Brown"


def test_a_compact_first_turn_is_the_train_pairs_alone(task: Task):
    assert first_turn(task, COMPACT) == [
        {
            "role": "user",
            "content": (
                "\ninput 1x2\n1 12\noutput 2x1\n1 1\n2 2"  # pair 1
                "\ninput 2x2\n1 03\n2 40\noutput 2x2\n1 04\n2 30"  # pair 2
            ),
        }
    ]


def test_a_first_turn_in_words_shows_pairs_and_test_input_in_words(task: Task):
    system, user = first_turn(task, WORDS)
    assert (system["role"], user["role"]) == ("system", "user")
    text = user["content"]
    assert text.startswith("Here are 2 examples")
    assert "from 0 to 9: Black, Blue, Red, Green, Yellow, Gray, Pink, Orange, Purple, Brown." in text
    assert (
        "\n\nExample 1, input:\nBlue Red\nExample 1, output:\nBlue\nRed"
        "\n\nExample 2, input:\nBlack Green\nYellow Black\nExample 2, output:\nBlack Yellow\nGreen Black\n\n"
    ) in text
    assert text.count("Test input:\nGray Pink\n\n") == 1
    assert "{" not in system["content"] + text


def test_every_test_input_is_shown(task: Task):
    two = replace(task, test=(*task.test, pair([[7]], [[8]])))
    assert "\n\nTest input:\nGray Pink\n\nTest input:\nOrange\n\n" in first_turn(two, WORDS)[1]["content"]


def test_other_words_replace_the_templates_own(task: Task):
    words = tuple("abcdefghij")
    template = load_template("words", words)
    text = first_turn(task, template)[1]["content"]
    assert "from 0 to 9: a, b, c, d, e, f, g, h, i, j." in text
    assert "Example 2, input:\na d\ne a\nExample 2, output:\na e\nd a\n" in text


@pytest.mark.parametrize(
    "words", [COLOR_WORDS[:9], (*COLOR_WORDS[:9], "Black"), (*COLOR_WORDS[:9], "dark red"), (*COLOR_WORDS[:9], "")]
)
def test_other_words_are_ten_different_ones(words: tuple[str, ...], wording: Wording):
    with pytest.raises(InputError) as caught:
        load_template("words", words)
    wording(caught.value)


def test_the_embedded_models_digits_cannot_be_replaced(wording: Wording):
    with pytest.raises(InputError) as caught:
        load_template("compact", COLOR_WORDS)
    assert "compact" in str(caught.value)
    wording(caught.value)


@pytest.mark.parametrize("name", ["compact", "words"])
def test_a_template_that_was_written_to_a_folder_is_read_back(name: str, tmp_path: Path):
    save_template(load_template(name), tmp_path / "folder")
    assert load_template(str(tmp_path / "folder")) == load_template(name)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_template_is_exported_to_edit(name: str, tmp_path: Path):
    cli.parse(["prompts", "export", "--template", name, "--output", str(tmp_path / "mine")]).run()
    assert load_template(str(tmp_path / "mine")) == load_template(name)


def test_a_folder_takes_other_words_too(tmp_path: Path):
    save_template(WORDS, tmp_path)
    assert load_template(str(tmp_path), "abcdefghij") == load_template("words", tuple("abcdefghij"))


def test_a_name_that_is_no_template_is_an_error_that_says_what_there_is(wording: Wording):
    with pytest.raises(InputError) as caught:
        load_template("barc")
    assert "barc" in str(caught.value) and "compact, words" in str(caught.value)
    wording(caught.value)


FEEDBACK = asdict(FeedbackTexts())
NOTATION = asdict(WORDS.notation) | {"between_pairs": "", "between_tests": ""}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("user.txt", "no pairs", "{pairs}"),
        ("pair.txt", "{input} alone", "{output}"),
        ("notation.json", "{", "notation.json"),
        ("notation.json", '{"between_pairs": "", "between_tests": ""}', "colors"),
        ("notation.json", json.dumps(NOTATION | {"color": "a"}), "no other key"),
        ("notation.json", json.dumps(NOTATION)[:-1] + ', "end": ""}', "the key 'end' appears twice"),
        ("notation.json", json.dumps(NOTATION | {"colors": ["a"]}), "colors: a"),
        ("notation.json", json.dumps(NOTATION | {"colors": [1, *COLOR_WORDS[1:]]}), "colors is [1, "),
        ("notation.json", json.dumps(NOTATION | {"row_end": None}), "row_end is None"),
        ("notation.json", json.dumps(NOTATION | {"start": "{hight}x{width}"}), "start has {hight}"),
        ("notation.json", json.dumps(NOTATION | {"between_tests": "{number}"}), "between_tests has {number}"),
        ("user.txt", "{pairs} {colours}", "it has {colours}"),
        ("pair.txt", "{input} {output} {tests}", "it has {tests}"),
        ("test.txt", "no grid", "{input}"),
        (
            "feedback.json",
            '{"head": "So:"}',
            "head, correct, wrong, other_shape, revealed, residual, error, tail",
        ),
        ("feedback.json", json.dumps(FEEDBACK | {"head": 1}), "head"),
        ("feedback.json", json.dumps(FEEDBACK | {"wrong": "pair {number} is wrong"}), "{grid}"),
        ("feedback.json", json.dumps(FEEDBACK | {"wrong": "{grid} {simmilarity}"}), "wrong has {simmilarity}"),
        ("feedback.json", json.dumps(FEEDBACK | {"tail": "{n_pairs}"}), "tail has {n_pairs}"),
    ],
)
def test_an_edited_folder_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, text: str, reason: str, wording: Wording
):
    save_template(WORDS, tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        load_template(str(tmp_path))
    assert str(tmp_path / name) in str(error.value) and reason in str(error.value)
    wording(error.value)


@pytest.mark.parametrize(
    ("template", "colors", "fact"),
    [
        ("words", COLOR_WORDS[:9], "10 "),
        ("words", (*COLOR_WORDS[:9], "dark red"), "dark red"),
        ("compact", COLOR_WORDS, "compact"),
    ],
)
def test_colors_that_cannot_be_used_are_refused(template: str, colors: tuple[str, ...], fact: str, wording: Wording):
    with pytest.raises(ValueError, match=fact) as caught:
        load_template(template, colors)
    wording(caught.value)


@pytest.mark.parametrize("text", ["user", "tail"])
def test_a_text_that_no_prompt_can_hold_is_named(text: str, renderer: Renderer, wording: Wording):
    long = "Look! " * 300
    changed = replace(WORDS, user=long) if text == "user" else replace(WORDS, feedback=FeedbackTexts(tail=long))
    renderer.check_texts(ARC.texts(WORDS), 1000)
    renderer.check_texts(ARC.texts(changed), renderer.count(long))
    with pytest.raises(InputError) as error:
        renderer.check_texts(ARC.texts(changed), renderer.count(long) - 1)
    assert f" {text} " in str(error.value) and str(renderer.count(long)) in str(error.value)
    wording(error.value)


def test_the_wording_of_later_turns_can_be_edited(tmp_path: Path):
    save_template(WORDS, tmp_path)
    mine = {
        "head": "Results.",
        "correct": " {number}: yes.",
        "wrong": " {number}: no ({similarity} of 100{other_shape}): {grid}",
        "other_shape": ", not {shape}",
        "revealed": " New: {input}, then {output}.",
        "residual": " {number}: {input}, then {output}.",
        "error": "Sorry: {error}",
        "tail": " Again!",
    }
    (tmp_path / "feedback.json").write_text(json.dumps(mine))
    template = load_template(str(tmp_path))
    zero, one = np.zeros((1, 2), np.uint8), np.ones((1, 1), np.uint8)
    task = Task("t", (Pair(zero, zero), Pair(zero, zero), Pair(zero, zero)), (), "")
    # one of two cells of the larger shape could match, and does not
    assert execution_feedback(task, (zero, zero + np.array([[0, 1]], np.uint8), one), template) == (
        "Results. 1: yes. 2: no (50 of 100): 1x2:\nBlack Blue 3: no (0 of 100, not 1x2): 1x1:\nBlue Again!"
    )
    assert execution_feedback(task, (zero, zero, zero), template, (Pair(zero, one), zero)).endswith(
        " New: Black Black, then Blue. 4: no (0 of 100, not 1x1): 1x2:\nBlack Black Again!"
    )
    residual = load_template(str(tmp_path), form="residual")
    changed = zero + np.array([[0, 1]], np.uint8)
    assert execution_feedback(task, (zero, changed, one), residual) == (
        "Results. 1: Black Black, then Black Black. 2: Black Blue, then Black Black. 3: Blue, then Black Black. Again!"
    )
    assert error_feedback("NameError: {grid}", template) == "Sorry: NameError: {grid} Again!"


def test_our_own_wording_is_the_default():
    assert ARC.wording(PromptedModel(path="m", window=10).template, "") == load_template("words")


def test_what_is_put_into_a_slot_is_left_alone(task: Task):
    words = ("{number}", "{input}", *COLOR_WORDS[2:])
    text = first_turn(task, load_template("words", words))[1]["content"]
    assert "Example 1, input:\n{input} Red\nExample 1, output:\n{input}\nRed\n" in text


def test_white_space_at_the_end_of_a_prefix_is_left_to_the_model(tmp_path: Path, task: Task):
    save_template(replace(WORDS, assistant_prefix="```python\n"), tmp_path)
    assert first_turn(task, load_template(str(tmp_path)))[-1] == {"role": "assistant", "content": "```python"}


def test_a_conversation_that_waits_for_an_answer_ends_with_its_beginning(task: Task):
    conversation = first_turn(task, replace(WORDS, assistant_prefix="I would say:"))
    assert split_prefix(conversation) == (first_turn(task, WORDS), "I would say:")
    assert opening(next_turn(conversation, "I would say: no", "It is wrong.")) == conversation
    assert split_prefix(first_turn(task, WORDS)) == (first_turn(task, WORDS), "")


def test_the_next_answer_begins_as_the_first_one_did():
    conversation: list[Message] = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "I would say:"}]
    assert next_turn(conversation, "I would say: this", "it failed") == [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "I would say: this"},
        {"role": "user", "content": "it failed"},
        {"role": "assistant", "content": "I would say:"},
    ]


@pytest.mark.parametrize("template", [COMPACT, WORDS])
def test_a_first_turn_does_not_depend_on_the_tests_answer(task: Task, template: Template):
    other = replace(task, test=(Pair(task.test[0].input, as_grid([[9, 9, 9]])),))
    assert first_turn(task, template) == first_turn(other, template)


def test_a_next_turn_is_the_conversation_the_models_own_answer_and_the_feedback():
    conversation: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert next_turn(conversation, "my program", "it failed") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "my program"},
        {"role": "user", "content": "it failed"},
    ]
    assert len(conversation) == 2  # the one that was given is not changed


def test_compact_feedback_says_for_each_train_pair_what_the_program_gave(three: tuple[Task, tuple[Grid, ...]]):
    # pair 2: three of four cells are equal. Pair 3: its two cells are equal, the box that holds both grids has four
    assert execution_feedback(*three, COMPACT) == (
        "Executing your program gave:"
        "\npair 1 correct"
        "\npair 2 wrong, pixel similarity 75%, given 2x2\n1 12\n2 30"
        "\npair 3 wrong, pixel similarity 50%, expected shape 2x2, given 1x2\n1 12"
        "\nWrite a corrected program."
    )


def test_feedback_in_words_says_the_given_shape_and_shows_grids_on_lines_of_their_own(
    three: tuple[Task, tuple[Grid, ...]],
):
    assert execution_feedback(*three, WORDS) == (
        "Executing your program gave:"
        "\npair 1 correct"
        "\npair 2 wrong, pixel similarity 75%, given 2x2:\nBlue Red\nGreen Black"
        "\npair 3 wrong, pixel similarity 50%, expected shape 2x2, given 1x2:\nBlue Red"
        "\nWrite a corrected program, without examples or tests."
    )


def test_residual_feedback_leads_from_the_given_grids_to_the_expected_ones(three: tuple[Task, tuple[Grid, ...]]):
    task, outputs = three
    as_problem = replace(
        task, train=tuple(Pair(output, pair.output) for output, pair in zip(outputs, task.train, strict=True))
    )
    (first,) = first_turn(as_problem, COMPACT)
    assert execution_feedback(task, outputs, replace(COMPACT, form="residual")) == (
        f"Executing your program gave:{first['content']}\nWrite a corrected program."
    )
    in_words = execution_feedback(task, outputs, replace(WORDS, form="residual"))
    assert in_words.count("It should give:") == 3
    assert "\nPair 3, your program gave:\nBlue Red\nIt should give:\nBlue Red\n" in in_words


@pytest.mark.parametrize("form", ["given", "residual"])
def test_no_form_of_feedback_depends_on_the_test_pairs(three: tuple[Task, tuple[Grid, ...]], form: Any):
    task, outputs = three
    other = replace(task, test=(Pair(as_grid([[9]]), as_grid([[8, 8]])),))
    template = replace(WORDS, form=form)
    assert execution_feedback(task, outputs, template) == execution_feedback(other, outputs, template)


@pytest.mark.parametrize("template", [COMPACT, WORDS])
def test_feedback_shows_neither_the_expected_grid_nor_the_test_pair(
    three: tuple[Task, tuple[Grid, ...]], template: Template
):
    task, outputs = three
    wrong = tuple(as_grid([[0]]) for _ in outputs)
    text = execution_feedback(task, wrong, template)
    assert template.notation.write(task.train[0].output) not in text
    assert template.notation.write(task.test[0].output) not in text


def test_feedback_needs_one_output_for_each_train_pair(three: tuple[Task, tuple[Grid, ...]]):
    task, outputs = three
    with pytest.raises(ValueError, match="shorter"):
        execution_feedback(task, outputs[:2], COMPACT)


def test_a_program_that_raised_is_told_its_exception():
    assert error_feedback("NameError: name 'x' is not defined (line 4)", COMPACT) == (
        "Executing your program failed with NameError: name 'x' is not defined (line 4)\nWrite a corrected program."
    )


def test_an_answer_is_one_code_block_with_a_whole_transform():
    assert compact_answer("    grid = grid.T") == (
        "```python\nfrom common import *\n\ndef transform(grid):\n    grid = grid.T\n    return grid\n```"
    )


def test_the_program_of_an_answer_can_be_taken_out_and_run():
    code = extract_code(compact_answer("    grid = grid[::-1]").replace("from common import *\n", ""))
    namespace: dict[str, Any] = {}
    exec(str(code), namespace)
    assert namespace["transform"]([1, 2, 3]) == [3, 2, 1]


@pytest.mark.parametrize(
    "completion", ["", "I give up.", "def transform(grid): return grid", "`x = 1`", "``` x = 1 ```"]
)
def test_a_completion_without_a_block_has_no_program(completion: str):
    assert extract_code(completion) is None


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python  \nx = 1\n```", "x = 1\n"),
        ("Let us see.\n\n```python\nx = 1\n\ny = 2\n```\nThat is it.", "x = 1\n\ny = 2\n"),
        ("```python\n```", ""),
    ],
)
def test_the_program_is_what_stands_between_the_fences(completion: str, code: str):
    assert extract_code(completion) == code


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("First:\n```python\nx = 1\n```\nor:\n```python\nx = 2\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nThe output:\n```\n1 2\n```", "x = 1\n"),
        ("```\n1 2\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("A stray\n```\nfence ```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\nBetter:\n```py\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\nor\n```python\nx = 2\ny = ", "x = 1\n"),
        ("```python\nx = 1\ny = ", "x = 1\ny = "),
        ("```python\r\nx = 1\r\n```", "x = 1\r\n"),
        ("```python x = 1```", "x = 1"),
    ],
)
def test_of_several_blocks_the_first_of_python_counts_else_the_last_without_a_language(completion: str, code: str):
    assert extract_code(completion) == code


TRANSFORM = "def transform(grid):\n    return grid"
INDENTED = TRANSFORM.replace("\n", "\n   ")
DRAFT = "```python\ndef transform(grid):\n    return None\n```"


@pytest.mark.parametrize(
    "completion",
    [
        f"```Python\n{TRANSFORM}\n```",
        f"```PYTHON3\n{TRANSFORM}\n```",
        f"``` python\n{TRANSFORM}\n```",
        f"~~~python\n{TRANSFORM}\n~~~",
        f"~~~\n{TRANSFORM}\n~~~",
        f"````python\n{TRANSFORM}\n````",
        f"1. Write it:\n   ```python\n   {INDENTED}\n   ```\n2. Done.",
        f"1. Write it:\n   ```py\n   {INDENTED}\n   ```\n2. Done.",
        f"- ```python\n   {INDENTED}\n   ```",
        f"\t```python\n\t{TRANSFORM.replace(chr(10), chr(10) + chr(9))}\n\t```",
        f"```py\r\n{TRANSFORM}\r\n```\r\n",
        f"```Python\n{TRANSFORM}",  # cut off
        # what follows the program
        f"```\n{TRANSFORM}\n```\nOutput:\n```\n1 2\n```",
        f"```Python\n{TRANSFORM}\n```\nExample:\n```Python\nprint(transform([[1]]))\n```",
        f"~~~python\n{TRANSFORM}\n~~~\nTo run it:\n~~~bash\npython x.py\n~~~",
        # drafts in a thought
        f"<think>\n{DRAFT}\n</think>\n\n```python\n{TRANSFORM}\n```",
        f"<thought>\n{DRAFT}\n</thought>\n\n```python\n{TRANSFORM}\n```",
        f"{DRAFT}\n</think>\n\n```python\n{TRANSFORM}\n```",  # the prompt ended with <think>
        f"<think>a</think>Hm.<think>{DRAFT}</think>```Python\n{TRANSFORM}\n```",
        f"```python\n{TRANSFORM}\n```\n<think>\n{DRAFT}",
        f"```python\n{TRANSFORM}\n```\nBetter:\n{DRAFT}",  # as published
    ],
)
def test_a_program_is_found_in_other_forms(completion: str):
    assert str(extract_code(completion)).strip() == TRANSFORM


@pytest.mark.parametrize(
    "completion",
    [
        f"<think>\n{DRAFT}",
        f"<reasoning>\n{DRAFT}",
        f"<think>\n{DRAFT}\n</think>\n\nI give up.",
        f"{DRAFT}\n</think>",
        "```bash\nls\n```",
    ],
)
def test_a_draft_is_no_program(completion: str):
    assert extract_code(completion) is None
    assert not has_closed_code(completion)


@pytest.mark.parametrize("tag", ["python", "Python", "py", ""])
@pytest.mark.parametrize("fence", ["```", "~~~"])
@pytest.mark.parametrize(
    "shape", ["{0}", "Here:\n{0}\nDone.", "<think>\nHm.\n</think>\n\n{0}", "1. It is\n{0}\n```\n1 2\n```"]
)
def test_refining_and_tool_use_find_the_same_program(tag: str, fence: str, shape: str):
    answer = shape.format(f"{fence}{tag}\n{TRANSFORM}\n{fence}")
    program = programs.tested_program(parse_turn(answer).answer or "", {"transform"})
    assert str(extract_code(answer)).strip() == str(program).strip() == TRANSFORM


# by hand, from the published definition: the text after the first ```python holds a fence, and something before it
@pytest.mark.parametrize(
    ("completion", "closed"),
    [
        ("```python\nx = 1\n```", True),
        ("```python x = 1```", True),
        ("```python3\nx = 1\n```", True),
        ("A stray\n```\nfence ```python\nx = 1\n```", True),
        ("```python\nx = 1", False),
        ("```python\n\n```", False),
        ("```python\nx = 1\n```python\nx = 2\n```", False),
        ("```\nx = 1\n```", False),
        ("```Python\nx = 1\n```", False),
        ("~~~python\nx = 1\n~~~", False),
        ("<think>\n```python\nx = \n</think>\n```python\nx = 1\n```", True),
        ("", False),
    ],
)
def test_closed_code_is_what_the_published_valid_code_counts(completion: str, closed: bool):
    assert has_closed_code(completion) == closed
