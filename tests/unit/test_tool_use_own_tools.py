"""Tools of the user: what the model is shown of them, how calls run, in the sandbox and in the job's process."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from messages import Wording

from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import import_file
from arc_refinery.errors import InputError
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.config import ToolChoice
from arc_refinery.tool_use.config.tool_signatures import signatures
from arc_refinery.tool_use.tools.own_tools import check_own_tools
from arc_refinery.tool_use.tools.toolbox import Toolbox, answer_all

FUNCTION = '''
from typing import Literal, Optional

PRICES = {"apple": 3, "pear": 5}


def price(
    fruit: str,
    n: int = 1,
    discount: float = 0.0,
    unit: Literal["cent", "euro"] = "cent",
    codes: list[int] | None = None,
    note: Optional[str] = None,
    *,
    rounded: bool = False,
) -> str:
    """Say what a fruit costs.

    Prices change every day.

    Args:
        fruit: Name of the fruit,
            in English
        n (int): How many
        discount: Share to take off
        unit: Unit of the price
        codes: Vouchers
        note: Anything else
        rounded: Whether to round

    Returns:
        The price
    """
    if fruit not in PRICES:
        raise KeyError(f"no {fruit} here")
    cost = PRICES[fruit] * n * (1 - discount) - sum(codes or [])
    return f"{round(cost) if rounded else cost} {unit}"


def price_of_two(first: str, second: str):
    """Say what two fruits cost.

    Args:
        first: A fruit
        second: Another
    """
    return {"first": PRICES[first], "second": PRICES[second]}


def nothing():
    """Do nothing."""


def forever():
    """Never end."""
    while True:
        pass


def leave():
    """Try to leave."""
    raise SystemExit(3)


def mark():
    """Print the end of a turn."""
    return "a<|im_end|>b"


def unknown():
    """Return what is no JSON."""
    return {1, 2}
'''
COUNTER = '''
class Counter:
    """Counts, for one episode."""

    def __init__(self, start: int = 0):
        self.value = start

    def add(self, n: int = 1) -> int:
        """Add to the counter.

        Args:
            n: How much
        """
        if n < 0:
            self.value = 1000
            raise ValueError("n must not be negative")
        self.value += n
        return self.value

    def read(self) -> int:
        """Read the counter."""
        return self.value

    def reset(self):
        self.value = 0

    def _hidden(self):
        """Not a tool."""
'''
WHERE = pytest.mark.parametrize("where", ["sandbox", "process"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FUNCTION)
    (tmp_path / "counter.py").write_text(COUNTER)
    return tmp_path


def toolbox(folder: Path, executor: Executor | None, *names: str, **settings: Any) -> Toolbox:
    return Toolbox([ToolChoice(tool=f"{folder}/{name}", **settings) for name in names], executor)


# ---- what the model is shown ----


def test_the_signature_and_the_docstring_are_the_schema(folder: Path):
    (tool,) = signatures(OwnCode(folder / "shop.py", "price"))
    assert tool.schema == {
        "type": "function",
        "function": {
            "name": "price",
            "description": "Say what a fruit costs.\n\nPrices change every day.",
            "parameters": {
                "type": "object",
                "properties": {
                    "fruit": {"type": "string", "description": "Name of the fruit, in English"},
                    "n": {"type": "integer", "description": "How many"},
                    "discount": {"type": "number", "description": "Share to take off"},
                    "unit": {"type": "string", "enum": ["cent", "euro"], "description": "Unit of the price"},
                    "codes": {
                        "type": "array",
                        "items": {"type": "integer"},
                        "nullable": True,
                        "description": "Vouchers",
                    },
                    "note": {"type": "string", "nullable": True, "description": "Anything else"},
                    "rounded": {"type": "boolean", "description": "Whether to round"},
                },
                "required": ["fruit"],
            },
        },
    }
    assert tool.example == {"fruit": "..."}


@pytest.mark.parametrize("name", ["price", "price_of_two", "nothing"])
def test_transformers_reads_the_same_schema_from_the_function_and_from_what_trl_is_given(folder: Path, name: str):
    from transformers.utils import get_json_schema

    from arc_refinery.tool_use.training.environment import environment_class

    path = folder / "shop.py"
    path.write_text(
        FUNCTION.replace("n (int): How", "n: How")
        .replace(") -> str:", "):")
        .replace("    Returns:\n        The price\n", "")
    )
    spec = importlib.util.spec_from_file_location("shop", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tool,) = signatures(OwnCode(path, name))
    assert repr(get_json_schema(getattr(module, name))) == repr(tool.schema)  # also in the order of keys
    environment = environment_class([tool])({}, lambda _: Toolbox())
    assert repr(get_json_schema(getattr(environment, name))) == repr(tool.schema)


def test_the_tools_of_a_class_are_its_public_methods_with_a_docstring(folder: Path):
    tools = signatures(OwnCode(folder / "counter.py", "Counter"))
    assert [(tool.name, tool.required) for tool in tools] == [("add", ()), ("read", ())]


@pytest.mark.parametrize(
    ("source", "place", "names"),
    [
        pytest.param("def f(:", "line 1: ", "Python", id="no Python"),
        pytest.param(f"def f(): return {'-' * 100_000}1", "", "nested", id="minus signs"),
        pytest.param("from math import f\nclass G: pass", "", "`f`", id="imported"),
        pytest.param("x = 1", "", "`f`", id="not there"),
        pytest.param('async def f(): "Do."', "line 1: `f` ", "`async`", id="async"),
        pytest.param("def f(): pass", "line 1: `f` ", "docstring", id="no docstring"),
        pytest.param('class f:\n  def reset(self): "Do."', "line 2: `f.reset` ", "name", id="a name of the training"),
        pytest.param('def f(*words): "Do."', "line 1: `f` ", "(*, ** or /)", id="no names"),
        pytest.param('def f(word): "Do."', "line 1: `f` ", "`word`", id="no type"),
        pytest.param('def f(word: str): "Do."', "line 1: `f` ", "`word: ...`", id="no description of an argument"),
        pytest.param(
            'def f(word: str):\n  """Do.\n\n  Args:\n    word: It (choices: ["a", "b"])\n  """',
            "line 1: `f` ",
            '`word` with \'(choices: ["a", "b"])\'',
            id="choices in words",
        ),
        pytest.param(
            'def f(\n  word: dict\n):\n  """Do.\n\n  Args:\n    word: It\n  """',
            "line 2: `f` ",
            "`dict`",
            id="another type",
        ),
        pytest.param(
            'def f(n: Literal[1, "a"]):\n  """Do.\n\n  Args:\n    n: It\n  """',
            "line 1: `f` ",
            "`n`",
            id="mixed choices",
        ),
        pytest.param("class f: pass", "line 1: `f` ", "method", id="no methods"),
        pytest.param(
            'class f:\n  def __init__(self, key): pass\n  def g(self): "Do."',
            "line 2: `f` ",
            "`key`",
            id="cannot be created",
        ),
        pytest.param(
            'class f:\n  @staticmethod\n  def g(): "Do."',
            "line 3: `f.g` ",
            "decorator",
            id="decorated",
        ),
    ],
)
def test_a_tool_that_cannot_be_shown_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, place: str, names: str, wording: Wording
):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(source)
    with pytest.raises(InputError) as raised:
        signatures(OwnCode(Path("mine.py"), "f"))
    text = str(raised.value)
    assert text.startswith(f"mine.py: {place}")
    assert ("line" in text.split()) == ("line" in place)
    assert names in text
    wording(text)


# ---- calls ----


@WHERE
def test_a_function_is_called_with_its_arguments(folder: Path, executor: Executor, where: str):
    tools = toolbox(folder, executor, "shop.py:price", "shop.py:price_of_two", "shop.py:nothing", where=where)
    for name, arguments, text in (
        ("price", {"fruit": "pear"}, "5.0 cent"),
        ("price", {"fruit": "pear", "n": 4.0, "discount": 0.25, "unit": "euro"}, "15.0 euro"),
        ("price", {"fruit": "apple", "codes": [1, 1], "note": "é\n'", "rounded": True}, "1 cent"),
        ("price", {"fruit": "apple", "n": 2, "codes": None, "discount": 0}, "6 cent"),
        ("price_of_two", {"first": "apple", "second": "pear"}, '{"first": 3, "second": 5}'),
        ("nothing", {}, "(no result)"),
    ):
        result = tools.run(name, arguments)
        assert (result.text, result.tool, result.fault) == (text, name, None)


EXAMPLE = '{"name": "price", "arguments": {"fruit": "..."}}'


@pytest.mark.parametrize(
    ("arguments", "name", "symptom"),
    [
        pytest.param({}, "fruit", "", id="missing"),
        pytest.param({"fruit": 3}, "fruit", " a number,", id="a number for a text"),
        pytest.param({"fruit": None}, "fruit", " null,", id="null"),
        pytest.param({"fruit": "apple", "n": 1.5}, "n", " 1.5,", id="a fraction for a whole number"),
        pytest.param({"fruit": "apple", "n": True}, "n", " true or false,", id="true for a whole number"),
        pytest.param({"fruit": "apple", "discount": "0"}, "discount", " a text,", id="a text for a number"),
        pytest.param({"fruit": "apple", "discount": float("nan")}, "discount", " nan,", id="no number"),
        pytest.param({"fruit": "apple", "rounded": 1}, "rounded", " a number,", id="a number for true or false"),
        pytest.param({"fruit": "apple", "unit": "yen"}, "unit", ' "yen",', id="no choice"),
        pytest.param({"fruit": "apple", "codes": 3}, "codes", " a number,", id="a number for a list"),
        pytest.param({"fruit": "apple", "codes": [1, "a"]}, "codes", " item 2 ", id="a text in a list of numbers"),
        pytest.param({"fruit": "apple", "size": 1}, "size", "", id="no such argument"),
    ],
)
def test_wrong_arguments_do_not_reach_the_function(
    folder: Path, arguments: dict[str, Any], name: str, symptom: str, wording: Wording
):
    result = toolbox(folder, None, "shop.py:price", where="process").run("price", arguments)
    assert result.fault == "arguments"
    assert result.text.startswith("Error: price")
    assert f'"{name}"' in result.text
    assert symptom in result.text
    assert result.text.endswith(EXAMPLE)
    wording(result.text)


@WHERE
@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("price", {"fruit": "plum"}, "Error: KeyError: 'no plum here'"),
        ("leave", {}, "Error: SystemExit: 3"),
        ("unknown", {}, "Error: TypeError: "),
    ],
)
def test_what_a_tool_raises_is_a_result(
    folder: Path,
    executor: Executor,
    where: str,
    name: str,
    arguments: dict[str, Any],
    text: str,
    wording: Wording,
):
    result = toolbox(folder, executor, f"shop.py:{name}", where=where).run(name, arguments)
    assert (result.tool, result.fault) == (name, "failed")
    assert result.text.startswith(text)
    wording(result.text)


@pytest.mark.parametrize(("where", "limit"), [("sandbox", "0.2 s of CPU"), ("process", "0.2 s")])
def test_a_tool_that_does_not_end_is_ended(folder: Path, executor: Executor, where: str, limit: str, wording: Wording):
    tools = toolbox(folder, executor, "shop.py:forever", "shop.py:nothing", where=where, seconds=0.2)
    result = tools.run("forever", {})
    assert result.fault == "failed"
    assert result.text.startswith("Error: Timeout: ")
    assert limit in result.text
    wording(result.text)
    assert tools.run("nothing", {}).text == "(no result)"


@WHERE
def test_no_result_ends_a_turn_or_is_longer_than_its_tool_allows(
    folder: Path, executor: Executor, where: str, wording: Wording
):
    assert toolbox(folder, executor, "shop.py:mark", where=where).run("mark", {}).text == "a< |im_end|>b"
    short = toolbox(folder, executor, "shop.py:mark", where=where, max_result_chars=1)
    text, _, note = short.run("mark", {}).text.partition("\n")
    assert (text, "1" in note) == ("a", True)
    wording(note)


FORGER = '''
import os

class Shell:
    def run(self, code: str):
        """Run code.

        Args:
            code: It
        """
        exec(code, globals())
'''


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("_result_as_text = lambda _: [1]", "Error: "),
        ("_result_as_text = lambda _: type('T', (str,), {'encode': None})('ok')", "ok"),
        ("_result_as_text = 3", "Error: TypeError: 'int' object is not callable"),
    ],
)
def test_a_tool_that_executes_what_the_model_writes_cannot_end_the_job(
    tmp_path: Path, executor: Executor, code: str, text: str, wording: Wording
):
    (tmp_path / "shell.py").write_text(FORGER)
    tools = toolbox(tmp_path, executor, "shell.py:Shell")
    assert tools.run("run", {"code": code}).text == "(no result)"
    result = tools.run("run", {"code": "pass"})
    assert (result.fault is None) == (text == "ok")
    assert result.text.startswith(text)
    wording(result.text)


def test_junk_on_the_pipe_of_results_is_a_result(tmp_path: Path, executor: Executor, wording: Wording):
    (tmp_path / "shell.py").write_text(FORGER)
    tools = toolbox(tmp_path, executor, "shell.py:Shell")
    result = tools.run("run", {"code": "os.write(3, b'x' * 1000)"})
    assert result.fault == "failed"
    assert result.text.startswith("Error: Protocol: ")
    wording(result.text)
    assert tools.run("run", {"code": "pass"}).text == "(no result)"


# ---- state ----


@WHERE
def test_an_episode_has_a_counter_of_its_own(folder: Path, executor: Executor, where: str):
    first, second = (toolbox(folder, executor, "counter.py:Counter", where=where) for _ in range(2))
    assert [first.run("add", {}).text, first.run("add", {"n": 40}).text, second.run("add", {"n": 5}).text] == [
        "1",
        "41",
        "5",
    ]
    assert (first.run("read", {}).text, second.run("read", {}).text) == ("41", "5")


def test_a_call_that_fails_in_the_sandbox_leaves_nothing(folder: Path, executor: Executor):
    tools = toolbox(folder, executor, "counter.py:Counter")
    tools.run("add", {"n": 2})
    assert tools.run("add", {"n": -1}).text == "Error: ValueError: n must not be negative"
    assert tools.run("read", {}).text == "2"


@WHERE
def test_the_calls_of_a_turn_are_run_in_order_and_those_of_episodes_apart(folder: Path, executor: Executor, where: str):
    call = '<tool_call>\n{"name": "add", "arguments": {"n": %d}}\n</tool_call>\n'
    boxes = [toolbox(folder, executor, "counter.py:Counter", where=where) for _ in range(2)]
    turns = [parse_turn(call % 1 + call % 2 + call % 3), parse_turn(call % 10)]
    results = answer_all([(box, turn, 5) for box, turn in zip(boxes, turns, strict=True)])
    assert [[result.text for result in episode] for episode in results] == [["1", "3", "6"], ["10"]]


# ---- loading ----


def test_what_the_sandbox_cannot_execute_is_refused_before_the_first_call(
    tmp_path: Path, executor: Executor, wording: Wording
):
    path = tmp_path / "mine.py"
    path.write_text('import sqlite3\ndef f() -> str:\n    """Do."""\n    return sqlite3.version')
    choice = ToolChoice(tool=f"{path}:f")
    with pytest.raises(InputError) as raised:
        check_own_tools([choice], executor)
    assert str(raised.value).startswith(f"{path}:f: ")
    assert "ModuleNotFoundError: No module named 'sqlite3' (line 1)" in str(raised.value)
    assert "`where: process`" in str(raised.value)
    wording(raised.value)
    check_own_tools([choice.model_copy(update={"where": "process"})], executor)


@pytest.mark.parametrize(("where", "lost"), [("process", "is deleted"), ("sandbox", "name 'f' is not defined")])
def test_what_is_gone_after_the_import_is_refused_before_the_first_call(
    tmp_path: Path, executor: Executor, where: Any, lost: str, wording: Wording
):
    path = tmp_path / "mine.py"
    path.write_text('def f() -> str:\n    """Do."""\n    return ""\nif True:\n    del f\n')
    with pytest.raises(InputError) as raised:
        check_own_tools([ToolChoice(tool=f"{path}:f", where=where)], executor)
    assert str(raised.value).startswith(f"{path}:f: ") and lost in str(raised.value)
    wording(raised.value)


@pytest.mark.parametrize("body", ["raise BaseException", "import os; os._exit(0)"])
def test_a_tool_cannot_end_the_job(tmp_path: Path, executor: Executor, body: str):
    (tmp_path / "mine.py").write_text(f'def f():\n    """Do."""\n    {body}')
    assert toolbox(tmp_path, executor, "mine.py:f", where="process").run("f", {}).fault == "failed"


def test_a_class_that_cannot_be_created_is_refused_before_the_first_call(
    tmp_path: Path, executor: Executor, wording: Wording
):
    path = tmp_path / "mine.py"
    path.write_text('class Rows:\n    def __init__(self):\n        1 / 0\n    def f(self):\n        """Do."""')
    with pytest.raises(InputError, match=r"mine\.py:Rows: .*ZeroDivisionError: division by zero") as raised:
        check_own_tools([ToolChoice(tool=f"{path}:Rows", where="process")], executor)
    wording(raised.value)
    path.write_text(path.read_text().replace("1 / 0", "while True: pass"))
    import_file.cache_clear()
    with pytest.raises(InputError, match=r"mine\.py:Rows: .* 0\.2 s") as raised:
        check_own_tools([ToolChoice(tool=f"{path}:Rows", where="process", seconds=0.2)], executor)
    wording(raised.value)


@pytest.mark.parametrize("where", ["process", "sandbox"])
def test_a_helper_of_any_name_keeps_its_meaning(tmp_path: Path, executor: Executor, where: str):
    (tmp_path / "mine.py").write_text(
        'def as_text(value):\n    return f"<{value}>"\n\ndef f():\n    """Do."""\n    return as_text(1)'
    )
    assert toolbox(tmp_path, executor, "mine.py:f", where=where).run("f", {}).text == "<1>"


@pytest.mark.parametrize("where", ["process", "sandbox"])
def test_a_long_result_is_cut_and_an_explanation_is_not(
    tmp_path: Path, executor: Executor, where: str, wording: Wording
):
    (tmp_path / "mine.py").write_text(
        'def f(n: int):\n    """Do.\n\n    Args:\n        n: How many\n    """\n    return "é" * n'
    )
    tools = toolbox(tmp_path, executor, "mine.py:f", where=where, max_result_chars=40)
    beginning, _, note = tools.run("f", {"n": 100_000}).text.partition("\n")
    assert (beginning, "40" in note) == ("é" * 40, True)
    explained = tools.run("f", {}).text
    assert '"n"' in explained
    assert len(explained) > 40
    for text in (note, explained):
        wording(text)


def test_what_cannot_be_imported_is_refused_before_the_first_call(tmp_path: Path, executor: Executor, wording: Wording):
    path = tmp_path / "mine.py"
    path.write_text('import no_such_module\ndef f():\n    """Do."""')
    with pytest.raises(InputError) as raised:
        check_own_tools([ToolChoice(tool=f"{path}:f", where="process")], executor)
    assert str(raised.value).startswith(f"{path}: ")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in str(raised.value)
    wording(raised.value)
