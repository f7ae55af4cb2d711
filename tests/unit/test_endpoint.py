"""A model behind an address: what is sent, what is read of an answer, and servers that fail."""

import json
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from scripted_server import Fault, Script, reply, serving

from arc_refinery import records
from arc_refinery.config import ModelConfig, validate_experiment
from arc_refinery.doctor.server import checks
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.records import Prompt
from arc_refinery.sampling import endpoint as endpoint_module
from arc_refinery.sampling.backends import Decoding, no_report
from arc_refinery.sampling.endpoint import Answer, Endpoint, Gate, Question, ask, without_thoughts

SCORED = ("h", -0.5), ("i", 0)
DECODING = Decoding(temperature=0.8, top_p=0.9, max_output_tokens=64)


@pytest.fixture(autouse=True)
def _is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT_SECONDS", 0.01)


def model(**changes: Any) -> ModelConfig:
    return ModelConfig(path="qwen", backend="endpoint", window=1000, **changes)


def questions(n: int, messages: tuple[Message, ...] = ({"role": "user", "content": "q"},)) -> list[Question]:
    return [Question(f"q/{number}", messages, number) for number in range(n)]


def test_the_progress_of_a_model_with_prices_says_what_it_cost():
    said = []

    def report(n_ended: int, n_tokens: int, note: str = "") -> None:
        said.append(note)

    for prices in (None, {"prompt": 1e6, "completion": 2e6}):
        with serving(lambda body: reply("x", 7)) as server:
            asked = Endpoint.of(model(address=server.address, max_connections=1, prices=prices))
            list(ask(asked, questions(2), DECODING, report))
    assert said == ["", "", ", cost 74.00", ", cost 148.00"]  # 60 tokens read and 7 written, each


def answers_of(script: Script, n: int = 1, **changes: Any) -> dict[str, Answer]:
    """Ask n questions, and check that each is answered once."""
    with serving(script) as server:
        pairs = list(ask(Endpoint.of(model(address=server.address, **changes)), questions(n), DECODING, no_report))
    assert sorted(name for name, _ in pairs) == sorted(f"q/{number}" for number in range(n))
    return dict(pairs)


def by_seed(script: Any) -> Script:
    """A script that gets the seed of a request and how often it was asked before."""
    tries: Counter[int] = Counter()

    def answered(body: dict[str, Any]) -> Any:
        seed = body["seed"]
        tries[seed] += 1
        return script(seed, tries[seed] - 1)

    return answered


def test_a_request_has_one_completion_its_own_seed_and_the_keys_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")
    with serving(lambda body: reply("x")) as server:
        asked = Endpoint.of(
            model(address=server.address + "/", key_variable="MY_KEY", extra_body={"effort": "low", "top_p": None})
        )
        list(ask(asked, questions(2), DECODING, no_report))
    first, _ = sorted(server.asked, key=lambda body: body["seed"])
    assert first == {
        "model": "qwen",
        "messages": [{"role": "user", "content": "q"}],
        "max_tokens": 64,
        "temperature": 0.8,
        "seed": 0,
        "effort": "low",
    }
    assert server.keys == ["Bearer secret-1"] * 2
    assert "secret-1" not in repr(asked)


def test_an_answer_has_the_tokens_of_its_usage_and_what_served_it() -> None:
    answer = answers_of(lambda body: reply("hello", 7))["q/0"]
    assert answer == Answer({"content": "hello"}, 60, 7, "stop", answer.address, "served-model", "fp_1")
    assert answer.text == "hello"


def scored(answer: dict[str, Any]) -> Any:
    """Return its choice with log-probabilities, as OpenAI's servers write them."""
    more: dict[str, Any] = {"bytes": None, "top_logprobs": []}
    tokens = [{"token": token, "logprob": value, **more} for token, value in SCORED]
    return answer["choices"][0] | {"logprobs": {"content": tokens, "refusal": None}}


def test_log_probabilities_are_added_up_if_a_server_gives_them() -> None:
    def script(body: dict[str, Any]) -> Any:
        answer = reply("hi", 2)
        return answer | {"choices": [scored(answer)]} if body.get("logprobs") else answer

    assert answers_of(script)["q/0"].logprob is None
    assert answers_of(script, extra_body={"logprobs": True})["q/0"].logprob == -0.5


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_a_thought_is_apart_from_the_answer(key: str) -> None:
    whole = answers_of(lambda body: reply("42", thought={key: "six times seven"}))["q/0"]
    assert whole.text == "<think>\nsix times seven\n</think>\n\n42"
    cut = answers_of(lambda body: reply(None, finish_reason="length", thought={key: "six"}))["q/0"]
    assert (cut.text, cut.finish_reason) == ("<think>\nsix", "length")


