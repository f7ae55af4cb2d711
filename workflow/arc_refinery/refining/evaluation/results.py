"""Attempts on an evaluation set as tables: one row per attempt, then one row per task and arm.

Arm `refine-trained` of the demo (`config/config.yaml`) on the ARC task 68b67ca3:

attempts   turn  slot  status  train_correct_grids  shown_solved  solved  tokens
              1     0  ok                      0.0         False   False   35.75
              2    81  ok                      1.0          True    True   43.75
task       valid code 1.0, valid outputs 0.906, train_pass_rate 0.023 (3 of 128 attempts), solved 1.0

Grids and completions are not loaded: 400 tasks x 256 attempts take some tens of MB.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pandas as pd

from arc_refinery import records
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import inputs
from arc_refinery.evaluation.sides import ADVICE, check_rows
from arc_refinery.records import Attempt, Prompt, RecordError
from arc_refinery.refining.config import Arm, Refining, TaskSet
from arc_refinery.refining.domain import Domain, load_domain
from arc_refinery.refining.metrics import PASS_RATE, SOLVED, Metric, names

_VERDICT_COLUMNS = [
    *("attempt_id", "prompt_id", "task_id", "has_closed_code", "status", "error", "fingerprint", "score", "solved")
]
_ATTEMPT_COLUMNS = ["parent_id", "n_prompt_tokens", "n_tokens", "finish_reason"]


@dataclass(frozen=True, slots=True)
class TurnOfArms:
    """Attempts of one turn, shared by arms that have the same first turn and budget."""

    branch: str
    turn: int
    n_predictions: int
    adapter: str
    arms: tuple[Arm, ...]


@dataclass(frozen=True, slots=True)
class SetResults:
    """All attempts on one evaluation set, by branch, in file order.

    Columns: those of verdicts and attempts, with `error_type` instead of the error message, and those of the domain;
    `shown_solved` and `solved`: right on what the prompt shows, and on everything; `place`, the index 0, 1, ...
    among the task's attempts in this branch; `tokens`, those of the completion plus an equal share of the prompt's,
    if this is read once for all its completions; `tokens_unshared`, with the whole prompt, if each attempt reads it.
    """

    name: str
    task_ids: tuple[str, ...]
    branches: dict[str, pd.DataFrame]
    metrics: Sequence[Metric] = ()  # the domain's own
    _turn_metrics: dict[tuple[str, int], pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def per_task(self, attempts: pd.DataFrame, task_ids: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the metrics of each task, by default of all (`per_task`)."""
        return per_task(attempts, self.task_ids if task_ids is None else task_ids, self.metrics)

    def attempts_of_turn(self, arm: Arm, turn: int) -> pd.DataFrame:
        """Return an arm's attempts in one turn: the first ones on each task, up to the turn's budget.

        Adds the columns `turn` and `slot`, the index 0, 1, ... in the task's budget. Slots of a turn start after the
        full budgets of earlier turns, spent or not.
        """
        attempts = self.branches[arm.branch(turn)]
        own = attempts[attempts["place"] < arm.turns[turn - 1].n_predictions]
        start = sum(earlier.n_predictions for earlier in arm.turns[: turn - 1])
        return own.assign(turn=turn, slot=own["place"] + start)

    def metrics_of_turn(self, arm: Arm, turn: int, n_attempts: int | None = None) -> pd.DataFrame:
        """Return `per_task` of one turn alone, or of its first attempts per task; cached.

        Later turns cover only tasks that had something to refine.
        """
        n_attempts = n_attempts or arm.turns[turn - 1].n_predictions
        key = arm.branch(turn), n_attempts
        if key not in self._turn_metrics:
            attempts = self.attempts_of_turn(arm, turn)
            attempts = attempts[attempts["place"] < n_attempts]
            task_ids = self.task_ids if turn == 1 else tasks_with_attempts(attempts, self.task_ids)
            self._turn_metrics[key] = self.per_task(attempts, task_ids)
        return self._turn_metrics[key]

    def attempts_of_arm(self, arm: Arm) -> pd.DataFrame:
        """Return all attempts of an arm, turn by turn."""
        return pd.concat([self.attempts_of_turn(arm, turn) for turn in range(1, len(arm.turns) + 1)], ignore_index=True)


