"""The report on a training: from a log, made by hand, to sentences, tables and pictures."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from messages import Wording

from arc_refinery import cli, config
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.records import RecordError
from arc_refinery.reporting import publish, training
from arc_refinery.reporting.publish import Attachments
from arc_refinery.reporting.training_curves import (
    PANELS,
    RUNS_METRICS,
    TUNING_METRICS,
    read_log,
    runs_plot,
    training_plot,
)
from arc_refinery.training.log import Choice, Decision, HeldoutResult, read_lines, write_lines

Entries = Iterable[Mapping[str, Any]]


def written(path: Path, entries: Entries) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def steps(first: int, last: int, **metrics: float) -> list[dict[str, Any]]:
    return [{"step": step, "reward": step / 10, **metrics} for step in range(first, last + 1)]


def heldout(step: int, reward: float, solved: float = 0.25) -> dict[str, Any]:
    return {"heldout": {"step": step, "reward": reward, "solved": solved}}


HEALTHY = [*steps(1, 10), heldout(10, 4.0), *steps(11, 20), heldout(20, 3.0, 0.5)]
CHOSEN: dict[str, Any] = {"chosen": {"step": 10, "heldout_reward": 4.0, "why": "it earns most on 4 held-out prompts"}}
COLLAPSED = [
    *steps(1, 10, kl=0.1),
    heldout(10, 4.0),
    *steps(11, 20, kl=0.2),
    heldout(20, 3.0),
    {"guard": {"step": 20, "criterion": "reward", "value": 0.4, "limit": 1.2, "action": "stop"}},
    CHOSEN,
]
SFT = [{"step": step, "loss": 2.0 / step, "mean_token_accuracy": 0.8} for step in range(1, 21)]


def test_a_log_is_read_as_tables(tmp_path: Path):
    log = read_log(written(tmp_path / "training.jsonl", COLLAPSED))
    assert log.steps["step"].tolist() == list(range(1, 21))
    assert log.steps["kl"].tolist() == [0.1] * 10 + [0.2] * 10
    assert log.checks == [HeldoutResult(10, 4.0, 0.25), HeldoutResult(20, 3.0, 0.25)]
    assert log.decisions == [Decision(20, "reward", 0.4, 1.2, "stop")]
    assert log.choice == Choice(10, "it earns most on 4 held-out prompts", 4.0)


def test_lines_are_written_as_they_are_read(tmp_path: Path):
    no_number = {"guard": {"step": 21, "criterion": "loss", "value": None, "limit": 0.0, "action": "none"}}
    entries = [*COLLAPSED, no_number]
    log = written(tmp_path / "by-hand.jsonl", entries)
    write_lines(tmp_path / "written.jsonl", read_lines(log))
    in_order = [json.dumps(entry, sort_keys=True) for entry in entries]
    assert (tmp_path / "written.jsonl").read_text().splitlines() == in_order


@pytest.mark.parametrize(
    "line", ['{"step": 2, "rew', '{"heldout": {"step": 1}}', '{"guard": {"step": 3}}', '{"step": "two", "reward": 1}']
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, wording: Wording):
    (tmp_path / "training.jsonl").write_text(f'{{"step": 1, "reward": 1.0}}\n{line}\n')
    with pytest.raises(RecordError) as caught:
        read_log(tmp_path / "training.jsonl")
    assert str(caught.value).startswith(f"{tmp_path}/training.jsonl, line 2: ")
    wording(caught.value)


def test_what_was_no_number_is_missing(tmp_path: Path):
    log = read_log(written(tmp_path / "training.jsonl", [{**step, "kl": None} for step in steps(1, 3)]))
    assert log.steps["kl"].isna().all()
    assert np.isnan(log.first_and_last("kl")).all()


# ---- the section ----


def experiment(
    methods: tuple[str, ...] = ("grpo",), grpo: Mapping[str, Any] | None = None, **changes: Any
) -> ArcExperiment:
    settings: dict[str, Any] = {name: {"learning_rate": 1e-3} for name in methods}
    settings |= {"max_completion_length": 16, "max_seq_length": 100}
    if grpo:
        settings["grpo"] |= grpo
    return config.validate_experiment(
        {
            "experiment": "tiny",
            "model": {"path": "./models/m", "template": "compact", "window": 100},
            "problems": {"source": "generator"},
            "parts": {"tasks_per_part": 5, "shards_per_part": 1},
            "sampling": {"max_output_tokens": 16},
            "arc": {"augment_parts": False},
            "training": {**settings, **changes},
            "evaluation": {
                "sets": [{"name": "small", "source": "generator", "n_tasks": 4, "shards": 1}],
                "arms": [{"name": "independent", "turns": [{"n_predictions": 4}]}],
            },
        },
        "test",
        ArcExperiment,
    )


def section(folder: Path, of: ArcExperiment, logs: Mapping[str, Entries], files: Attachments | None = None) -> str:
    """The text alone: pictures are left in `files`."""
    for name, entries in logs.items():
        written(folder / "adapters" / name / "training.jsonl", entries)
    return "\n\n".join(training.section(of, folder, files or Attachments("link")))


def line_of(text: str, start: str) -> str:
    (matching,) = (line for line in text.splitlines() if line.startswith(start))
    return matching


def test_a_healthy_training_is_reported(tmp_path: Path, wording: Wording):
    files = Attachments("link")
    text = section(tmp_path, experiment(), {"trained": [*HEALTHY, CHOSEN]}, files)
    # mean of 0.1 and 0.2, of 1.9 and 2.0
    assert "| `trained` | 20 | 0.15 | 1.95 | +1.80 | 1.95 at 20 | – | 10 | 4.00 |" in text
    sentence = line_of(text, "`trained`: ")
    assert all(fact in sentence for fact in ("GRPO", "20 ", "step 10", CHOSEN["chosen"]["why"]))
    wording(sentence)
    assert "| 10 | 4.00 | 25.0 % | the adapter |" in text
    assert "| 20 | 3.00 | 50.0 % |  |" in text
    assert "Warning" not in text
    assert "](link/training-trained.png)" in text
    files.write(tmp_path / "link")
    assert (tmp_path / "link/training-trained.png").exists()


def test_how_old_the_completions_of_a_step_are_is_said(tmp_path: Path, wording: Wording):
    settings = {"steps_per_generation": 4}
    text = section(tmp_path, experiment(grpo=settings), {"trained": HEALTHY})
    sentence = line_of(text, "`trained`: ")
    assert " 4 steps" in sentence and " 3 steps" in sentence
    wording(sentence)
    without = line_of(section(tmp_path, experiment(), {"trained": HEALTHY}), "`trained`: ")
    assert sentence.startswith(without) and " steps" in sentence.removeprefix(without)


def test_a_collapse_is_the_first_thing_said(tmp_path: Path, wording: Wording):
    text = section(tmp_path, experiment(guard={"window": 4}), {"trained": COLLAPSED})
    title, first, *_ = text.split("\n\n")
    assert title == "## Training"
    assert re.findall(r"\d[\d.]*\d|\d", first) == ["20", "4", "0.4", "1.2"]
    assert "`trained`" in first and "reward" in first and "stopped there" in first
    sentence = line_of(text, "`trained`: ")
    assert all(fact in sentence for fact in (" 20 ", "step 10"))
    for said in (first, sentence):
        wording(said)


def test_runs_of_a_sweep_stand_side_by_side_with_their_collapses(tmp_path: Path):
    files = Attachments("link")
    sweep = [{"beta": 0.1}, {"beta": 0.2}]
    logs = {"beta-0.1": HEALTHY, "beta-0.2": COLLAPSED}
    text = section(tmp_path, experiment(sweep=sweep), logs, files)
    assert "| `beta-0.1` | 20 | 0.15 | 1.95 | +1.80 | 1.95 at 20 | – | 20 | – |" in text
    assert "| 20 (reward) | 10 | 4.00 |" in text
    assert "](link/trainings.png)" in text
    files.write(tmp_path / "link")
    assert (tmp_path / "link/trainings.png").exists()


def test_the_collapses_of_several_runs_are_marked(tmp_path: Path):
    healthy, collapsed = (
        read_log(written(tmp_path / f"{name}.jsonl", entries))
        for name, entries in (("healthy", HEALTHY), ("collapsed", COLLAPSED))
    )
    quiet = replace(collapsed, decisions=[])
    pictures = []
    for name, other in (("marked", collapsed), ("quiet", quiet)):
        with publish.plot_style():
            runs_plot({"a": {"a": healthy}, "b": {"b": other}}, RUNS_METRICS, tmp_path / f"{name}.png")
        pictures.append(matplotlib.image.imread(tmp_path / f"{name}.png"))
    n_rows = min(len(picture) for picture in pictures)
    assert not np.array_equal(pictures[0][:n_rows], pictures[1][:n_rows])


def test_trainings_that_differ_in_their_seed_are_one_line_with_a_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rewards 0.1, 0.2, ... and half a point more; one of them ends at step 4 of 12."""
    rewards = [[{"step": n, "reward": n / 10 + more} for n in range(1, last + 1)] for more, last in ((0, 12), (0.5, 4))]
    logs = {f"seed-{n}": read_log(written(tmp_path / f"{n}.jsonl", steps)) for n, steps in enumerate(rewards)}
    drawn: list[Any] = []
    monkeypatch.setattr("arc_refinery.reporting.training_curves.save", lambda figure, path: drawn.append(figure))
    runs_plot({"trained": logs}, RUNS_METRICS, tmp_path / "x.png")
    axes = drawn[0].axes[0]
    (mean,) = (line for line in axes.lines if line.get_label() == "trained, 2 trainings")
    assert list(mean.get_xdata()) == [1, 2, 3, 4]  # while both of them run
    assert list(mean.get_ydata()) == pytest.approx([0.35, 0.45, 0.55, 0.65])
    (band,) = axes.collections
    assert (band.get_datalim(axes.transData).y0, band.get_datalim(axes.transData).y1) == pytest.approx((0.1, 0.9))
    assert max(len(line.get_xdata()) for line in axes.lines) == 12


