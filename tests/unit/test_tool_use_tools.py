"""Tools: what a call gives, and what the model reads of a wrong one."""

import os
import re
from pathlib import Path

import jinja2
import pytest
from messages import Wording

from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.formats import WrittenCall
from arc_refinery.tool_use.calls.turns import ParsedTurn, parse_turn
from arc_refinery.tool_use.tools.built_in_tools import MAX_FILE_BYTES, NO_OUTPUT
from arc_refinery.tool_use.tools.toolbox import CallResult, Toolbox, answer_all

CALCULATOR = '{"name": "calculator", "arguments": {"expression": "12 * (3 + 4)"}}'


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
    """The result of the text between the tags of a call."""
    (result,) = answer(tools, ParsedTurn("", "", (WrittenCall(written, True),)))
    return result


# ---- calls ----


def test_a_call_gives_the_tools_result(tools: Toolbox):
    assert call(tools, CALCULATOR) == tools.run("calculator", {"expression": "12 * (3 + 4)"})
    result = call(tools, f"\n{CALCULATOR}\n")
    assert (result.text, result.tool, result.fault) == ("84", "calculator", None)


@pytest.mark.parametrize(
    ("written", "fault", "names", "example"),
    [
        pytest.param("", "malformed", "unexpected end at line 1 column 1.", CALCULATOR, id="nothing"),
        pytest.param("12 * 3", "malformed", 'unexpected "*" at line 1 column 4.', CALCULATOR, id="no JSON"),
        pytest.param(
            '{"name": "calculator", "arguments": {"expression": "1"}',
            "malformed",
            "unexpected end at line 1 column 56.",
            CALCULATOR,
            id="no end",
        ),
        pytest.param(
            '{"name": "execute_code", "arguments": {"code": "a\nb"}}',
            "malformed",
            r'unexpected "\n" at line 1 column 50.',
            CALCULATOR,
            id="a new line inside a text",
        ),
        pytest.param('{"name": "a', "malformed", "the text from line 1 column 10 on has no end", CALCULATOR, id="open"),
        pytest.param("[" * 100_000, "malformed", "nested too deeply", CALCULATOR, id="deep"),
        pytest.param("9" * 10_000, "malformed", "too long", CALCULATOR, id="long"),
        pytest.param('["calculator"]', "malformed", "list", CALCULATOR, id="a list"),
        pytest.param("null", "malformed", "null", CALCULATOR, id="null"),
        pytest.param('{"arguments": {}}', "malformed", '"name"', CALCULATOR, id="no name"),
        pytest.param('{"name": "calculator"}', "malformed", '"arguments"', CALCULATOR, id="no arguments"),
        pytest.param('{"name": 3, "arguments": {}}', "malformed", '"name"', CALCULATOR, id="a number for the name"),
        pytest.param(
            '{"name": "calculator", "arguments": "{}"}',
            "malformed",
            '"arguments"',
            CALCULATOR,
            id="a text for the arguments",
        ),
        pytest.param(
            '{"name": "calc", "arguments": {}}',
            "unknown_tool",
            '"calc"',
            CALCULATOR,
            id="no such tool",
        ),
        pytest.param(
            '{"name": "calculator", "arguments": {}}',
            "arguments",
            '"expression"',
            CALCULATOR,
            id="an argument is missing",
        ),
        pytest.param(
            '{"name": "calculator", "arguments": {"expression": 12}}',
            "arguments",
            '"expression"',
            CALCULATOR,
            id="a number for a text",
        ),
        pytest.param(
            '{"name": "calculator", "arguments": {"expression": "1", "digits": 2}}',
            "arguments",
            '"digits"',
            CALCULATOR,
            id="no such argument",
        ),
        pytest.param(
            '{"name": "read_file", "arguments": {"file": "a"}}',
            "arguments",
            '"path"',
            '{"name": "read_file", "arguments": {"path": "notes.txt"}}',
            id="an argument of another tool is missing",
        ),
        pytest.param(
            '{"name": "calculator", "arguments": {"expression": "1/0"}}',
            "failed",
            "zero",
            "",
            id="what cannot be computed",
        ),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong_and_how_it_is_written(
    tools: Toolbox, written: str, fault: str, names: str, example: str, wording: Wording
):
    result = call(tools, written)
    assert (result.fault, result.text.startswith("Error: ")) == (fault, True)
    assert result.text.endswith(example)
    assert names in result.text.removesuffix(example)
    wording(result.text)


def test_further_keys_of_a_call_are_ignored(tools: Toolbox):
    result = call(tools, '{"id": 1, "name": "calculator", "arguments": {"expression": "1 + 1"}, "type": "function"}')
    assert (result.fault, result.text) == (None, "2")


def test_a_tool_that_is_not_offered_is_unknown():
    tools = Toolbox(("calculator",))
    assert [schema["function"]["name"] for schema in tools.schemas] == ["calculator"]
    result = call(tools, '{"name": "read_file", "arguments": {"path": "notes.txt"}}')
    assert (result.fault, result.tool) == ("unknown_tool", "")


def test_the_calls_of_a_turn_have_a_result_each(tools: Toolbox, wording: Wording):
    calls = "".join(f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{n} * {n}"}}}}\n</tool_call>\n'
                    for n in range(2, 8))  # fmt: skip
    turn = parse_turn(f"<think>\nSix of them.\n</think>\n\n{calls}")
    results = answer(tools, turn)
    assert [result.text for result in results[:4]] == ["4", "9", "16", "25"]
    assert "4" in results[4].text  # as many as one turn may have
    for result in results[4:]:
        wording(result.text)
    assert [result.fault for result in results] == [None, None, None, None, "too_many", "none_left"]


def test_a_call_that_is_cut_off_is_not_run(tools: Toolbox, wording: Wording):
    (result,) = answer(tools, parse_turn(f"<tool_call>\n{CALCULATOR}"))
    assert result.fault == "cut_off"
    assert result.text.endswith(CALCULATOR)
    wording(result.text)


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
        ("x = 1", NO_OUTPUT),
        ("None", NO_OUTPUT),
        ("", NO_OUTPUT),
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
    "source",
    [
        "print(6)\nexit()",
        "print(6)\nquit()\nprint(7)",
        "print(6)\nexit(0)",
        "import sys\nprint(6)\nsys.exit()",
        "import sys\ndef main():\n    print(6)\n    return 0\nsys.exit(main())",
        "print(6)\nraise SystemExit",
        "print(6)\nraise SystemExit(0)",
        "import sys\nsys.stdout.buffer.write(b'6\\n')\nNone",
        "import sys\nprint(end='')\nx = sys.stdout.buffer.write(b'6')",
        "import sys\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=True)\nprint(6, flush=True)",
        "import sys\nassert sys.stdout.encoding == 'utf-8' and not sys.stdout.isatty()\nprint(6)",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint(6)",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint(6)",
        "import io, sys\nsys.stdout = io.StringIO()\nprint(7)\nsys.stdout = sys.__stdout__\nprint(6)",
        "import sys\nsys.stdout.writelines(['6', '\\n'])",
        "import sys\nprint(6)\nsys.stdout.close()",
        "import sys\nprint(6, file=sys.stderr)",
        "import sys\nx = sys.stderr.buffer.write(b'6')",
    ],
)
def test_a_program_may_end_and_print_as_in_python(tools: Toolbox, source: str):
    result = tools.run("execute_code", code(source))
    assert (result.text, result.fault) == ("6", None)


def test_text_and_bytes_are_printed_in_their_order(tools: Toolbox):
    source = "import sys\nprint('a')\nx = sys.stdout.buffer.write(b'b\\n')\nprint('c', file=sys.stderr)\nprint('d')"
    assert tools.run("execute_code", code(source)).text == "a\nb\nc\nd"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("calculator", {"expression": "1 + \ud800"}), ("execute_code", {"code": "print('\ud83d\ude00'[0], '\udcff')"})],
)
def test_half_a_character_is_named(tools: Toolbox, name: str, arguments: dict[str, str], wording: Wording):
    result = tools.run(name, arguments)
    assert (result.fault, result.tool) == ("arguments", name)
    assert "codec" not in result.text
    assert re.search(r"'\\ud[0-9a-f]{3}'", result.text)
    wording(result.text)


