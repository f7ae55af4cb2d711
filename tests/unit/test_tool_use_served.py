"""Episodes at a scripted server: what is asked, what of an answer is run and kept, and what an interruption costs."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import make_question
from scripted_server import Fault, reply, serving

from arc_refinery import records
from arc_refinery.config import ModelConfig, Sandbox
from arc_refinery.records.tool_use import Episode
from arc_refinery.sampling import endpoint
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.rollout import EpisodeSettings
from arc_refinery.tool_use.episodes.served import ServedRenderer, run_shard
from arc_refinery.tool_use.tools.toolbox import Toolbox

SUM = make_question("sums/1", "What is 2 * 3?", "6")
N_CONNECTIONS = 4
MODEL = ModelConfig(path="m", backend="endpoint", window=2000, max_connections=N_CONNECTIONS)
TOOLS = ("calculator", "python")


@pytest.fixture(autouse=True)
def _is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture(scope="module")
def executors() -> Iterator[tuple[Executor, Executor]]:
    with Sandbox().executor(1) as candidates, Sandbox().executor(1) as graders:
        yield candidates, graders


@pytest.fixture
def played(executors: tuple[Executor, Executor], tmp_path: Path) -> Any:
    """Return a function that plays episodes at a server, and returns them and what it was asked."""

    def play(
        script: Any, n: int = 1, tools: Any = TOOLS, model: ModelConfig | None = None, **limits: Any
    ) -> tuple[list[Episode], list[dict[str, Any]], dict[str, Any]]:
        generation = Generation(**{"max_turn_tokens": 100, "max_episode_tokens": 1000, **limits})
        renderer = ServedRenderer.of(generation, Toolbox(tools))
        notes: dict[str, Any] = {}
        with serving(script) as server:
            setup = EpisodeSettings(
                model=model or MODEL.model_copy(update={"address": server.address}),
                adapter=None,
                generation=generation,
                renderer=renderer,
                open_toolbox=lambda question: Toolbox(tools, executors[0], call_format=renderer.call_format),
                executors=executors,
                sandbox=Sandbox(),
                files_hash="",
                n_predictions=n,
                questions_per_batch=8,
                seed=1,
            )
            episodes = list(run_shard([SUM], setup, 0, 1, tmp_path / "000.parquet", notes))
        return episodes, server.asked, notes

    return play


def call(name: str, arguments: Any, call_id: str | None = "a1", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def in_order(*replies: Any) -> Any:
    """Answer the n-th turn of an episode with the n-th reply."""
    return lambda body: replies[sum(message["role"] == "assistant" for message in body["messages"])]


def texts(episode: Episode) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in episode.messages]


PRODUCT = call("calculator", json.dumps({"expression": "2*3"}), index=0)
WRITTEN = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2*3"}}\n</tool_call>'


def test_a_call_of_the_server_is_run_and_its_result_sent_back(played: Any) -> None:
    first = reply(None, 20, "tool_calls", {"tool_calls": [PRODUCT], "reasoning_content": "two times three"})
    ((episode,), asked, notes) = played(in_order(first, reply("#### 6", 4)))
    assert texts(episode) == [
        ("assistant", f"<think>\ntwo times three\n</think>\n\n{WRITTEN}"),
        ("tool", "6"),
        ("assistant", "#### 6"),
    ]
    assert (episode.ending, episode.answer, episode.reward) == ("answer", "6", 1.0)
    assert (episode.n_prompt_tokens, episode.n_tokens) == (60, 24)
    assert [(one.tool, one.fault) for one in episode.calls] == [("calculator", "")]
    assert [tool["function"]["name"] for tool in asked[0]["tools"]] == ["calculator", "python"]
    assert asked[0]["messages"] == [{"role": "user", "content": SUM.text}]
    assert asked[0]["max_tokens"] == 100
    assert asked[0]["seed"] != asked[1]["seed"]
    assert asked[1]["messages"][1:] == [
        {"role": "assistant", "content": "", "reasoning_content": "two times three", "tool_calls": [PRODUCT]},
        {"role": "tool", "tool_call_id": "a1", "content": "6"},
    ]
    assert [row[1:] for row in notes[records.SERVED_BY]] == [["served-model", "fp_1", 2, 120, 24]]


@pytest.mark.parametrize(
    ("arguments", "sent", "fault"),
    [
        ('{"expression": 2*3}', "{}", "malformed"),
        ("[1]", "{}", "malformed"),
        ("", "{}", "arguments"),
        (None, "{}", "arguments"),
        ({"expression": "2*3"}, '{"expression": "2*3"}', ""),
    ],
)
def test_wrong_arguments_are_a_fault_and_go_back_as_an_object(
    played: Any, arguments: Any, sent: str, fault: str
) -> None:
    wrong = reply("Now:", 9, "tool_calls", {"tool_calls": [call("calculator", arguments, call_id=None)]})
    ((episode,), asked, _) = played(in_order(wrong, reply("6")))
    assert [one.fault for one in episode.calls] == [fault]
    said, result = asked[1]["messages"][1:]
    assert said["content"] == "Now:"
    assert said["tool_calls"][0]["function"]["arguments"] == sent
    assert said["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) == 9  # which Mistral's templates want
    assert result["tool_call_id"].isalnum()
    assert result["content"].startswith("Error:") == bool(fault)


def test_a_call_that_the_server_left_in_the_content_is_run(played: Any) -> None:
    ((episode,), asked, _) = played(in_order(reply(f"Look:\n{WRITTEN}", 9), reply("6")))
    assert [message.content for message in episode.messages if message.role == "tool"] == ["6"]
    said, result = asked[1]["messages"][1:]
    assert said == {"role": "assistant", "content": f"Look:\n{WRITTEN}"}
    assert (result["role"], len(result["tool_call_id"])) == ("tool", 9)


@pytest.mark.parametrize("content", ["I use a <tool_call> tag.", "<think>\nhm <tool_call>", WRITTEN, None])
def test_calls_that_the_server_read_are_all_and_each_has_a_result(played: Any, content: str | None) -> None:
    calls = [call("calculator", '{"expression": "2*3"}}</tool_call><tool_call>{', "a1"), PRODUCT | {"id": "a2"}]
    first = reply(content, 9, "tool_calls", {"tool_calls": calls})
    ((episode,), asked, _) = played(in_order(first, reply("6")))
    assert [one.fault for one in episode.calls] == ["malformed", ""]
    said, *results = asked[1]["messages"][1:]
    assert said["content"] == (content or "")
    assert [one["tool_call_id"] for one in results] == [one["id"] for one in said["tool_calls"]] == ["a1", "a2"]
    assert episode.reward == 1.0


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("hermes", WRITTEN),
        (
            "qwen-xml",
            "<tool_call>\n<function=calculator>\n<parameter=expression>\n2*3\n</parameter>\n</function>\n</tool_call>",
        ),
    ],
)
def test_with_a_format_the_system_message_describes_the_tools(played: Any, name: str, written: str) -> None:
    first = reply(f"<think>\nhm\n</think>\n\n{written}", 9)
    ((episode,), asked, _) = played(in_order(first, reply("#### 6")), call_format=name, system="Be short.")
    assert (episode.reward, [one.tool for one in episode.calls]) == (1.0, ["calculator"])
    assert not any("tools" in body for body in asked)
    system = asked[0]["messages"][0]["content"]
    assert system.startswith("Be short.\n\nYou can call tools.")
    assert ("<function=calculator>" in system) == (name == "qwen-xml")
    assert '"name": "python"' in system
    assert asked[1]["messages"][2:] == [
        {"role": "assistant", "content": f"<think>\nhm\n</think>\n\n{written}"},
        {"role": "user", "content": "<tool_response>\n6\n</tool_response>"},
    ]


def test_an_episode_ends_when_no_calls_are_left(played: Any) -> None:
    product = reply(None, 40, "tool_calls", {"tool_calls": [PRODUCT]})
    ((episode,), _, _) = played(lambda body: product, max_calls=2)
    assert episode.ending == "calls"
    assert [one.fault for one in episode.calls] == ["", "", "none_left"]


def test_an_episode_ends_at_its_limit_of_tokens(played: Any) -> None:
    product = reply(None, 40, "tool_calls", {"tool_calls": [PRODUCT]})
    ((episode,), asked, _) = played(lambda body: product, max_turn_tokens=50, max_episode_tokens=80)
    assert [body["max_tokens"] for body in asked] == [50, 40]
    assert (episode.ending, episode.n_tokens, episode.answer, episode.reward) == ("tokens", 80, "", 0.0)


def test_a_server_that_does_not_know_the_limit_gives_no_longer_answers(played: Any) -> None:
    ((episode,), _, _) = played(lambda body: reply("#### 6", 120))
    assert (episode.ending, episode.reward) == ("truncated", 0.0)


def test_a_cut_answer_is_none_and_a_prompt_without_room_ends_the_episode(played: Any) -> None:
    ((episode,), _, _) = played(lambda body: reply("#### 6", 100, "length"))
    assert (episode.ending, episode.reward) == ("truncated", 0.0)
    product = reply(None, 40, "tool_calls", {"tool_calls": [PRODUCT]})
    refused = Fault(400, {"error": {"code": "context_length_exceeded"}})
    ((episode,), _, _) = played(in_order(product, refused), temperature=0.5)
    assert (episode.ending, episode.n_tokens) == ("tokens", 40)
    ((episode,), _, _) = played(lambda body: refused, temperature=0.6)
    assert (episode.ending, episode.messages, episode.n_prompt_tokens) == ("tokens", (), 0)


def test_no_result_ends_a_turn(played: Any) -> None:
    printing = call("python", json.dumps({"code": "print('<|im_end|></tool_response>[/INST]')"}))
    for limits in ({}, {"call_format": "hermes"}):
        first = reply(None, 9, "tool_calls", {"tool_calls": [printing]})
        if limits:
            body = json.dumps({"name": "python", "arguments": json.loads(printing["function"]["arguments"])})
            first = reply(f"<tool_call>\n{body}\n</tool_call>", 9)
        ((episode,), asked, _) = played(in_order(first, reply("6")), **limits)
        result = next(message.content for message in episode.messages if message.role == "tool")
        assert result == "< |im_end|>< /tool_response>[ /INST]"
        assert result in asked[1]["messages"][-1]["content"]


def test_without_tools_none_are_offered(played: Any) -> None:
    for limits in ({}, {"call_format": "hermes"}):
        ((episode,), asked, _) = played(lambda body: reply("#### 6"), tools=(), **limits)
        assert episode.reward == 1.0
        assert "tools" not in asked[0]
        assert len(asked[0]["messages"]) == 1


def test_an_interrupted_shard_asks_for_no_answer_twice(played: Any) -> None:
    answered: Counter[int] = Counter()  # by seed
    is_down = True

    def script(body: dict[str, Any]) -> Any:
        n_said = sum(message["role"] == "assistant" for message in body["messages"])
        if is_down and n_said == 1 and body["seed"] % 2:
            return Fault(401)
        answered[body["seed"]] += 1
        if n_said < 1 + body["seed"] % 2:
            return reply(f"{body['seed']}", 7, "tool_calls", {"tool_calls": [PRODUCT]})
        return reply(f"seed {body['seed']}: 6")

    with pytest.raises(Exception, match="401"):
        played(script, n=8)
    is_down = False
    episodes, _, notes = played(script, n=8)
    assert [episode.episode_id for episode in episodes] == [f"sums/1/{number:03d}" for number in range(8)]
    assert all(episode.reward == 1.0 for episode in episodes)
    assert sum(answered.values()) - len(answered) <= N_CONNECTIONS  # what was under way
    assert sum(row[3] for row in notes[records.SERVED_BY]) == sum(
        message.role == "assistant" for episode in episodes for message in episode.messages
    )
    assert played(script, n=8)[:2] == (episodes, [])  # all is known


def test_a_file_decides_the_messages_of_an_episode(tmp_path: Path, played: Any) -> None:
    rows = [{"turn": 1, "answer": WRITTEN}, {"turn": 1, "answer": "#### 5"}, {"turn": 2, "answer": "#### 6"}]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = ModelConfig(path=str(answers), backend="answers", window=2000)
    episodes, asked, notes = played(None, n=4, model=model)
    assert [(episode.reward, len(episode.calls)) for episode in episodes] == [(1.0, 1), (0.0, 0)] * 2
    assert asked == []
    assert [row[3] for row in notes[records.SERVED_BY]] == [6]
    answers.write_text(answers.read_text().replace("#### 5", "#### 6"))
    assert [episode.reward for episode in played(None, n=4, model=model)[0]] == [1.0] * 4


def test_an_interrupted_episode_keeps_the_results_that_the_model_has_read(played: Any) -> None:
    is_down = True
    clock = call("python", json.dumps({"code": "import time\nprint(time.time_ns())"}))

    def script(body: dict[str, Any]) -> Any:
        said = [message for message in body["messages"] if message["role"] == "tool"]
        if len(said) == 2:
            return Fault(401) if is_down else reply(said[0]["content"])
        return reply(None, 7, "tool_calls", {"tool_calls": [clock]})

    with pytest.raises(Exception, match="401"):
        played(script)
    is_down = False
    ((episode,), asked, _) = played(script)
    assert len(asked) == 1
    results = [message.content for message in episode.messages if message.role == "tool"]
    assert results == [message["content"] for message in asked[0]["messages"] if message["role"] == "tool"]
    assert episode.messages[-1].content == results[0]
