"""Small jobs through HTCondor, of one shard and of several, beside a local run, as a Markdown table.

    python benchmarks/pool.py                  48 shards; takes some minutes
    python benchmarks/pool.py --shards 16 --together 4

Every row grades the same attempts: those of one sampled shard of the cut-down experiment, cut into more shards. The
pool is the private one of the tests (`make condor`), on this machine, with its CPUs as slots and negotiation every
second; a shared pool is slower to match. `CPU s` is what all processes used, the pool's included.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from checkout import Checkout, copy  # noqa: E402
from cluster.pool import SOFTWARE, Pool, is_unpacked  # noqa: E402
from sandbox import machine, show  # noqa: E402

from arc_refinery.branch_files import BranchFiles  # noqa: E402

TURN = "results/small/part1/turn1"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--shards", type=int, default=48, help="shards to grade")
    arguments.add_argument("--together", type=int, nargs="+", default=[1, 8], help="shards per grading job")
    arguments.add_argument("--cpus", type=int, default=os.cpu_count(), help="CPUs of the pool, and of the local run")
    options = arguments.parse_args()
    if not is_unpacked():
        sys.exit(f"{SOFTWARE} is not there: `make condor` unpacks HTCondor, or says why it cannot")
    with tempfile.TemporaryDirectory() as folder:
        checkout = sampled(Path(folder, "checkout"), options.shards)
        pool = Pool(SOFTWARE, Path(folder, "pool"), cpus=options.cpus, gpus=False)
        pool.configure()
        on_pool = ["--profile", "condor", "--seconds-between-status-checks", "1"]
        ways = {}
        for size in options.together:
            ways[f"local, {size} per job"] = (["--cores", str(options.cpus)], False, size)
            ways[f"pool, {size} per job"] = (on_pool, True, size)
        rows: list[tuple[str, float, float, float]] = []
        for way, (flags, is_on_pool, size) in ways.items():
            before = children_seconds()
            try:
                if is_on_pool:
                    pool.start()
                environment = pool.environment if is_on_pool else dict(os.environ)
                seconds = graded(checkout, flags, environment, options.shards, size)
            finally:
                pool.stop()
            rows.append((way, seconds, 60 * options.shards / seconds, children_seconds() - before))
    show(
        "Grading jobs",
        f"{machine()}. {options.shards} shards on {options.cpus} CPUs. Relative to the first row.",
        "way; wall s; shards per minute; relative; CPU s; relative",
        [
            [way, f"{wall:.1f}", f"{rate:.0f}", f"{rate / rows[0][2]:.2f}", f"{cpu:.0f}", f"{cpu / rows[0][3]:.2f}"]
            for way, wall, rate, cpu in rows
        ],
    )


def sampled(folder: Path, shards: int) -> Checkout:
    """A checkout with sampled attempts in so many shards."""
    folder.mkdir()
    checkout = copy(folder)
    cut_down = checkout.change(lambda config: config["parts"].update(shards_per_part=1, tasks_per_part=max(6, shards)))
    snakemake(checkout, ["--cores", "2"], dict(os.environ), [f"{TURN}/attempts/000.parquet"], cut_down)
    attempts = pq.read_table(folder / TURN / "attempts/000.parquet")
    for shard in range(shards):
        first, last = (len(attempts) * (shard + more) // shards for more in (0, 1))
        pq.write_table(attempts.slice(first, last - first), folder / TURN / f"attempts/{shard:03d}.parquet")
    return checkout


def graded(checkout: Checkout, flags: list[str], environment: dict[str, str], shards: int, together: int) -> float:
    """Return the wall seconds in which Snakemake grades all shards again."""

    def change(config: dict[str, Any]) -> None:
        config["parts"].update(shards_per_part=shards, tasks_per_part=max(6, shards))
        config["shards_per_grading_job"] = together

    files = BranchFiles(Path(TURN), shards, together)
    shutil.rmtree(checkout.folder / TURN / "verdicts", ignore_errors=True)
    start = time.perf_counter()
    snakemake(checkout, flags, environment, list(map(str, files.verdicts)), checkout.change(change, name="shards"))
    return time.perf_counter() - start


def snakemake(
    checkout: Checkout, flags: list[str], environment: dict[str, str], targets: list[str], config: str
) -> None:
    # by time stamps alone: the shards have no history
    command = [str(Path(sys.executable).parent / "snakemake"), *flags, "--rerun-triggers", "mtime"]
    command += ["--configfile", config, "--quiet", "all", "--", *targets]
    done = subprocess.run(command, cwd=checkout.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