@pytest.mark.parametrize(
    ("source", "error", "names"),
    [
        ("1 / 0", "ZeroDivisionError", "(line 1)"),
        ("print('a')\n\nx", "NameError: name 'x'", "(line 3)\nOutput before the error: a"),
        ("def f(", "SyntaxError", "(line 1)"),
        pytest.param("while True: pass", "Timeout", " 1 s ", marks=pytest.mark.slow),
        ("x = [0] * 10**9", "MemoryError", " 256 MB"),
        ("import os\nos._exit(0)", "Crash", ""),
        ("exit(3)", "SystemExit: 3", "(line 1)"),
        ("raise SystemExit('no')", "SystemExit: no", "(line 1)"),
        ("import sys\nsys.stdout.fileno()", "UnsupportedOperation: fileno", "(line 2)"),
        ("import sys\nsys.exit(1)", "SystemExit: 1", "(line 2)"),
        ("input()", "EOFError", "(line 1)"),
        ("import requests", "ModuleNotFoundError", "'requests' (line 1)"),
    ],
)
def test_code_that_fails_says_how(tools: Toolbox, source: str, error: str, names: str, wording: Wording):
    result = tools.run("execute_code", code(source))
    assert (result.fault, result.tool) == ("failed", "execute_code")
    assert result.text.startswith(f"Error: {error}")
    assert names in result.text
    wording(result.text)


def test_code_cannot_read_files(tools: Toolbox, folder: Path):
    result = tools.run("execute_code", code(f"open({str(folder / 'notes.txt')!r})"))
    assert "PermissionError" in result.text


def test_long_output_is_cut(executor: Executor, wording: Wording):
    tools = Toolbox(executor=executor, max_result_chars=10)
    text, _, note = tools.run("execute_code", code("print('x' * 10**6)")).text.partition("\n")
    assert text == "x" * 10
    assert "10" in note
    wording(note)


