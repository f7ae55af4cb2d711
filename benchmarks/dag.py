"""Time and memory in which Snakemake plans the full-size experiment, as a Markdown table.

    python benchmarks/dag.py                          parts of 100, 1,000 and 10,000 shards; the last takes minutes
    python benchmarks/dag.py --shards 100 1000        those that answer within a minute

The experiment is `config/multi-turn-rl.yaml`, with `shards` of each part of the training tasks and a fifth of that of
the evaluation set. A round is one process and one fresh working folder:

    snakemake --list-rules         start, and parsing of the configuration and rules: `s parse`
    snakemake -n --quiet           the same, the graph of jobs, what must run: `s in all` and its peak memory

A third one, not timed, counts the jobs. The table shows the fastest round. `ms per job` is what planning adds to
parsing, over the jobs; `to linear` compares it with the first row, 1 is linear growth. Running jobs is not measured.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from sandbox import machine, progress, show

from arc_refinery import config
from arc_refinery.refining.domains.arc.config import ArcExperiment

ROOT = Path(__file__).parents[1]
RUN_FOLDERS = {"results", "logs"}  # what runs leave in the checkout


def resized(experiment: dict[str, Any], shards: int) -> dict[str, Any]:
    """The experiment with parts of so many shards, and evaluation sets of a fifth of that."""
    parts, evaluation = experiment["parts"], experiment["evaluation"]
    sets = [task_set | {"shards": max(1, shards // 5)} for task_set in evaluation["sets"]]
    return experiment | {"parts": parts | {"shards_per_part": shards}, "evaluation": evaluation | {"sets": sets}}


def fastest(rounds: int, experiment: dict[str, Any], *flags: str) -> tuple[float, float, str]:
    return min(snakemake(experiment, *flags) for _ in range(rounds))


def snakemake(experiment: dict[str, Any], *flags: str) -> tuple[float, float, str]:
    """Wall seconds, peak memory (MB) and output of one call where nothing has run."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ROOT.iterdir():
            if path.name not in RUN_FOLDERS and not path.name.startswith("."):
                Path(folder, path.name).symlink_to(path)
        Path(folder, "experiment.yaml").write_text(yaml.safe_dump(experiment))
        command = [sys.executable, "-m", "snakemake", "--configfile", "experiment.yaml", *flags]
        with tempfile.TemporaryFile("w+") as output:
            start = time.perf_counter()
            with subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.perf_counter() - start
            output.seek(0)
            text = output.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{text}")
    return seconds, usage.ru_maxrss / 1024, text


def count_jobs(experiment: dict[str, Any]) -> int:
    """Return the total that Snakemake prints: only where it may also print, which takes longer than planning."""
    _, _, text = snakemake(experiment, "-n", "--quiet", "rules")
    return int(re.findall(r"^total +(\d+)$", text, re.MULTILINE)[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=(100, 1000, 10000), help="of a part")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement (default: %(default)s)")
    parser.add_argument("--configfile", type=Path, default=ROOT / "config/multi-turn-rl.yaml")
    parser.add_argument("--profile", default="", help="plan under this profile, e.g. condor")
    arguments = parser.parse_args()
    under = ["--profile", arguments.profile] if arguments.profile else []
    experiment = config.load_experiment(arguments.configfile, ArcExperiment).model_dump(mode="json")
    rows: list[list[str]] = []
    first = 0.0
    for shards in arguments.shards:
        progress(f"planning: parts of {shards} shards")
        wanted = resized(experiment, shards)
        parse, _, _ = fastest(arguments.rounds, wanted, "--list-rules")
        plan, memory, _ = fastest(arguments.rounds, wanted, "-n", "--quiet", *under)
        n_jobs = count_jobs(wanted)
        per_job = (plan - parse) / n_jobs
        first = first or per_job
        metrics = [
            shards, n_jobs, f"{parse:.1f}", f"{plan:.1f}", f"{1000 * per_job:.2f}", f"{per_job / first:.2f}",
            f"{memory:.0f}",
        ]  # fmt: skip
        rows.append([str(figure) for figure in metrics])
    print(f"{machine()}\n")
    show(
        "Planning",
        f"Fastest of {arguments.rounds} rounds, nothing made yet.",
        "shards of a part; jobs; s parse; s in all; ms per job; to linear; peak MB",
        rows,
    )


if __name__ == "__main__":
    main()
