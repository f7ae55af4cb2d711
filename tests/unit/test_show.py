"""`arc-refinery show`: which attempt or episode is printed, and what of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from handmade import finished, settings
from handmade_episodes import experiment as finished_episodes
from messages import Wording

from arc_refinery import cli
from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import EpisodeMessage

ARMS: dict[str, list[dict[str, Any]]] = {
    "independent": [{"n_predictions": 4}],
    "refine": [{"n_predictions": 2}, {"n_predictions": 2}],
    "uninformed": [{"n_predictions": 2}, {"n_predictions": 2, "feedback": "none"}],
}
ANSWERS = {
    "turn1": {"a": "wwSw", "ab": "wwww", "c1": "Swww", "c2": "nnee"},
    "refine-turn2": {"a": "ww", "ab": "wS", "c1": "TS"},
    "uninformed-turn2": {"a": "ww"},
}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return finished(tmp_path, settings(ARMS, "demo"), ANSWERS, ["a", "ab", "c1", "c2"])[1]


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    command = cli.parse(["show", *map(str, words)])
    command.run()
    return capsys.readouterr().out


def headings(text: str) -> list[str]:
    return [line.strip("- ").partition(",")[0] for line in text.splitlines() if line.startswith("---")]


def test_the_first_repaired_program_is_shown_with_the_one_that_it_refines(
    demo: Path, capsys: pytest.CaptureFixture[str]
):
    text = shown(capsys, demo)
    assert text.splitlines()[0] == f"{demo}: task ab of the set small, arm refine"  # the last arm that is no control
    assert "turn 2: 2 attempts, 1 solve the task: --attempt 1" in text
    each = ["prompt", "answer", "verdict"]
    assert [title.split()[2] for title in headings(text)] == [*each, "feedback", *each[1:]]
    first, second = text.split("--- turn 2: feedback")
    assert "[user]\ntask ab\n" in first
    assert "train pair 1:\n  expected 2x2   given 2x2\n  12             02\n  34             34\n" in first
    assert "1 of 1 train pairs and 1 of 1 test pairs are correct" in second and "expected" not in second


@pytest.mark.parametrize(
    ("words", "counts", "verdicts"),
    [
        (["--task", "c1"], [0, 1], ["0 of 1", "1 of 1"]),  # refines wrong attempt 1, though attempt 0 solves it
        (["--task", "c1", "--attempt", "0"], [0, 1], ["0 of 1", "0 of 1"]),
        (["--task", "a"], [0, 0], ["0 of 1", "0 of 1"]),
        (["--task", "c2"], [0], ["no program"]),
    ],
)
def test_an_attempt_is_chosen(
    demo: Path, capsys: pytest.CaptureFixture[str], words: list[str], counts: list[int], verdicts: list[str]
):
    text = shown(capsys, demo, *words)
    assert text.splitlines()[0].split()[2] == words[1]
    parts = text.split("verdict ---\n")[1:]
    assert len(parts) == len(verdicts)
    for part, verdict in zip(parts, verdicts, strict=True):
        assert verdict in part.splitlines()[0].replace("train pairs and", "")


def test_without_a_repaired_program_the_first_that_was_refined_is_shown(demo: Path, capsys: pytest.CaptureFixture[str]):
    text = shown(capsys, f"{demo}:uninformed")  # which solves c1, in turn 1
    assert text.splitlines()[0].split()[2] == "a"
    assert "--- turn 2: feedback" in text


def test_an_arm_of_one_turn_shows_all_first_attempts(demo: Path, capsys: pytest.CaptureFixture[str]):
    text = shown(capsys, f"{demo}:independent", "--task", "c2", "--attempt", 3)
    assert text.splitlines()[1] == "turn 1: 4 attempts, 0 solve the task"
    assert text.endswith("verdict ---\nTypeError: bad operand (line 2)\n")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--task", "x"], ["--task x", "small"]),
        (["--task", "c"], ["--task c", "c1, c2"]),
        (["--set", "y"], ["y", "--set can be small"]),
        (["--task", "c2", "--attempt", "9"], ["--attempt is 9", "2 attempts"]),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(demo: Path, words: list[str], named: list[str], wording: Wording):
    with pytest.raises(InputError) as caught:
        cli.parse(["show", str(demo), *words]).run()
    assert all(text in str(caught.value) for text in named)
    wording(str(caught.value))


def test_a_task_whose_prompts_are_too_long_has_nothing_to_show(tmp_path: Path):
    answers = {"turn1": {"a": "wwww"}, "refine-turn2": {"a": "ww"}, "uninformed-turn2": {}}
    _, folder = finished(tmp_path, settings(ARMS, "demo"), answers, ["a", "b"])
    with pytest.raises(InputError, match=r"no attempt at the task b: .* model\.window"):
        cli.parse(["show", str(folder), "--task", "b"]).run()


def test_an_episode_that_is_right_after_a_call_is_preferred(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    finished_episodes(tmp_path)
    text = shown(capsys, tmp_path / "by-hand")  # of the arm `trained`: R, then C
    assert text.splitlines()[0].endswith("task sums/0 of the set sums, arm trained")
    assert "--- episode 1, 20 tokens of the model ---\n[assistant]\na call\n[tool]\n2\n" in text
    assert "[answered; reward 1]" in text
    text = shown(capsys, f"{tmp_path}/by-hand:untrained", "--task", "sums/1", "--attempt", 3)
    assert "turn 1: 4 attempts, 0 solve the task\n" in text and "last turn truncated; reward 0" in text
    with pytest.raises(InputError, match="--attempt is 4"):
        cli.parse(["show", f"{tmp_path}/by-hand", "--attempt", "4"]).run()


def test_control_characters_of_a_model_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    clears = EpisodeMessage("assistant", "a\x1b[2Jb\tc")
    finished_episodes(tmp_path, lambda episode: replace(episode, messages=(clears,)))
    assert "a\N{REPLACEMENT CHARACTER}[2Jb\tc" in shown(capsys, tmp_path / "by-hand")


@pytest.mark.parametrize("words", ["show {}", "compare {}:refine {}:independent"])
def test_a_kind_of_ones_own_that_lacks_it_is_named(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
):
    package = tmp_path / "plain_kind"
    package.mkdir()
    (package / "config.py").write_text(
        "from arc_refinery.domains.arc.config import ArcExperiment\n"
        "class Experiment(ArcExperiment):\n    kind: str = 'plain_kind'\n"
    )
    (package / "report.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    content = json.loads((demo / "settings.json").read_text())
    (demo / "settings.json").write_text(json.dumps(content | {"kind": "plain_kind"}))
    with pytest.raises(InputError, match=r"kind is 'plain_kind'; .* package with report:Reported"):
        cli.parse(words.replace("{}", str(demo)).split()).run()
