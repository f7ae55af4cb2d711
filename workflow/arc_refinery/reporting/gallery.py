"""Pictures of single tasks: what the first attempt gave, and what the attempt that refined it gave."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from arc_refinery.config import Arm
from arc_refinery.evaluation.arms import SetResults
from arc_refinery.evaluation.statistics import percent
from arc_refinery.grids import N_COLORS, Grid, as_grid
from arc_refinery.metrics import pixel_score
from arc_refinery.prompts import extract_code
from arc_refinery.reporting.plots import save
from arc_refinery.tasks import Pair, Task

N_SHOWN = 3  # tasks of each set
MAX_TRAIN, MAX_TEST = 4, 2  # pairs drawn of each task
MAX_LINES = 60  # of a program
RULE = (
    f"Shown are {N_SHOWN} tasks, by a fixed rule: the first ones in the set's order that a refining attempt solves "
    "(its first that does), then the first others (their first refining attempt)."
)
COLORS = ListedColormap(
    ["#000000", "#0074D9", "#FF4136", "#2ECC40", "#FFDC00", "#AAAAAA", "#F012BE", "#FF851B", "#7FDBFF", "#870C25"]
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A task and two attempts on it, the second of which refines the first."""

    task_id: str
    first_id: str
    second_id: str
    solved: bool  # by the second

    @property
    def filename(self) -> str:
        return re.sub(r"[^A-Za-z0-9._-]", "-", self.task_id) + ".png"


@dataclass(frozen=True, slots=True)
class Execution:
    """What an attempt's program gave, and its text (empty where the completion holds none)."""

    outputs: tuple[Grid, ...]  # train pairs, then test pairs; empty unless all are valid
    problem: str  # why there are no outputs
    program: str


def refining_arm(arms: Iterable[Arm]) -> Arm | None:
    """The arm whose attempts are shown: the last one that has a second turn."""
    return next((arm for arm in reversed(list(arms)) if len(arm.turns) > 1), None)


def choose(results: SetResults, arm: Arm) -> list[Shown]:
    """The tasks to show, by `RULE`."""
    refined = results.of_turn(arm, 2)
    refined = refined.assign(solved=refined["train_is_correct"] & refined["test_is_correct"])
    best = refined.sort_values("solved", ascending=False, kind="stable").drop_duplicates("task_id")
    rows = {row["task_id"]: row for row in best.to_dict("records")}
    in_order = [rows[task_id] for task_id in results.task_ids if task_id in rows]
    chosen = sorted(in_order, key=lambda row: not row["solved"])[:N_SHOWN]
    return [Shown(row["task_id"], row["parent_id"], row["attempt_id"], bool(row["solved"])) for row in chosen]


def executions(branch: Path, n_shards: int, attempt_ids: Sequence[str]) -> dict[str, Execution]:
    """What the programs of some attempts of a branch gave; only these rows are kept in memory."""
    wanted = [("attempt_id", "in", list(attempt_ids))]
    found = {}
    for shard in range(n_shards):
        name = f"{shard:03d}.parquet"
        columns = ["attempt_id", "status", "error", "train_outputs", "test_outputs"]
        verdicts = pq.read_table(branch / "verdicts" / name, columns=columns, filters=wanted).to_pylist()
        attempts = pq.read_table(branch / "attempts" / name, columns=["attempt_id", "completion"], filters=wanted)
        completions = {row["attempt_id"]: row["completion"] for row in attempts.to_pylist()}
        for row in verdicts:
            found[row["attempt_id"]] = _execution(row, completions[row["attempt_id"]])
    return found


def _execution(row: dict[str, Any], completion: str) -> Execution:
    outputs = tuple(as_grid(grid) for grid in row["train_outputs"] + row["test_outputs"])
    problem = row["error"] or row["status"].replace("_", " ")
    return Execution(outputs, problem, extract_code(completion) or "")


