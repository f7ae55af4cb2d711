"""Experiments in tool use, run for real: what they make, what is made again when, and that kills change nothing."""

import json
import os
import shutil
from collections import Counter
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from checkout import SMALL, TOOLS, Checkout, is_whole

from arc_refinery import records
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.tool_use.grading.domains import subject_of
from arc_refinery.training.samples import TrainingSample

pytestmark = [pytest.mark.snakemake, pytest.mark.training]

RESULTS = "results/tool-use-small"
SETS = {"sums": 6, "programs": 2}  # questions
ARMS = {"untrained": "none", "trained": "trained"}  # and their adapters
OF_TOOLS = {"heldout_questions", "training_questions", "conversations", "episodes"}
OF_TASKS = {"tasks", "evaluation_tasks", "first_prompts", "sample", "grade", "training_prompts"}
# What any changed setting makes again
ALWAYS = {"settings": 1, "report": 1, "all": 1}


def questions(run: Checkout, name: str) -> list[Question]:
    return list(records.read(run.folder / RESULTS / f"questions/{name}.parquet", Question))


def episodes(run: Checkout, name: str, arm: str) -> list[Episode]:
    shards = (run.folder / RESULTS / name / arm).glob("*.parquet")
    return sorted(
        (episode for shard in shards for episode in records.read(shard, Episode)), key=attrgetter("episode_id")
    )


# a whole run


def test_a_run_ends_in_a_report_of_every_set_and_arm(finished_tools: Checkout):
    text = (finished_tools.folder / "results/tool-use-small.md").read_text()
    for name, n_questions in SETS.items():
        assert f"## Set `{name}` ({n_questions} tasks)" in text
        assert all(f"\n| `{arm}` | {n_questions} | " in text for arm in ARMS)
    assert "GRPO, 3 optimizer steps" in text
    assert "<title>Experiment tool-use-small" in (finished_tools.folder / "results/tool-use-small.html").read_text()
    assert {"mask.png", "training-sft.png", "training-trained.png"} <= set(
        os.listdir(finished_tools.folder / RESULTS / "report")
    )


def test_every_arm_answers_every_question_equally_often(finished_tools: Checkout):
    for name in SETS:
        expected = [
            f"{question.question_id}/{number:03d}" for question in questions(finished_tools, name) for number in (0, 1)
        ]
        for arm in ARMS:
            assert [episode.episode_id for episode in episodes(finished_tools, name, arm)] == expected


def test_the_adapter_answers_otherwise_than_the_model_alone(finished_tools: Checkout):
    without, trained = (episodes(finished_tools, "sums", arm) for arm in ARMS)
    assert {episode.adapter for episode in without} == {""}
    assert {episode.adapter for episode in trained} == {f"{RESULTS}/adapters/trained"}
    assert [episode.messages for episode in without] != [episode.messages for episode in trained]


def test_demonstrations_call_both_tools(finished_tools: Checkout):
    conversations = list(
        records.read(finished_tools.folder / RESULTS / "training/conversations.parquet", records.Conversation)
    )
    assert 12 <= len(conversations) <= 24
    called = [conversation for conversation in conversations if conversation.n_calls]
    assert 0 < len(called) < len(conversations)
    by_set = {
        name: [conversation for conversation in called if conversation.question_id.startswith(f"{name}-train/")]
        for name in SETS
    }
    # whose program was run: what it gave is what its first assert expects
    (tried, *_), programs = by_set["programs"], questions(finished_tools, "programs-train")
    (question,) = [candidate for candidate in programs if candidate.question_id == tried.question_id]
    _, task = subject_of(question)
    expected = task.tests[0].rpartition(" == ")[2]
    (result,) = [
        segment.text for segment in tried.segments if "<tool_response>" in segment.text and not segment.is_sampled
    ][-1:]
    assert f"<tool_response>\n{expected}\n</tool_response>" in result
    assert by_set["sums"]


def test_training_is_logged_step_by_step(finished_tools: Checkout):
    lines = (finished_tools.folder / RESULTS / "adapters/trained/training.jsonl").read_text().splitlines()
    steps = [entry for entry in map(json.loads, lines) if "reward" in entry]
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    assert any(entry["grad_norm"] > 0 for entry in steps)
    assert all({"share/calling", "share/answered", "calls", "kl"} <= set(entry) for entry in steps)
    checks = [entry["heldout"] for entry in map(json.loads, lines) if "heldout" in entry]
    assert [check["step"] for check in checks] == [0, 1, 2, 3]


