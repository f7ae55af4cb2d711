"""Settings of jobs: a changed setting changes the `params` of exactly the jobs whose results it changes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT, SMALL, TOOLS
from experiments import refining_jobs, tool_use_jobs
from pydantic import BaseModel

from arc_refinery import config, jobs
from arc_refinery.config import (
    EVALUATION,
    PROMPTS,
    REPORT,
    ROWS,
    TUNING,
    ConfigError,
    Mark,
    inputs,
    load_experiment,
    marked,
    validate_experiment,
)
from arc_refinery.domains.arc.config import ArcExperiment, TaskSet
from arc_refinery.jobs import Job
from arc_refinery.refining import inputs as refining_inputs
from arc_refinery.refining import jobs as refining
from arc_refinery.refining.config import Grpo, PromptedModel, Sampling, Sft
from arc_refinery.tool_use import inputs as tool_inputs
from arc_refinery.tool_use import jobs as tool_use
from arc_refinery.tool_use.config import Generation, Questions, ToolSft, ToolUse

OF_VLLM = {"gpu_memory_utilization", "kv_cache_gb"}
OF_A_SAMPLER = OF_VLLM | {"address", "key_variable", "max_connections", "prices", "max_tokens_total"}
OF_A_TRAINING = OF_VLLM | {"n_jobs", "sleep_mode", "report_to"}


@pytest.mark.parametrize(
    ("section", "marks", "names"),
    [
        (Grpo, [TUNING], OF_A_TRAINING),
        (config.PolicyGradient, [TUNING], OF_A_TRAINING),
        (Grpo, [PROMPTS], {"rollout", "n_turns"}),
        (PromptedModel, [PROMPTS, TUNING], OF_A_SAMPLER | {"template"}),
        (config.ModelConfig, [TUNING], OF_A_SAMPLER),
        (config.Imitation, [TUNING], {"save_steps"}),  # GRPO chooses among its checkpoints: there they are a setting
        (Sft, [ROWS], {"demonstrations"}),
        (ToolSft, [ROWS], {"without_tools", "n_questions"}),
        (Generation, [EVALUATION], {"temperature", "top_k", "top_p"}),
        (TaskSet, [TUNING, REPORT], {"shards", "validation", "caveat"}),
        (Questions, [config.EPISODES], {"tools"}),
        (Sampling, list(Mark), {"tasks_per_batch", "temperature", "top_p"}),
    ],
)
def test_fields_say_what_alone_they_change(section: type[BaseModel], marks: list[Mark], names: set[str]) -> None:
    assert marked(section, *marks) == names


# settings and the stages that they change

SETS = ("arc-agi-1-evaluation", "heldout")
PARTS = ("part1", "part2")
SAMPLES = {
    *(f"sample {tasks} turn1" for tasks in (*PARTS, *SETS)),
    *(f"sample {tasks} {arm}-turn2" for tasks in SETS for arm in ("refine-base", "refine-trained")),
}
REFINING_PROMPTS = {job.replace("sample", "prompts") for job in SAMPLES if "turn2" in job}
REFERENCES = {job.replace("sample", "reference_logprobs") for job in SAMPLES if "turn2" in job}

Change = Callable[[dict[str, Any]], Any]


def changed(config_file: str, change: Change, planned: Callable[[Any], dict[str, Job]]) -> set[str]:
    """The jobs that a change of a config gives other settings, or to others."""
    content = yaml.safe_load((ROOT / config_file).read_text())
    before = planned(validate_experiment(content, "before.yaml"))
    change(content)
    after = planned(validate_experiment(content, "after.yaml"))
    return {name for name in before.keys() | after.keys() if _settings(before, name) != _settings(after, name)}


def _settings(planned: dict[str, Job], name: str) -> str | None:
    return planned[name].settings if name in planned else None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["training"]["grpo"].update(learning_rate=2.0e-3), {"train trained"}),
        (lambda c: c["training"]["grpo"].update(save_steps=3), {"train trained"}),
        (lambda c: c["training"]["sft"].update(epochs=2), {"sft sft"}),
        (lambda c: c["training"]["sft"].update(save_steps=3), set()),
        (lambda c: c["training"]["grpo"].update(n_jobs=2, gpu_memory_utilization=0.5, report_to=["wandb"]), set()),
        (lambda c: c["training"]["lora"].update(lora_r=4), {"train trained", "sft sft"}),
        (lambda c: c["training"]["sft"].update(demonstrations={"targets": "attempts"}), {"demonstrations"}),
        (lambda c: c["training"].update(select={"max_pass_rate": 0.5}), {"training_prompts"}),
        (lambda c: c["training"].update(max_seq_length=900), {"train trained", "training_prompts", "demonstrations"}),
        (
            lambda c: c["evaluation"]["arms"][1]["turns"][1].update(n_predictions=12),
            {f"prompts {set_name} refine-base-turn2" for set_name in SETS},
        ),
        (lambda c: c["refinement"].update(n_parents=3), REFINING_PROMPTS),
        (
            lambda c: c["refinement"].update(include_errors=True),
            {"train trained", "training_prompts", "demonstrations"} | REFINING_PROMPTS,
        ),
        (lambda c: c["sampling"].update(temperature=0.7), SAMPLES),
        (
            lambda c: c["sampling"].update(n_predictions=4),
            {"training_prompts", "demonstrations", *(f"prompts {part} turn1" for part in PARTS)},
        ),
        (lambda c: c["model"].update(gpu_memory_utilization=0.5), set()),
        (lambda c: c["model"].update(n_threads=2), SAMPLES | REFERENCES | {"train trained", "sft sft"}),
        (
            lambda c: c.update(sandbox={"memory_mb": 600}),
            {"grade", "demonstrations", "train trained"} | REFERENCES,
        ),
        (lambda c: c["evaluation"]["sets"][1].update(shards=3, caveat="easy"), set()),
        (lambda c: c["evaluation"]["sets"][1].update(n_tasks=7), {"evaluation_tasks heldout"}),
        (lambda c: c["parts"].update(shards_per_part=2), set()),
        (lambda c: c.update(shards_per_grading_job=3), set()),
        (lambda c: c["parts"].update(tasks_per_part=7), {"tasks"}),
        (lambda c: c["problems"].update(compositions=0.4), {"tasks", "evaluation_tasks heldout"}),
        (lambda c: c["evaluation"]["sets"][1].update(compositions=1.0), {"evaluation_tasks heldout"}),
        (
            lambda c: c.update(
                resources={"sample": {"cpus": 2, "mem_mb": 3000, "venv": "a"}, "train": {"runtime": 90}}
            ),
            set(),
        ),
    ],
)
def test_a_setting_of_refining_changes_its_stages(change: Change, expected: set[str]) -> None:
    assert changed(SMALL, change, refining_jobs) == expected


SUMS = {"episodes sums untrained", "episodes sums trained"}
EPISODES = SUMS | {"episodes programs untrained", "episodes programs trained"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["generation"].update(temperature=0.7), EPISODES),
        (lambda c: c["generation"].update(max_calls=2), EPISODES | {"conversations", "train trained"}),
        (lambda c: c["training"]["grpo"].update(learning_rate=2.0e-3), {"train trained"}),
        (lambda c: c["training"]["sft"].update(epochs=2), {"sft sft"}),
        (lambda c: c["training"]["sft"].update(without_tools=0.25), {"conversations"}),
        (lambda c: c["training"]["sft"].update(save_steps=2), set()),
        (lambda c: c["training"]["grpo"].update(n_jobs=2, gpu_memory_utilization=0.5), set()),
        (lambda c: c["data"]["train"][1].update(n_tasks=5), {"questions programs-train"}),
        (lambda c: c["data"]["heldout"][0].update(shards=1), set()),
        (
            lambda c: c["evaluation"]["arms"].append({"name": "plain", "tools": False}),
            {"episodes sums plain", "episodes programs plain"},
        ),
        (lambda c: c["data"]["heldout"][0].update(tools=["calculator"]), SUMS),
        (lambda c: c["data"]["train"][0].update(tools=["calculator"]), {"conversations", "train trained"}),
        (lambda c: c.update(tools=[{"tool": "calculator"}, {"tool": "execute_code"}]), set()),
        (
            lambda c: c.update(tools=["calculator", {"tool": "execute_code", "seconds": 3}]),
            EPISODES | {"conversations", "train trained"},
        ),
        (lambda c: c["evaluation"].update(questions_per_batch=1), EPISODES),
        (lambda c: c["model"].update(gpu_memory_utilization=0.5), set()),
        (lambda c: c.update(resources={"sample": {"cpus": 2, "mem_mb": 3000}, "train": {"runtime": 90}}), set()),
    ],
)
def test_a_setting_of_tool_use_changes_its_stages(change: Change, expected: set[str]) -> None:
    assert changed(TOOLS, change, tool_use_jobs) == expected


def test_what_changes_no_result_is_given_beside() -> None:
    content = yaml.safe_load((ROOT / SMALL).read_text())
    content["training"]["grpo"] |= {"n_jobs": 2, "gpu_memory_utilization": 0.5}
    content["model"]["gpu_memory_utilization"] = 0.7
    experiment = validate_experiment(content, "mine.yaml", ArcExperiment)
    of_vllm = {"gpu_memory_utilization": 0.7, "kv_cache_gb": None}
    of_server = {"address": None, "key_variable": "OPENAI_API_KEY", "max_connections": 16}
    of_server |= {"prices": None, "max_tokens_total": None}
    assert tuning_of(refining.sample(experiment, "heldout", "turn1")) == {"model": of_vllm | of_server}
    assert tuning_of(jobs.sft(experiment, "sft")) == {"sft": {"save_steps": 2}}
    assert tuning_of(jobs.train(experiment, "trained"))["grpo"] == of_vllm | {
        "n_jobs": 2, "gpu_memory_utilization": 0.5, "sleep_mode": False, "report_to": ["tensorboard"]
    }  # fmt: skip
    episodes = validate_experiment(
        yaml.safe_load((ROOT / TOOLS).read_text()) | {"resources": {"sample": {"cpus": 2}}}, "", ToolUse
    )
    sampled = tool_use.episodes(episodes, "sums", "trained")
    assert tuning_of(sampled) == {"n_jobs": 2, "model": of_vllm | of_server | {"gpu_memory_utilization": 0.9}}
    demonstrations = refining.demonstrations(experiment, "part1")
    assert tuning_of(demonstrations) == {"n_shards": 1, "shards_per_grading_job": 1, "tasks_per_batch": 1}


def tuning_of(job: Job) -> Any:
    return json.loads(job.tuning)


def test_only_what_plays_with_read_file_is_given_the_files(tmp_path: Path) -> None:
    (tmp_path / "sums-0").mkdir()
    (tmp_path / "sums-0/a.txt").touch()
    content = yaml.safe_load((ROOT / TOOLS).read_text())
    content["tools"] = ["calculator", "read_file"]
    content["data"]["files"] = str(tmp_path)
    content["evaluation"]["arms"].append({"name": "plain", "tools": False})
    planned = tool_use_jobs(experiment := validate_experiment(content, "mine.yaml", ToolUse))
    given = {name for name, job in planned.items() if json.loads(job.settings).get("files")}
    assert given == EPISODES | {"train trained"}
    assert tool_inputs.files_to_read(experiment) == [str(tmp_path / "sums-0/a.txt")]


# inputs


def test_a_grading_job_takes_several_shards() -> None:
    experiment = load_experiment(ROOT / SMALL, ArcExperiment).model_copy(update={"shards_per_grading_job": 2})
    attempts = [f"<results>/heldout/turn1/attempts/00{shard}.parquet" for shard in range(2)]
    assert refining_inputs.attempts_to_grade(experiment, "heldout", "turn1", "000") == attempts
    with pytest.raises(ConfigError, match="heldout/turn1 has no grading job 001: its 1 are numbered from 000"):
        refining_inputs.attempts_to_grade(experiment, "heldout", "turn1", "001")


def test_refining_reads_all_shards_of_the_turn_before() -> None:
    experiment = load_experiment(ROOT / SMALL, ArcExperiment)
    shards = ["<results>/heldout/turn1/verdicts/000.parquet", "<results>/heldout/turn1/verdicts/001.parquet"]
    assert refining_inputs.parent_verdicts(experiment, "heldout", "refine-trained-turn2") == shards
    assert refining_inputs.adapter(experiment, "heldout", "refine-trained-turn2") == ["<results>/adapters/trained"]
    assert refining_inputs.adapter(experiment, "heldout", "refine-base-turn2") == []
    assert inputs.start_of(experiment, "trained") == ["<results>/adapters/sft"]
    with pytest.raises(ConfigError, match="refine-turn2 is not a branch of this experiment; expected turn1"):
        refining_inputs.adapter(experiment, "heldout", "refine-turn2")


# the modules


MODULES = ("jobs", "refining.jobs", "tool_use.jobs")


def test_planning_loads_no_heavy_library() -> None:
    modules = ", ".join(f"arc_refinery.{module}" for module in MODULES)
    program = f"import sys, {modules}; print({{'torch', 'pyarrow', 'transformers', 'tyro', 'trl'}} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