def test_sft_of_several_seeds_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[Any] = []
    monkeypatch.setattr("arc_refinery.reporting.training_curves.save", lambda figure, path: drawn.append(figure))
    logs = {f"seed-{n}": read_log(written(tmp_path / f"{n}.jsonl", SFT)) for n in range(2)}
    runs_plot({"trained": logs}, TUNING_METRICS, tmp_path / "x.png")
    assert [axes.get_title(loc="left") for axes in drawn[0].axes] == ["loss (nats/token)", "token accuracy"]
    assert len(drawn[0].axes[0].collections) == 1  # a band
    text = section(tmp_path, experiment(("sft",), seeds=[0, 1]), {"seed-0": SFT, "seed-1": SFT})
    assert "![Training curves of seed-0, seed-1](link/trainings-sft.png)" in text


def test_a_collapse_that_nothing_was_done_about_is_a_warning_too(wording: Wording):
    warning = training.collapse("trained", Decision(7, "loss", None, 0.0, "none"), window=10)
    assert warning.startswith("**") and "`trained`" in warning
    assert "step 7" in warning and "loss" in warning
    wording(warning)


def test_sft_before_grpo_has_its_own_part(tmp_path: Path, wording: Wording):
    text = section(tmp_path, experiment(("sft", "grpo")), {"sft": SFT, "trained": HEALTHY})
    assert text.index("### `sft`") < text.index("### `trained`")
    assert "| loss (nats/token) | 1.500 | 0.103 |" in text  # 2/1 and 2/2; 2/19 and 2/20
    assert "| `sft` |" not in text  # it has no rewards to compare
    sentence = line_of(text, "`sft`: ")
    assert "SFT" in sentence and " 20 " in sentence
    wording(sentence)