def load_results(experiment: Refining, folder: Path, task_set: TaskSet, arms: Iterable[Arm]) -> SetResults:
    """Load all attempts of the arms on a set from the experiment's folder."""
    domain = load_domain(experiment.domain)
    task_ids = read_task_ids(domain, folder, task_set)
    arms = list(arms)
    names = sorted({branch for arm in arms for branch in arm.branches})
    files = {name: experiment.files(folder, task_set.name, name) for name in names}
    branches = {name: load_branch(domain, branch_files, task_ids) for name, branch_files in files.items()}
    for name, branch_files in files.items():
        check_branch(experiment, branch_files, task_set.name, name)
    for arm in arms:
        for before, branch in pairwise(["", *arm.branches]):
            parents = set(branches[before]["attempt_id"]) if before else {""}
            if strange := set(branches[branch]["parent_id"]) - parents:
                raise records.RecordError(
                    f"{folder / task_set.name / branch}: has attempts that refine {min(strange)!r}, which is not in "
                    f"{before or 'a first turn'}. Delete the folder, then run snakemake again"
                )
    return SetResults(task_set.name, task_ids, branches, domain.metrics)


def read_task_ids(domain: Domain, folder: Path, task_set: TaskSet) -> tuple[str, ...]:
    """Return the task ids of a set, in its order."""
    return tuple(_read(folder / "tasks" / f"{task_set.name}.parquet", domain.task_class, ["task_id"])["task_id"])


def load_branch(
    domain: Domain, files: BranchFiles, task_ids: Collection[str], extra: Sequence[str] = ()
) -> pd.DataFrame:
    """Load one branch of `SetResults`, with `extra` columns of attempts; raises `records.RecordError`."""
    records.check_branch(files, domain.prompt_class, domain.attempt_class)
    records.check_made_from(files.prompts, [files.tasks])
    verdicts = pd.concat([_read_verdicts(domain, path) for path in files.verdicts], ignore_index=True)
    attempts = pd.concat([_read(path, records.Attempt, [*_ATTEMPT_COLUMNS, *extra]) for path in files.attempts])
    if unknown := sorted(set(verdicts["task_id"]) - set(task_ids)):
        raise records.RecordError(
            f"{files.folder}: has attempts on task {unknown[0]}, which is not in {files.tasks}. "
            "Delete the folder, then run snakemake again"
        )
    table = pd.concat([verdicts, attempts.reset_index(drop=True)], axis=1)  # rows match: they were checked
    completions_of_prompt = table.groupby("prompt_id")["attempt_id"].transform("size")
    return domain.derive(table.drop(columns="error")).assign(
        error_type=table["error"].str.extract(r"^([\w.]{0,40})", expand=False).astype("category"),
        place=table.groupby("task_id").cumcount(),
        tokens=table["n_tokens"] + table["n_prompt_tokens"] / completions_of_prompt,
        tokens_unshared=table["n_tokens"] + table["n_prompt_tokens"],
    )


def turns_of(arms: Iterable[Arm]) -> list[TurnOfArms]:
    """Return the distinct turns of several arms, first turns first; arms that share a turn are grouped in it."""
    owners: dict[tuple[int, str, int, str], list[Arm]] = {}
    for arm in arms:
        for number, turn in enumerate(arm.turns, 1):
            owners.setdefault((number, arm.branch(number), turn.n_predictions, turn.adapter), []).append(arm)
    ordered = sorted(owners.items(), key=lambda item: item[0][0])
    return [TurnOfArms(branch, number, n, adapter, tuple(arms)) for (number, branch, n, adapter), arms in ordered]


