"""Kill a whole small experiment at random moments, type the same command again, and compare the bytes of all results.

    python benchmarks/kills.py --folder /tmp/kills            50 kills, 5 in each run: about half an hour on two cores
    python benchmarks/kills.py --folder /tmp/kills --n 10     the first 10; a later call continues after them

First, one run that nobody disturbs; its results are the standard. Every other run starts from nothing. It is killed
with SIGKILL, the same command is typed once more, is killed again, and so on; the last command may finish. In even runs
Snakemake is killed with all that it has started, in odd runs Snakemake alone. The moments are drawn from the seed,
uniformly over the time of the undisturbed run; a run that ends before its last moments has fewer kills.

All files below results/ are compared, also hidden ones, so a file that is left over is a difference. At each kill, the
files at their final names are compared, too: none may be incomplete. Not killed here: jobs of clusters, machines.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import file_digest
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from sandbox import machine, progress, show

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from checkout import SMALL, Checkout, copy
from processes import environment

KILLS_PER_RUN = 5
ENDING_SECONDS = 10.0  # that jobs may take to end after Snakemake
KINDS = ("Snakemake and all that it started", "Snakemake alone")
COMMAND = [
    sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", "results/killed.yaml", "--quiet", "rules",
]  # fmt: skip

Digests = dict[str, str]


@dataclass
class Kill:
    seconds: float  # after the command was typed
    commands: list[str]  # commands of this package that ran
    incomplete: list[str]  # files at their final names with other bytes than in the end
    n_left: int  # processes that outlived Snakemake


@dataclass
class DisturbedRun:
    kind: str
    kills: list[Kill] = field(default_factory=list)
    refused: str = ""  # what a command printed that ended with an error by itself
    differing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Undisturbed:
    seconds: float
    planning_seconds: float  # time of the same command when nothing is left to do
    results: Digests


def shrink(content: dict[str, Any]) -> None:
    """Make the tests' small experiment smaller: every stage runs, few jobs of each."""
    content["experiment"] = "killed"
    content["parts"] |= {"n_parts": 1, "tasks_per_part": 5}
    content["evaluation"]["sets"] = [{"name": "heldout", "source": "generator", "n_tasks": 4, "shards": 2}]
    trained = [{"n_predictions": 4}, {"n_predictions": 4, "adapter": "trained"}]
    content["evaluation"]["arms"] = [
        {"name": "independent", "turns": [{"n_predictions": 8}]},
        {"name": "refine-trained", "turns": trained},
    ]
    content["training"]["sft"] |= {"max_steps": 2, "save_steps": 1}
    content["training"]["grpo"] |= {"max_steps": 3, "save_steps": 1}