def test_turns_are_compared_with_the_same_turn_of_others(finished_tools: Checkout):
    path = finished_tools.folder / RESULTS / "adapters/trained/samples.parquet"
    samples = list(records.read(path, TrainingSample))
    n_compared = 0
    for start in range(0, len(samples), 4):
        group = samples[start : start + 4]
        mean = fmean(sample.reward for sample in group)
        assert [sample.advantages[0] for sample in group] == pytest.approx([one.reward - mean for one in group])
        if any(value.value for sample in group for value in sample.terms if value.term == "faulty_calls"):
            continue  # which turns they were in is not kept
        for sample in group:
            others = [other for other in group if other is not sample]
            for turn, advantage in enumerate(sample.advantages[1:], 1):
                there = [other for other in others if len(other.advantages) > turn] or others
                expected = 3 / 4 * (sample.reward - fmean(other.reward for other in there))
                assert advantage == pytest.approx(expected, abs=1e-6)
                n_compared += 1
    assert n_compared > 0


def test_a_run_leaves_git_status_clean(finished_tools: Checkout):
    assert finished_tools.run("git", "status", "--porcelain").stdout == ""


# what is made again


def test_a_second_run_does_nothing(finished_tools: Checkout):
    assert finished_tools.planned("--configfile", TOOLS) == Counter()


def test_a_changed_setting_makes_again_what_it_touches(finished_tools: Checkout):
    config = finished_tools.change(lambda content: content["generation"].update(max_calls=2), TOOLS, "tools")
    # 2 shards of sums and 1 of programs for each of 2 arms
    expected = {"conversations": 1, "sft": 1, "train": 1, "episodes": 6}
    assert finished_tools.planned("--configfile", config) == expected | ALWAYS


def test_how_jobs_run_makes_nothing_again(finished_tools: Checkout):
    needs = {"sample": {"cpus": 2, "mem_mb": 3000}, "train": {"runtime": 90}}
    config = finished_tools.change(lambda content: content.update(resources=needs), TOOLS, "tools")
    assert finished_tools.planned("--configfile", config) == Counter()


def test_killed_in_training_with_other_shards_and_cores_it_ends_with_the_same_results(
    finished_tools: Checkout, tmp_path: Path
):
    again = finished_tools.clone(tmp_path / "again")
    results = again.folder / RESULTS
    for made_again in ("adapters/trained", "sums"):
        shutil.rmtree(results / made_again)

    def other(config: dict[str, Any]) -> None:
        config["data"]["heldout"][0]["shards"] = 1
        config["resources"] = {"sample": {"cpus": 2}, "train": {"cpus": 2}}

    config = again.change(other, TOOLS, "tools")
    command = ["snakemake", "--cores", "1", "--configfile", config, "--quiet", "rules"]
    again.kill_when(
        lambda: is_whole(results / "adapters/trained.checkpoints/checkpoint-1/trainer_state.json"), *command
    )
    assert not (results / "adapters/trained").exists()
    done = again.run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    log = (again.folder / "logs/tool-use-small/adapters/trained.log").read_text()
    assert "training resumes from this checkpoint" in log

    def contents(run: Checkout) -> dict[str, bytes]:
        """Of all results, but for those that tell of shards."""
        paths = [path for path in (run.folder / "results").rglob("*") if path.is_file()]
        names = {str(path.relative_to(run.folder)): path for path in paths if ".progress" not in path.parts}
        apart = (f"{RESULTS}/settings.json", f"{RESULTS}/sums/", "results/tools.yaml")
        return {name: path.read_bytes() for name, path in names.items() if not name.startswith(apart)}

    assert contents(again) == contents(finished_tools)
    assert [path.name for path in (results / "sums/trained").glob("*.parquet")] == ["000.parquet"]
    for arm in ARMS:
        assert episodes(again, "sums", arm) == episodes(finished_tools, "sums", arm)


# other configs


def test_the_full_size_experiment_is_the_same_dag_with_another_config(fresh: Checkout):
    # two sets to train on and two held out, 8 + 4 shards for each of five arms
    expected = {
        "fetch": 3,  # the model, and the data sets of GSM8K and MBPP
        "training_questions": 2,
        "heldout_questions": 2,
        "conversations": 1,
        "sft": 1,
        "train": 1,
        "episodes": 60,
    }
    assert fresh.planned("--configfile", "config/tool-use.yaml") == expected | ALWAYS


def test_experiments_of_either_kind_have_none_of_the_others_rules(fresh: Checkout):
    tasks, tools = (set(fresh.planned("--configfile", config)) for config in (SMALL, "config/tool-use-demo.yaml"))
    assert tasks & (OF_TASKS | OF_TOOLS) == OF_TASKS
    assert tools & (OF_TASKS | OF_TOOLS) == OF_TOOLS


def test_a_wrong_config_ends_with_one_message_before_any_job(fresh: Checkout):
    config = fresh.change(lambda content: content["generation"].update(max_call=3), TOOLS, "wrong")
    done = fresh.snakemake("--cores", "1", "--configfile", config)
    assert done.returncode != 0
    (message,) = [line for line in done.stderr.splitlines() if "generation.max_call" in line]
    assert "results/wrong.yaml: generation.max_call is not a known key" in message
    assert "Traceback" not in done.stderr
