"""A tool that cannot work: its calls are tried again, and an episode without it is nobody's result."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arc_refinery.config import own_functions
from arc_refinery.errors import InputError
from arc_refinery.tool_use.calls.tool import FaultyCall, ToolDown
from arc_refinery.tool_use.config import ToolChoice
from arc_refinery.tool_use.tools import own_tools
from arc_refinery.tool_use.training.failures import FailureLimit, without_failed

SOURCE = """
class Away(ConnectionError):
    pass

calls = []

def look_up(name: str) -> str:
    \"\"\"Look up a name.

    Args:
        name: the name
    \"\"\"
    calls.append(name)
    {body}
"""
MakeTool = Callable[..., own_tools.ProcessTool]


@pytest.fixture
def make_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTool:
    monkeypatch.setattr(own_tools, "RETRY_AFTER", (0.0, 0.0))
    monkeypatch.setattr(own_tools, "_is_down", {})

    def make(body: str, **settings: object) -> own_tools.ProcessTool:
        path = tmp_path / "mine.py"
        path.write_text(SOURCE.format(body=body))
        own_functions.import_file.cache_clear()
        choice = ToolChoice.model_validate({"tool": f"{path}:look_up", "where": "process", **settings})
        assert choice.own_code
        (tool,) = own_tools.own_tools(choice, choice.own_code)
        assert isinstance(tool, own_tools.ProcessTool)
        return tool

    return make


def n_calls(tool: own_tools.ProcessTool) -> int:
    return len(tool._function.__globals__["calls"])


def test_a_call_is_tried_three_times_then_once_until_it_works(make_tool: MakeTool):
    body = "if len(calls) in (1, 2, 3, 4, 7, 8): raise Away('no route')\n    return 'found'"
    tool = make_tool(body, retry_on=["Away"])
    with pytest.raises(ToolDown, match=r"mine.py:look_up cannot work: Away: no route"):
        tool.begin({"name": "a"})
    assert n_calls(tool) == 3
    with pytest.raises(ToolDown):
        tool.begin({"name": "b"})
    assert n_calls(tool) == 4, "nobody waits for it again"
    assert [tool.begin({"name": name}) for name in "cde"] == ["found"] * 3
    assert n_calls(tool) == 9, "the last one at the third try"


@pytest.mark.parametrize(
    ("body", "settings", "is_down"),
    [
        ("raise Away", {"retry_on": ["ConnectionError"]}, True),  # derived from it
        ("raise ConnectionError", {}, False),
        ("raise ValueError('unknown')", {"retry_on": ["ConnectionError"]}, False),
        ("raise ValueError('unknown')", {"retry_on": ["LookupError", "ValueError"]}, True),
        ("raise KeyError(name)", {"retry_on": ["LookupError"]}, True),
    ],
)
def test_names_of_exceptions_say_whether_the_call_or_the_tool_failed(
    make_tool: MakeTool, body: str, settings: dict[str, object], is_down: bool
):
    tool = make_tool(body, **settings)
    with pytest.raises(ToolDown if is_down else FaultyCall):
        tool.begin({"name": "a"})
    assert n_calls(tool) == (3 if is_down else 1)


def test_a_failed_episode_counts_as_the_mean_of_its_group():
    rewards, failed = [1.0, 0.0, 0.0, 9.0, 0.0, 0.0], [False, False, False, True, True, True]
    assert without_failed(rewards, failed, 2) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert without_failed(rewards[:4], failed[:4], 4) == [1.0, 0.0, 0.0, 1 / 3]


@pytest.mark.parametrize("n_steps", [1, 2])  # that are sampled together
def test_too_many_failures_end_the_training(n_steps: int):
    limit = FailureLimit(0.05, 8)  # 5 % of 50 steps of 8: 20 episodes
    for _ in range(10 // n_steps):
        limit.add(["the database is away"] * 2 * n_steps + [""] * 6 * n_steps)
    for _ in range(40 // n_steps):
        limit.add([""] * 8 * n_steps)
    limit.add(["the database is away"] * 2 * n_steps + [""] * 6 * n_steps)  # as many are not counted any more
    with pytest.raises(InputError, match=r"in 21 of the last 400 episodes.*max_failed = 0.05.*the index is away"):
        limit.add(["the index is away"] * (1 + 2 * n_steps) + [""] * (8 * n_steps - 1 - 2 * n_steps))
    with pytest.raises(InputError, match="in 1 of the last 2 episodes"):
        FailureLimit(0.0, 8).add(["away", ""])


def test_names_of_exceptions_reach_a_job_as_one_word():
    choice = ToolChoice.model_validate({"tool": "mine.py:Index", "where": "process", "retry_on": ["Away", "Busy"]})
    assert str(choice) == "mine.py:Index,where=process,retry_on=Away+Busy"
    assert ToolChoice.model_validate(str(choice)) == choice