def test_thoughts_are_not_sent_back() -> None:
    said = "<think>\nhm\n</think>\n\nFirst answer"
    turns: tuple[Message, ...] = (
        {"role": "user", "content": "<think>"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "wrong"},
    )
    assert [message["content"] for message in without_thoughts(turns)] == ["<think>", "First answer", "wrong"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, {"error": "boom"}),
        Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.05"}),
        Fault(503, b"<html>"),
        Fault(body=reply("half"), is_cut=True),
        Fault(body=b'{"choices": ['),
        Fault(body={**reply("x"), "choices": []}),
        Fault(body={key: value for key, value in reply("x").items() if key != "usage"}),
    ],
    ids=["500", "429", "503", "cut", "not JSON", "no choice", "no usage"],
)
def test_what_fails_is_asked_again(fault: Fault) -> None:
    script = by_seed(lambda seed, tries: fault if seed % 2 and not tries else reply(str(seed)))
    answers = answers_of(script, 6, max_connections=3)
    assert {name: answer.text for name, answer in answers.items()} == {f"q/{n}": str(n) for n in range(6)}


def test_a_server_that_hangs_ends_the_job_behind_the_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "ANSWER_SECONDS", 0.5)
    script = by_seed(lambda seed, tries: Fault(body=reply("x"), hangs_for=2.0 if seed == 1 else 0.0))
    answered = []
    with serving(script) as server:
        asked = ask(Endpoint.of(model(address=server.address, max_connections=2)), questions(4), DECODING, no_report)
        with pytest.raises(InputError, match=r"sent nothing for 0 minutes\. What was answered is kept"):
            for question_id, _ in asked:
                answered.append(question_id)
    assert sorted(answered) == ["q/0", "q/2", "q/3"]
    assert len(server.asked) == 4


def test_a_slow_answer_is_not_asked_for_again() -> None:
    tries: list[int] = []

    def script(body: dict[str, Any]) -> Any:
        tries.append(1)
        content = reply("x")
        return Fault(body=content, seconds_per_byte=1.0 / len(str(content)))  # longer than it may be silent

    answers_of(script)
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": {"message": "temperature must be 1"}}, r"refuses the request: 400 temperature must be 1\.$"),
        (401, {"error": "wrong key secret-1"}, r"401 wrong key \[key\]\. Is the key right"),
        (404, {"detail": "Not Found"}, r"404 Not Found\. Does the address end"),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, r"429 pay\.$"),
    ],
)
def test_what_a_server_refuses_ends_the_job_with_its_words(
    status: int, body: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-1")
    tries: list[int] = []

    def script(_: dict[str, Any]) -> Fault:
        tries.append(1)
        return Fault(status, body)

    with pytest.raises(InputError, match=words):
        answers_of(script, 1)
    assert len(tries) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"message": "This model's maximum context length is 100 tokens.", "code": 400},  # vLLM
        {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},  # llama.cpp
        {"message": "too long", "code": "context_length_exceeded"},  # OpenAI
    ],
)
def test_a_prompt_without_room_is_an_answer_that_says_so(error: dict[str, Any]) -> None:
    answer = answers_of(lambda body: Fault(400, {"error": error}))["q/0"]
    assert (answer.text, answer.n_tokens, answer.finish_reason) == ("", 0, "too_long")


def test_a_server_that_stays_away_ends_the_job() -> None:
    away = replace(Endpoint.of(model(address="http://127.0.0.1:9/v1")), n_tries=3)
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9/v1: gave no answer in 3 tries, at last: ConnectError"):
        list(ask(away, questions(3), DECODING, no_report))


def test_requests_at_a_time_are_limited_and_fewer_after_a_busy_server() -> None:
    script = by_seed(lambda seed, tries: Fault(body=reply("x"), hangs_for=0.02))
    with serving(script) as server:
        list(ask(Endpoint.of(model(address=server.address, max_connections=4)), questions(20), DECODING, no_report))
    assert server.most_inside == 4
    gate = Gate(10)
    now = time.monotonic()
    assert gate.narrow(now, 0.0)
    assert not gate.narrow(now, 0.0)  # the same burst
    assert gate.limit == 8
    for _ in range(9):
        gate.widen()
    assert 9 < gate.limit < 10


def test_answers_come_while_others_are_awaited() -> None:
    script = by_seed(lambda seed, tries: Fault(body=reply("x"), hangs_for=0.4 if seed == 0 else 0.0))
    with serving(script) as server:
        asked = ask(Endpoint.of(model(address=server.address, max_connections=2)), questions(5), DECODING, no_report)
        assert [name for name, _ in asked][-1] == "q/0"
        stopped = ask(Endpoint.of(model(address=server.address, max_connections=2)), questions(50), DECODING, no_report)
        next(stopped)
        stopped.close()  # as a job that fails while it writes an answer
    assert len(server.asked) <= 5 + 5