def test_without_an_executor_or_a_folder_the_tools_say_so(wording: Wording):
    tools = Toolbox()
    for name, arguments in (("execute_code", code("1")), ("read_file", {"path": "a"})):
        result = tools.run(name, arguments)
        assert (result.tool, result.fault) == (name, "failed")
        wording(result.text)


# ---- read_file ----


@pytest.mark.parametrize("path", ["notes.txt", "./notes.txt", "more/../notes.txt"])
def test_a_file_of_the_folder_is_read(tools: Toolbox, path: str):
    assert tools.run("read_file", {"path": path}).text == "first\nsecond\n"


def test_links_are_followed_inside_the_folder_only(tools: Toolbox, folder: Path, wording: Wording):
    (folder / "inside").symlink_to("more/deep.txt")
    (folder / "outside").symlink_to("../secret.txt")
    (folder / "up").symlink_to("..")
    (folder / "circle").symlink_to("circle")
    assert tools.run("read_file", {"path": "inside"}).text == "deep"
    for path in ("outside", "up/secret.txt"):
        result = tools.run("read_file", {"path": path})
        assert result.fault == "failed"
        assert result.text.startswith(f'Error: "{path}": ')
        assert "secret" not in result.text.removeprefix(f'Error: "{path}": ')
        wording(result.text)
    assert tools.run("read_file", {"path": "circle"}).fault == "failed"


@pytest.mark.parametrize("path", ["../secret.txt", "more/../../secret.txt", "/etc/passwd", "..", "/", "../nothing.txt"])
def test_nothing_outside_is_read_or_told_of(tools: Toolbox, path: str, wording: Wording):
    result = tools.run("read_file", {"path": path})
    assert result.fault == "failed"
    assert result.text.startswith(f'Error: "{path}": ')
    assert result.text.endswith(": more, notes.txt")  # what is inside
    wording(result.text)


def test_an_absolute_path_is_refused_also_into_the_folder(tools: Toolbox, folder: Path):
    result = tools.run("read_file", {"path": str(folder / "notes.txt")})
    assert result.fault == "failed"
    assert result.text.endswith(": more, notes.txt")


@pytest.mark.parametrize(
    ("path", "named", "is_there"),
    [
        pytest.param("note.txt", "note.txt", "more, notes.txt", id="no such file"),
        pytest.param("notes.txt/x", "notes.txt/x", "more, notes.txt", id="inside a file"),
        pytest.param("", "", "more, notes.txt", id="nothing"),
        pytest.param("more", "more", "deep.txt", id="a folder"),
        pytest.param("a\0b", "a\0b", "more, notes.txt", id="a null character"),
        pytest.param("\ud800", r"\ud800", "more, notes.txt", id="no Unicode"),
        pytest.param("x" * 5000, "x" * 60, "more, notes.txt", id="a long name"),
    ],
)
def test_what_is_no_file_is_said(tools: Toolbox, path: str, named: str, is_there: str, wording: Wording):
    result = tools.run("read_file", {"path": path})
    assert result.fault == "failed"
    assert result.text.startswith(f'Error: "{named}"')
    assert result.text.endswith(f": {is_there}")
    wording(result.text.replace("\0", r"\0"))


def test_other_kinds_of_files_are_refused(tools: Toolbox, folder: Path, wording: Wording):
    os.mkfifo(folder / "pipe")  # reading it would wait for ever
    (folder / "huge").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "zeros").write_bytes(b"\0\0\0")
    (folder / "empty").write_bytes(b"")
    (folder / "null").symlink_to("/dev/null")
    for path, fault, numbers in (
        ("pipe", "failed", []),
        ("huge", "failed", [MAX_FILE_BYTES + 1, MAX_FILE_BYTES]),
        ("binary", "failed", [2]),
        ("zeros", "failed", [3]),
        ("empty", None, []),
        ("null", "failed", []),
    ):
        result = tools.run("read_file", {"path": path})
        assert result.fault == fault
        assert result.text.startswith(f'Error: "{path}": ') == (fault is not None)
        assert [int(number) for number in re.findall(r"\d+", result.text)] == numbers
        wording(result.text)


def test_a_long_list_of_files_is_cut(tools: Toolbox, folder: Path):
    for number in range(30):
        (folder / f"{number:02d}").write_text("")
    text = tools.run("read_file", {"path": "none"}).text
    assert text.endswith("18, 19 and 12 more")


# ---- texts that no result contains ----


@pytest.mark.parametrize(
    "mark", ["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "</tool_response>", "<think>", "</think>"]
)
def test_marks_of_the_template_are_broken_up(tools: Toolbox, folder: Path, mark: str):
    (folder / "marks.txt").write_text(f"a{mark}b")
    text = f"a< {mark[1:]}b"
    assert tools.run("read_file", {"path": "marks.txt"}).text == text
    assert tools.run("execute_code", code(f"print('a{mark}b')")).text == text
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
