"""The stages of tool use on the command line: they explain themselves, and bad input ends with one message."""

import json
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from messages import Wording, run

from arc_refinery import cli, records
from arc_refinery.records.tool_use import Question

pytestmark = pytest.mark.usefixtures("on_a_cpu")

QUESTIONS = "tools questions --name a --output a"
TRAIN = "train --kind tool-use --output a"
MODEL = "--model-path workflow/models/tiny-tools"
SIZES = "--max-model-len 512 --max-turn-tokens 48 --max-episode-tokens 96"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: it holds a model, questions, and a file of another kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    questions = [Question(f"sums/{number}", f"{number} + 1?", "gsm8k", str(number + 1)) for number in range(3)]
    records.write(tmp_path / "sums.parquet", Question, questions, 0, {})
    records.write(tmp_path / "others.parquet", records.Conversation, [], 0, {})
    return tmp_path


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (f"{QUESTIONS} --form gsm8k --source file --path none.jsonl", "none.jsonl: "),
        (
            f"{QUESTIONS} --form gsm8k --source generator --n-questions 1 --heldout none.parquet",
            "none.parquet: ",
        ),
        (
            f"{QUESTIONS} --form gsm8k --source generator --n-questions 1 --heldout others.parquet",
            "others.parquet: holds conversations, ",
        ),
        *(
            (f"{stage} {SIZES} {flags}", begins)
            for stage in (
                "tools conversations --output a",
                f"{TRAIN} --learning-rate 1e-4",
                "tools episodes --output a",
            )
            for flags, begins in (
                (f"{MODEL} --dataset-path none.parquet", "none.parquet: "),
                (f"{MODEL} --dataset-path others.parquet", "others.parquet: holds conversations, "),
                ("--model-path workflow/models/none --dataset-path sums.parquet", "workflow/models/none: "),
                (
                    "--model-path workflow/models/tiny --dataset-path sums.parquet",
                    "workflow/models/tiny: generation.stop_token '<|im_end|>' ",
                ),
            )
        ),
        *(
            (f"tools episodes --output a {MODEL} {SIZES} --dataset-path sums.parquet {flags}", begins)
            for flags, begins in (
                ("--lora-path none --tools calculator", "none/adapter_config.json: "),
                ("--tools read_file --files none", "none: "),
                ("--tools none.py:f", "none.py: "),
                ("--tools-of-sets sum calculator", "--tools-of-sets names the set sum, "),
                ("--tools calculator calculator", "tools: a second tool is called calculator; "),
                ("--tools-of-sets sums python sums python", "tools: a second tool is called python; "),
            )
        ),
        (
            f"tools conversations --output a {MODEL} {SIZES} --dataset-path sums.parquet "
            "--tools-of-sets sum calculator",
            "--tools-of-sets names the set sum, ",
        ),
        (
            f"{TRAIN} --learning-rate 1 {MODEL} {SIZES} --dataset-path sums.parquet --tools calculator --n-heldout 3",
            "n_heldout = 3 ",
        ),
        (
            f"tools episodes --output a {MODEL} {SIZES} --dataset-path sums.parquet --shard 2 --n-shards 2",
            "shard 2 of 2: ",
        ),
        ("report --output a.md --results . --configfile none.json", "none.json: "),
        ("report --output a.md --results . --configfile settings.json", "questions/sums.parquet: "),
    ],
)
def test_bad_input_ends_with_one_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, begins: str, wording: Wording
):
    settings = {
        "kind": "tool-use",
        "experiment": "a",
        "model": {"path": "workflow/models/tiny-tools", "window": 512},
        "data": {"heldout": [{"name": "sums", "form": "gsm8k", "source": "generator", "n_questions": 3}]},
        "generation": {"max_turn_tokens": 48, "max_episode_tokens": 96},
        "evaluation": {"arms": [{"name": "untrained"}]},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    said = run(monkeypatch, words)
    assert isinstance(said, str)  # Python then exits with code 1
    assert said.startswith(f"arc-refinery: {begins}")
    wording(said)
    assert not (folder / "a").exists() or not list((folder / "a").glob("*.parquet"))


@pytest.mark.parametrize(
    ("flags", "begins"),
    [
        ("--tools browser", "--tools.0: 'browser' is not a tool; "),
        ("--tools python, calculator", "--tools.0 is 'python,', with '' after a comma; "),
        ("--tools calculator python,3", "--tools.1 is 'python,3', with '3' after a comma; "),
        ("--tools python,seconds=x", "--tools.0.seconds is 'x'; "),
        ("--tools python,second=1", "--tools.0.second is not a known key; "),
        ("--tools python,seconds=1,seconds=2", "--tools.0 is 'python,seconds=1,seconds=2', with two `seconds`; "),
        ("--tools-of-sets sums browser", "--tools-of-sets.0.1: 'browser' is not a tool; "),
        ("--rewards correct format=x", "--rewards.1.weight is 'x'; "),
        ("--rewards correct correct", "--rewards: two terms have the name correct; "),
        ("--max-calls 0", "--max-calls is 0; "),
        ("--max-turn-tokens 97", "max_turn_tokens = 97 is more than "),
    ],
)
def test_a_wrong_flag_ends_with_a_line_that_names_it(
    flags: str, begins: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
):
    words = f"{TRAIN} --learning-rate 1e-4 {MODEL} {SIZES} --dataset-path sums.parquet {flags}"
    assert run(monkeypatch, words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    said = line.removeprefix("arc-refinery train --kind tool-use: ")
    assert said.startswith(begins)
    wording(said)


@pytest.mark.slow
def test_rows_that_cannot_be_used_are_named_and_an_empty_set_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wording: Wording
):
    row = {"text": "Double a number.", "code": "def double(n): return n", "test_list": ["assert double(2) == 4"]}
    (folder / "wrong.jsonl").write_text(json.dumps(row | {"task_id": 9}))
    said = run(monkeypatch, f"{QUESTIONS} --form mbpp --source file --path wrong.jsonl")
    (logged,) = (message for message in caplog.messages if "a/mbpp-9" in message)
    assert "assert 1: failed" in logged
    wording(logged)
    (folder / "empty.jsonl").write_text("")
    nothing = run(monkeypatch, f"{QUESTIONS} --form mbpp --source file --path empty.jsonl")
    for refused, file, n_rows in ((said, "wrong.jsonl", 1), (nothing, "empty.jsonl", 0)):
        assert str(refused).startswith(f"arc-refinery: {file}: ")
        assert f" {n_rows}" in str(refused)
        wording(refused)
    assert not (folder / "a").exists()


@pytest.mark.slow
def test_what_is_held_out_is_counted_by_reason_and_what_hides_no_assert_is_logged(
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
    for words in (
        "--name b --output b --form mbpp --source file --path sanitized.jsonl --split heldout",
        "--name a --output a --form mbpp --source file --path full.jsonl --heldout b",
    ):
        monkeypatch.setattr(sys, "argv", ["arc-refinery", "tools", "questions", *words.split()])
        cli.main()
    assert [question.question_id for question in records.read(folder / "a", Question)] == ["a/mbpp-3", "a/mbpp-4"]
    assert records.notes(folder / "a")["held_out"] == {"held out, by task_id": 1}
    assert "held_out" not in records.notes(folder / "b")
    held_out, all_shown = (message for message in caplog.messages if message.startswith("1 question"))
    assert "task_id" in held_out
    assert "passed_tests" in all_shown
    wording(held_out)
    wording(all_shown)
