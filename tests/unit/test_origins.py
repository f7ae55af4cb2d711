"""A report, and a comparison, show only settings that the results were made with."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handmade import finished, settings
from handmade_episodes import SETTINGS, experiment
from messages import Wording

from arc_refinery import config
from arc_refinery.cli.results import Compare, WriteReport
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.errors import InputError
from arc_refinery.records import RecordError
from arc_refinery.reporting.kind import reported
from arc_refinery.tool_use.config import ToolUse

ARMS: dict[str, list[dict[str, Any]]] = {
    "independent": [{"n_predictions": 4}],
    "refine": [{"n_predictions": 2}, {"n_predictions": 2}],
}
ANSWERS = {"turn1": {"a": "wwSw", "b": "wwww"}, "refine-turn2": {"a": "ww", "b": "wS"}}
Change = Callable[[dict[str, Any]], object]


def n_predictions(arm: int, turn: int, n: int) -> Change:
    return lambda content: content["evaluation"]["arms"][arm]["turns"][turn].update(n_predictions=n)


REFINING: dict[str, tuple[Change, str]] = {
    "seed": (lambda content: content.update(seed=99), "seed"),
    "model": (lambda content: content["model"].update(path="./models/other"), "model.path"),
    "temperature": (lambda content: content["sampling"].update(temperature=0.5), "sampling.temperature"),
    "top_p": (lambda content: content["sampling"].update(top_p=1.0), "sampling.top_p"),
    "more predictions": (n_predictions(0, 0, 32), "n_predictions"),
    "fewer predictions": (n_predictions(0, 0, 3), "n_predictions"),
    "more refining ones": (n_predictions(1, 1, 32), "n_predictions"),
    "fewer refining ones": (n_predictions(1, 1, 1), "n_predictions"),
}


@pytest.mark.parametrize(("change", "key"), REFINING.values(), ids=REFINING.keys())
def test_attempts_of_other_settings_are_refused(change: Change, key: str, tmp_path: Path, wording: Wording):
    _, folder = finished(tmp_path, settings(ARMS), ANSWERS, "ab")
    content = json.loads((folder / "settings.json").read_text())
    change(content)
    other = config.validate_experiment(content | {"resources": {}}, "test", ArcExperiment)
    with pytest.raises(RecordError) as caught:
        reported(other, folder).write_attempts()
    assert str(caught.value).startswith(str(folder)) and key in str(caught.value)
    wording(caught.value)


def test_results_that_were_moved_with_their_model_are_accepted(tmp_path: Path):
    _, folder = finished(tmp_path, settings(ARMS), ANSWERS, "ab")
    content = json.loads((folder / "settings.json").read_text())
    content["model"]["path"] = "/elsewhere/m"
    moved = config.validate_experiment(content | {"resources": {}}, "test", ArcExperiment)
    folder = folder.rename(tmp_path / "moved")
    reported(moved, folder).write_attempts()
    assert reported(moved, folder).results("small").task_ids == ("a", "b")


def load(settings: ToolUse, results: Path) -> None:
    reported(settings, results / "by-hand").write_attempts()


TOOL_USE: dict[str, tuple[Change, str]] = {
    "seed": (lambda content: content.update(seed=1), "seed"),
    "model": (lambda content: content["model"].update(path="models/other"), "model.path"),
    "temperature": (lambda content: content["generation"].update(temperature=0.5), "generation.temperature"),
    "adapter": (lambda content: content["evaluation"]["arms"][0].update(adapter="trained"), "untrained"),
}


@pytest.mark.parametrize(("change", "key"), TOOL_USE.values(), ids=TOOL_USE.keys())
def test_episodes_of_other_settings_are_refused(change: Change, key: str, tmp_path: Path, wording: Wording):
    load(experiment(tmp_path), tmp_path)
    content = json.loads(json.dumps(SETTINGS))
    change(content)
    with pytest.raises(RecordError) as caught:
        load(config.validate_experiment(content, "test", ToolUse), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/by-hand/sums/untrained/000.parquet") and key in str(caught.value)
    wording(caught.value)


# two arms share an adapter: only the hash of their settings tells their episodes apart
@pytest.mark.parametrize(
    ("source", "target"), [("without-tools", "trained"), ("trained", "without-tools"), ("untrained", "trained")]
)
@pytest.mark.parametrize("shards", [["000"], ["001"], ["000", "001"]])
def test_episodes_of_another_arm_are_refused(source: str, target: str, shards: list[str], tmp_path: Path):
    settings = experiment(tmp_path)
    sums = tmp_path / "by-hand/sums"
    for shard in shards:
        shutil.copy2(sums / source / f"{shard}.parquet", sums / target / f"{shard}.parquet")
    with pytest.raises(RecordError, match=rf"{sums}/({source}|{target})/"):
        load(settings, tmp_path)


def test_arms_that_are_exchanged_are_refused_where_an_episode_called_a_tool_that_its_arm_lacks(tmp_path: Path):
    settings = experiment(tmp_path)
    sums = tmp_path / "by-hand/sums"
    (sums / "trained").rename(sums / "other")
    (sums / "without-tools").rename(sums / "trained")
    (sums / "other").rename(sums / "without-tools")
    with pytest.raises(RecordError, match=f"{sums}/without-tools/00[01].parquet"):
        load(settings, tmp_path)


def test_two_arms_of_equal_settings_may_have_equal_episodes(tmp_path: Path):
    content = json.loads(json.dumps(SETTINGS))
    content["data"]["heldout"][0] |= {"tools": []}
    settings = experiment(tmp_path, settings=content)
    load(settings, tmp_path)


@pytest.mark.parametrize("key", ["kind", "experiment"])
def test_a_report_is_not_written_over_the_results_of_another_experiment(key: str, tmp_path: Path, wording: Wording):
    _, folder = finished(tmp_path, settings(ARMS), ANSWERS, "ab")
    content = SETTINGS if key == "kind" else settings(ARMS, "another")
    (tmp_path / "mine.json").write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        WriteReport(configfile=tmp_path / "mine.json", results=folder, output=tmp_path / "mine.md").run()
    assert f"{tmp_path}/mine.json: {key} " in str(caught.value)
    wording(caught.value)
    assert not (tmp_path / "mine.md").exists()


# pages that compare


@pytest.mark.parametrize(
    "named",
    [
        ["tiny"],
        ["tiny", "tiny"],
        ["tiny", "other", "tiny"],
        ["tiny", "../{}/tiny"],
        ["tiny:refine", "tiny"],
        ["link", "tiny"],
    ],
)
def test_a_page_compares_experiments_and_each_once(
    named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
):
    for name in ("tiny", "other"):
        finished(tmp_path, settings(ARMS, name), ANSWERS, "ab")
    (tmp_path / "link").symlink_to("tiny")
    monkeypatch.chdir(tmp_path)
    sides = tuple(name.format(tmp_path.name) for name in named)
    with pytest.raises(InputError) as caught:
        Compare(sides=sides, output=tmp_path / "out.md").run()
    wording(caught.value)
    assert not (tmp_path / "out.md").exists()
    Compare(sides=("tiny", "other"), output=tmp_path / "out.md").run()
    assert (tmp_path / "out.html").read_text().count("<h1") == 1
