"""The log of a training: one JSON object a logged step, of which any figure may be missing."""

import json
from pathlib import Path

import pandas as pd

from arc_refinery.records import RecordError

FIGURES = {
    "reward": "mean reward (0..10)",
    "frac_reward_zero_std": "share of groups with equal rewards",
    "kl": "KL from the start (nats/token)",
    "entropy": "entropy (nats/token)",
    "completions/mean_length": "completion length (tokens)",
    "completions/clipped_ratio": "share of completions cut",
}


def read(path: Path) -> pd.DataFrame:
    """Columns `step` and those of `FIGURES` that were logged; entries without a reward (summaries) are left out.

    Where a step was logged twice, because the training went on from a checkpoint, the later entry counts.
    """
    if not path.exists():
        raise RecordError(f"{path}: no such file; train first: snakemake {path.parent}")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    steps = {entry["step"]: entry for entry in entries if "reward" in entry and "step" in entry}
    table = pd.DataFrame([steps[step] for step in sorted(steps)])
    return table[["step", *(name for name in FIGURES if name in table)]] if len(table) else table


def first_and_last(table: pd.DataFrame, name: str) -> tuple[float, float]:
    """Mean of a figure over the first and over the last tenth of the logged steps."""
    tenth = tenth_of(table)
    return float(table[name].iloc[:tenth].mean()), float(table[name].iloc[-tenth:].mean())


def tenth_of(table: pd.DataFrame) -> int:
    return max(1, len(table) // 10)