def test_sft_alone(tmp_path: Path, wording: Wording):
    text = section(tmp_path, experiment(("sft",)), {"trained": SFT})
    sentence = line_of(text, "`trained`: ")
    assert "SFT" in sentence and " 20 " in sentence
    wording(sentence)
    assert "ean reward" not in text


def test_figures_that_no_step_has_are_left_out(tmp_path: Path):
    entries = steps(1, 20)
    entries[0]["reward/truncated"] = 0.5  # nothing was cut later
    text = section(tmp_path, experiment(), {"trained": entries})
    assert "| mean reward of truncated completions | 0.500 | – |" in text
    assert "entropy" not in text


def test_each_term_of_the_reward_has_a_row_after_the_reward(tmp_path: Path):
    entries = [
        {**step, "kl": 0.1, "reward_term/correct": step["step"] / 20, "reward_term/score": 0.5} for step in steps(1, 20)
    ]
    rows = training.training_table(read_log(written(tmp_path / "training.jsonl", entries))).splitlines()[2:]
    assert [row.strip("| ").split(" | ") for row in rows] == [
        ["mean reward", "0.150", "1.950"],  # means of steps 1 and 2, and of 19 and 20
        ["reward term `correct`", "0.075", "0.975"],
        ["reward term `score`", "0.500", "0.500"],
        ["KL from the start (nats/token)", "0.100", "0.100"],
    ]


