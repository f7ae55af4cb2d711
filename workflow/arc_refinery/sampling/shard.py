"""Jobs that work on one shard and resume where they were interrupted, with the results of an uninterrupted job.

Progress is JSON lines in a file that no Snakemake rule declares, because Snakemake deletes the outputs of failed jobs:

    {"settings": "5f0c..."}                        hash of everything that affects the entries
    {"mirror/turn1-000": [{"text": ...}, ...]}     an entry: what was sampled together; a part of a sample is no list
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from arc_refinery import records
from arc_refinery.errors import InputError
from arc_refinery.files import append, atomic_write, content_hash
from arc_refinery.sampling.backends import Report
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS

logger = logging.getLogger(__name__)

Entry = dict[str, Any]
Compute = Callable[[Sequence[Entry], Report], Iterator[Entry]]  # gets the earlier entries, yields the others


def check_shard(shard: int, n_shards: int) -> None:
    if not 0 <= shard < n_shards:
        raise InputError(f"shard {shard} of {n_shards}: expected 0..{n_shards - 1}")


def resumed(
    output: Path,
    settings: Mapping[str, Any],
    adapter: Path | None,
    n_samples: int,
    unit: str,
    compute: Compute,
) -> Iterator[Entry]:
    """Yield the entries of a job: those of an interrupted one, then what `compute` makes of the rest.

    `settings` are everything that affects the entries, except the adapter's weights. `compute` receives the earlier
    entries, and each of its own is on disk before the next one is computed; in between it reports samples that ended
    (`unit` is what they are called) and tokens, so that the bar moves within an entry.
    """
    weights = "" if adapter is None else content_hash([adapter / ADAPTER_WEIGHTS])
    progress = Progress(output, records.settings_hash({**settings, "adapter": weights}))
    if n_done := sum(map(_n_samples, progress.entries)):
        logger.info("%s: %d of %d %ss were already done", progress.path, n_done, n_samples, unit)
    yield from progress.entries
    if n_done == n_samples:
        return
    with tqdm(total=n_samples, initial=n_done, unit=unit, mininterval=5, smoothing=0) as bar:
        started = shown = time.monotonic()
        n_so_far = 0

        def report(n_ended: int, n_tokens: int, note: str = "") -> None:
            nonlocal n_so_far, shown
            n_so_far += n_tokens
            now = time.monotonic()
            bar.set_postfix_str(f"{n_so_far / max(now - started, 1e-9):.0f} tokens/s{note}", refresh=False)
            if bar.update(n_ended):
                shown = now
            elif now - shown > bar.mininterval:  # samples are long
                bar.refresh()
                shown = now

        for entry in compute(progress.entries, report):
            progress.add(entry)
            n_done += _n_samples(entry)
            bar.update(n_done - bar.n)
            yield entry


def _n_samples(entry: Entry) -> int:
    return sum(len(samples) for samples in entry.values() if isinstance(samples, list))


class Progress:
    """The finished entries of one job; each is on disk as soon as it is added.

    `identity` is a hash of everything that affects the entries: progress with another identity is discarded. So are
    the entries from the first damaged line on, such as the zeros that some file systems leave after a power failure.
    """

    def __init__(self, output: Path, identity: str) -> None:
        self.path = progress_path(output)
        content = self.path.read_bytes() if self.path.exists() else b""
        header, *self.entries = self._whole(content) or [None]
        if header != {"settings": identity}:
            header, self.entries = {"settings": identity}, []
        intact = "".join(f"{json.dumps(entry)}\n" for entry in (header, *self.entries)).encode()
        if intact != content:
            with atomic_write(self.path) as unfinished:
                unfinished.write_bytes(intact)

    def _whole(self, content: bytes) -> list[Any]:
        """Return the values of the lines before the first that is damaged or repeats an entry.

        A half-written last line is dropped.
        """
        lines = content.split(b"\n")[:-1]
        values: list[Any] = []
        names: set[str] = set()
        for line in lines:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict) or not names.isdisjoint(value):
                logger.warning(
                    "%s: line %d of %d is damaged; it and what follows are computed again",
                    self.path, len(values) + 1, len(lines),
                )  # fmt: skip
                break
            values.append(value)
            names.update(value)
        return values

    def add(self, entry: Entry) -> None:
        append(self.path, json.dumps(entry) + "\n")


def entries_of(path: Path) -> Iterator[Entry]:
    """Yield the entries in a file of progress, of any settings, up to a damaged line."""
    for line in path.read_bytes().split(b"\n")[1:-1]:
        try:
            yield json.loads(line)
        except ValueError:
            return


def progress_path(output: Path) -> Path:
    return output.parent / ".progress" / f"{output.stem}.jsonl"
