"""Tools: what a call gives, and what the model reads of a wrong one."""

import os
from pathlib import Path

import jinja2
import pytest

from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.built_in_tools import MAX_FILE_BYTES
from arc_refinery.tool_use.call_formats import WrittenCall
from arc_refinery.tool_use.tools import CallResult, Toolbox, answer_all
from arc_refinery.tool_use.turns import ParsedTurn, parse_turn

CALCULATOR = '{"name": "calculator", "arguments": {"expression": "12 * (3 + 4)"}}'
HOW = f"Write it like this: {CALCULATOR}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task's folder with a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret")
    inside = tmp_path / "task"
    (inside / "more").mkdir(parents=True)
    (inside / "notes.txt").write_text("first\nsecond\n")
    (inside / "more" / "deep.txt").write_text("deep")
    return inside


@pytest.fixture
def tools(executor: Executor, folder: Path) -> Toolbox:
    return Toolbox(executor=executor, folder=folder)


def code(source: str) -> dict[str, str]:
    return {"code": source}


def answer(tools: Toolbox, turn: ParsedTurn) -> list[CallResult]:
    return answer_all([(tools, turn, 5)])[0]


def call(tools: Toolbox, written: str) -> CallResult:
    """The result of what stands between the tags of a call."""
    (result,) = answer(tools, ParsedTurn("", "", (WrittenCall(written, True),)))
    return result


# ---- calls ----


def test_a_call_gives_the_tools_result(tools: Toolbox):
    assert call(tools, CALCULATOR) == tools.run("calculator", {"expression": "12 * (3 + 4)"})
    result = call(tools, f"\n{CALCULATOR}\n")
    assert (result.text, result.tool, result.fault) == ("84", "calculator", None)


