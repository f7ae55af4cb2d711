"""The whole DAG, run for real on the cut-down experiment: what it makes, and what is made again when."""

import base64
import csv
import hashlib
import json
import os
import shutil
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from checkout import SMALL, Checkout

from arc_refinery import records
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.records import Verdict
from arc_refinery.reporting.training_curves import PANELS
from arc_refinery.training.rewards import REWARD_TERM

pytestmark = [pytest.mark.snakemake, pytest.mark.model]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".progress" not in path.parts
    }


def test_a_run_ends_in_a_report_with_the_published_columns(finished: Checkout):
    text = (finished.folder / "results/small.md").read_text()
    for column in (
        "valid code",
        "valid outputs",
        "unique outputs",
        "train_pixel_score",
        "test_pass_rate",
        "is_correct",
    ):
        assert column in text
    for arm in ("independent", "refine-base", "refine-trained"):
        assert arm in text
    assert list((finished.folder / "results/small/report").glob("*.png"))


def test_every_arm_spends_its_budget_on_tasks_that_have_something_to_refine(finished: Checkout):
    folder = finished.folder / "results/small/heldout"
    tasks = {task.task_id for task in records.read(folder.parent / "tasks/heldout.parquet", Task)}
    for branch, budget in (("turn1", 16), ("refine-base-turn2", 8), ("refine-trained-turn2", 8)):
        spent: Counter[str] = Counter()
        for shard in sorted((folder / branch / "verdicts").glob("*.parquet")):
            spent.update(verdict.task_id for verdict in records.read(shard, Verdict))
        assert set(spent.values()) <= {budget}
        assert branch != "turn1" or set(spent) == tasks


def test_training_executes_its_rewards(finished: Checkout):
    lines = (finished.folder / "results/small/adapters/trained/training.jsonl").read_text().splitlines()
    steps = [entry for entry in map(json.loads, lines) if "reward" in entry]
    assert len(steps) == 4
    assert all(0.0 <= entry["reward"] <= 10.0 for entry in steps)


# Metrics without a panel: TRL's own, and parts of those that have one
UNPLOTTED = (
    *("step", "epoch", "learning_rate", "num_tokens", "reward_std", "rewards/*", "frac_reward_zero_std", "tools/*"),
    *("clip_ratio/*", "completions/clipped_ratio", "completions/*terminated_length"),
    *("repetition", "reward/finished", "reward/truncated", "calls", "share/answered"),
    *("share/crash", "share/invalid_output", "share/protocol"),
)


