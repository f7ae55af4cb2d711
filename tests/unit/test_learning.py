"""Templates learned from training rows: rendering a row's task gives its text back, character for character.

The rows are made up here, by functions that know nothing of templates.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import make_task
from row_files import write_jsonl

from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.prompts import COLOR_WORDS, Template, first_turn, load_template, save_template
from arc_refinery.domains.arc.prompts.learning import learn, read_first_turns
from arc_refinery.errors import InputError

SYSTEM = "You are good at puzzles. Black is often the background."
PREFIX = "Here is how I would do it with the library.\n\n```python\nfrom common import"


def lines(grid: Grid) -> str:
    return "\n".join(" ".join(COLOR_WORDS[cell] for cell in row) for row in grid.tolist())


def a_list(grid: Grid) -> str:
    return str(grid.tolist())


def numbered(task: Task) -> str:
    pairs = "\n\n\n".join(
        f"Example {number}\nInput:\n{lines(pair.input)}\n\nOutput:\n{lines(pair.output)}"
        for number, pair in enumerate(task.train, 1)
    )
    return (
        "Grids are 2D, up to 30 by 30.\nThe examples:\n--------\n"
        f"{pairs}\n\n--------\nThe input to answer:\nInput:\n{lines(task.test[0].input)}\n\nWrite `transform`."
    )


def unnumbered(task: Task) -> str:
    pairs = "".join(f"IN\n{lines(pair.input)}\nOUT\n{lines(pair.output)}\n\n" for pair in task.train)
    return f"Black means nothing.\n\n{pairs}IN\n{lines(task.test[0].input)}\nOUT\n"


def lists(task: Task) -> str:
    pairs = "".join(
        f"train[{index}]: {a_list(pair.input)} -> {a_list(pair.output)}\n" for index, pair in enumerate(task.train)
    )
    return f"{len(task.train)} pairs, such as [[0, 1], [1, 0]]:\n{pairs}test: {a_list(task.test[0].input)} -> ?"


def test_first(task: Task) -> str:
    pairs = "\n".join(
        f"Pair {number} of {len(task.train)}\n{lines(pair.input)}\nbecomes\n{lines(pair.output)}"
        for number, pair in enumerate(task.train, 1)
    )
    return f"Answer this:\n{lines(task.test[0].input)}\n\nby learning from these.\n{pairs}\n\nGo."


def trailing_spaces(task: Task) -> str:
    def spaced(grid: Grid) -> str:
        return "".join("".join(f"{COLOR_WORDS[cell]} " for cell in row) + "\n" for row in grid.tolist())

    pairs = "".join(f"Input: \n{spaced(pair.input)}Output: \n{spaced(pair.output)} \n" for pair in task.train)
    return f"Look: \n\n{pairs}Test: \n{spaced(task.test[0].input)}  "


def a_list_of_colors(task: Task) -> str:
    """The colours one a line, which looks like a grid of ten rows; the test counts as the next example."""
    pairs = "".join(
        f"#{number}\n{lines(pair.input)}\n=>\n{lines(pair.output)}\n" for number, pair in enumerate(task.train, 1)
    )
    colors = "\n".join(COLOR_WORDS)
    last = f"#{len(task.train) + 1}\n{lines(task.test[0].input)}\n=>"
    return f"The colors:\n{colors}\nThat is all.\n{pairs}{last}"


def rows_of_digits(task: Task) -> str:
    def digits(grid: Grid) -> str:
        return "\n".join("".join(map(str, row)) for row in grid.tolist())

    pairs = "".join(f"{digits(pair.input)}\n->\n{digits(pair.output)}\n\n" for pair in task.train)
    return f"{pairs}{digits(task.test[0].input)}\n->\n?"


test_first.__test__ = False  # type: ignore[attr-defined]
WORDINGS = [numbered, unnumbered, lists, test_first, trailing_spaces, a_list_of_colors, rows_of_digits]


def tasks(n_rows: int = 30) -> list[Task]:
    """Tasks with 2 to 10 train pairs and grids of 1x1 to 5x5."""
    rng = np.random.default_rng(0)

    def grid() -> Grid:
        return rng.integers(0, 10, rng.integers(1, 6, 2)).astype(np.uint8)

    examples = [tuple(Pair(grid(), grid()) for _ in range(2 + number % 9 + 1)) for number in range(n_rows)]
    return [make_task(str(number), train=pairs[:-1], test=pairs[-1:]) for number, pairs in enumerate(examples)]


def row(user: str, number: int = 0, system: str = SYSTEM) -> dict[str, Any]:
    answer = f"{PREFIX} *\n\n{'# a note' if number % 2 else 'import numpy as np'}\nx = {number}\n```"
    said = {"system": system, "user": user, "assistant": answer}
    return {"messages": [{"role": role, "content": content} for role, content in said.items() if content]}


def rows_of(wording: Callable[[Task], str], system: str = SYSTEM) -> list[dict[str, Any]]:
    return [row(wording(task), number, system) for number, task in enumerate(tasks())]


def saved(template: Template, folder: Path) -> Template:
    save_template(template, folder)
    return load_template(str(folder))


@pytest.mark.parametrize("wording", WORDINGS)
def test_rendering_a_rows_task_gives_its_texts_back(wording: Callable[[Task], str], tmp_path: Path):
    learned = learn(write_jsonl(tmp_path / "rows.jsonl", rows_of(wording)))
    template = saved(learned.template, tmp_path / "template")
    assert template == learned.template
    assert (learned.n_fitting, learned.n_rows, learned.misfits) == (30, 30, ())
    for task in tasks():
        assert first_turn(task, template) == [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": wording(task)},
            {"role": "assistant", "content": PREFIX},
        ]


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_template_learned_from_few_pairs_renders_many(wording: Callable[[Task], str], tmp_path: Path):
    few = [task for task in tasks() if len(task.train) <= 3]
    learned = learn(write_jsonl(tmp_path / "rows.jsonl", [row(wording(task)) for task in few]))
    (many,) = [task for task in tasks(9) if len(task.train) == 10]
    assert first_turn(many, learned.template)[1]["content"] == wording(many)


def test_the_folder_can_be_read_by_people(tmp_path: Path):
    save_template(learn(write_jsonl(tmp_path / "rows.jsonl", rows_of(numbered))).template, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.txt")} == {
        "system.txt": f"{SYSTEM}\n",
        "user.txt": "Grids are 2D, up to 30 by 30.\nThe examples:\n--------\n{pairs}\n\n--------\n"
        "The input to answer:\n{tests}\n\nWrite `transform`.\n",
        "pair.txt": "Example {number}\nInput:\n{input}\n\nOutput:\n{output}\n",
        "test.txt": "Input:\n{input}\n",
        "assistant_prefix.txt": f"{PREFIX}\n",
    }
    notation = json.loads((tmp_path / "notation.json").read_text())
    assert (notation["colors"], notation["between_pairs"]) == (list(COLOR_WORDS), "\n\n\n")
    assert (notation["between_cells"], notation["between_rows"], notation["start"]) == (" ", "\n", "")


def test_several_test_inputs_are_written_under_the_label_of_one(tmp_path: Path):
    template = learn(write_jsonl(tmp_path / "rows.jsonl", rows_of(numbered))).template
    (task, *_) = tasks(1)
    two = replace(task, test=task.test * 2)
    written = lines(task.test[0].input)
    assert f"answer:\nInput:\n{written}\n\nInput:\n{written}\n\nWrite" in first_turn(two, template)[1]["content"]


def test_the_prefix_is_what_all_answers_begin_with_in_whole_words(tmp_path: Path):
    rows = rows_of(unnumbered)
    for number, line in enumerate(rows):
        line["messages"][2]["content"] = f"Let us see.\n\n```python\nfrom x import y{number + 10}"
    # all numbers here begin with y1, y2 or y3: the common text ends in "import y", which is half a word
    assert learn(write_jsonl(tmp_path / "rows.jsonl", rows)).template.assistant_prefix == (
        "Let us see.\n\n```python\nfrom x import"
    )


def test_rows_without_a_system_message_give_a_template_without_one(tmp_path: Path):
    template = learn(write_jsonl(tmp_path / "rows.jsonl", rows_of(numbered, system=""))).template
    assert [message["role"] for message in first_turn(tasks()[0], template)] == ["user", "assistant"]


def test_rows_that_do_not_fit_are_counted_and_named(tmp_path: Path):
    rows = rows_of(numbered)
    rows[3] = row("No grids here.")
    rows[7]["messages"][1]["content"] = numbered(tasks()[7]).replace("Output:", "Result:")
    learned = learn(write_jsonl(tmp_path / "rows.jsonl", rows))
    assert (learned.n_fitting, learned.n_rows) == (28, 30)
    first, second = learned.misfits
    assert first.startswith("row 4: found 0 grids")
    assert second.startswith("row 8: character ") and "Result:" in second and "Output:" in second


def test_two_wordings_in_one_file_end_in_an_error_that_shows_where_they_differ(tmp_path: Path):
    rows = rows_of(numbered)[:20] + [row(numbered(task).replace("Output", "Answer")) for task in tasks()[20:]]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InputError, match=r"fits 20 of 30.*row 21: character \d+.*Answer"):
        learn(path)
    assert learn(path, min_share=0.6).n_fitting == 20


def test_other_color_words_are_named_and_can_be_given(tmp_path: Path):
    words = (*COLOR_WORDS[:8], "Teal", "Maroon")
    rows = [row(numbered(task).replace("Purple", "Teal").replace("Brown", "Maroon")) for task in tasks()]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InputError, match=r"Maroon|Teal.*--colors"):
        learn(path)
    learned = learn(path, words)
    assert learned.n_fitting == 30
    assert learned.template.notation.colors == words


def test_rows_with_one_train_pair_cannot_tell_how_pairs_follow_each_other(tmp_path: Path):
    one_pair = [row(numbered(replace(task, train=task.train[:1]))) for task in tasks()]
    with pytest.raises(InputError, match="two or more train pairs"):
        learn(write_jsonl(tmp_path / "rows.jsonl", one_pair))


def test_a_slots_name_in_the_text_is_an_error(tmp_path: Path):
    path = write_jsonl(tmp_path / "rows.jsonl", [row(numbered(task) + " {input}") for task in tasks()])
    with pytest.raises(InputError, match=r"row 1 has the text \{input\}"):
        learn(path)


def test_all_rows_are_checked_not_only_those_that_the_template_was_made_from(tmp_path: Path):
    rows = [row(numbered(task), number) for number, task in enumerate(tasks() * 11)]
    rows[320] = row("No grids here.")
    learned = learn(write_jsonl(tmp_path / "rows.jsonl", rows))
    assert (learned.n_fitting, learned.n_rows) == (329, 330)
    assert learned.misfits[0].startswith("row 321: ")


def test_only_the_first_rows_are_read(tmp_path: Path):
    rows = [*rows_of(numbered), row("No grids here.")]
    learned = learn(write_jsonl(tmp_path / "rows.jsonl", rows), n_rows=len(rows) - 1)
    assert (learned.n_fitting, learned.n_rows) == (len(rows) - 1, len(rows) - 1)


# reading rows


def test_rows_are_read_from_all_forms_alike(tmp_path: Path):
    rows = rows_of(unnumbered)[:3]
    write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    (tmp_path / "c.json").write_text(json.dumps(rows))
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = {"id": pa.array([1, 2, 3]), "messages": pa.array([line["messages"] for line in rows], pa.list_(message))}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    first, *others = [list(read_first_turns(path)) for path in sorted(tmp_path.iterdir())]
    assert [problem.number for problem in first] == [1, 2, 3]
    assert first[1].user == unnumbered(tasks()[1])
    assert len(others) == 4 and all(other == first for other in others)


def test_of_a_folder_all_files_are_read_but_hidden_ones(tmp_path: Path):
    rows = rows_of(unnumbered)[:3]
    (tmp_path / "data").mkdir()
    write_jsonl(tmp_path / "data/b.jsonl", rows[1:])
    write_jsonl(tmp_path / "data/a.jsonl", rows[:1])
    (tmp_path / ".snakemake_timestamp").touch()
    assert [turn.user for turn in read_first_turns(tmp_path)] == [unnumbered(task) for task in tasks()[:3]]


def test_of_a_longer_conversation_the_first_turn_counts(tmp_path: Path):
    turns = [("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "a2")]
    content = {"messages": [{"role": role, "content": text} for role, text in turns]}
    (only,) = read_first_turns(write_jsonl(tmp_path / "rows.jsonl", [content]))
    assert (only.system, only.user, only.assistant) == ("", "u1", "a1")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.jsonl", b'{"messages": [{"role": "user", "content": "u"}]}\n', "row 1"),
        ("rows.jsonl", b'{"prompt": "u"}\n', "row 1"),
        ("rows.jsonl", b"{\n", "row 1 is not valid JSON"),
        ("rows.json", b'{"messages": []}', "a list of rows"),
        ("rows.json", b"[{", "is not valid JSON .*; expected a list of rows"),
        ("rows.json.gz", b"not gzip", "cannot be read"),
        ("rows.parquet", b"PAR1", "cannot be read"),
        ("rows.txt", b"", "ends in"),
    ],
)
def test_a_file_that_holds_no_rows_is_named(tmp_path: Path, name: str, content: bytes, reason: str):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as error:
        list(read_first_turns(path))
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"nothing\.jsonl"):
        list(read_first_turns(tmp_path / "nothing.jsonl"))


def test_an_empty_file_is_named(tmp_path: Path):
    path = write_jsonl(tmp_path / "rows.jsonl", [])
    with pytest.raises(InputError, match=r"rows\.jsonl"):
        learn(path)


def test_one_odd_answer_takes_nothing_from_the_prefix(tmp_path: Path):
    rows = rows_of(numbered)
    rows[3]["messages"][-1]["content"] = "I cannot do that."
    learned = learn(write_jsonl(tmp_path / "rows.jsonl", rows))
    assert learned.template.assistant_prefix == PREFIX
    assert (learned.n_fitting, learned.n_prefixed) == (len(rows), len(rows) - 1)


def test_a_prefix_does_not_end_between_a_sign_and_a_line_break(tmp_path: Path):
    # many tokenizers have ":" and the line break as one token, so ":" alone was never read
    rows = rows_of(numbered)
    for number, row in enumerate(rows):
        row["messages"][-1]["content"] = f"Here is what I think:\n{'AB'[number % 2]}{number}"
    assert learn(write_jsonl(tmp_path / "rows.jsonl", rows)).template.assistant_prefix == "Here is what I"


@pytest.mark.parametrize("content", [None, [{"type": "text", "text": "x"}], 3])
def test_an_answer_that_is_no_text_is_named(tmp_path: Path, content: object):
    rows = rows_of(numbered)
    rows[1]["messages"][-1]["content"] = content
    with pytest.raises(InputError, match=r"rows\.jsonl: row 2: expected"):
        learn(write_jsonl(tmp_path / "rows.jsonl", rows))
