"""Outcomes of attempts by turn, and tasks that refining gained or lost; every share can be counted by hand."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from handmade import results_of, settings
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from arc_refinery import config
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.domain import Domain
from arc_refinery.evaluation.intervals import estimate
from arc_refinery.reporting import outcomes, plots
from arc_refinery.reporting.kind import reported
from arc_refinery.reporting.publish import Attachments, LineEnd, label_line_ends, line_colors
from arc_refinery.reporting.tables import metrics_table

# status and type of error of each letter; S solves all pairs, T the train pairs, t the test pairs, w none
ENDS = {
    "S": ("ok", ""),
    "T": ("ok", ""),
    "t": ("ok", ""),
    "w": ("ok", ""),
    "E": ("error", "TypeError"),
    "I": ("error", "IndexError"),
    "i": ("invalid_output", "InvalidOutput"),
    "o": ("timeout", "Timeout"),
    "m": ("memory", "MemoryError"),
    "c": ("crash", "Crash"),
    "p": ("protocol", "Protocol"),
    "n": ("no_code", ""),
}


def attempts(answers: Mapping[str, str]) -> pd.DataFrame:
    """A branch: the attempts on each task by their letters."""
    rows = []
    for task_id, letters in answers.items():
        for index, letter in enumerate(letters):
            status, error_type = ENDS[letter]
            train, test = float(letter in "ST"), float(letter in "St")
            rows.append([task_id, index, status, error_type, letter, letter == "S", train, train, test, test])
    columns = ["task_id", "sample", "status", "error_type", "fingerprint", "solved"]
    scores = ["train_pixel_score", "train_correct_grids", "test_pixel_score", "test_correct_grids"]
    table = pd.DataFrame(rows, columns=[*columns, *scores])
    table["has_closed_code"] = table["status"] != "no_code"
    return Domain().derive(table.astype({"sample": int, "solved": bool}))


def experiment(arms: Mapping[str, list[int]], **evaluation: Any) -> ArcExperiment:
    """Arms by the budgets of their turns."""
    turns = {name: [{"n_predictions": n} for n in budgets] for name, budgets in arms.items()}
    content = settings(turns)
    content["evaluation"] |= evaluation
    return config.validate_experiment(content, "test", ArcExperiment)


def shares(**branches: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """Of an arm with a budget of two attempts in each turn."""
    names = ["turn1", *(f"refine-turn{number}" for number in range(2, len(branches) + 1))]
    tables = dict(zip(names, map(attempts, branches.values()), strict=True))
    arms = experiment({"refine": [2] * len(branches)}).arms
    return outcomes.shares_by_turn(results_of(arms, tables, "ab"), arms)


def test_every_end_of_an_attempt_has_one_outcome():
    counts = outcomes.outcomes_of(attempts({"a": "STtwEIiomcpn"}), ["TypeError"])
    assert counts.tolist() == [
        "correct",
        outcomes.SHOWN_ONLY,
        "wrong",  # the test pairs alone are no success
        "wrong",
        "TypeError",
        "other errors",
        "invalid output",
        "timeout",
        "out of memory",
        "crash",
        "no readable answer",
        "no program",
    ]


def test_every_outcome_of_ours_has_a_look_of_its_own():
    looks = [*outcomes.LOOKS.values(), *outcomes.ERROR_LOOKS]
    assert len(outcomes.ERROR_LOOKS) == outcomes.N_ERRORS
    assert len({color for color, hatch in looks if not hatch}) == len([hatch for _, hatch in looks if not hatch])
    hatches = [hatch for _, hatch in looks if hatch]
    assert len(set(hatches)) == len(hatches)


def test_shares_are_means_over_the_tasks_that_have_attempts_in_the_turn():
    first, second = shares(turn1={"a": "Sw", "b": "nE"}, turn2={"b": "TT"}).values()
    assert first.to_dict("index") == {
        "a": {"correct": 0.5, outcomes.SHOWN_ONLY: 0, "wrong": 0.5, "TypeError": 0, "no program": 0},
        "b": {"correct": 0, outcomes.SHOWN_ONLY: 0, "wrong": 0, "TypeError": 0.5, "no program": 0.5},
    }
    assert second.to_dict("index") == {
        "b": {"correct": 0, outcomes.SHOWN_ONLY: 1, "wrong": 0, "TypeError": 0, "no program": 0}
    }


def test_attempts_beyond_the_budget_of_the_turn_are_not_the_arms():
    (first,) = shares(turn1={"a": "wwSS", "b": "wwSS"}).values()
    assert first.mean().to_dict() == {"wrong": 1.0}


def test_the_most_frequent_errors_of_the_set_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outcomes, "N_ERRORS", 1)
    first, second = shares(turn1={"a": "II"}, turn2={"a": "EI"}).values()
    assert list(first) == ["IndexError", "other errors"]
    assert second.loc["a"].tolist() == [0.5, 0.5]


def test_an_error_that_a_program_calls_like_an_outcome_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ENDS, "I", ("error", "correct"))
    monkeypatch.setitem(ENDS, "E", ("error", ""))
    (first,) = shares(turn1={"a": "SI", "b": "EE"}).values()
    assert first.mean().to_dict() == {"correct": 0.25, "other errors": 0.75}


def test_a_turn_without_attempts_has_no_shares():
    none = shares(turn1={"a": "ww"}, turn2={})
    table = metrics_table("", none, list(none["turn 1 × 2"]))
    assert table.splitlines()[2:] == ["| n tasks | 1 | 0 |", "| wrong | 100.0 % | – |"]


def test_tasks_are_classed_by_which_arm_solves_them():
    classes = outcomes.classes_of(
        pd.Series([1.0, 1.0, 0.0, 0.0], list("abcd")), pd.Series([1.0, 0.0, 1.0, 0.0], list("abcd"))
    )
    assert classes.to_dict() == {"a": "both", "b": "only refining", "c": "only the baseline", "d": "neither"}


def test_pass_rates_of_later_turns_are_pooled():
    of = experiment({"refine": [4, 2, 1]})
    branches = {
        "turn1": attempts({"a": "SwTw", "b": "tttt", "c": "SSSS"}),
        "refine-turn2": attempts({"a": "SS", "b": "ww"}),
        "refine-turn3": attempts({"b": "S"}),
    }
    rates = outcomes.pass_rates(results_of(of.arms, branches, "cba"), of.arms[0])
    assert list(rates.index) == ["b", "a"]  # c has nothing to refine
    assert rates["first"].tolist() == [0, 1 / 4]
    assert rates["later"].tolist() == pytest.approx([1 / 3, 1])


def test_a_repeated_arm_is_compared_with_the_baseline_of_its_seed():
    of = experiment({"independent": [4], "other": [4], "refine": [2, 2]}, seeds=[1, 2])
    named = [(arm.name, baseline.name) for arm, baseline in outcomes.refining_pairs(of)]
    assert named == [
        ("refine-sampling-1", "independent-sampling-1"),
        ("refine-sampling-2", "independent-sampling-2"),
    ]


ANSWERS = {
    "turn1": {"a": "wwSw", "b": "wwww", "c": "Swww", "d": "nnEI"},
    "refine-turn2": {"a": "ww", "b": "wS", "c": "ww"},
}


def section(files: Attachments, arms: Mapping[str, list[int]]) -> str:
    of = experiment(arms)
    branches = {branch: attempts(ANSWERS[branch]) for branch in of.branches}
    results = results_of(of.arms, branches, "abcd")
    metrics = {arm.name: results.per_task(results.attempts_of_arm(arm)) for arm in of.arms}
    return "\n\n".join(outcomes.section(reported(of, Path()), results, metrics, files))


@pytest.fixture(scope="module")
def two_arms(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The section's text, and the folder of its tables and pictures."""
    folder, files = tmp_path_factory.mktemp("section"), Attachments("link")
    text = section(files, {"independent": [4], "refine": [2, 2]})
    files.write(folder)
    return text, folder