def test_a_run_asks_nothing_more_at_its_limit_of_tokens(tmp_path: Path) -> None:
    progress = tmp_path / "set/turn1/attempts/.progress/000.jsonl"
    progress.parent.mkdir(parents=True)
    done = asdict(Answer({}, 60, 5, "stop", "there", "m", ""))
    episode = {"n_prompt_tokens": 60, "n_tokens": 5}  # of answers that are counted already
    lines = [{"settings": "x"}, {"a": [done]}, {"b turn 1": done}, {"b": [episode]}]
    progress.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "\0\0\n")
    finished = tmp_path / "set/turn2/000.parquet"
    finished.parent.mkdir()
    for other in ("report/attempts.parquet", "fetched/rows/000.parquet"):
        (tmp_path / other).parent.mkdir(parents=True)
        (tmp_path / other).write_bytes(b"of others")
    records.write(finished, Prompt, [], 0, {}, lambda: {records.SERVED_BY: [["there", "m", "", 2, 120, 10]]})
    with serving(lambda body: reply("x")) as server:  # 65 tokens each
        limited = Endpoint.of(model(address=server.address, max_tokens_total=260 + 65 + 1, max_connections=1), tmp_path)
        with pytest.raises(InputError, match=r"the answers so far have 390 tokens, and model\.max_tokens_total is 326"):
            list(ask(limited, questions(5), DECODING, no_report))
    assert len(server.asked) == 2
    assert (limited.allowance.total, limited.allowance.left) == (326, -64)


def test_an_address_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(InputError, match=r"model\.address is empty, and OPENAI_BASE_URL is not set; expected the URL"):
        Endpoint.of(model())
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:secret@there/v1")
    with pytest.raises(InputError, match=r"^[^@]*is not a URL without a user[^@]*$"):
        Endpoint.of(model())
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there/v1/")
    assert Endpoint.of(model()).address == "http://there/v1"


def test_doctor_asks_the_server() -> None:
    def script(body: dict[str, Any]) -> Any:
        if body["model"] != "qwen":
            return Fault(404)
        call = {"id": "a", "function": {"name": "calculator", "arguments": "{}"}}
        more = {"tool_calls": [call]} if "tools" in body else {"reasoning": "hm"}
        answer = reply(str(body.get("seed", 0) % 2), 128, thought=more)
        if body.get("logprobs"):
            answer["choices"] = [scored(answer)] * body["n"]
        return answer

    with serving(script, models=["qwen"]) as server:
        good = list(checks(model(address=server.address)))
        bad = list(checks(model(address=server.address).model_copy(update={"path": "other"})))
    assert [finding.outcome for finding in good] == ["passed"] * 6
    assert good[1].found == "a thought, then 128 tokens of `served-model`, fingerprint `fp_1`"
    assert good[2].found == "equal; another seed gives another"
    assert good[3].found == "as the server's own tool call"
    assert good[4].found.startswith("2 of 2 answers") and good[4].found.endswith("in model.extra_body")
    assert (bad[0].outcome, bad[0].found) == ("failed", "no other; it has qwen")
    assert "refuses the request: 404" in bad[1].found


def test_a_plan_says_what_is_asked_at_most() -> None:
    example = yaml.safe_load((ROOT / "examples/endpoint.yaml").read_text())
    example["model"]["prices"] = {"prompt": 1, "completion": 2.5}
    # 40 tasks x (4 first attempts + 2 + 2 of a twin) x 512 tokens
    line = validate_experiment(example, "x.yaml").expected_cost
    assert (
        line
        == "A server is asked for at most 320 x 512 tokens, 0.41 at the config's prices; what it reads comes on top."
    )
    example["evaluation"]["sets"][0].pop("n_tasks")
    assert validate_experiment(example, "x.yaml").expected_cost == ""  # nobody has counted them
    episodes = {
        "experiment": "x",
        "kind": "tool-use",
        "model": {"path": "m", "backend": "endpoint", "window": 2000},
        "data": {"heldout": [{"name": "a", "domain": "gsm8k", "source": "generator", "n_tasks": 7}]},
        "generation": {"max_turn_tokens": 100, "max_episode_tokens": 500},
        "evaluation": {"n_predictions": 2, "arms": [{"name": "calls"}, {"name": "plain", "tools": False}]},
    }
    assert validate_experiment(episodes, "x.yaml").expected_cost.startswith(
        "A server is asked for at most 28 x 500 tokens;"
    )
