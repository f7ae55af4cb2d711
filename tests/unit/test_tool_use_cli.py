"""The stages of tool use on the command line: bad input ends with one message."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from experiments import words_of
from factories import make_question
from messages import Wording, run

from arc_refinery import cli, records
from arc_refinery.records.tool_use import Question

pytestmark = pytest.mark.usefixtures("on_a_cpu")

MODEL = {"path": "workflow/models/tiny-tools", "window": 512}
COMMON: dict[str, Any] = {
    "kind": "tool-use",
    "model": MODEL,
    "generation": {"max_turn_tokens": 48, "max_episode_tokens": 96},
    "tools": [],
    "modules_of_python": False,
    "sandbox": {},
}
JOBS: dict[str, dict[str, Any]] = {
    "conversations": COMMON | {"tools_of_sets": {}, "without_tools": 0.5, "n_questions": None},
    "train": COMMON | {"lora": {}, "grpo": {"learning_rate": 1e-4}, "guard": {}, "tools_of_sets": {}, "files": None},
    "episodes": COMMON | {"files": None, "given": "own", "n_predictions": 1, "questions_per_batch": 1},
}
SUMS = {"domain": "gsm8k", "source": "generator", "n_tasks": 1}


def questions(rows: dict[str, Any], name: str = "a", **flags: Any) -> list[str]:
    """The words of a job that makes a set."""
    settings = {"kind": "tool-use", "questions": {"name": name} | rows, "sandbox": {}}
    return words_of("questions", settings, **{"split": "train", "output": name} | flags)


def job(stage: str, changes: dict[str, Any] | None = None, **flags: Any) -> list[str]:
    """The words of a job on three questions, with changed settings and flags."""
    files = {"data" if stage == "train" else "questions": "sums.parquet", "output": "a"} | flags
    if stage == "train":
        files |= {name: f"a.{name}" for name in ("checkpoints", "measurements", "tensorboard")}
    return words_of(stage, JOBS[stage] | (changes or {}), **files)


def tools(*words: str) -> dict[str, Any]:
    return {"tools": list(words)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: it holds a model, questions, and a file of another kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    questions = [make_question(f"sums/{number}", f"{number} + 1?", str(number + 1)) for number in range(3)]
    records.write(tmp_path / "sums.parquet", Question, questions, 0, {})
    records.write(tmp_path / "others.parquet", records.Conversation, [], 0, {})
    return tmp_path


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (questions({"domain": "gsm8k", "source": "file", "path": "none.jsonl"}), "none.jsonl: "),
        (questions(SUMS, heldout="none.parquet"), "none.parquet: "),
        (questions(SUMS, heldout="others.parquet"), "others.parquet: holds conversations, "),
        *(
            (job(stage, {"model": MODEL | {"path": model}}, **{flag: file}), begins)
            for stage, flag in (("conversations", "questions"), ("train", "data"), ("episodes", "questions"))
            for model, file, begins in (
                (MODEL["path"], "none.parquet", "none.parquet: "),
                (MODEL["path"], "others.parquet", "others.parquet: holds conversations, "),
                ("workflow/models/none", "sums.parquet", "workflow/models/none: "),
                (
                    "workflow/models/tiny",
                    "sums.parquet",
                    "workflow/models/tiny: generation.stop_token '<|im_end|>' ",
                ),
            )
        ),
        (job("episodes", tools("calculator"), adapter="none"), "none/adapter_config.json: "),
        (job("episodes", tools("read_file") | {"files": "none"}), "none: "),
        (job("episodes", tools("none.py:f")), "none.py: "),
        (job("episodes", tools("calculator", "calculator")), "tools: a second tool is called calculator; "),
        (
            job("train", {"tools_of_sets": {"sums": ["python", "python"]}}),
            "tools: a second tool is called python; ",
        ),
        (job("train", tools("calculator") | {"grpo": {"learning_rate": 1, "n_heldout": 3}}), "n_heldout = 3 "),
        (job("episodes", shard=2, n_shards=2), "shard 2 of 2: "),
        ("report --output a.md --results . --configfile none.json", "none.json: "),
        ("report --output a.md --results . --configfile settings.json", "questions/sums.parquet: "),
    ],
)
def test_bad_input_ends_with_one_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str | list[str], begins: str, wording: Wording
):
    settings = {
        "kind": "tool-use",
        "experiment": "a",
        "model": {"path": "workflow/models/tiny-tools", "window": 512},
        "data": {"heldout": [{"name": "sums", "domain": "gsm8k", "source": "generator", "n_tasks": 3}]},
        "generation": {"max_turn_tokens": 48, "max_episode_tokens": 96},
        "evaluation": {"arms": [{"name": "untrained"}]},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    said = run(monkeypatch, words)
    assert isinstance(said, str)  # Python then exits with code 1
    assert said.startswith(f"arc-refinery: {begins}")
    wording(said)
    assert not (folder / "a").exists()


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        (tools("browser"), "tools.0: 'browser' is not a tool; "),
        (tools("python,", "calculator"), "tools.0 is 'python,', with '' after a comma; "),
        (tools("calculator", "python,3"), "tools.1 is 'python,3', with '3' after a comma; "),
        (tools("python,seconds=x"), "tools.0.seconds is 'x'; "),
        (tools("python,second=1"), "tools.0.second is not a known key; "),
        (tools("python,seconds=1,seconds=2"), "tools.0 is 'python,seconds=1,seconds=2', with two `seconds`; "),
        ({"tools_of_sets": {"sums": ["browser"]}}, "tools_of_sets.sums.0: 'browser' is not a tool; "),
        ({"grpo": {"learning_rate": 1, "rewards": ["correct", "format=x"]}}, "grpo.rewards.1.weight is 'x'; "),
        (
            {"grpo": {"learning_rate": 1, "rewards": ["correct", "correct"]}},
            "grpo.rewards: two terms have the name correct; ",
        ),
        ({"generation": COMMON["generation"] | {"max_calls": 0}}, "generation.max_calls is 0; "),
        (
            {"generation": COMMON["generation"] | {"max_turn_tokens": 97}},
            "generation: max_turn_tokens = 97 is more than ",
        ),
    ],
)
def test_a_wrong_setting_ends_with_a_line_that_names_it(
    changes: dict[str, Any], begins: str, monkeypatch: pytest.MonkeyPatch, wording: Wording
):
    said = str(run(monkeypatch, job("train", changes)))
    assert said.startswith(f"arc-refinery: stage train: {begins}")
    assert "\n" not in said
    wording(said)


@pytest.mark.slow
def test_rows_that_cannot_be_used_are_named_and_an_empty_set_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wording: Wording
):
    row = {"text": "Double a number.", "code": "def double(n): return n", "test_list": ["assert double(2) == 4"]}
    right = row | {"code": "def double(n): return 2 * n", "task_id": 8}
    (folder / "some.jsonl").write_text(f"{json.dumps(right)}\n{json.dumps(row | {'task_id': 9})}")
    words = questions({"domain": "code", "source": "file", "path": "some.jsonl"})
    monkeypatch.setattr(sys, "argv", ["arc-refinery", *words])
    cli.main()
    (logged,) = (message for message in caplog.messages if "mbpp-9" in message)
    assert "assert double(2) == 4" in logged
    wording(logged)
    (folder / "a").unlink()
    (folder / "wrong.jsonl").write_text(json.dumps(row | {"task_id": 9}))
    said = run(monkeypatch, questions({"domain": "code", "source": "file", "path": "wrong.jsonl"}))
    assert "mbpp-9" in str(said)
    (folder / "empty.jsonl").write_text("")
    nothing = run(monkeypatch, questions({"domain": "code", "source": "file", "path": "empty.jsonl"}))
    for refused, file in ((said, "wrong.jsonl"), (nothing, "empty.jsonl")):
        assert str(refused).startswith(f"arc-refinery: {file}: ")
        wording(refused)
    assert not (folder / "a").exists()


@pytest.mark.slow
def test_what_is_held_out_is_counted_by_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wording: Wording
):
    def row(task_id: int, name: str, *values: int) -> dict[str, object]:
        code = f"def {name}(n): return {task_id} * n"
        tests = [f"assert {name}({value}) == {task_id * value}" for value in values]
        return {"text": f"Write {name}.", "code": code, "test_list": tests, "task_id": task_id}

    rows = [row(2, "double", 1, 2), row(3, "triple", 1, 2), row(4, "times_four", 1)]
    (folder / "full.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = row(2, "twice", 1, 2)
    (folder / "sanitized.jsonl").write_text(json.dumps(other | {"prompt": "Multiply by two."}))
    mbpp = {"domain": "code", "source": "file"}
    for words in (
        questions(mbpp | {"path": "sanitized.jsonl"}, "b", split="heldout"),
        questions(mbpp | {"path": "full.jsonl"}, heldout="b"),
    ):
        monkeypatch.setattr(sys, "argv", ["arc-refinery", *words])
        cli.main()
    assert [question.question_id for question in records.read(folder / "a", Question)] == ["a/mbpp-3", "a/mbpp-4"]
    assert records.notes(folder / "a")["held_out"] == {"held out, by id": 1}
    assert "held_out" not in records.notes(folder / "b")
    (held_out,) = (message for message in caplog.messages if message.startswith("1 question"))
    assert "by id" in held_out
    wording(held_out)
