"""The log of a training, training.jsonl: a JSON object for each step, held-out check and decision, in running order.

A rollback abandons the steps after the one it goes back to; they stay in the file, before those that took their place.
"""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd

from arc_refinery.records import RecordError

# Figures of a step that the report shows, of which any may be missing, and what they are called there
FIGURES = {
    "reward": "mean reward",
    "reward/max": "best reward of a step",
    "loss": "loss (nats/token)",  # of SFT; that of GRPO says nothing
    "mean_token_accuracy": "token accuracy",
    "share/solved": "share of completions that solve their task",
    "share/zero_variance": "share of groups with equal rewards",
    "share/calling": "share of episodes that call a tool",
    "share/faulty_calls": "share of calls that go wrong",
    "calls": "calls in an episode",
    "share/improved": "share of second turns that earn more than the first",
    "kl": "KL from the start (nats/token)",
    "entropy": "entropy (nats/token)",
    "completions/mean_length": "completion length (tokens)",
    "share/truncated": "share of completions cut",
    "reward/truncated": "mean reward of those",
    "unique_tokens/finished": "unique tokens / tokens, completions not cut",
    "repetition": "share of repeated 4-grams",
    "share/no_code": "share of completions without a program",
    "share/error": "share that fail with an error",
    "share/invalid_output": "share with invalid outputs",
    "share/timeout": "share that time out",
    "share/memory": "share that run out of memory",
    "sampling/sampling_logp_difference/mean": "log-probability gap, trainer to sampler",
    "grad_norm": "gradient norm before clipping",
}
OF_TRL = {
    "share/zero_variance": "frac_reward_zero_std",
    "share/truncated": "completions/clipped_ratio",
}  # in older logs


@dataclass(frozen=True, slots=True)
class Check:
    """What a checkpoint earned on the held-out prompts."""

    step: int
    reward: float
    solved: float | None = None  # share of completions


@dataclass(frozen=True, slots=True)
class Decision:
    """A collapse, and what the guard did about it."""

    step: int
    criterion: str
    value: float
    limit: float
    action: str  # rollback, stop, none
    to_step: int | None = None
    learning_rate: float | None = None  # from then on


@dataclass(frozen=True, slots=True)
class Chosen:
    """The checkpoint that became the adapter."""

    step: int
    why: str
    heldout_reward: float | None = None


@dataclass(slots=True)
class Log:
    """A training as it went."""

    steps: pd.DataFrame = field(default_factory=pd.DataFrame)  # what led to the end, in order: `step`, all figures
    abandoned: list[pd.DataFrame] = field(default_factory=list)  # what each rollback threw away
    checks: list[Check] = field(default_factory=list)
    abandoned_checks: list[Check] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    chosen: Chosen | None = None

    @property
    def is_grpo(self) -> bool:
        return "reward" in self.steps

    @property
    def window(self) -> int:
        """Steps that a mean is taken over: a tenth of them."""
        return max(1, len(self.steps) // 10)

    def first_and_last(self, figure: str) -> tuple[float, float]:
        """Mean of a figure over the first and over the last tenth of the steps; nan where none of them has it."""
        values = self.steps[figure]
        return float(values.iloc[: self.window].mean()), float(values.iloc[-self.window :].mean())


def read(path: Path) -> Log:
    """The whole log. Of steps that are there twice the later ones count, also where no decision explains why."""
    if not path.exists():
        raise RecordError(f"{path}: no such file; train first: snakemake {path.parent}")
    log = Log()
    kept: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            entry = json.loads(line)
            match entry:
                case {"heldout": check}:
                    log.checks.append(_record(Check, check))
                case {"guard": decision}:
                    log.decisions.append(_record(Decision, decision))
                    if log.decisions[-1].action == "rollback" and log.decisions[-1].to_step is not None:
                        kept = _back_to(log.decisions[-1].to_step, kept, log)
                case {"chosen": chosen}:
                    log.chosen = _record(Chosen, chosen)
                case {"step": step} if "reward" in entry or "loss" in entry:  # others are summaries
                    kept = [*_back_to(step - 1, kept, log), entry]
        except (json.JSONDecodeError, TypeError) as error:
            raise RecordError(f"{path}, line {number}: is no entry of a training log ({error}). Train again") from None
    log.steps = _table(kept)
    figures = list(dict.fromkeys(name for part in (log.steps, *log.abandoned) for name in part))
    log.steps = log.steps.reindex(columns=figures)
    return log


def _record(kind: type, values: dict[str, Any]) -> Any:
    return kind(**{each.name: values[each.name] for each in fields(kind) if each.name in values})


def _back_to(step: int, kept: list[dict[str, Any]], log: Log) -> list[dict[str, Any]]:
    """What is left of the entries up to a step; the others become a part of the log that was abandoned."""
    left = [entry for entry in kept if entry["step"] <= step]
    if len(left) < len(kept):
        log.abandoned.append(_table(kept[len(left) :]))
        log.abandoned_checks += [check for check in log.checks if check.step > step]
        log.checks = [check for check in log.checks if check.step <= step]
    return left


def _table(entries: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(entries).apply(pd.to_numeric)  # what was no number is null in the log, and nan from here on
    for name, older in OF_TRL.items():
        if name not in table and older in table:
            table[name] = table[older]
    return table
