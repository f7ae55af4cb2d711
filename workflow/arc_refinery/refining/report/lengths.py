"""Prompt lengths and the model's window: a Markdown table, a CSV file and a histogram."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.domains.domain import load_domain
from arc_refinery.errors import span
from arc_refinery.evaluation.attempts import Results
from arc_refinery.files import atomic_write
from arc_refinery.refining.config import Refining
from arc_refinery.refining.next_turn import LEFT_OUT, without
from arc_refinery.reporting import publish
from arc_refinery.reporting.markdown import listed, markdown_table, write_csv

N_BINS = 40
MOST_NAMED = 2  # branches in a note
_CAPTION = """\
In tokens of the model's tokenizer, chat template included, over all prompts that were generated. A percentile is the
length of an actual prompt: that share of the prompts is at most as long. The window holds prompt and completion.
Prompts longer than *allowed* leave no room for a completion of maximum length; they were dropped, but all columns
include them."""


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """Lengths of the prompts of one turn in one file: kept prompts first, then those dropped as too long."""

    label: str
    turn: int | None  # None: the file has no prompts, and none were dropped
    n_tokens: NDArray[np.int64]
    n_dropped: int
    allowed: int | None  # None: not recorded in the file


def study(paths: Sequence[Path], window: int, folder: Path) -> None:
    """Write lengths.md, .csv, .png and .svg for files of prompts to a folder."""
    entries = [
        lengths for path, label in zip(paths, labels(paths), strict=True) for lengths in read_lengths(path, label)
    ]
    metrics = lengths_table(entries, window)
    with atomic_write(folder / "lengths.csv") as unfinished:
        write_csv(metrics, unfinished)
    with publish.plot_style():
        histogram(entries, window, folder / "lengths.png")
    picture = f"![{alt_text(entries, window)}](lengths.png)"
    blocks = ["# Prompt lengths", as_markdown(metrics), "[As CSV](lengths.csv).", picture]
    with atomic_write(folder / "lengths.md") as unfinished:
        unfinished.write_text("\n\n".join(blocks) + "\n")


def labels(paths: Sequence[Path]) -> list[str]:
    """Return short, distinct names: folders (`part1/turn1`), plus the file's name if it is not prompts.parquet."""
    stems = [path.absolute().with_suffix("") for path in paths]
    common = os.path.commonpath([stem.parent.parent for stem in stems])
    return [str(stem.relative_to(common)).removesuffix("/prompts") for stem in stems]


def read_lengths(path: Path, label: str) -> list[PromptLengths]:
    """Read the lengths of a file of prompts, by turn; those of a served model from its attempts."""
    fitting = records.columns(path, records.Prompt, ["turn", "n_tokens"]).to_pandas()
    notes = records.notes(path)
    attempts = sorted((path.parent / "attempts").glob("*.parquet"))
    if attempts and len(fitting) and not fitting["n_tokens"].any():
        return _counted_by_server(attempts, label)
    dropped = {int(turn): lengths for turn, lengths in notes.get("dropped", {}).items()}
    by_turn = {int(turn): rows.to_numpy() for turn, rows in fitting.groupby("turn")["n_tokens"]}
    allowed = notes.get("longest_allowed")
    none = np.zeros(0, np.int64)
    return [
        PromptLengths(
            label,
            turn,
            np.concatenate([by_turn.get(turn, none), np.array(dropped.get(turn, none), np.int64)]),
            len(dropped.get(turn, none)),
            allowed,
        )
        for turn in sorted(by_turn.keys() | dropped.keys())
    ] or [PromptLengths(label, None, none, 0, allowed)]


