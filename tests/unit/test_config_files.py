"""Config files that name a base or have keys of before: what they mean, and what their errors say."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from messages import Wording

from arc_refinery.config import ConfigError, check_files, load_experiment
from arc_refinery.config.layers import merged, read_yaml
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.errors import InputError
from arc_refinery.stages import load

DEMO = ROOT / "config/config.yaml"


def written(path: Path, **content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


SMALLER = {"memory_mb": 300}


def test_sections_are_merged_lists_are_replaced_and_null_removes_a_key() -> None:
    base = {"seed": 1, "grpo": {"beta": 0.1, "guard": {"window": 4, "action": "stop"}}, "arms": [1, 2], "sft": {"x": 1}}
    changes = {"grpo": {"beta": 0.2, "guard": {"window": None}}, "arms": [3], "sft": None, "new": None}
    kept = {"seed": 1, "grpo": {"beta": 0.2, "guard": {"action": "stop"}}, "arms": [3], "new": None}
    assert merged(base, changes) == kept
    assert base["grpo"] == {"beta": 0.1, "guard": {"window": 4, "action": "stop"}}  # as it was


def test_a_config_says_only_what_differs_from_its_base(tmp_path: Path) -> None:
    mine = written(tmp_path / "mine.yaml", base=str(DEMO), experiment="mine", training={"grpo": {"beta": 0.5}})
    demo, own = load_experiment(DEMO, ArcExperiment), load_experiment(mine, ArcExperiment)
    assert own.training
    assert demo.training
    assert own.training.grpo
    assert demo.training.grpo
    grpo = demo.training.grpo.model_copy(update={"beta": 0.5})
    assert own.training == demo.training.model_copy(update={"grpo": grpo})
    assert own.model_dump(exclude={"training", "experiment"}) == demo.model_dump(exclude={"training", "experiment"})


def test_a_base_may_have_a_base(tmp_path: Path) -> None:
    between = written(tmp_path / "between.yaml", base=str(DEMO), experiment="between", seed=3, training={"sft": None})
    mine = written(tmp_path / "mine.yaml", base=str(between), experiment="mine", sandbox=SMALLER)
    own, demo = load_experiment(mine, ArcExperiment), load_experiment(DEMO, ArcExperiment)
    assert demo.training
    assert (own.experiment, own.seed, own.sandbox.memory_mb) == ("mine", 3, 300)
    assert own.training == demo.training.model_copy(update={"sft": None})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"bta": None}, "bta"),
        ({"training": {"grpo": {"bta": None}}}, "training.grpo.bta"),
        ({"training": {"guard": {"widow": None}}}, "training.guard.widow"),
        ({"sandbox": None, "modl": None}, "modl"),
    ],
)
def test_a_null_for_a_key_that_nothing_knows_is_refused(
    tmp_path: Path, changes: dict[str, Any], key: str, wording: Wording
) -> None:
    between = written(tmp_path / "between.yaml", base=str(DEMO), experiment="between", **changes)
    mine = written(tmp_path / "mine.yaml", base=str(between), experiment="mine")
    for path in (between, mine):
        with pytest.raises(ConfigError) as caught:
            load_experiment(path)
        (line,) = str(caught.value).splitlines()
        assert line.startswith(f"{between}: {key} is not a known key")
        assert (str(mine) in line) == (path == mine)
        wording(line)


OWN_SETS = {"sets": [{"name": "own", "source": "generator", "n_tasks": 4}]}
OWN_ARMS = {"arms": [{"name": name, "turns": [{"n_predictions": 4}]} for name in ("independent", "again")]}


def faults(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    return str(caught.value).splitlines()


def test_a_fault_of_an_inherited_key_names_its_base_and_how_to_drop_it(tmp_path: Path, wording: Wording) -> None:
    between = written(tmp_path / "between.yaml", base=str(DEMO), experiment="between", evaluation={"seeds": [1, 1]})
    mine = written(tmp_path / "mine.yaml", base=str(between), experiment="mine")
    (line,) = faults(mine)
    wording(line)
    assert line.startswith(f"{between}: evaluation.seeds") and f"{mine} inherits this key" in line
    written(mine, base=str(between), experiment="mine", evaluation=OWN_SETS | OWN_ARMS | {"seeds": None})
    for key in ("comparisons", "primary"):  # one after the other: a section shows its first fault
        (line,) = faults(mine)
        assert line.startswith(f"{DEMO}: evaluation.{key}")
        dropped = {"seeds": None, "comparisons": None} | {key: None}
        written(mine, base=str(between), experiment="mine", evaluation=OWN_SETS | OWN_ARMS | dropped)
    assert len(load_experiment(mine, ArcExperiment).arms) == 2


def test_a_fault_of_an_own_key_names_no_base(tmp_path: Path) -> None:
    mine = written(tmp_path / "mine.yaml", base=str(DEMO), experiment="mine", model={"window": 0})
    assert faults(mine) == [f"{mine}: model.window is 0; expected at least 1"]


def test_a_missing_file_that_a_base_names_is_blamed_on_it(tmp_path: Path) -> None:
    model = {"path": "./none/such"}
    between = written(tmp_path / "between.yaml", base=str(DEMO), experiment="between", model=model)
    mine = written(tmp_path / "mine.yaml", base=str(between), experiment="mine")
    with pytest.raises(ConfigError) as caught:
        check_files(load_experiment(mine), str(mine), config=yaml.safe_load(mine.read_text()))
    assert str(caught.value).startswith(f"{between}: model.path: ")
    assert str(mine) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({"sede": 1}, "seed"),
        ({"training": {"grpo": {"betta": 1}}}, "training.grpo.beta"),
        ({"training": {"grpo": {"lr": 1}}}, "training.grpo.learning_rate"),
        ({"training": {"grpo": {"reward": "arc-v1"}}}, "training.grpo.rewards"),
        ({"training": {"beta": 1}}, "training.grpo.beta"),
        ({"temperature": 1}, "sampling.temperature"),
        ({"evaluation": {"arms": [{"name": "a", "turns": [{"adaptor": "x"}]}]}}, "evaluation.arms.0.turns.0.adapter"),
        ({"xyzzy": 1}, ""),
    ],
)
def test_an_unknown_key_gets_the_one_that_was_meant(tmp_path: Path, changes: dict[str, Any], meant: str) -> None:
    lines = faults(written(tmp_path / "mine.yaml", base=str(DEMO), experiment="mine", **changes))
    (line,) = (line for line in lines if "is not a known key" in line)
    proposed = line.partition("did you mean ")[2].removesuffix("?").split(" or ")
    assert meant in proposed


def test_a_base_of_itself_is_refused(tmp_path: Path, wording: Wording) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    written(one, base=str(two), experiment="one")
    written(two, base=str(one), experiment="two")
    with pytest.raises(ConfigError) as caught:
        load_experiment(one)
    text = str(caught.value)
    assert text.startswith(f"{one}: the bases {two}, {one} ")
    wording(text)


def test_what_was_resolved_stands_alone(tmp_path: Path) -> None:
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    (tmp_path / "settings.json").write_text(experiment.model_dump_json())
    assert load_experiment(tmp_path / "settings.json") == experiment


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"base": "none.yaml"}, "base: none.yaml"),
        ({"base": 3}, "base is 3"),
        ({"base": str(ROOT / "tests/workflow/tasks.txt")}, "base: "),
        ({"base": str(DEMO), "training": {"grpo": {"betta": 1}}}, "training.grpo.betta"),
        ({"base": str(DEMO), "training": {"beta": 1}}, "training.beta"),
        ({"base": str(DEMO), "training": None, "experiment": None}, "experiment"),
        *(({"base": str(DEMO), "kind": kind}, f"kind is {kind!r}") for kind in ("..", ".a", ["b"], 3)),
        ({"base": str(DEMO), "kind": "arc_refinery.config"}, "kind is 'arc_refinery.config'"),
        ({"base": str(DEMO), "kind": "none.such"}, "kind is 'none.such'"),
        ({"base": str(DEMO), "kind": "json"}, "kind is 'json'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(
    tmp_path: Path, content: dict[str, Any], key: str, wording: Wording
) -> None:
    content = {key: value for key, value in ({"experiment": "mine"} | content).items() if key != "experiment" or value}
    mine = written(tmp_path / "mine.yaml", **content)
    with pytest.raises(ConfigError) as caught:
        load_experiment(mine)
    text = str(caught.value)
    assert text.startswith((f"{mine}: {key}", f"{mine} (or its base {DEMO}): {key}"))
    wording(text)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('odd')", "RuntimeError: odd"),
        ("import sys; sys.exit()", "SystemExit"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("def __getattr__(name): raise KeyError(name)", "KeyError: "),
    ],
)
def test_a_kind_whose_module_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    package = tmp_path / "failing_kind"
    package.mkdir()
    for name in ("config", "stages"):
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("failing_kind", "failing_kind.config", "failing_kind.stages"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    mine = written(tmp_path / "mine.yaml", base=str(DEMO), experiment="mine", kind="failing_kind")
    with pytest.raises(ConfigError, match=rf"mine\.yaml .*kind is 'failing_kind'; .*{reason}"):
        load_experiment(mine)
    with pytest.raises(InputError, match=f"kind is 'failing_kind'; .*{reason}"):
        load("train", "failing_kind")


@pytest.mark.parametrize("section", ["compare", "evaluation", "training"])
def test_aliases_that_expand_without_end_are_refused(section: str, tmp_path: Path):
    lines = [f"{section}:", "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    config = tmp_path / "mine.yaml"
    config.write_text("\n".join([f"base: {DEMO}", "experiment: x", *lines]))
    with pytest.raises(ConfigError, match=r"mine\.yaml: its aliases expand to more than"):
        load_experiment(config)


def test_aliases_of_ordinary_size_are_values(tmp_path: Path):
    config = tmp_path / "mine.yaml"
    config.write_text(f"base: {DEMO}\nexperiment: x\nsandbox: &limits {{cpu_seconds: 7}}\n")
    assert load_experiment(config).sandbox.cpu_seconds == 7
    config.write_text("a: &a [1, 2]\nb: [*a, *a]\nc: {<<: &d {e: 1}, f: *d}\n")
    assert read_yaml(config) == {"a": [1, 2], "b": [[1, 2], [1, 2]], "c": {"e": 1, "f": {"e": 1}}}