def test_tasks_won_and_lost_are_counted_and_named(two_arms: tuple[str, Path]):
    text, folder = two_arms
    # independent solves a and c; refining b (by its second turn) and c
    assert "| `refine` against `independent` | 4 | 1 | 1 | 1 | 1 |" in text
    assert "- `refine` against `independent`, only refining: `b`\n" in text
    assert "- `refine` against `independent`, only the baseline: `a`\n" in text
    rates = pd.read_csv(folder / "small-pass-rates.csv")
    assert rates["task_id"].tolist() == ["a", "b", "c"]
    assert rates["solved_by"].tolist() == ["only the baseline", "only refining", "both"]
    shares = pd.read_csv(folder / "small-outcomes.csv", index_col="turn")
    assert shares.loc["turn 1 × 4", "no program"] == 2 / 4 / 4


def test_where_nothing_refines_there_is_nothing_to_win():
    text = section(Attachments("link"), {"independent": [4]})
    assert "only one of two arms" not in text
    assert "small-outcomes.png" in text
    assert "pass-rates" not in text


# ---- pictures ----


def drawn(monkeypatch: pytest.MonkeyPatch, panels: Mapping[str, pd.DataFrame]) -> Figure:
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    plots.pass_rates_plot(panels, outcomes.MARKS, "title", Path("unused.png"))
    return figures[0]


