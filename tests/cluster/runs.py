"""Runs of Snakemake beside a test, whose jobs go to the pool."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkout import Checkout
from processes import Running

from cluster.pool import Pool, wait_until

LONG = "results/long.yaml"  # sampling a shard takes long enough to be disturbed
SHARD = "results/small/part1/turn1/attempts/000.parquet"
PROGRESS = "results/small/part1/turn1/attempts/.progress/000.jsonl"
LOG = "logs/small/part1/turn1/sample-000.log"


@dataclass(frozen=True)
class Run:
    """A run of Snakemake under the profile `condor`, beside the test."""

    process: Running
    checkout: Checkout
    output: Path
    pool: Pool
    started: int  # seconds since the epoch

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def says(self, words: str, seconds: float = 90) -> str:
        """Wait for words in the output; the line that has them."""
        wait_until(lambda: words in self.text or self.process.poll() is not None, seconds, self.explain)
        assert words in self.text, self.explain()
        return next(line for line in self.text.splitlines() if words in line)

    def job(self, rule: str, status: int | None = None) -> dict[str, Any]:
        """Wait for a job of a rule; if a state is asked for, in that state (1 idle, 2 running, 5 held)."""
        constraint = f'QDate >= {self.started} && regexp("^{rule}-", JobBatchName)'
        if status:
            constraint += f" && JobStatus == {status}"
        jobs: list[dict[str, Any]] = wait_until(
            lambda: self.pool.jobs(constraint) or (not status and self.pool.jobs(constraint, history=True)),
            90,
            self.explain,
        )
        return jobs[0]

    def end(self, seconds: float = 300) -> int:
        """Wait for the exit status."""
        wait_until(lambda: self.process.poll() is not None, seconds, lambda: f"it does not end: {self.explain()}")
        return self.process.returncode

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def explain(self) -> str:
        logs = sorted(self.checkout.folder.glob("logs/**/*.log")) + sorted(self.checkout.folder.glob("logs/**/*.err"))
        tails = "\n".join(f"{path}:\n{path.read_text(errors='replace')[-1500:]}" for path in logs)
        return f"{self.text[-5000:]}\n{tails}\nqueue: {self.pool.jobs()}"