def draw(task: Task, first: Execution, second: Execution, path: Path) -> None:
    """One column a pair; rows: input, expected output, first attempt, refining attempt. Crosses mark wrong cells."""
    places = [*range(len(task.train))[:MAX_TRAIN], *range(len(task.train), len(task.pairs))[:MAX_TEST]]
    figure = Figure(figsize=(1.2 + 1.7 * len(places), 7.6), layout="constrained")
    rows = figure.subplots(4, len(places), squeeze=False)
    for column, place in enumerate(places):
        pair, is_train = task.pairs[place], place < len(task.train)
        number = place + 1 if is_train else place + 1 - len(task.train)
        rows[0, column].set_title(f"train {number}" if is_train else f"test {number}")
        _draw_grid(rows[0, column], pair.input)
        _draw_grid(rows[1, column], pair.output)
        _draw_output(rows[2, column], first, place, pair)
        _draw_output(rows[3, column], second, place, pair)
    for axes, label in zip(rows[:, 0], ("input", "expected", "first attempt", "refining attempt"), strict=True):
        axes.set_ylabel(label, fontsize=10)
    n_hidden = len(task.pairs) - len(places)
    hidden = f" ({n_hidden} more pairs not drawn)" if n_hidden else ""
    figure.suptitle(f"{task.task_id}{hidden}", fontsize=11, parse_math=False)
    save(figure, path)


def _draw_output(axes: Axes, execution: Execution, place: int, pair: Pair) -> None:
    if not execution.outputs:
        text = textwrap.fill(textwrap.shorten(execution.problem, 80), 18)
        axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=7, transform=axes.transAxes, parse_math=False)
        axes.set_xlabel("no output", fontsize=8)
        _empty(axes)
        return
    output = execution.outputs[place]
    _draw_grid(axes, output)
    if not pair.output.size:
        axes.set_xlabel("right or wrong: unknown", fontsize=8)
    elif np.array_equal(output, pair.output):
        axes.set_xlabel("correct", fontsize=8)
    elif output.shape == pair.output.shape:
        _mark(axes, output != pair.output)
        axes.set_xlabel(f"wrong, {percent(pixel_score(output, pair.output))} of cells match", fontsize=8)
    else:
        given, expected = ("×".join(map(str, grid.shape)) for grid in (output, pair.output))
        axes.set_xlabel(f"wrong shape: {given},\nexpected {expected}", fontsize=8)


def _draw_grid(axes: Axes, grid: Grid) -> None:
    if not grid.size:  # the output of a test that nobody has published
        axes.text(0.5, 0.5, "unknown", ha="center", va="center", fontsize=8, transform=axes.transAxes)
        _empty(axes)
        return
    axes.pcolormesh(grid, cmap=COLORS, vmin=0, vmax=N_COLORS - 1, edgecolors="#666666", linewidth=0.4)
    height, width = grid.shape
    margin = max(grid.shape) * 0.51
    axes.set(xlim=(width / 2 - margin, width / 2 + margin), ylim=(height / 2 + margin, height / 2 - margin))
    _empty(axes)


def _empty(axes: Axes) -> None:
    """A square without frame, ticks or lines."""
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)
    axes.grid(False)


def _mark(axes: Axes, wrong: Any) -> None:
    rows, columns = np.nonzero(wrong)
    size = 50 / max(wrong.shape)
    for color, width in (("black", 0.35 * size), ("white", 0.15 * size)):
        axes.plot(columns + 0.5, rows + 0.5, "x", color=color, markersize=size, markeredgewidth=width)


def programs_block(first: Execution, second: Execution) -> str:
    """Both programs, folded away."""
    blocks = [
        f"{title}:\n\n```python\n{_shortened(execution.program)}\n```" if execution.program else f"{title}: no program."
        for title, execution in (("First attempt", first), ("Refining attempt", second))
    ]
    return "<details><summary>The two programs</summary>\n\n" + "\n\n".join(blocks) + "\n\n</details>"


def _shortened(program: str) -> str:
    lines = program.rstrip().splitlines()
    return "\n".join(
        lines[:MAX_LINES] + ([f"# ... {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else [])
    )