def digests(folder: Path) -> Digests:
    hashes = {}
    for path in sorted((folder / "results").rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                hashes[str(path.relative_to(folder))] = file_digest(file, "sha256").hexdigest()
    return hashes


def is_final(name: str) -> bool:
    """Return whether a name is that of a result: progress and temporary files are hidden, checkpoints have a folder."""
    return not any(part.startswith(".") or part.endswith(".checkpoints") for part in Path(name).parts)


def start(folder: Path) -> subprocess.Popen[str]:
    with (folder / "output").open("w") as output:
        return subprocess.Popen(
            COMMAND, cwd=folder, env=environment(), stdout=output, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip


def run_undisturbed(checkout: Checkout) -> Undisturbed:
    seconds = []
    for _ in range(2):
        begin = time.monotonic()
        if start(checkout.folder).wait():
            sys.exit(f"the undisturbed run failed:\n{(checkout.folder / 'output').read_text()}")
        seconds.append(time.monotonic() - begin)
    return Undisturbed(seconds[0], seconds[1], digests(checkout.folder))


def run_disturbed(checkout: Checkout, kind: str, waits: Sequence[float], undisturbed: Undisturbed) -> DisturbedRun:
    run = DisturbedRun(kind)
    for seconds in [*waits, None]:
        process = start(checkout.folder)
        with suppress(subprocess.TimeoutExpired):
            if process.wait(seconds):
                run.refused = (checkout.folder / "output").read_text()
            break
        assert seconds is not None
        commands, left = kill(process, kind)
        hashes = digests(checkout.folder)
        incomplete = [name for name in hashes if is_final(name) and hashes[name] != undisturbed.results.get(name)]
        run.kills.append(Kill(round(seconds, 2), commands, incomplete, left))
    hashes = digests(checkout.folder)
    names = sorted(hashes.keys() | undisturbed.results.keys())
    run.differing = [name for name in names if hashes.get(name) != undisturbed.results.get(name)]
    return run


def kill(process: subprocess.Popen[str], kind: str) -> tuple[list[str], int]:
    """Return the commands that ran, and how many processes are left after a while."""
    started = psutil.Process(process.pid).children(recursive=True)
    commands = sorted({name for child in started for name in command_of(child)})
    process.kill()
    if kind == KINDS[0]:
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.wait()
    _, alive = psutil.wait_procs(started, ENDING_SECONDS)
    return commands, len(alive)


def command_of(process: psutil.Process) -> Iterator[str]:
    """The name of a command of this package: `stage sample`, `report`."""
    with suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        if len(words) > 2 and Path(words[1]).name == "arc-refinery":
            names = [word for word in words[2:4] if not word.startswith("-")]
            yield " ".join(names)


def moments(seed: int, number: int, seconds: float, planning_seconds: float) -> list[float]:
    """Return the seconds after which each command of a run is killed; all but the first plan once more."""
    rng = random.Random(f"{seed}/{number}")
    ends = sorted(rng.uniform(0.0, seconds) for _ in range(KILLS_PER_RUN))
    gaps = [end - begin for begin, end in pairwise(ends)]
    return [ends[0], *(gap + planning_seconds for gap in gaps)]


def tables(runs: Sequence[DisturbedRun]) -> None:
    rows = []
    for kind in KINDS:
        ours = [run for run in runs if run.kind == kind]
        kills = [kill for run in ours for kill in run.kills]
        rows.append(
            [
                kind,
                str(len(kills)),
                str(len(ours)),
                f"{sum(not run.differing for run in ours)} of {len(ours)}",
                str(sum(bool(run.refused) for run in ours)),
                str(sum(bool(kill.incomplete) for kill in kills)),
                str(sum(bool(kill.n_left) for kill in kills)),
            ]
        )
    columns = "killed; kills; in runs; same bytes in the end; needed more than the same command; incomplete files; "
    show("Kills", "Every command was typed once after each kill.", columns + "processes left", rows)
    stages = Counter(", ".join(kill.commands) or "Snakemake itself" for run in runs for kill in run.kills)
    show(
        "What ran", "Commands that ran at the kill.", "commands; kills", [[k, str(n)] for k, n in stages.most_common()]
    )
    for run in runs:
        for what in (run.refused, *run.differing, *(name for kill in run.kills for name in kill.incomplete)):
            if what:
                print(f"{run.kind}: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--folder", type=Path, required=True, help="where it works and keeps what it has measured")
    parser.add_argument("--n", type=int, default=50, help="kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, help="draw moments over this time (default: that of the undisturbed run)"
    )
    arguments = parser.parse_args()
    folder = arguments.folder / f"seed{arguments.seed}"
    pristine = Checkout(folder / "pristine")
    measured = folder / "undisturbed.json"
    if not measured.exists():
        shutil.rmtree(folder, ignore_errors=True)
        pristine.folder.mkdir(parents=True)
        copy(pristine.folder).change(shrink, SMALL, "killed")
        progress("the undisturbed run")
        whole = run_undisturbed(pristine.clone(folder / "undisturbed"))
        measured.write_text(json.dumps(asdict(whole)))
    undisturbed = Undisturbed(**json.loads(measured.read_text()))
    runs: list[DisturbedRun] = []
    while sum(len(run.kills) for run in runs) < arguments.n:
        number = len(runs)
        record = folder / f"run{number}.json"
        if not record.exists():
            progress(f"run {number}: {sum(len(run.kills) for run in runs)} of {arguments.n} kills so far")
            shutil.rmtree(folder / "run", ignore_errors=True)
            checkout = pristine.clone(folder / "run")
            seconds = arguments.seconds or undisturbed.seconds
            waits = moments(arguments.seed, number, seconds, undisturbed.planning_seconds)
            run = run_disturbed(checkout, KINDS[number % 2], waits, undisturbed)
            if run.refused or run.differing:
                checkout.folder.rename(folder / f"failed{number}")
            record.write_text(json.dumps(asdict(run)))
        content = json.loads(record.read_text())
        runs.append(DisturbedRun(**content | {"kills": [Kill(**kill) for kill in content["kills"]]}))
    print(f"{machine()}. An undisturbed run: {undisturbed.seconds:.0f} s.\n")
    tables(runs)


if __name__ == "__main__":
    main()
