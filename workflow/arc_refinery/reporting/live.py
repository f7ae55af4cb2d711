"""Curves of running trainings in a terminal, from the TensorBoard files that they write step by step."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import sleep, time
from typing import TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from arc_refinery.errors import InputError
from arc_refinery.reporting.training import METRIC_TITLES

SUFFIX = ".log.tensorboard"  # a training's folder is named <adapter><SUFFIX>
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 20  # characters of a curve

Curves: TypeAlias = dict[str, dict[int, float]]  # values by step, of each metric


def follow(path: Path, seconds: float) -> None:
    """Show the curves of all trainings in a folder until Ctrl-C, read again every so many seconds."""
    folders(path)  # a wrong path ends with a message, not with an empty screen
    with suppress(KeyboardInterrupt), Live(auto_refresh=False) as screen:
        while True:
            screen.update(tables(path), refresh=True)
            sleep(seconds)


def show(path: Path) -> None:
    """Print the curves of all trainings in a folder as they are now."""
    Console().print(tables(path))


def tables(path: Path) -> Group:
    """Return one table for each training."""
    return Group(*(_table(name, *_read(parts)) for name, parts in folders(path).items()))


def folders(path: Path) -> dict[str, list[Path]]:
    """Return the TensorBoard folders of each training by the name of its adapter; raise `InputError` without any.

    A training that keeps several adapters (`trained@1000`) has one for each part of its steps.
    """
    event_folders = [path] if path.name.endswith(SUFFIX) and path.is_dir() else sorted(path.glob(f"*{SUFFIX}"))
    if not event_folders:
        raise InputError(
            f"{path}: holds no curves of running trainings; expected logs/<experiment>/adapters, once a training has "
            f"begun, or one of the folders <adapter>{SUFFIX} in it. To draw a training.jsonl, name the --output"
        )
    trainings: dict[str, list[Path]] = {}
    for folder in event_folders:
        trainings.setdefault(folder.name.removesuffix(SUFFIX).partition("@")[0], []).append(folder)
    return trainings


def merged(events: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Return values by step, from `(step, value)` in the order in which they were written.

    A training that is resumed or rolled back writes earlier steps again: they replace all from there on.
    """
    values: dict[int, float] = {}
    for step, value in events:
        if values and step <= next(reversed(values)):
            values = {earlier: earlier_value for earlier, earlier_value in values.items() if earlier < step}
        values[step] = value
    return values


def bars(values: Sequence[float], width: int = WIDTH) -> str:
    """Return a line of at most `width` bars, each the mean of as many values; the lowest of them is the lowest bar."""
    n = min(width, len(values))
    edges = [index * len(values) // n for index in range(n + 1)] if n else [0]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


def _read(parts: Sequence[Path]) -> tuple[Curves, float | None]:
    """Return the curves of one training, and when its last event was written (seconds since the epoch)."""
    events: dict[str, list[tuple[float, int, float]]] = {}
    for tag, when, step, value in _events(parts):
        events.setdefault(tag, []).append((when, step, value))
    last = max((when for entries in events.values() for when, _, _ in entries), default=None)
    by_tag = {tag: merged([(step, value) for _, step, value in sorted(entries)]) for tag, entries in events.items()}
    return {name: by_tag[f"train/{name}"] for name in METRIC_TITLES if f"train/{name}" in by_tag} | {
        name: by_tag[name] for name in ("eval/reward",) if name in by_tag
    }, last


def _events(parts: Sequence[Path]) -> Iterator[tuple[str, float, int, float]]:
    # One reader per file: a reader of a folder skips what is added to an earlier file
    for file in (file for part in parts for file in sorted(part.glob("events.out.tfevents.*"))):
        reader = EventAccumulator(str(file), size_guidance={SCALARS: 0})  # 0: keep all
        reader.Reload()
        for tag in reader.Tags()[SCALARS]:
            yield from ((tag, event.wall_time, event.step, event.value) for event in reader.Scalars(tag))


def _table(name: str, curves: Mapping[str, Mapping[int, float]], last: float | None) -> Table:
    steps = max((next(reversed(values)) for values in curves.values()), default=0)
    ago = "nothing was logged yet" if last is None else f"step {steps}, written {time() - last:.0f} s ago"
    table = Table(title=f"{escape(name)}: {ago}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")  # narrow terminals shorten this column
    table.add_column("curve", no_wrap=True)
    for heading in ("first", "lowest", "highest", "now"):
        table.add_column(heading, justify="right", no_wrap=True)
    titles = METRIC_TITLES | {"eval/reward": "mean reward on held-out prompts"}
    for metric, values in curves.items():
        points = list(values.values())
        summary = (points[0], min(points), max(points), points[-1])
        table.add_row(
            Text(titles[metric], no_wrap=True, overflow="ellipsis"),
            bars(points),
            *(f"{value:.3g}" for value in summary),
        )
    return table