@pytest.mark.parametrize(
    ("written", "fault", "text"),
    [
        ("", "malformed", f"Error: the call is no JSON (Expecting value, line 1 column 1). {HOW}"),
        ("12 * 3", "malformed", f"Error: the call is no JSON (Extra data, line 1 column 4). {HOW}"),
        (
            '{"name": "calculator", "arguments": {"expression": "1"}',
            "malformed",
            f"Error: the call is no JSON (Expecting ',' delimiter, line 1 column 56). {HOW}",
        ),
        (
            '{"name": "execute_code", "arguments": {"code": "a\nb"}}',
            "malformed",
            "Error: the call is no JSON (Invalid control character at, line 1 column 50). Inside a text, a new line is "
            rf"\n and a quote is \". {HOW}",
        ),
        ("[" * 100_000, "malformed", f"Error: the call is no JSON that can be read. {HOW}"),
        ("9" * 10_000, "malformed", f"Error: the call is no JSON that can be read. {HOW}"),
        ('["calculator"]', "malformed", f"Error: the call is a list, expected an object. {HOW}"),
        ("null", "malformed", f"Error: the call is null, expected an object. {HOW}"),
        ('{"arguments": {}}', "malformed", f'Error: "name" is missing. {HOW}'),
        ('{"name": "calculator"}', "malformed", f'Error: "arguments" is missing. {HOW}'),
        ('{"name": 3, "arguments": {}}', "malformed", f'Error: "name" is a number, expected a text. {HOW}'),
        (
            '{"name": "calculator", "arguments": "{}"}',
            "malformed",
            f'Error: "arguments" is a text, expected an object. {HOW}',
        ),
        (
            '{"name": "calc", "arguments": {}}',
            "unknown_tool",
            f'Error: there is no tool "calc". There is calculator, execute_code, read_file. {HOW}',
        ),
        (
            '{"name": "calculator", "arguments": {}}',
            "arguments",
            f'Error: calculator: the argument "expression" is missing. {HOW}',
        ),
        (
            '{"name": "calculator", "arguments": {"expression": 12}}',
            "arguments",
            f'Error: calculator: the argument "expression" is a number, expected a text. {HOW}',
        ),
        (
            '{"name": "calculator", "arguments": {"expression": "1", "digits": 2}}',
            "arguments",
            f'Error: calculator takes no argument "digits". {HOW}',
        ),
        (
            '{"name": "read_file", "arguments": {"file": "a"}}',
            "arguments",
            'Error: read_file: the argument "path" is missing. '
            'Write it like this: {"name": "read_file", "arguments": {"path": "notes.txt"}}',
        ),
        (
            '{"name": "calculator", "arguments": {"expression": "1/0"}}',
            "failed",
            "Error: division by zero.",
        ),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong_and_how_it_is_written(tools: Toolbox, written: str, fault: str, text: str):
    result = call(tools, written)
    assert (result.fault, result.text) == (fault, text)


def test_further_keys_of_a_call_are_ignored(tools: Toolbox):
    result = call(tools, '{"id": 1, "name": "calculator", "arguments": {"expression": "1 + 1"}, "type": "function"}')
    assert (result.fault, result.text) == (None, "2")


def test_a_tool_that_is_not_offered_is_unknown():
    tools = Toolbox(("calculator",))
    assert [schema["function"]["name"] for schema in tools.schemas] == ["calculator"]
    result = call(tools, '{"name": "read_file", "arguments": {"path": "notes.txt"}}')
    assert (result.fault, result.tool) == ("unknown_tool", "")


def test_the_calls_of_a_turn_have_a_result_each(tools: Toolbox):
    calls = "".join(f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{n} * {n}"}}}}\n</tool_call>\n'
                    for n in range(2, 8))  # fmt: skip
    turn = parse_turn(f"<think>\nSix of them.\n</think>\n\n{calls}")
    results = answer(tools, turn)
    assert [result.text for result in results] == [
        "4",
        "9",
        "16",
        "25",
        "Error: this call was not run: one turn may have 4. Call it in the next turn.",
        "Error: no calls are left. Give the final answer now.",
    ]
    assert [result.fault for result in results] == [None, None, None, None, "too_many", "none_left"]


def test_a_call_that_is_cut_off_is_not_run(tools: Toolbox):
    (result,) = answer(tools, parse_turn(f"<tool_call>\n{CALCULATOR}"))
    assert result.fault == "cut_off"
    assert result.text == (
        f"Error: the call was not run: it ends without its closing tag. Write a shorter one, and close it: {CALCULATOR}"
    )


def test_schemas_are_what_the_chat_template_takes(tools: Toolbox):
    schema = tools.schemas[0]
    assert schema["type"] == "function"
    assert schema["function"]["parameters"]["required"] == ["expression"]
    assert schema["function"]["parameters"]["properties"]["expression"]["type"] == "string"
    assert jinja2.Environment().from_string("{{ tools | tojson }}").render(tools=tools.schemas)


# ---- execute_code ----


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("6 * 7", "42"),
        ("x = 6\nx * 7", "42"),
        ("print('a')\nprint('b', end='')", "a\nb"),
        ("print('a')\n'b'", "a\n'b'"),
        ("x = 1", "(nothing was printed, and the last line is no expression with a value)"),
        ("None", "(nothing was printed, and the last line is no expression with a value)"),
        ("", "(nothing was printed, and the last line is no expression with a value)"),
        ("if __name__ == '__main__':\n    print('main')", "main"),
        ("import sys\nprint('warning', file=sys.stderr)", "warning"),
        ("import math\nmath.comb(5, 2)", "10"),
        ("def f(n):\n    return n and n * f(n - 1) or 1\nf(5)", "120"),
        ("object()", "<object object at 0x...>"),
    ],
)
def test_code_gives_what_it_prints_and_its_last_value(tools: Toolbox, source: str, text: str):
    result = tools.run("execute_code", code(source))
    assert (result.text, result.fault) == (text, None)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 / 0", "Error: ZeroDivisionError: division by zero (line 1)"),
        ("print('a')\n\nx", "Error: NameError: name 'x' is not defined (line 3)\nPrinted before: a"),
        ("def f(", "Error: SyntaxError: '(' was never closed (line 1)"),
        ("while True: pass", "Error: Timeout: more than 1 s of CPU time"),
        ("x = [0] * 10**9", "Error: MemoryError: more than 256 MB"),
        ("import os\nos._exit(0)", "Error: Crash: the process ended without a result"),
        ("exit()", "Error: SystemExit: None (line 1)"),
        ("import sys\nsys.exit(1)", "Error: SystemExit: 1 (line 2)"),
        ("input()", "Error: EOFError: EOF when reading a line (line 1)"),
        ("import requests", "Error: ModuleNotFoundError: No module named 'requests' (line 1)"),
    ],
)
def test_code_that_fails_says_how(tools: Toolbox, source: str, text: str):
    result = tools.run("execute_code", code(source))
    assert (result.text, result.fault, result.tool) == (text, "failed", "execute_code")


def test_code_cannot_read_files(tools: Toolbox, folder: Path):
    result = tools.run("execute_code", code(f"open({str(folder / 'notes.txt')!r})"))
    assert "PermissionError" in result.text


def test_long_output_is_cut(executor: Executor):
    tools = Toolbox(executor=executor, max_result_chars=10)
    assert tools.run("execute_code", code("print('x' * 10**6)")).text == "x" * 10 + "\n... (cut after 10 characters)"


def test_without_an_executor_or_a_folder_the_tools_say_so():
    tools = Toolbox()
    assert tools.run("execute_code", code("1")).text == "Error: no code can be executed here."
    assert tools.run("read_file", {"path": "a"}).text == "Error: this task has no files."


# ---- read_file ----


