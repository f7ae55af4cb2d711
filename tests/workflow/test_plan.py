"""Snakemake's plans, and its refusals of a wrong configuration before any job starts."""

import json
from collections import Counter
from typing import Any

import pytest
import yaml
from checkout import SMALL, Checkout

pytestmark = pytest.mark.snakemake


def test_a_fresh_clone_plans_every_stage_of_the_demo(fresh: Checkout):
    planned = fresh.planned()
    for rule in ("tasks", "evaluation_tasks", "first_prompts", "sample", "grade", "training_prompts"):
        assert planned[rule] > 0
    assert planned["train"] == planned["report"] == 1
    # two parts and two sets in turn 1; then both sets for each of four refining arms
    assert planned["sample"] == planned["grade"] == 2 + 2 + 4 * 2


def test_curves_of_a_training_wait_for_no_evaluation(fresh: Checkout):
    planned = fresh.planned("results/demo/adapters/trained.png")
    assert planned["training_curves"] == planned["train"] == 1
    assert planned["evaluation_tasks"] == 2  # to leave these tasks out of training
    assert planned["refining_prompts"] == planned["report"] == 0


def test_broken_programs_are_not_sampled(fresh: Checkout):
    def break_programs(content: dict[str, Any]) -> None:
        content["training"]["answers"] = "broken"
        for arm in content["evaluation"]["arms"][1:]:
            arm["turns"][0]["answers"] = "broken"

    planned = fresh.planned("--configfile", fresh.change(break_programs))
    # of two parts and two sets; in three shards, sampled are the first turns of `independent` and two second turns
    assert planned["break_programs"] == 2 + 2
    assert (planned["first_prompts"], planned["sample"]) == (2, 3 + 2 * 3)
    assert planned["grade"] == planned["sample"] + 4


def test_the_full_size_experiment_is_the_same_dag_with_another_config(fresh: Checkout):
    planned = fresh.planned("--configfile", "config/multi-turn-rl.yaml")
    # 2 parts x 20 shards, then 10 shards of one set for turn 1 and for two refining arms; 8 of them are graded together
    assert planned["sample"] == 40 + 10 + 2 * 10
    assert planned["grade"] == 2 * 3 + 2 + 2 * 2
    assert planned["training_prompts"] == 2
    assert planned["train"] == 1
    assert planned["evaluation_tasks"] == 1  # the demo's other sets do not leak in
    assert (planned["fetch"], planned["wording"]) == (3, 1)  # the model, its training rows, and the problems


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 10 shards of one set: turn 1, and the refining arm
        (
            "refine-without-rl",
            {
                "fetch": 2,
                "tasks": 0,
                "train": 0,
                "first_prompts": 1,
                "refining_prompts": 1,
                "sample": 20,
                "grade": 4,
            },
        ),
        # no attempt is needed to train on first turns; 10 shards for the base model and for each of two adapters
        (
            "single-turn-rl",
            {
                "fetch": 3,
                "tasks": 1,
                "training_prompts": 1,
                "train": 2,
                "refining_prompts": 0,
                "sample": 30,
                "grade": 6,
            },
        ),
        # 40 shards of two sets, with and without the adapter
        (
            "arc-training-rl",
            {
                "fetch": 2,
                "tasks": 0,
                "training_prompts": 1,
                "train": 1,
                "refining_prompts": 0,
                "sample": 160,
                "grade": 20,
            },
        ),
        # 9 runs of 5 parts; two sets in 4 shards each, for the base model and the adapter of each part
        (
            "grpo-sweep",
            {
                "fetch": 2,
                "tasks": 0,
                "training_prompts": 1,
                "train": 9 * 5,
                "refining_prompts": 0,
                "sample": (1 + 9 * 5) * 2 * 4,
                "grade": (1 + 9 * 5) * 2,
            },
        ),
        # one shard of one task, for the base model and two adapters
        (
            "one-task-sanity",
            {
                "fetch": 2,
                "tasks": 0,
                "training_prompts": 1,
                "train": 2,
                "refining_prompts": 0,
                "sample": 3,
                "grade": 3,
            },
        ),
    ],
)
def test_every_published_experiment_is_one_config(fresh: Checkout, name: str, expected: dict[str, int]):
    planned = fresh.planned("--configfile", f"config/{name}.yaml")
    assert {rule: planned[rule] for rule in expected} == expected
    assert planned["wording"] == 1