def per_task(attempts: pd.DataFrame, task_ids: Sequence[str], own: Sequence[Metric]) -> pd.DataFrame:
    """Return the metrics of each task as shares 0..1: index `task_ids`, columns `names(own)` and `PASS_RATE`.

    Means over the task's attempts: `valid code` (the completion has a closed Python block), `any code` (it contains a
    program, perhaps cut off), `valid outputs` (the program ran to its end). `unique outputs` = distinct outputs /
    attempts. `solved`: 1 if one attempt is right on everything. `own` are the domain's metrics. A task without attempts
    has 0 everywhere.
    """
    marked = attempts.assign(
        **{
            "valid code": attempts["has_closed_code"],
            "any code": attempts["status"] != "no_code",
            "valid outputs": attempts["status"] == "ok",
            PASS_RATE: attempts["solved"],
        }
    )
    groups = marked.groupby("task_id")
    metrics = groups[["valid code", "any code", "valid outputs", PASS_RATE]].mean()
    n_outputs = marked[marked["valid outputs"]].groupby("task_id")["fingerprint"].nunique()
    metrics["unique outputs"] = n_outputs.reindex(metrics.index, fill_value=0) / groups.size()
    for metric in own:
        values = groups[[metric.columns] if isinstance(metric.columns, str) else [*metric.columns]]
        metrics[metric.name] = (values.any() if metric.is_any else values.mean()).min(axis=1)
    metrics[SOLVED] = metrics[PASS_RATE] > 0
    return metrics[[*names(own), PASS_RATE]].astype(float).reindex(list(task_ids), fill_value=0.0)


def tasks_with_attempts(attempts: pd.DataFrame, task_ids: Sequence[str]) -> list[str]:
    """Return the tasks that have attempts, in the order of `task_ids`."""
    present = set(attempts["task_id"])
    return [task_id for task_id in task_ids if task_id in present]


def n_tasks_with_budget_left(attempts: pd.DataFrame, arm: Arm, task_ids: Sequence[str]) -> int:
    """Count tasks with fewer attempts than the arm's budget, because nothing (or too little) could be refined."""
    spent = attempts.groupby("task_id").size().reindex(list(task_ids), fill_value=0)
    return int((spent < arm.budget).sum())


def _read_verdicts(domain: Domain, path: Path) -> pd.DataFrame:
    """Read the columns of verdicts that tables use, those of the domain's `detail` among them."""
    own = {f"detail.{name}": name for name in domain.columns}
    return _read(path, domain.verdict_class, [*_VERDICT_COLUMNS, *own]).rename(columns=own)


def _read(path: Path, cls: type[records.RecordClass], columns: list[str]) -> pd.DataFrame:
    table: pd.DataFrame = records.columns(path, cls, columns).to_pandas()
    return table


def check_branch(experiment: Refining, files: BranchFiles, tasks: str, branch: str) -> None:
    """Raise `RecordError` unless a branch's attempts were sampled with an experiment's settings, in their number."""
    sampled = experiment.sampled(tasks, branch)
    expected = {
        "model": ("model.path", inputs.model_path(experiment, sampled.model)),
        "adapter": ("adapter", sampled.adapter or ""),
        "seed": ("seed", sampled.seed),
        "temperature": ("sampling.temperature", sampled.temperature),
        "top_p": ("sampling.top_p", sampled.top_p),
    }
    for path in files.attempts:
        check_rows(path, Attempt, expected)
    if branch.startswith("turn1"):
        n_predictions = experiment.first_turn_predictions(tasks, branch)
    else:
        arm, number = experiment.arm_and_turn(branch)
        n_predictions = arm.turns[number - 1].n_predictions
    _check_number(files.prompts, n_predictions)


def _check_number(prompts: Path, expected: int) -> None:
    """Raise `RecordError` unless the prompts of a task ask for so many completions, except those that are too long."""
    table = records.columns(prompts, Prompt, ["task_id", "n_predictions"])
    sums = table.group_by("task_id").aggregate([("n_predictions", "sum")])["n_predictions_sum"].to_pylist()
    n = max(sums, default=expected)
    if n > expected or (n < expected and not records.notes(prompts).get("n_dropped")):
        raise RecordError(
            f"{prompts}: asks for {n} completions per task, but the settings say {expected} (n_predictions). {ADVICE}"
        )
