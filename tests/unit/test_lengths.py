"""The study of prompt lengths: dropped prompts count, percentiles are lengths that occur, files have names."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from factories import ARC, make_prompt
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from arc_refinery.refining.prompt_files import write_prompts
from arc_refinery.refining.report.lengths import PromptLengths, histogram, labels, lengths_table, read_lengths, study
from arc_refinery.reporting import publish


def write(path: Path, lengths: dict[int, list[int]], longest: int = 976) -> Path:
    """A file of prompts of these lengths, by turn."""
    prompts = [
        make_prompt(prompt_id=f"{turn}-{number}", turn=turn, n_tokens=n)
        for turn, n_tokens in lengths.items()
        for number, n in enumerate(n_tokens)
    ]
    write_prompts(ARC.prompt_class, path, prompts, longest + 48, 48, 0, {})
    return path


def lengths_of(*n_tokens: int, turn: int = 1, label: str = "x") -> PromptLengths:
    return PromptLengths(label, turn, np.array(n_tokens), 0, 976)


def drawn(lengths: list[PromptLengths], window: int, monkeypatch: pytest.MonkeyPatch) -> Figure:
    figures: list[Figure] = []
    monkeypatch.setattr(publish, "save", lambda figure, path: figures.append(figure))
    histogram(lengths, window, Path("unused.png"))
    return figures[0]


def test_dropped_prompts_are_in_the_study(tmp_path: Path):
    path = write(tmp_path / "prompts.parquet", {2: [300, 977, 976, 5000]})
    (lengths,) = read_lengths(path, "some")
    assert (lengths.label, lengths.turn, sorted(lengths.n_tokens)) == ("some", 2, [300, 976, 977, 5000])
    assert (lengths.n_dropped, lengths.allowed) == (2, 976)


def test_turns_of_one_file_are_told_apart_even_where_all_of_one_were_dropped(tmp_path: Path):
    lengths = read_lengths(write(tmp_path / "prompts.parquet", {1: [10, 20], 2: [1000]}), "some")
    assert [(row.turn, row.n_tokens.tolist(), row.n_dropped) for row in lengths] == [(1, [10, 20], 0), (2, [1000], 1)]


def test_percentiles_are_lengths_that_so_many_percent_do_not_exceed():
    # lengths 1..40: 20 prompts are <= 20, 38 <= 38, and 99 % of 40 = 39.6 takes all 40
    row = lengths_table([lengths_of(*range(1, 41))], 1024).iloc[0]
    assert (row["n"], row["median"], row["p95"], row["p99"], row["max"]) == (40, 20, 38, 40, 40)


def test_prompts_over_the_window_are_counted_beside_those_that_were_dropped(tmp_path: Path):
    lengths = read_lengths(write(tmp_path / "prompts.parquet", {1: [976, 977, 1024, 1025]}), "some")
    row = lengths_table(lengths, 1024).iloc[0]
    assert (row["window"], row["over_window"], row["allowed"], row["dropped"]) == (1024, 1, 976, 3)


def test_a_file_without_prompts_has_a_row_without_lengths(tmp_path: Path):
    study([write(tmp_path / "set/turn1/prompts.parquet", {})], 1024, tmp_path)
    assert "| `turn1` | – | 0 | – | – | – | – | 1024 | 0 | 976 | 0 |" in (tmp_path / "lengths.md").read_text()
    assert pd.read_csv(tmp_path / "lengths.csv")["max"].isna().all()


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["r/a/part1/turn1/prompts.parquet", "r/a/part1/training/prompts.parquet"], ["turn1", "training"]),
        (["r/a/part1/turn1/prompts.parquet", "r/a/held/turn1/prompts.parquet"], ["part1/turn1", "held/turn1"]),
        (["r/a/held/turn1/prompts.parquet", "r/b/held/turn1/prompts.parquet"], ["a/held/turn1", "b/held/turn1"]),
        (["mine/first.parquet", "mine/second.parquet"], ["mine/first", "mine/second"]),
    ],
)
def test_labels_are_what_tells_the_files_apart(paths: list[str], expected: list[str]):
    assert labels([Path(path) for path in paths]) == expected


def test_the_page_has_the_table_and_the_window(tmp_path: Path):
    paths = [
        write(tmp_path / "r/set/turn1/prompts.parquet", {1: [100, 200, 300]}),
        write(tmp_path / "r/set/refine-turn2/prompts.parquet", {2: [400, 2000]}),
    ]
    study(paths, 1024, tmp_path / "out")
    text = (tmp_path / "out/lengths.md").read_text()
    assert "| `turn1` | 1 | 3 | 200 | 300 | 300 | 300 | 1024 | 0 | 976 | 0 |" in text
    assert "| `refine-turn2` | 2 | 2 | 400 | 2000 | 2000 | 2000 | 1024 | 1 | 976 | 1 |" in text
    assert "(lengths.png)" in text
    metrics = pd.read_csv(tmp_path / "out/lengths.csv", index_col="prompts")
    assert metrics.loc["refine-turn2", ["n", "median", "max", "dropped"]].tolist() == [2, 400, 2000, 1]


def test_equal_prompts_give_equal_bytes(tmp_path: Path):
    path = write(tmp_path / "prompts.parquet", {1: [100, 200, 300]})
    for name in ("one", "two"):
        study([path], 1024, tmp_path / name)
    for name in ("lengths.md", "lengths.csv", "lengths.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_each_turn_has_a_panel_with_all_its_prompts_and_the_window(monkeypatch: pytest.MonkeyPatch):
    lengths = [lengths_of(100, 200, 300, 2000), lengths_of(50, label="y"), lengths_of(400, turn=2)]
    figure = drawn(lengths, 1024, monkeypatch)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["turn 1", "turn 2"]
    for axes, n_files in zip(figure.axes, (2, 1), strict=True):
        assert [np.asarray(line.get_xdata())[0] for line in axes.lines] == [1024]
        outlines = [patch for patch in axes.patches if isinstance(patch, StepPatch) and not patch.get_fill()]
        assert [patch.get_data()[0].sum() for patch in outlines] == pytest.approx([100] * n_files)


def test_files_of_equal_lengths_share_an_outline(monkeypatch: pytest.MonkeyPatch):
    figure = drawn([lengths_of(1, 2, label="base"), lengths_of(2, 1, label="trained")], 1024, monkeypatch)
    legend = figure.axes[0].get_legend()
    assert legend
    (entry,) = legend.get_texts()
    assert entry.get_text() == "base (n = 2)\ntrained (n = 2)"