def test_each_kept_step_is_a_part_of_the_training_with_second_turns_of_its_own(fresh: Checkout):
    def keep(content: dict[str, Any]) -> None:
        content["training"] |= {"keep_every": 15}
        content["training"]["grpo"] |= {"max_steps": 75, "save_steps": 5}
        sets = [{"name": name, "source": "generator", "seed": seed, "n_tasks": 100} for seed, name in enumerate("ab")]
        adapters = {"base": {}, "trained": {"adapter": "trained"}, "steps": {"adapter": "trained@*"}}
        arms = [
            {"name": name, "turns": [{"n_predictions": 64}, {"n_predictions": 64} | adapter]}
            for name, adapter in adapters.items()
        ]
        content["evaluation"] = {"sets": sets, "arms": arms}

    planned = fresh.planned("--configfile", fresh.change(keep, base="config/config.yaml"))
    # two parts of the tasks; then of two sets: first turns, second turns untrained and after each part
    expected = {"train": 5, "training_prompts": 2, "refining_prompts": 2 * 6, "sample": 2 + 2 * 7, "report": 1}
    assert {rule: planned[rule] for rule in expected} == expected


@pytest.mark.parametrize("name", ["multi-turn-rl", "single-turn-rl", "arc-training-rl"])
def test_each_published_training_is_planned_with_unsloth_too(fresh: Checkout, name: str):
    def here(content: dict[str, Any]) -> None:
        del content["resources"]  # a fresh clone has no environment with Unsloth

    config = fresh.change(here, base=f"config/{name}-unsloth.yaml")
    assert fresh.planned("--configfile", config) == fresh.planned("--configfile", f"config/{name}.yaml")


def test_the_multi_turn_experiment_is_planned_on_arc_agi_2(fresh: Checkout):
    planned = fresh.planned("--configfile", "config/multi-turn-rl-arc2.yaml")
    # 4 shards of one set for 3 branches, and two parts of 20
    assert planned["sample"] == 2 * 20 + 3 * 4


@pytest.mark.parametrize("config", ["config/config.yaml", "config/tool-use-demo.yaml", "config/seeds-demo.yaml"])
def test_the_embedded_experiments_fetch_nothing(fresh: Checkout, config: str):
    planned = fresh.planned("--configfile", config)
    assert planned["report"] == 1
    assert planned["fetch"] == planned["wording"] == 0


def test_no_command_grows_with_the_number_of_shards(fresh: Checkout):
    def split(content: dict[str, Any]) -> None:
        content["parts"]["shards_per_part"] = 100
        content["evaluation"]["sets"][0]["shards"] = 100

    done = fresh.snakemake("--dry-run", "--printshellcmds", "--configfile", fresh.change(split))
    commands = [line for line in (done.stdout + done.stderr).splitlines() if "arc-refinery " in line]
    assert any("arc-refinery stage refining_prompts " in command for command in commands)
    assert max(map(len, commands)) < 3000


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"sampling": {"n_prediction": 8}}, "sampling.n_prediction"),
        ({"training": {"learning_rate": "fast"}}, "training.learning_rate"),
        ({"model": {"path": "workflow/models/missing"}}, "model.path"),
        ({"problems": {"source": "file", "path": "rows/missing.jsonl"}}, "problems.path"),
    ],
)
def test_a_wrong_config_ends_with_one_message_before_any_job(fresh: Checkout, change: dict[str, Any], key: str):
    content = yaml.safe_load((fresh.folder / SMALL).read_text())
    for section, values in change.items():
        content[section] |= values
    (fresh.folder / "results").mkdir(exist_ok=True)
    (fresh.folder / "results/wrong.yaml").write_text(yaml.safe_dump(content))
    done = fresh.snakemake("--cores", "1", "--configfile", "results/wrong.yaml")
    assert done.returncode != 0
    message = [line for line in done.stderr.splitlines() if key in line]
    assert len(message) == 1
    assert "results/wrong.yaml" in message[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["{}", "seed: 3", "training: {grpo: {beta: 0.1}}"])
