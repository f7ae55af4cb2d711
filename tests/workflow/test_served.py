"""A model behind an address, from rows to the report: nothing here has weights, and the server is a script."""

from collections import Counter
from pathlib import Path
from typing import Any

import handmade_programs as handmade
import pytest
import yaml
from checkout import copy, n_attempts
from scripted_server import Fault, reply, serving

from arc_refinery import records
from arc_refinery.records import Attempt

pytestmark = pytest.mark.snakemake

CONFIG, FOLDER = "results/served.yaml", "results/served"
RUN = ["snakemake", "--cores", "2", "--configfile", CONFIG, "--quiet", "rules"]
KEY = "".join(["key", "-that-", "nobody-may-see"])  # this file has it in parts
N_CONNECTIONS = 2


def settings() -> dict[str, Any]:
    turn = {"n_predictions": 2}
    return {
        "experiment": "served",
        "domain": "code",
        "model": {
            "path": "some/model",
            "backend": "endpoint",
            "key_variable": "SOME_KEY",
            "max_connections": N_CONNECTIONS,
            "extra_body": {"logprobs": True},
            "prices": {"prompt": 1000, "completion": 20_000},
            "window": 512,
        },
        "sampling": {"batch_size": 2, "max_output_tokens": 48},
        "evaluation": {
            "sets": [{"name": "test", "path": "results/rows.jsonl", "shards": 2}],
            "arms": [
                {"name": "independent", "turns": [{"n_predictions": 4}]},
                {"name": "refine", "turns": [turn, turn]},
                {"name": "twin", "turns": [turn, turn | {"feedback": "twin"}]},
            ],
            "primary": {"set": "test", "arms": ["refine", "independent"]},
        },
    }


def n_kept(folder: Path) -> int:
    done = [records.count(path) for path in folder.glob("*.parquet")]
    return sum(done) + sum(map(n_attempts, folder.glob(".progress/*.jsonl")))


def test_a_killed_run_pays_no_answer_twice_and_its_report_names_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = copy(tmp_path)
    handmade.write_rows(checkout.folder / "results/rows.jsonl", list(handmade.ROWS))
    (checkout.folder / CONFIG).write_text(yaml.safe_dump(settings()))
    first_turns = checkout.folder / FOLDER / "test/turn1/attempts"
    answers: Counter[int] = Counter()  # by seed
    tries: Counter[int] = Counter()
    is_first, fingerprint = True, "fp_1"

    def script(body: dict[str, Any]) -> Any:
        first, seed = body["messages"][0]["content"], body["seed"]
        task = next(name for name, row in handmade.ROWS.items() if row["prompt"] in first)
        tries[seed] += 1
        if not is_first and tries[seed] == 1:
            return Fault(503, {"error": "not now"}, {"Retry-After": "0.01"})
        if task == "add" and len(body["messages"]) == 3:
            return Fault(400, {"error": {"code": "context_length_exceeded"}})
        answers[seed] += 1
        content = reply(
            handmade.answer(task, "wvS"[seed % 3]),
            thought={"reasoning": f"seed {seed}"},
            system_fingerprint=fingerprint,
        )
        content["choices"][0]["logprobs"] = {"content": [{"logprob": -0.25}] * 5} if body["logprobs"] else None
        return Fault(body=content, hangs_for=0.2)

    with serving(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address)
        monkeypatch.setenv("SOME_KEY", KEY)
        checkout.kill_when(lambda: n_kept(first_turns) >= 5, *RUN)
        kept = n_kept(first_turns)
        is_first, fingerprint = False, "fp_2"
        done = checkout.run(*RUN)
        assert done.returncode == 0, done.stdout + done.stderr
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert server.most_inside <= N_CONNECTIONS  # of both arms together

    # turn 1 is 5 tasks x 4, of which 5 or more were kept; only what was under way at the kill was answered again
    attempts = [
        attempt
        for path in sorted((checkout.folder / FOLDER).glob("test/*/attempts/*.parquet"))
        for attempt in records.read(path, Attempt)
    ]
    assert 5 <= kept < 20
    assert sum(answers.values()) - len(answers) <= N_CONNECTIONS
    seeds = [int(attempt.completion.partition("seed ")[2].split()[0]) for attempt in attempts if attempt.completion]
    assert sorted(seeds) == sorted(answers)
    assert len([attempt for attempt in attempts if attempt.turn == 1]) == 20
    counted = [
        (attempt.n_prompt_tokens, attempt.n_tokens, attempt.logprob) for attempt in attempts if attempt.completion
    ]
    assert set(counted) == {(60, 5, -1.25)}
    without = {(attempt.task_id, attempt.finish_reason) for attempt in attempts if not attempt.completion}
    assert without <= {("add", "too_long")}

    report = (checkout.folder / FOLDER).with_suffix(".md").read_text()
    assert f"`served-model` at {server.address}, fingerprint `fp_1` ({kept} answers)" in report
    assert "**The served model changed during the run**" in report
    run_files = [path for path in checkout.folder.rglob("*") if path.is_file() and "/.git/" not in str(path)]
    assert [path for path in run_files if KEY.encode() in path.read_bytes()] == []


def test_a_tool_use_run_with_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = copy(tmp_path)
    data = {"name": "sums", "domain": "gsm8k", "source": "generator", "n_tasks": 6, "shards": 2}
    arms = [{"name": "plain", "tools": False}, {"name": "calls"}]
    config = settings() | {
        "kind": "tool-use",
        "data": {"heldout": [data]},
        "generation": {"max_turn_tokens": 48, "max_episode_tokens": 96},
        "evaluation": {"n_predictions": 2, "arms": arms},
    }
    config["model"]["max_tokens_total"] = 1000
    wanted = config.keys() - {"domain", "sampling"}
    (checkout.folder / CONFIG).parent.mkdir()
    (checkout.folder / CONFIG).write_text(yaml.safe_dump({key: config[key] for key in wanted}))

    def script(body: dict[str, Any]) -> Any:
        if "tools" in body and len(body["messages"]) == 1:
            call = {"id": "a", "function": {"name": "calculator", "arguments": '{"expression": "6*7"}'}}
            return reply(None, 9, "tool_calls", {"tool_calls": [call]})
        return reply(f"#### {body['messages'][-1]['content'] if 'tools' in body else 1}")

    with serving(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address)
        monkeypatch.setenv("SOME_KEY", KEY)
        ended = checkout.run(*RUN)
        assert ended.returncode == 1
        assert (
            "model.max_tokens_total is 1,000: raise it, and the same command continues" in ended.stdout + ended.stderr
        )
        assert 1000 / 69 <= len(server.asked) <= 1000 / 65 + N_CONNECTIONS
        done = checkout.run(*RUN, "--config", "model={max_tokens_total: 10000}")
        assert done.returncode == 0, done.stdout + done.stderr
    assert server.most_inside <= N_CONNECTIONS
    assert len(server.asked) == 12 + 2 * 12
    episodes = [
        episode
        for path in sorted((checkout.folder / FOLDER).glob("sums/calls/*.parquet"))
        for episode in records.read(path, records.Episode)
    ]
    assert [episode.answer for episode in episodes] == ["42"] * 12
    report = (checkout.folder / FOLDER).with_suffix(".md").read_text()
    assert f"`served-model` at {server.address}, fingerprint `fp_1` (36 answers)" in report
    n_written = 12 * 9 + 24 * 5
    cost = (36 * 60 * 1000 + n_written * 20_000) / 1e6
    assert f"It read 2,160 tokens and wrote {n_written}, which cost {cost:.2f} at the config's prices" in report
    assert "Which tokens carry loss" not in report
