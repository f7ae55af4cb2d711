"""Plots as PNG and SVG files whose bytes depend on the figures alone: own style and resolution, no date, no version."""

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from arc_refinery.files import atomic_write
from arc_refinery.reporting.training_log import Log
from arc_refinery.training.log import Decision

DPI = 120
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito 2008
DASHES = ("-", "--", "-.", ":")
MANY = 4  # equal tasks, which are marked by one mark and from here on counted beside it
RATES = (0, 1, 5, 10, 25, 50, 75, 100)  # ticks of pass rates (%)
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "svg.hashsalt": "arc-refinery",  # names in the file are random without
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Solved against budget of one arm: a table of `budget_curve`, and where turns start."""

    table: pd.DataFrame
    turn_ends: tuple[int, ...]  # budget after each turn but the last


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the picture of a training, of figures with one unit."""

    title: str
    lines: Mapping[str, str]  # figure of a step: label
    band: tuple[str, str] | None = None  # figures that it lies between
    check: str = ""  # what held-out prompts say of it: a field of `Check`
    is_share: bool = False


PANELS = (
    Panel("reward", {"reward": "mean"}, ("reward/min", "reward/max"), "reward"),
    Panel(
        "shares",
        {"share/solved": "completions that solve", "share/zero_variance": "groups with equal rewards"},
        check="solved",
        is_share=True,
    ),
    Panel("tools", {"share/calling": "episodes that call", "share/faulty_calls": "calls that go wrong"}, is_share=True),
    Panel("loss (nats/token)", {"loss": "loss"}),
    Panel("token accuracy", {"mean_token_accuracy": "accuracy"}, is_share=True),
    Panel("KL from the start (nats/token)", {"kl": "KL"}),
    Panel("entropy (nats/token)", {"entropy": "entropy"}),
    Panel(
        "completion length (tokens)",
        {"completions/mean_length": "mean"},
        ("completions/min_length", "completions/max_length"),
    ),
    Panel("share of completions cut", {"share/truncated": "cut"}, is_share=True),
    Panel(
        "share of repeated 4-grams in completions",
        {"repetition/finished": "not cut", "repetition/truncated": "cut"},
        is_share=True,
    ),
    Panel(
        "unique tokens / tokens in completions",
        {"unique_tokens/finished": "not cut", "unique_tokens/truncated": "cut"},
        is_share=True,
    ),
    Panel(
        "share of completions that fail",
        {"share/error": "error", "share/no_code": "no program", "share/timeout": "timeout", "share/memory": "memory"},
        is_share=True,
    ),
    Panel(
        "share of second turns",
        {"share/second_turn": "completions that have one", "share/improved": "that earn more than the first"},
        is_share=True,
    ),
    Panel("log-probability gap, trainer to sampler (nats)", {"sampling/sampling_logp_difference/mean": "mean"}),
    Panel("gradient norm before clipping", {"grad_norm": "norm"}),
)
LEGEND_CHARACTERS = 130  # that have room in a line of a legend
MOST_BANDS = 4  # more lie over each other
ABANDONED: dict[str, Any] = {"linewidth": 0.6, "alpha": 0.4, "marker": "x", "markersize": 3}
DECISION: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.0}
CHECK: dict[str, Any] = {"color": "black", "linestyle": "", "marker": "D", "markersize": 6, "markerfacecolor": "white"}
CHOSEN: dict[str, Any] = {**CHECK, "marker": "*", "markersize": 14, "markerfacecolor": "#E69F00"}