def test_a_config_without_a_name_is_not_merged_into_the_demo(fresh: Checkout, content: str):
    (fresh.folder / "results").mkdir(exist_ok=True)
    (fresh.folder / "results/nameless.yaml").write_text(content)
    done = fresh.snakemake("--dry-run", "--configfile", "results/nameless.yaml")
    assert done.returncode != 0
    assert "results/nameless.yaml: experiment is missing" in done.stdout + done.stderr


def test_a_training_that_does_not_fit_its_gpu_is_said_before_any_job(fresh: Checkout):
    def halve(content: dict[str, Any]) -> None:
        content["training"]["grpo"]["gradient_accumulation_steps"] //= 2

    config = fresh.change(halve, base="config/multi-turn-rl.yaml")
    done = fresh.snakemake("--dry-run", "--configfile", config)
    assert done.returncode == 0, done.stdout + done.stderr
    (warning,) = [line for line in (done.stdout + done.stderr).splitlines() if "GPU memory" in line]
    assert (
        f"{config}: GPU memory of train" in warning
        and "set training.grpo.gradient_accumulation_steps to 2 (now 1)" in warning
    )
    done = fresh.snakemake("--dry-run", "--configfile", "config/multi-turn-rl.yaml")
    assert "GPU memory" not in done.stdout + done.stderr


@pytest.mark.parametrize("config", ["config/config.yaml", "config/tool-use-demo.yaml", "config/multi-turn-rl.yaml"])
def test_the_rules_pass_snakemakes_lint(fresh: Checkout, config: str):
    """But for one remark: environments are made beforehand, not by Snakemake."""
    done = fresh.snakemake("--lint", "--configfile", config)
    text = done.stdout + done.stderr
    remarks = {line.strip() for line in text.splitlines() if line.startswith("    * ")}
    assert remarks == {"* Specify a conda environment or container for each rule.:"}, text


def test_nothing_is_planned_for_the_pretrained_model(fresh: Checkout):
    assert "pretrain" not in fresh.planned()
    assert fresh.planned("pretrain") == Counter(pretrain_part=4, pretrain=1)
    assert fresh.planned("pretrain_tool_use") == Counter(pretrain_part=1, pretrain_tool_use=1)


def test_a_failed_check_of_the_doctor_fails_the_run(fresh: Checkout):
    assert fresh.planned("doctor") == Counter(doctor_config=1, doctor_cpu=1, doctor_sample=1, doctor_train=1, doctor=1)
    done = fresh.snakemake("--cores", "1", "results/doctor/config.json")
    assert done.returncode == 0, done.stderr
    versions = {"Python": "3.11", "numpy": "2.4"}
    for job, outcome in (("cpu", "passed"), ("sample", "failed"), ("train", "passed")):
        finding = {"check": "driver", "outcome": outcome, "found": "none", "advice": "install one"}
        findings = {"job": job, "host": "node", "programs_run_under": versions, "findings": [finding]}
        (fresh.folder / f"results/doctor/{job}.json").write_text(json.dumps(findings))
    done = fresh.snakemake("--cores", "1", "doctor")
    assert done.returncode != 0
    assert "| sample | driver | **failed** | none | install one |" in (fresh.folder / "results/doctor.md").read_text()
    assert fresh.planned("doctor")["doctor_sample"] == 1  # findings are used once


def test_threads_that_would_share_a_core_are_told(fresh: Checkout):
    config = fresh.change(lambda content: content["model"].update(n_threads=2))
    done = fresh.snakemake("results/small/tasks/heldout.parquet", "--cores", "1", "--configfile", config)
    assert done.returncode == 0, done.stderr
    assert "model.n_threads" in done.stderr and "--cores 2" in done.stderr