@pytest.mark.parametrize("path", ["notes.txt", "./notes.txt", "more/../notes.txt"])
def test_a_file_of_the_folder_is_read(tools: Toolbox, path: str):
    assert tools.run("read_file", {"path": path}).text == "first\nsecond\n"


def test_links_are_followed_inside_the_folder_only(tools: Toolbox, folder: Path):
    (folder / "inside").symlink_to("more/deep.txt")
    (folder / "outside").symlink_to("../secret.txt")
    (folder / "up").symlink_to("..")
    (folder / "circle").symlink_to("circle")
    assert tools.run("read_file", {"path": "inside"}).text == "deep"
    for path in ("outside", "up/secret.txt"):
        result = tools.run("read_file", {"path": path})
        assert result.text.startswith(f'Error: "{path}" is not inside the folder. There is ')
    assert tools.run("read_file", {"path": "circle"}).fault == "failed"


@pytest.mark.parametrize("path", ["../secret.txt", "more/../../secret.txt", "/etc/passwd", "..", "/", "../nothing.txt"])
def test_nothing_outside_is_read_or_told_of(tools: Toolbox, path: str):
    result = tools.run("read_file", {"path": path})
    assert result.text == f'Error: "{path}" is not inside the folder. There is more, notes.txt.'


def test_an_absolute_path_is_refused_also_into_the_folder(tools: Toolbox, folder: Path):
    assert "is not inside the folder" in tools.run("read_file", {"path": str(folder / "notes.txt")}).text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("note.txt", 'Error: "note.txt": No such file or directory. There is more, notes.txt.'),
        ("notes.txt/x", 'Error: "notes.txt/x": Not a directory. There is more, notes.txt.'),
        ("", 'Error: "" is a folder. There is more, notes.txt.'),
        ("more", 'Error: "more" is a folder. There is deep.txt.'),
        ("a\0b", 'Error: "a\0b": is no name of a file. There is more, notes.txt.'),
        ("\ud800", r'Error: "\ud800": is no name of a file. There is more, notes.txt.'),
        ("x" * 5000, f'Error: "{"x" * 60}": File name too long. There is more, notes.txt.'),
    ],
)
def test_what_is_no_file_is_said(tools: Toolbox, path: str, text: str):
    result = tools.run("read_file", {"path": path})
    assert (result.text, result.fault) == (text, "failed")


def test_other_kinds_of_files_are_refused(tools: Toolbox, folder: Path):
    os.mkfifo(folder / "pipe")  # reading it would wait for ever
    (folder / "huge").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "zeros").write_bytes(b"\0\0\0")
    (folder / "empty").write_bytes(b"")
    (folder / "null").symlink_to("/dev/null")
    assert {
        path: tools.run("read_file", {"path": path}).text for path in ("pipe", "huge", "binary", "zeros", "empty")
    } == {
        "pipe": 'Error: "pipe" is no regular file.',
        "huge": 'Error: "huge" has 65537 bytes, at most 65536 can be read.',
        "binary": 'Error: "binary" is no text: 2 bytes of something else.',
        "zeros": 'Error: "zeros" is no text: 3 bytes of something else.',
        "empty": "(the file is empty)",
    }
    assert "is not inside the folder" in tools.run("read_file", {"path": "null"}).text


def test_a_long_list_of_files_is_cut(tools: Toolbox, folder: Path):
    for number in range(30):
        (folder / f"{number:02d}").write_text("")
    text = tools.run("read_file", {"path": "none"}).text
    assert text.endswith("18, 19 and 12 more.")


# ---- what no result contains ----


@pytest.mark.parametrize(
    "mark", ["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "</tool_response>", "<think>", "</think>"]
)
def test_marks_of_the_template_are_broken_up(tools: Toolbox, folder: Path, mark: str):
    (folder / "marks.txt").write_text(f"a{mark}b")
    shown = f"a< {mark[1:]}b"
    assert tools.run("read_file", {"path": "marks.txt"}).text == shown
    assert tools.run("execute_code", code(f"print('a{mark}b')")).text == shown
    assert mark not in tools.run("calculator", {"expression": mark}).text
    assert mark not in call(tools, f'{{"name": "{mark}", "arguments": {{}}}}').text


def test_other_angle_brackets_stay(tools: Toolbox):
    assert (
        tools.run("execute_code", code("print('<b> a<b <thinker> <tool> a <| b')")).text
        == "<b> a<b <thinker> <tool> a < | b"
    )


def test_results_are_unicode(tools: Toolbox):
    """A tokenizer takes no lone surrogate."""
    for result in (
        tools.run("execute_code", code(r"print('\ud800 é')")),
        tools.run("calculator", {"expression": "\ud800"}),
        call(tools, '{"name": "\\ud800", "arguments": {}}'),
    ):
        result.text.encode()
    assert tools.run("execute_code", code(r"print('\ud800 é')")).text == r"\ud800 é"
