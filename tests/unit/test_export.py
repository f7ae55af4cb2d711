"""Attempts and episodes as chat data: what is in it, and that it comes back as the same scores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import handmade
import handmade_episodes
import pytest
from checkout import ROOT
from factories import make_demonstration
from messages import Wording
from trl.data_utils import is_conversational

from arc_refinery import cli, records
from arc_refinery.config import load_experiment
from arc_refinery.domains.arc.records import Attempt
from arc_refinery.errors import InputError
from arc_refinery.evaluation.score_files import ScoreColumns, read_scores
from arc_refinery.evaluation.sides import side
from arc_refinery.records import Demonstration
from arc_refinery.records.tool_use import Conversation, Segment
from arc_refinery.reporting.export import Exported

ARMS = {"first": [{"n_predictions": 4}], "second": [{"n_predictions": 2}, {"n_predictions": 2}]}
ANSWERS = {"turn1": {"a": "SSww", "b": "wwww"}, "second-turn2": {"b": "Sw"}}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    handmade.finished(tmp_path / "results", handmade.settings(ARMS), ANSWERS, "ab")
    return tmp_path / "results/tiny"


def export(*words: str, output: Path) -> list[dict[str, Any]]:
    cli.parse(["report", "export", *words, "--output", str(output)]).run()
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_each_attempt_of_an_arm_is_a_conversation(results: Path, tmp_path: Path):
    rows = export(f"{results}:second", output=tmp_path / "rows.jsonl")
    assert [(row["turn"], row["task_id"], row["reward"]) for row in rows] == [
        (1, "a", 1.0), (1, "a", 1.0), (1, "b", 0.0), (1, "b", 0.0), (2, "b", 1.0), (2, "b", 0.0),
    ]  # fmt: skip
    assert {row["messages"][-1]["role"] for row in rows} == {"assistant"}
    assert all(is_conversational(row) for row in rows)
    assert rows[4]["refines"] in {row["id"] for row in rows[:4]}
    assert len({row["id"] for row in rows}) == 6


def test_attempts_that_were_made_again_since_the_table_are_refused(results: Path, tmp_path: Path):
    path = results / "small/turn1/attempts/000.parquet"
    again = [replace(row, n_tokens=row.n_tokens + 1) for row in records.read(path, Attempt)]
    records.write(path, Attempt, again, 0, {})
    with pytest.raises(InputError, match=r"attempts\.parquet: has a/turn1-000/000 as it was before it was made again"):
        export(f"{results}:second", output=tmp_path / "rows.jsonl")


def test_only_right_attempts_can_be_asked_for(results: Path, tmp_path: Path, wording: Wording):
    rows = export(f"{results}:second", "--only-right", output=tmp_path / "rows.jsonl")
    assert [row["reward"] for row in rows] == [1.0] * 3
    (results / "small/second-turn2").rename(tmp_path / "away")
    none = {"turn1": {"a": "wwww", "b": "wwww"}}
    handmade.finished(tmp_path, handmade.settings({"first": ARMS["first"]}), none, "ab")
    with pytest.raises(InputError) as error:
        export(f"{tmp_path}/tiny", "--only-right", output=tmp_path / "none.jsonl")
    wording(error.value)
    assert not (tmp_path / "none.jsonl").exists()


def test_prompt_and_completion_are_apart_for_trl(results: Path, tmp_path: Path):
    rows = export(str(results), "--form", "prompt-completion", output=tmp_path / "rows.jsonl")
    assert len(rows) == 8 + 6  # both arms, with the first turns that they share
    messages = export(str(results), output=tmp_path / "messages.jsonl")
    assert sorted(row["id"] for row in messages) == sorted({row["id"] for row in rows})  # each once
    assert all(is_conversational(row) and row["prompt"] and row["completion"] for row in rows)


def test_compare_reads_the_scores_that_were_written(results: Path, tmp_path: Path):
    """By hand: of `first`, 2 of 4 attempts at a are right, none at b; of `second` 2 of 2, and 1 of 4."""
    export(str(results), "--form", "prompt-completion", output=tmp_path / "rows.jsonl")
    sides, columns = read_scores([tmp_path / "rows.jsonl"], ScoreColumns(side="arm", run="run"))
    assert [side.name for side in read_scores([tmp_path / "rows.jsonl"], ScoreColumns(side="arm"))[0]] == [
        side.name for side in sides
    ]
    assert (columns.task, columns.score) == ("task_id", "reward")
    assert {one.name: one.runs for one in sides} == {
        "first": {"0": {"a": 0.5, "b": 0.0}},
        "second": {"0": {"a": 1.0, "b": 0.25}},
    }


def test_a_log_of_inspect_ai_gives_the_same_scores(results: Path, tmp_path: Path):
    """By hand, as above, but of all attempts at a task: of `second`, at b, those of both turns."""
    path = tmp_path / "log.json"
    cli.parse(["report", "export", f"{results}:second", "--form", "inspect", "--output", str(path)]).run()
    log = json.loads(path.read_text())
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [
        ("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), ("b", 4),
    ]  # fmt: skip
    assert [sample["output"]["choices"][0]["stop_reason"] for sample in log["samples"]] == ["stop"] * 6
    ((scores,),) = [result["scores"] for result in [log["results"]]]
    assert scores["metrics"]["mean"]["value"] == 3 / 6
    (one,), _ = read_scores([path], ScoreColumns())
    assert one.runs == {"": {"a": 1.0, "b": 0.25}}


def test_inspect_ai_reads_its_log(results: Path, tmp_path: Path):
    library = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    path = tmp_path / "log.json"
    cli.parse(["report", "export", f"{results}:second", "--form", "inspect", "--output", str(path)]).run()
    header, whole = library.read_eval_log(path, header_only=True), library.read_eval_log(path)
    assert header.results.completed_samples == len(whole.samples) == 6
    library.write_eval_log(whole, tmp_path / "log.eval")
    sides, _ = read_scores([path, tmp_path / "log.eval"], ScoreColumns())
    assert sides[0].runs == sides[1].runs


def test_episodes_keep_every_message_and_their_rewards(tmp_path: Path):
    experiment = handmade_episodes.experiment(tmp_path)
    rows = export(f"{tmp_path}/{experiment.experiment}", output=tmp_path / "rows.jsonl")
    assert {row["arm"] for row in rows} == {*experiment.repetitions}
    assert {row["messages"][0]["role"] for row in rows} <= {"system", "user"}
    assert any(message["role"] == "tool" for row in rows for message in row["messages"])
    assert all(is_conversational(row) for row in rows)
    assert len(rows) == len({(row["repetition"], row["id"]) for row in rows})
    offers = {arm.name: arm.tools for arm in experiment.arms}
    assert {bool(row["tools"]) for row in rows if offers[row["repetition"]]} == {True}
    assert not any(row["tools"] for row in rows if not offers[row["repetition"]])
    assert {tool["type"] for row in rows for tool in row["tools"]} == {"function"}


@pytest.mark.parametrize("config", ["tests/refining.yaml", "config/tool-use-demo.yaml"])
def test_texts_of_supervised_training_are_prompt_and_completion(config: str, tmp_path: Path, wording: Wording):
    experiment = load_experiment(ROOT / config)
    folder = tmp_path / experiment.experiment
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(experiment.model_dump(mode="json", exclude={"resources"})))
    with pytest.raises(InputError) as error:
        export(str(folder), "--training", output=tmp_path / "texts.jsonl")
    wording(error.value)
    answer = [("<call>", True), ("4", False), ("it is 4", True)]
    segments = tuple(Segment(*segment) for segment in [("system", False), ("2 + 2?", False), *answer])
    is_refining = config == "tests/refining.yaml"
    if is_refining:
        for part, rows in (("part1", [make_demonstration()]), ("part2", [])):
            records.write(folder / part / "training/demonstrations.parquet", Demonstration, rows, 0, {})
    else:
        conversations = [Conversation("q", segments, 1)]
        records.write(folder / "training/conversations.parquet", Conversation, conversations, 0, {})
    (row,) = export(str(folder), "--training", output=tmp_path / "texts.jsonl")
    if is_refining:
        assert (row["prompt"], row["completion"]) == ("<|user|>task t<|assistant|>", "a program")
        assert (row["task_id"], row["turn"], row["target"]) == ("t", 2, "source")
    else:
        assert (row["prompt"], row["completion"]) == ("system2 + 2?", "<call>4it is 4")
        assert [(segment["text"], segment["is_sampled"]) for segment in row["segments"]] == answer


def test_a_set_that_is_not_there_is_refused(results: Path, tmp_path: Path, wording: Wording):
    with pytest.raises(InputError) as error:
        export(str(results), "--set", "large", output=tmp_path / "rows.jsonl")
    wording(error.value)
    assert side(str(results)).sets == ["small"]
    twice = export(str(results), "--set", "small", "--set", "small", output=tmp_path / "rows.jsonl")
    assert len(twice) == 8 + 2


@pytest.mark.parametrize(
    ("chosen", "words", "name"),
    [("", ["--form", "inspect"], "log.json"), (":second", ["--form", "inspect", "--only-right"], "log.json"),
     (":second", ["--form", "inspect"], "log.eval"), ("", [], "rows.json")],
    ids=["arms", "right", "archive", "ending"],
)  # fmt: skip
def test_what_others_would_misread_is_not_written(
    chosen: str, words: list[str], name: str, results: Path, tmp_path: Path, wording: Wording
):
    with pytest.raises(InputError) as error:
        cli.parse(["report", "export", f"{results}{chosen}", *words, "--output", str(tmp_path / name)]).run()
    wording(error.value)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("words", [["--set", "small"], ["--form", "inspect"], ["--only-right"], []])
def test_texts_of_training_have_no_arm_set_form_or_grade(
    words: list[str], results: Path, tmp_path: Path, wording: Wording
):
    chosen = str(results) if words else f"{results}:second"
    with pytest.raises(InputError) as error:
        export(chosen, "--training", *words, output=tmp_path / "rows.jsonl")
    wording(error.value)
    assert (words or [":second"])[0] in str(error.value)


def test_a_truncated_answer_is_one_for_inspect_ai_too():
    row = Exported(
        [],
        [{"role": "assistant", "content": "def"}],
        0.0,
        {"model": "m", "task_id": "a", "finish_reason": "length"},
        "",
    )
    assert row.sample(1)["output"]["choices"][0]["stop_reason"] == "max_tokens"