@contextmanager
def style() -> Iterator[None]:
    """Draw in this module's style, whatever the user's matplotlibrc says."""
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file, and an SVG file of the same name beside it."""
    save_png(figure, path)
    with atomic_write(path.with_suffix(".svg")) as unfinished:
        figure.savefig(unfinished, format="svg", metadata={"Creator": None, "Date": None})


def save_png(figure: Figure, path: Path, dpi: int = DPI) -> None:
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, dpi=dpi, format="png", metadata={"Software": None})


def budget_plot(curves: Mapping[str, Curve], title: str, path: Path) -> None:
    """Share of tasks solved against attempts and against tokens a task, one line an arm."""
    n_columns = max(1, min(4, len(curves), LEGEND_CHARACTERS // (9 + max(map(len, curves)))))
    n_rows = -(-len(curves) // n_columns)
    figure = Figure(figsize=(9.5, 3.8 + 0.2 * n_rows), layout="constrained")
    by_attempts, by_tokens = figure.subplots(1, 2, sharey=True)
    _curves(by_attempts, curves, "budget", 1.0)
    _curves(by_tokens, curves, "tokens", 1000.0)
    by_attempts.set(xlabel="attempts a task", ylabel="tasks solved (%)", ylim=(0, None))
    by_tokens.set(xlabel="tokens a task, prompts and completions (thousands)")
    handles, labels = by_attempts.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _curves(axes: Axes, curves: Mapping[str, Curve], x: str, unit: float) -> None:
    widest = max(curve.table[x].max() for curve in curves.values()) / unit
    looks = zip(curves.items(), cycle(COLORS), cycle(DASHES), strict=False)
    for number, ((name, curve), color, dashes) in enumerate(looks):
        across, solved = curve.table[x] / unit, 100 * curve.table["solved"]
        axes.plot(across, solved, color=color, linestyle=dashes, label=name, linewidth=1.8)
        ends = [end - 1 for end in curve.turn_ends]
        axes.plot(across.iloc[ends], solved.iloc[ends], color=color, linestyle="", marker="o", markersize=5)
        low, high = 100 * curve.table["low"], 100 * curve.table["high"]
        if len(curves) <= MOST_BANDS:
            axes.fill_between(across, low, high, color=color, alpha=0.08, linewidth=0)
        place = widest * (1.03 + 0.025 * number)
        axes.vlines(place, low.iloc[-1], high.iloc[-1], color=color, linestyle="-", linewidth=2.5, alpha=0.7)
    axes.set_xlim(0, None)


def outcomes_plot(
    shares: Mapping[str, pd.DataFrame], looks: Mapping[str, tuple[str, str]], title: str, path: Path
) -> None:
    """One bar a turn, of the mean share of each outcome (a column of 0..1, one row a task).

    `looks`: colour and hatch of each outcome.
    """
    bars = [f"{name.replace('`', '')}\nn = {len(of_turn)} tasks" for name, of_turn in shares.items()]
    means = pd.DataFrame([100 * of_turn.mean() for of_turn in shares.values()]).fillna(0.0)
    n_rows = -(-len(means.columns) // 4)
    figure = Figure(figsize=(9.5, 1.1 + 0.5 * len(bars) + 0.25 * n_rows), layout="constrained")
    axes = figure.subplots()
    left = pd.Series(0.0, means.index)
    for outcome in means:
        color, hatch = looks[outcome]
        drawn = axes.barh(
            bars, means[outcome], 0.62, left=left, color=color, hatch=hatch, edgecolor="black", linewidth=0.5
        )
        labels = [f"{share:.0f}" if share >= 4 else "" for share in means[outcome]]
        for text in axes.bar_label(drawn, labels, label_type="center", fontsize=8):
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0} if text.get_text() else None)
        left += means[outcome]
    axes.set(xlim=(0, 100), xlabel="share of attempts (%)")
    axes.invert_yaxis()
    axes.grid(False)
    handles = [Patch(facecolor=looks[o][0], hatch=looks[o][1], edgecolor="black", label=o) for o in means]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=2.5, handleheight=1.2)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def pass_rates_plot(
    panels: Mapping[str, pd.DataFrame], marks: Mapping[str, tuple[str, str]], title: str, path: Path
) -> None:
    """One panel an arm, one mark a task: its pass rate in later turns against that in turn 1.

    Each table has one row a task, with the columns `first` and `later` (shares 0..1) and `solved_by`, a key of `marks`,
    which are the marker and the colour. Equal tasks share a mark, which grows with their number.
    """
    n_columns = min(2 if len(panels) == 4 else 3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = Figure(figsize=(0.5 + 3.0 * max(2, n_columns), 1.0 + 3.1 * n_rows), layout="constrained")
    places = figure.subplots(n_rows, n_columns, squeeze=False).flatten()
    for axes in places[len(panels) :]:
        axes.remove()
    for axes, (arm, rates) in zip(places, panels.items(), strict=False):
        axes.axline((0, 0), (1, 1), color="black", linestyle="--", linewidth=0.8, zorder=1)
        for (solved_by, first, later), equal in rates.groupby(["solved_by", "first", "later"]):
            marker, color = marks[solved_by]
            size = 25 * (1 + np.log2(len(equal)))
            axes.scatter(100 * first, 100 * later, size, color=color, marker=marker, alpha=0.7, linewidth=1.2, zorder=2)
            if len(equal) > MANY:
                look = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": 7}
                axes.annotate(str(len(equal)), (100 * first, 100 * later), **look)
        for scale, limits, ticks in (
            (axes.set_xscale, axes.set_xlim, axes.set_xticks),
            (axes.set_yscale, axes.set_ylim, axes.set_yticks),
        ):
            scale("function", functions=(_root, _square))
            limits(-0.3, 112)
            ticks(RATES)
        axes.set(xlabel="pass rate in turn 1 (%)", ylabel="in later turns (%)", aspect="equal")
        axes.set_title(f"{textwrap.fill(arm, 34)}\nn = {len(rates)} tasks", loc="left", parse_math=False, fontsize=9)
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=color, alpha=0.7, label=name)
        for name, (marker, color) in marks.items()
    ]
    figure.legend(handles=handles, title="task solved by", loc="outside lower center", ncols=len(handles))
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _root(values: Any) -> Any:
    """Signed square root: pass rates near 0 are told apart, equal ones still lie on the diagonal."""
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def training_plot(log: Log, path: Path) -> None:
    """What was logged at each training step; the panels whose figures there are."""
    shown = [panel for panel in PANELS if any(name in log.steps for name in panel.lines)]
    shown = [panel for panel in shown if "loss" not in panel.lines or not log.is_grpo]
    n_rows = (len(shown) + 1) // 2
    figure = Figure(figsize=(9.5, 2.3 * n_rows + 0.4), layout="constrained")
    places = figure.subplots(n_rows, 2, sharex=True, squeeze=False).flatten()
    for axes, panel in zip(places, shown, strict=False):
        _training_panel(axes, panel, log)
    for axes in places[len(shown) :]:
        axes.remove()
    for axes in places[max(0, len(shown) - 2) : len(shown)]:
        axes.set_xlabel("optimizer step")
        axes.tick_params(labelbottom=True)
    for step in {decision.step for decision in log.decisions}:
        words = ", then ".join(_done(decision) for decision in log.decisions if decision.step == step)
        look = {"rotation": 90, "ha": "right", "va": "top", "fontsize": 8}
        places[0].annotate(f"{words} ", (step, 1.0), xycoords=("data", "axes fraction"), **look)
    figure.legend(handles=_training_legend(log), loc="outside lower center", ncols=3)
    save(figure, path)


def _done(decision: Decision) -> str:
    return {"rollback": f"back to {decision.to_step}", "stop": "stopped"}.get(decision.action, "collapsed")


def _training_panel(axes: Axes, panel: Panel, log: Log) -> None:
    """Thin: each step; thick: the mean of some; crosses: what a rollback threw away."""
    if panel.band and all(name in log.steps for name in panel.band):
        low, high = (log.steps[name] for name in panel.band)
        axes.fill_between(
            log.steps["step"], low, high, color="#888888", alpha=0.2, linewidth=0, label="lowest to highest"
        )
    names = [name for name in panel.lines if name in log.steps]
    for name, color, dashes in zip(names, COLORS, cycle(DASHES), strict=False):
        values = log.steps.set_index("step")[name].dropna()
        axes.plot(values, color=color, linewidth=0.7, alpha=0.5)
        smooth = values.rolling(log.window, min_periods=1).mean()
        axes.plot(smooth, color=color, linestyle=dashes, linewidth=2.0, label=panel.lines[name])
        for part in log.abandoned:
            if name in part:
                axes.plot(part["step"], part[name], color=color, **ABANDONED)
    if panel.check:
        _checks(axes, panel.check, log)
    for decision in log.decisions:
        axes.axvline(decision.step, **DECISION)
    if panel.is_share:
        top = max(0.1, min(1.02, axes.get_ylim()[1]))
        axes.set_ylim(-0.02 * top, top)  # a line of zeros is seen
    axes.set_title(panel.title, loc="left")
    if len(panel.lines) > 1 or panel.band:
        axes.legend(fontsize=8, loc="upper left")


def _checks(axes: Axes, figure: str, log: Log) -> None:
    for check in log.checks + log.abandoned_checks:
        is_chosen = log.chosen is not None and check in log.checks and check.step == log.chosen.step
        faint = {} if check in log.checks else {"alpha": ABANDONED["alpha"]}
        value = getattr(check, figure)
        if value is not None:
            axes.plot(check.step, value, **(CHOSEN if is_chosen else CHECK), **faint)


def _training_legend(log: Log) -> list[Line2D]:
    """What is the same in all panels."""
    entries = [
        (log.window > 1, {"color": "black", "linewidth": 0.7, "alpha": 0.5}, "each step"),
        (True, {"color": "black", "linewidth": 2.0}, f"mean of {log.window} steps" if log.window > 1 else "each step"),
        (log.checks or log.abandoned_checks, CHECK, "held-out prompts"),
        (log.checks and log.chosen, CHOSEN, "the checkpoint that became the adapter"),
        (log.abandoned, {"color": "black", **ABANDONED}, "abandoned by a rollback"),
        (log.decisions, DECISION, "collapse"),
    ]
    return [Line2D([], [], **look, label=label) for is_there, look, label in entries if is_there]