def test_a_log_without_steps_is_named(tmp_path: Path, wording: Wording):
    text = section(tmp_path, experiment(), {"trained": [{"step": 20, "train_loss": 0.5}]})
    sentence = text.split("\n\n")[-1]
    assert "`trained`" in sentence
    wording(sentence)


# ---- pictures ----


def drawn(folder: Path, entries: Entries) -> Path:
    log = read_log(written(folder / "training.jsonl", entries))
    with publish.plot_style():
        training_plot(log, folder / "curves.png")
    return folder / "curves.png"


def picture(folder: Path, entries: Entries) -> np.ndarray:
    pixels: np.ndarray = matplotlib.image.imread(drawn(folder, entries))
    return pixels


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return picture(tmp_path_factory.mktemp("collapsed"), COLLAPSED)


def test_panels_are_those_of_the_figures_that_were_logged(tmp_path: Path):
    row = picture(tmp_path, SFT).shape[0]  # loss, token accuracy
    grpo = dict.fromkeys(("reward", "kl", "entropy", "loss", "share/truncated", "share/error"), 0.5)
    # five panels, for the loss of GRPO says nothing: three rows
    assert picture(tmp_path, [{"step": 1, **grpo}]).shape[0] == pytest.approx(3 * row, rel=0.15)


def test_terms_of_the_reward_have_a_panel(tmp_path: Path):
    """Nine of them, more than there are colours; each line is drawn."""
    values = {f"reward_term/term{number}": number / 10 for number in range(9)}
    drawn(tmp_path, [{"step": step, "reward": 1.0, **values} for step in (1, 2)])
    written_texts = (tmp_path / "curves.svg").read_text()
    assert [f"term{number}" in written_texts for number in range(9)] == [True] * 9
    assert "terms of the reward" in written_texts


@pytest.mark.slow
def test_every_panel_can_be_drawn(tmp_path: Path):
    metrics = {name: 0.5 for panel in PANELS for name in [*panel.lines, *(panel.band or ())]}
    picture(tmp_path, [{"step": step, **metrics} for step in (1, 2)])


@pytest.mark.parametrize("left_out", ["guard", "heldout", "chosen"])
def test_each_kind_of_entry_shows_in_the_picture(tmp_path: Path, collapsed: np.ndarray, left_out: str):
    without = picture(tmp_path, [entry for entry in COLLAPSED if left_out not in entry])
    assert collapsed.shape != without.shape or (collapsed != without).any()


def test_one_stage_draws_the_curves_of_one_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = written(tmp_path / "trained/training.jsonl", SFT)
    flags = ["--log", str(log), "--output", str(tmp_path / "by-stage.png")]
    monkeypatch.setattr(sys, "argv", ["arc-refinery", "report", "curves", *flags])
    cli.main()
    assert (tmp_path / "by-stage.png").read_bytes() == drawn(tmp_path, SFT).read_bytes()


def test_no_curves_of_no_steps(tmp_path: Path, wording: Wording):
    with pytest.raises(RecordError) as caught:
        training.draw_curves(written(tmp_path / "training.jsonl", []), tmp_path / "curves.png")
    assert str(tmp_path / "training.jsonl") in str(caught.value)
    wording(caught.value)