def _counted_by_server(attempts: Sequence[Path], label: str) -> list[PromptLengths]:
    names = ["prompt_id", "turn", "n_prompt_tokens", "finish_reason"]
    tables = [records.columns(path, records.Attempt, names).to_pandas() for path in attempts]
    prompts = pd.concat(tables).drop_duplicates("prompt_id")
    return [
        PromptLengths(
            label,
            int(turn),
            rows.loc[rows["finish_reason"] != records.TOO_LONG, "n_prompt_tokens"].to_numpy(),
            int((rows["finish_reason"] == records.TOO_LONG).sum()),
            None,
        )
        for turn, rows in prompts.groupby("turn")
    ]


def missing_attempts_notes(experiment: Refining, folder: Path, results: Results) -> list[str]:
    """Return sentences on turns in which tasks have no attempts, though there was something to answer.

    One for each turn, whatever the number of arms: those of repeated trainings miss the same tasks.
    """
    nothing: dict[int, dict[str, None]] = {}  # by turn: branches in which nothing could be refined
    missing: dict[int, dict[str, tuple[int, int]]] = {}  # tasks without attempts, and all that had something to answer
    for arm in experiment.arms:
        for number, branch in enumerate(arm.branches, 1):
            asked = set(results.task_ids)
            if number > 1:
                earlier = results.attempts_of_turn(arm, number - 1)
                can_be_refined = (earlier["status"] == "ok") & ~earlier["shown_solved"]
                if arm.turns[number - 1].refinement(experiment.refinement).include_errors:
                    can_be_refined |= earlier["status"].isin(load_domain(experiment.domain).failures_to_refine)
                asked = set(earlier.loc[can_be_refined, "task_id"])
            if not asked:
                nothing.setdefault(number, {})[branch] = None
            elif n_missing := len(asked - set(results.attempts_of_branch(branch)["task_id"])):
                missing.setdefault(number, {})[branch] = n_missing, len(asked)
    notes = [
        f"{_named(results.name, branches)}: nothing could be refined, so turn {number} has no attempts on any task."
        for number, branches in nothing.items()
    ]
    for number, branches in missing.items():
        lost, asked_for = (span(numbers) for numbers in zip(*branches.values(), strict=True))
        tasks = f"{lost} of {asked_for} tasks{'' if number == 1 else ' to refine'}"
        end = ", which count as unsolved" if number == 1 else ""
        reason = _why_missing([folder / results.name / branch / "prompts.parquet" for branch in branches])
        notes.append(f"{_named(results.name, branches)}: **no attempts on {tasks}**{end}: {reason}.")
    return notes


def _named(name: str, branches: Collection[str]) -> str:
    """Return a set and branches of it; of many the first ones."""
    more = f" and {len(branches) - MOST_NAMED} more" if len(branches) > MOST_NAMED else ""
    return f"`{name}`, {listed(islice(branches, MOST_NAMED))}{more}"


def _why_missing(paths: Sequence[Path]) -> str:
    """Say why prompts are missing in files of one turn."""
    dropped = [entry for path in paths for entry in read_lengths(path, "") if entry.n_dropped]
    reasons = []
    if dropped:
        lengths = np.concatenate([entry.n_tokens[-entry.n_dropped :] for entry in dropped])
        reasons.append(
            f"{span([entry.n_dropped for entry in dropped])} of {span([len(entry.n_tokens) for entry in dropped])} "
            f"prompts are too long ({span(lengths.tolist())} tokens; `model.window` leaves {dropped[0].allowed:,})"
        )
    for control, why in LEFT_OUT.items():
        if numbers := [n for path in paths if (n := records.notes(path).get(without(control)))]:
            reasons.append(f"on {span(numbers)} of them, {why}")
    return " and ".join(reasons) or "the file of prompts does not say why"