def test_each_arm_has_a_panel_and_equal_tasks_share_a_mark(monkeypatch: pytest.MonkeyPatch):
    rates = pd.DataFrame({"first": [0, 0, 0.5], "later": [0, 0, 0.25], "solved_by": ["neither", "neither", "both"]})
    figure = drawn(monkeypatch, {"one": rates, "other": rates[:1]})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["one\nn = 3 tasks", "other\nn = 1 tasks"]
    marks: dict[tuple[float, ...], float] = {}
    for mark in figure.axes[0].collections:
        assert isinstance(mark, PathCollection)
        marks[tuple(np.asarray(mark.get_offsets())[0])] = mark.get_sizes()[0]
    assert set(marks) == {(0, 0), (50, 25)}
    assert marks[0, 0] > marks[50, 25]


def test_a_bar_is_as_long_as_its_share_and_ends_at_a_hundred(monkeypatch: pytest.MonkeyPatch):
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    shares = pd.DataFrame({"correct": [1.0, 0.5], "no program": [0.0, 0.5]}, index=["a", "b"])
    plots.outcomes_plot({"turn 1": shares, "turn 2": shares[1:]}, outcomes.LOOKS, "title", Path("unused.png"))
    bars = figures[0].axes[0].containers
    assert [[bar.get_width() for bar in series] for series in bars] == [[75, 50], [25, 50]]
    assert [bar.get_x() + bar.get_width() for bar in bars[-1]] == [100, 100]


def curve(*solved: float) -> pd.DataFrame:
    n = len(solved)
    return pd.DataFrame({"budget": range(1, n + 1), "tokens": np.arange(1, n + 1) * 10.0, "solved": solved})


def test_repetitions_of_an_arm_are_one_line_with_a_band(monkeypatch: pytest.MonkeyPatch):
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    seeds = plots.Curve([curve(0.1, 0.2), curve(0.3, 0.6)], (1,), estimate([[0.0, 1.0], [1.0, 1.0]]))
    alone = plots.Curve([curve(0.2, 0.3)], (), estimate([[0.0, 1.0]]))
    plots.budget_plot({"title": {"trained": seeds, "alone": alone}}, "tokens", Path("unused.png"))
    (axes,) = figures[0].axes
    mean, dot, other, _ = (np.column_stack(line.get_data()).tolist() for line in axes.lines)
    assert mean == [[0.01, 20], [0.02, 40]] and dot == [[0.01, 20]] and other == [[0.01, 20], [0.02, 30]]
    (band,) = axes.collections
    corners = np.asarray(band.get_paths()[0].vertices)
    assert {(0.01, 10), (0.01, 30), (0.02, 20), (0.02, 60)} <= {tuple(corner) for corner in corners.round(6)}
    assert [text.get_text().splitlines()[0] for text in axes.texts] == ["alone", "trained, mean of 2"]


@pytest.mark.parametrize("ends", [[0.5] * 6, [0.0, 0.01, 0.02], [0.99, 0.98, 1.0, 0.1]])
def test_labels_at_the_ends_of_lines_do_not_overlap(ends: list[float]):
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_line_ends(axes, [LineEnd(f"arm {index}\n50 %", 1.0, y, "black") for index, y in enumerate(ends)])
    FigureCanvasAgg(figure).draw()
    boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == len(ends)
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert boxes[0].y0 >= 0 and boxes[-1].y1 <= figure.bbox.height


def test_no_two_lines_have_the_same_color():
    assert all(len(set(line_colors(n))) == n for n in (1, 9, 40))


def test_nothing_is_cut_off_in_the_pictures(two_arms: tuple[str, Path]):
    _, folder = two_arms
    for name in ("outcomes", "pass-rates"):
        pixels: np.ndarray = matplotlib.image.imread(folder / f"small-{name}.png")
        edges = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
        assert all((edge == 1.0).all() for edge in edges), f"something touches the edge of {name}"
