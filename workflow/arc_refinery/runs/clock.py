"""Durations in words; results with a modification time in the future, because the clock was set back."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

TOLERANCE = 60.0  # seconds; a file server's clock may be ahead a little


def duration(seconds: float) -> str:
    """Return a duration as a person says it.

    >>> duration(31.4), duration(360), duration(7500)
    ('31 s', '6 min', '2 h 5 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def date_back(results: Path, say: Callable[[str], None]) -> None:
    """Give an experiment's results with a modification time in the future the time of now, and say so.

    `results` is its folder; the reports are beside it.

    Snakemake would fail each job that reads these files, and delete its output, because that is older than its input.
    """
    future, now = _of_the_future(results)
    for path in future:
        with suppress(FileNotFoundError):  # another run may be working
            os.utime(path, (now, now), follow_symlinks=False)
    if future:
        say(
            f"{results}: {len(future)} files were dated in the future, {future[0]} first; the clock must have been set "
            "back. They are dated as of now, so that Snakemake can continue."
        )


def explain_failure(results: Path, say: Callable[[str], None]) -> None:
    """Say what to do when a run has failed while results are dated in the future."""
    future, _ = _of_the_future(results)
    if future:
        say(
            f"{results}: {len(future)} files are dated in the future, {future[0]} first; the clock must have been set "
            "back, and jobs that read them fail. Type the same command again: it dates them as of now, and continues."
        )


def _of_the_future(results: Path) -> tuple[list[Path], float]:
    now = time.time()
    return [path for path, changed in _dates(results) if changed > now + TOLERANCE], now


def _dates(folder: Path) -> Iterator[tuple[Path, float]]:
    """Yield an experiment's files and folders with the times of their last change; links as such."""
    for path in (folder, *folder.parent.glob(f"{folder.name}.*"), *folder.rglob("*")):
        with suppress(FileNotFoundError):
            yield path, path.lstat().st_mtime