def lengths_table(entries: Sequence[PromptLengths], window: int) -> pd.DataFrame:
    """Return one row per file and turn, dropped prompts included; lengths in tokens, missing if there are no prompts.

    `median`, `p95`, `p99`: the smallest actual length that 50, 95 or 99 % of the prompts do not exceed (numpy's
    percentile, `inverted_cdf`). `over_window`: prompts longer than the window. `dropped`: prompts longer than
    `allowed`, the window minus the maximum completion length.
    """
    rows = []
    for entry in entries:
        n = entry.n_tokens
        shares = np.percentile(n, [50, 95, 99, 100], method="inverted_cdf").tolist() if len(n) else [None] * 4
        over = int((n > window).sum())
        rows.append([entry.label, entry.turn, len(n), *shares, window, over, entry.allowed, entry.n_dropped])
    columns = ["prompts", "turn", "n", "median", "p95", "p99", "max", "window", "over_window", "allowed", "dropped"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:], "Int64"))


def histogram(entries: Sequence[PromptLengths], window: int, path: Path) -> None:
    """Draw one panel per turn, one outline per file (share of its prompts by length), and the window as a line."""
    turns = sorted({entry.turn for entry in entries if entry.turn is not None})
    figure = Figure(figsize=(9.5, 0.6 + 2.9 * max(1, len(turns))), layout="constrained")
    panels = figure.subplots(max(1, len(turns)), 1, sharex=True, squeeze=False).flatten()
    edges = np.linspace(0, max([window, *(int(entry.n_tokens.max(initial=0)) for entry in entries)]), N_BINS + 1)
    for axes, turn in zip(panels, turns, strict=False):
        _outlines(axes, [entry for entry in entries if entry.turn == turn], edges)
        axes.set_title(f"turn {turn}", loc="left")
    for axes in panels:
        axes.axvline(window, color="black", linewidth=1.2)
        label = {"xytext": (-3, 0), "textcoords": "offset points", "rotation": 90, "ha": "right", "va": "top"}
        axes.annotate(f"window {window}", (window, 1), xycoords=("data", "axes fraction"), **label)
        axes.set(ylabel="prompts (%)", xlim=(0, None), ylim=(0, None))
    panels[-1].set_xlabel("tokens per prompt")
    publish.save(figure, path)


def alt_text(entries: Sequence[PromptLengths], window: int) -> str:
    """Return the alternative text of the histogram: the longest prompt of each turn."""
    longest: dict[int, int] = {}
    for entry in entries:
        if entry.turn is not None:
            longest[entry.turn] = max(longest.get(entry.turn, 0), int(entry.n_tokens.max(initial=0)))
    turns = [f"up to {n} tokens in turn {turn}" for turn, n in sorted(longest.items())]
    return f"Histogram of prompt lengths: {', '.join(turns)}; the window has {window}"


def _outlines(axes: Axes, entries: Sequence[PromptLengths], edges: NDArray[np.float64]) -> None:
    """Draw one outline per distinct set of lengths: arms that refine the same first turns have equal prompts."""
    equal: dict[bytes, list[PromptLengths]] = {}
    for entry in entries:
        equal.setdefault(np.sort(entry.n_tokens).tobytes(), []).append(entry)
    for same, color, dashes in zip(
        equal.values(), publish.line_colors(len(equal)), cycle(publish.DASHES), strict=False
    ):
        shares = 100 * np.histogram(same[0].n_tokens, edges)[0] / len(same[0].n_tokens)
        label = "\n".join(f"{entry.label} (n = {len(entry.n_tokens)})" for entry in same)
        axes.stairs(shares, edges, color=color, alpha=0.1, fill=True)
        axes.stairs(shares, edges, color=color, linestyle=dashes, linewidth=1.4, label=label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)


def as_markdown(metrics: pd.DataFrame) -> str:
    """Return a `lengths_table` as Markdown, below a caption."""
    titles = {"p95": "95 %", "p99": "99 %", "over_window": "over the window"}
    cells = metrics.astype(object).where(metrics.notna(), "–")
    rows = [[f"`{label}`", *numbers] for label, *numbers in cells.itertuples(index=False)]
    return f"{_CAPTION}\n\n{markdown_table([*metrics.rename(columns=titles)], rows)}"