@pytest.mark.parametrize("kind", ["refining", "tool use"])
def test_each_logged_metric_has_a_panel_or_is_named_here(
    kind: str, finished_once: Checkout, finished_tools_once: Checkout
):
    folder = (finished_once if kind == "refining" else finished_tools_once).folder / "results"
    (log,) = folder.glob("*/adapters/trained/training.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    logged = {name for line in lines for name, value in line.items() if isinstance(value, int | float)}
    drawn = {name for panel in PANELS for name in [*panel.lines, *(panel.band or ())]}
    lacking = {name for name in logged - drawn if not name.startswith(REWARD_TERM)}
    assert {name for name in lacking if not any(fnmatch(name, pattern) for pattern in UNPLOTTED)} == set()


def test_others_can_read_an_adapter_as_far_as_they_can_read_anything(finished: Checkout):
    modes = {path.name: path.stat().st_mode for path in (finished.folder / "results/small/adapters/trained").iterdir()}
    assert modes["adapter_model.safetensors"] == modes["training.jsonl"]


def test_a_second_run_does_nothing(finished: Checkout):
    assert finished.planned("--configfile", SMALL) == Counter()


def test_a_run_leaves_git_status_clean(finished: Checkout):
    assert finished.run("git", "status", "--porcelain").stdout == ""


def test_another_learning_rate_reruns_training_and_what_follows_from_it(finished: Checkout):
    config = finished.change(lambda content: content["training"]["grpo"].update(learning_rate=2.0e-3))
    # two sets of tasks, one and two shards, of the one arm that uses the adapter
    expected = {"settings": 1, "train": 1, "sample": 3, "grade": 3, "report": 1, "all": 1}
    assert finished.planned("--configfile", config) == expected


def test_an_edited_list_of_tasks_reruns_its_evaluation_set(finished: Checkout):
    listed = finished.folder / "tests/workflow/tasks.txt"
    content, written = listed.read_text(), listed.stat().st_mtime_ns
    listed.write_text(f"{content}# edited\n")
    planned = finished.planned("--configfile", SMALL)
    listed.write_text(content)
    os.utime(listed, ns=(written, written))
    # one set: the first turn, and two arms' second turns
    expected = {"evaluation_tasks": 1, "first_prompts": 1, "refining_prompts": 2, "sample": 3, "grade": 3}
    assert planned == {**expected, "overlap": 1, "report": 1, "all": 1}  # no training


def test_a_rule_can_be_rerun_by_name_with_what_follows(finished: Checkout):
    planned = finished.planned("--configfile", SMALL, "-R", "train", "all")
    assert planned == {"train": 1, "sample": 3, "grade": 3, "report": 1, "all": 1}


def test_a_shard_is_remade_to_the_same_bytes_and_its_siblings_are_left_alone(finished: Checkout):
    shard = "results/small/heldout/turn1/attempts/000.parquet"
    folder = finished.folder / "results/small"
    before = digests(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}
    (finished.folder / shard).unlink()
    done = finished.snakemake(shard, "--cores", "1", "--configfile", SMALL)
    assert done.returncode == 0, done.stderr
    assert digests(folder) == before
    changed = [path for path in times if path.stat().st_mtime_ns != times[path]]
    assert changed == [finished.folder / shard]
    finished.snakemake("--configfile", SMALL, "--touch", "--cores", "1")


def test_the_lengths_of_all_prompts_are_studied_by_name(finished: Checkout):
    done = finished.snakemake("prompt_lengths", "--cores", "1", "--configfile", SMALL)
    assert done.returncode == 0, done.stderr
    folder = finished.folder / "results/small"
    with (folder / "lengths.csv").open() as file:
        n_prompts = {row["prompts"]: int(row["n"]) - int(row["dropped"]) for row in csv.DictReader(file)}
    files = folder.rglob("prompts.parquet")
    assert n_prompts == {str(path.parent.relative_to(folder)): records.count(path) for path in files}
    assert (folder / "lengths.png").stat().st_size > 0


def test_snakemake_writes_its_own_report(finished: Checkout):
    done = finished.snakemake("--configfile", SMALL, "--report", "results/small.snakemake.html")
    assert done.returncode == 0, done.stderr
    page = (finished.folder / "results/small.html").read_bytes()
    snakemakes = (finished.folder / "results/small.snakemake.html").read_text()
    assert base64.b64encode(page).decode() in snakemakes
    pictures = list((finished.folder / "results/small/report").rglob("*.png"))
    assert any(path.parent.name == "gallery" for path in pictures)
    assert all(str(path.relative_to(finished.folder)) in snakemakes for path in pictures)
    assert "The experiment" in snakemakes and "What became of attempts" in snakemakes  # captions
    assert len(page) < 1_500_000  # Chromium opens no address beyond 2 MiB, and base64 adds a third


@pytest.mark.parametrize("kind", ["refining", "tool use"])
def test_the_figures_of_the_report_are_those_of_the_table_of_attempts(
    kind: str, finished_once: Checkout, finished_tools_once: Checkout
):
    """Plain pandas gives each arm's metrics, and what each turn and its budget solve."""
    results = (finished_once if kind == "refining" else finished_tools_once).folder / "results"
    (path,) = results.glob("*/attempts.parquet")
    attempts, report = pd.read_parquet(path), path.parent / "report"
    shares = {"pass_rate": "solved", "valid outputs": "ok", "test_pass_rate": "test_is_correct"}
    shares |= {"train_pixel_score": "train_pixel_score", "episodes that call": "is_calling"}
    attempts["ok"] = attempts["status"] == "ok"
    for (name, arm), rows in attempts.groupby(["set", "repetition"]):
        tasks = list(attempts.attrs["tasks"][name])
        of_task = rows.groupby("task_id")
        written = pd.read_csv(report / f"{name}-arms.csv", index_col="name").loc[arm]
        assert written["n_tasks"] == len(tasks)
        for metric, column in shares.items():
            if metric in written:
                mean = of_task[column].mean().reindex(tasks, fill_value=0).mean()
                assert written[metric] == pytest.approx(mean, rel=1e-5), metric
        solved = of_task["solved"].any().reindex(tasks, fill_value=False)
        assert written["solved"] == pytest.approx(solved.mean(), rel=1e-5)
        curve = pd.read_csv(report / f"{name}-budget.csv").query("arm == @arm").iloc[-1]
        assert curve["solved_tasks"] == solved.sum()
        assert curve["tokens"] == pytest.approx(rows["tokens"].sum() / len(tasks), rel=1e-5)


def test_experiments_are_set_side_by_side(finished: Checkout):
    results = finished.folder / "results"

    def compare(content: dict[str, Any]) -> None:
        content["compare"] = ["small", "other"]

    config = finished.change(compare)
    refused = finished.snakemake("compare", "--cores", "1", "--configfile", config)
    assert refused.returncode != 0
    assert "compare: results/other.md does not exist. Make it first: snakemake" in refused.stderr
    shutil.copytree(results / "small", results / "other")
    shutil.copy(results / "small.md", results / "other.md")
    settings = results / "other/settings.json"
    settings.write_text(settings.read_text().replace('"experiment": "small"', '"experiment": "other"'))
    assert finished.planned("compare", "--configfile", config) == {"compare": 1}
    done = finished.snakemake("compare", "--cores", "1", "--configfile", config)
    assert done.returncode == 0, done.stderr
    text = (results / "compare.md").read_text()
    assert "](compare.png)" in text and (results / "compare.png").stat().st_size > 5000
    assert text.count("| `results/other` | `refine-trained` |") == 2  # sets
    assert "<title>Comparison of results/other, results/small</title>" in (results / "compare.html").read_text()
    shutil.rmtree(results / "other")
    (results / "other.md").unlink()
