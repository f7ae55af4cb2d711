"""The table of attempts, `attempts.parquet`: a row per attempt and arm. Reports, comparisons and exports read it.

Arm `refine-trained` of the demo (`config/config.yaml`) on the ARC task 68b67ca3:

attempts   turn  sample  slot  status  score  shown_solved  solved  tokens
              1       0     0  ok       0.52         False   False   35.75
              2      17    81  ok       1.00          True    True   43.75
task       valid code 1.0, valid outputs 0.906, train_pass_rate 0.023 (3 of 128 attempts), solved 1.0

`COLUMNS` are those of every experiment; a kind or domain adds its own. Grids and texts are in other files, by
`attempt_id`. The table has no seconds: those differ between equal runs, and the table does not.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arc_refinery.config import BaseArm, Compared
from arc_refinery.errors import InputError
from arc_refinery.evaluation.metrics import PASS_RATE, SOLVED, Metric, names
from arc_refinery.files import atomic_write, reading

TABLE = "attempts.parquet"
_AGAIN = "run the experiment to its end"
ATTRIBUTES = b"PANDAS_ATTRS"  # key of the file's metadata from which pandas fills `DataFrame.attrs`


class Column(NamedTuple):
    """A column of the table."""

    name: str
    type: pa.DataType
    meaning: str


COLUMNS = (
    Column("set", pa.string(), "evaluation set"),
    Column("arm", pa.string(), "name that the repetitions of an arm share"),
    Column("repetition", pa.string(), "name of the arm with the seeds of its training and sampling"),
    Column("training", pa.int64(), "seed of the training whose adapters the arm uses, if trainings are repeated"),
    Column("turn", pa.int64(), "1, 2, ...; an episode with tools has one"),
    Column("sample", pa.int64(), "index 0, 1, ... among the task's attempts in this turn"),
    Column("slot", pa.int64(), "index in the arm's budget: turn 2 starts after the budget of turn 1, spent or not"),
    Column("branch", pa.string(), "folder of its records; arms may share first turns"),
    Column("task_id", pa.string(), "task or question"),
    Column("attempt_id", pa.string(), "attempt or episode"),
    Column("prompt_id", pa.string(), "prompt that it answers; several attempts share one"),
    Column("parent_id", pa.string(), "attempt that it refines; empty in turn 1"),
    Column("likeness", pa.float64(), "to the program of its parent, 0..1 (docs/methods.md); of 8 per task and turn"),
    Column("model", pa.string(), "path or name on the hub"),
    Column("adapter", pa.string(), "name; `none`: the untrained model"),
    Column("seed", pa.int64(), "of its sampling"),
    Column("status", pa.string(), "`ok`: ran to its end (an episode: ended in an answer); else what ended it"),
    Column("error_type", pa.string(), "name of the exception; empty unless the program failed"),
    Column("fingerprint", pa.string(), "hash of what it gave; empty unless `status` is `ok`"),
    Column("score", pa.float64(), "0..1, on what the prompt shows; of an episode its reward"),
    Column("shown_solved", pa.bool_(), "right on what the prompt shows"),
    Column("solved", pa.bool_(), "right on everything, hidden checks included"),
    Column("n_calls", pa.int64(), "calls of tools"),
    Column("n_prompt_tokens", pa.int64(), "tokens of the prompt"),
    Column("n_tokens", pa.int64(), "tokens that the model generated"),
    Column("tokens", pa.float64(), "generated, and an equal share of the prompt, which its attempts read once"),
    Column("tokens_unshared", pa.int64(), "generated, and the whole prompt"),
    Column(
        "finish_reason",
        pa.string(),
        "`stop`; `length`: cut off at a limit of tokens; of a server also `too_long`, or its own",
    ),
    Column(
        "logprob",
        pa.float64(),
        "of its tokens under the model that sampled it; none for episodes; from servers if asked for",
    ),
    Column("reference_logprob", pa.float64(), "of the task's own program after its prompt, per token; if asked for"),
)
NAMES = tuple(column.name for column in COLUMNS)
NULLABLE = ("training", "likeness", "logprob", "reference_logprob")
ROWS = "rows"  # key of the file's metadata: hash of the ids of all rows


class ArmRows(NamedTuple):
    """The attempts of an arm on a set, in the order of the set's tasks, then of turns and samples."""

    set: str
    arm: str
    attempts: pd.DataFrame


def write(
    path: Path,
    experiment: Compared[Any],
    tasks: Mapping[str, Mapping[str, str]],
    extra: pa.Schema,
    rows: Iterable[ArmRows],
    settings: str,
) -> None:
    """Write the table, with one arm in memory at a time.

    `tasks`: of each set the ids of all its tasks, with or without attempts, and a hash of their contents; pandas gives
    them as `attrs["tasks"]`. `extra`: columns that `COLUMNS` does not have. `settings`: hash of what decides results.
    """
    fields = [pa.field(column.name, column.type, metadata={"meaning": column.meaning}) for column in COLUMNS]
    arms = {arm.name: (shared, arm) for shared, repeated in experiment.repetitions.items() for arm in repeated}
    attributes = {"tasks": tasks, "arms": [*arms], "settings": settings}
    metadata = {"package_version": version("arc-refinery"), ATTRIBUTES: json.dumps(attributes)}
    schema = pa.schema([*fields, *extra]).with_metadata(metadata)
    texts = [column.name for column in schema if pa.types.is_string(column.type)]
    with (
        atomic_write(path) as unfinished,
        pq.ParquetWriter(unfinished, schema, compression="zstd", use_dictionary=texts, write_page_checksum=True) as out,
    ):
        digest = sha256()
        for name, arm_name, attempts in rows:
            shared, arm = arms[arm_name]
            starts = {
                turn: sum(t.n_predictions for t in arm.turns[: turn - 1]) for turn in range(1, 1 + len(arm.turns))
            }
            named = attempts.assign(
                set=name,
                arm=shared,
                repetition=arm_name,
                training=experiment.training_seed(arm),
                slot=attempts["sample"] + attempts["turn"].map(starts),
                adapter=attempts["turn"].map({turn: entry.adapter for turn, entry in enumerate(arm.turns, 1)}),
            )
            table = pa.Table.from_pandas(named.reindex(columns=schema.names), schema, preserve_index=False)
            _add_rows(digest, table)
            out.write_table(table)
        out.add_key_value_metadata({ROWS: digest.hexdigest()})


def _add_rows(digest: "hashlib._Hash", table: pa.Table) -> None:
    for column in ("repetition", "attempt_id"):
        digest.update("\n".join(table[column].to_pylist()).encode())


@dataclass(frozen=True, slots=True)
class TurnOfArms:
    """Attempts of one turn, shared by arms that have the same first turn and budget."""

    branch: str
    turn: int
    n_predictions: int
    adapter: str
    arms: tuple[Any, ...]


@dataclass(frozen=True)
class Results:
    """All attempts on one evaluation set: the rows of the table, and the columns that `read` derives."""

    name: str
    tasks: Mapping[str, str]  # hash of the contents of each task, in the set's order
    attempts: pd.DataFrame
    metrics: Sequence[Metric]
    _turn_metrics: dict[tuple[str, int], pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def task_ids(self) -> tuple[str, ...]:
        return tuple(self.tasks)

    @cached_property
    def _turns(self) -> dict[tuple[str, int], pd.DataFrame]:
        return {(str(arm), int(turn)): rows for (arm, turn), rows in self.attempts.groupby(["repetition", "turn"])}

    def per_task(self, attempts: pd.DataFrame, task_ids: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the metrics of each task, by default of all (`per_task`)."""
        return per_task(attempts, self.task_ids if task_ids is None else task_ids, self.metrics)

    def attempts_of_turn(self, arm: BaseArm, turn: int) -> pd.DataFrame:
        """Return an arm's attempts in one turn."""
        return self._turns.get((arm.name, turn), self.attempts.iloc[:0])

    def attempts_of_arm(self, arm: BaseArm) -> pd.DataFrame:
        """Return all attempts of an arm, turn by turn."""
        return pd.concat([self.attempts_of_turn(arm, turn) for turn in range(1, len(arm.turns) + 1)], ignore_index=True)

    def attempts_of_branch(self, branch: str) -> pd.DataFrame:
        """Return all attempts of a branch, once: arms have the first ones of each task in common."""
        rows = self.attempts[self.attempts["branch"] == branch]
        largest = rows.groupby("repetition", sort=False).size().idxmax() if len(rows) else ""
        return rows[rows["repetition"] == largest]

    def metrics_of_turn(self, arm: BaseArm, turn: int, n_attempts: int | None = None) -> pd.DataFrame:
        """Return `per_task` of one turn alone, or of its first attempts per task; cached.

        Later turns cover only tasks that had something to refine.
        """
        n_attempts = n_attempts or arm.turns[turn - 1].n_predictions
        key = arm.branch(turn), n_attempts
        if key not in self._turn_metrics:
            attempts = self.attempts_of_turn(arm, turn)
            attempts = attempts[attempts["sample"] < n_attempts]
            task_ids = self.task_ids if turn == 1 else tasks_with_attempts(attempts, self.task_ids)
            self._turn_metrics[key] = self.per_task(attempts, task_ids)
        return self._turn_metrics[key]


def read(folder: Path, settings: str) -> pa.Table:
    """Read the whole table from an experiment's folder and check it; `settings`: hash of the experiment's settings.

    Raises `InputError` if the table is of other settings, which name its sets and arms.
    """
    path, damaged = folder / TABLE, f"delete it, then {_AGAIN}"
    if not path.is_file():
        raise InputError(f"{path}: no such file; the report writes it: {_AGAIN}")
    with reading(path, damaged, "a table of attempts"), pq.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        attributes = json.loads((schema.metadata or {}).get(ATTRIBUTES, "{}"))
        types = [schema.field(name).type for name in NAMES if name in schema.names]
        if not {"tasks", "arms", "settings"} <= attributes.keys() or types != [column.type for column in COLUMNS]:
            raise InputError(f"{path}: is not a table of attempts of this version; {damaged}")
        if attributes["settings"] != settings:
            raise InputError(f"{path}: was made with other settings than those of settings.json; {_AGAIN}")
        table, digest = file.read(), sha256()
        for group in range(file.num_row_groups):
            _add_rows(digest, file.read_row_group(group, ["repetition", "attempt_id"]))
        if file.metadata.metadata.get(ROWS.encode()) != digest.hexdigest().encode():
            raise InputError(f"{path}: has not the rows that were written; {damaged}")
    if nulls := [name for name in NAMES if name not in NULLABLE and table[name].null_count]:
        raise InputError(f"{path}: has no value in a row of {nulls[0]}; {damaged}")
    return table


def results_of(table: pa.Table, name: str, metrics: Sequence[Metric]) -> Results:
    """Return the attempts on a set."""
    tasks = json.loads(table.schema.metadata[ATTRIBUTES])["tasks"][name]
    return Results(name, tasks, with_outcomes(table.filter(pc.field("set") == name).to_pandas()), metrics)


def with_outcomes(attempts: pd.DataFrame) -> pd.DataFrame:
    """Add whether an attempt has outputs and a program, and, unless its domain says so, whether that raised."""
    status = attempts["status"]
    raised = attempts.get("raised", status == "error")
    return attempts.assign(is_valid=status == "ok", has_program=status != "no_code", raised=raised)


def turns_of(arms: Iterable[Any]) -> list[TurnOfArms]:
    """Return the distinct turns of several arms, first turns first; arms that share a turn are grouped in it."""
    owners: dict[tuple[int, str, int, str], list[Any]] = {}
    for arm in arms:
        for number, turn in enumerate(arm.turns, 1):
            owners.setdefault((number, arm.branch(number), turn.n_predictions, turn.adapter), []).append(arm)
    ordered = sorted(owners.items(), key=lambda item: item[0][0])
    return [TurnOfArms(branch, number, n, adapter, tuple(arms)) for (number, branch, n, adapter), arms in ordered]


def per_task(attempts: pd.DataFrame, task_ids: Sequence[str], metrics: Sequence[Metric]) -> pd.DataFrame:
    """Return the metrics of each task as shares 0..1: index `task_ids`, columns `names(metrics)` and `PASS_RATE`.

    Means over the task's attempts. `solved`: 1 if one attempt is right on everything. A task without attempts has 0
    everywhere.
    """
    groups = attempts.groupby("task_id")
    table = groups["solved"].mean().to_frame(PASS_RATE)
    for metric in metrics:
        values = groups[[metric.columns] if isinstance(metric.columns, str) else [*metric.columns]]
        if metric.is_distinct:
            distinct = attempts[attempts["is_valid"]].groupby("task_id")[metric.columns].nunique()
            table[metric.name] = distinct.reindex(table.index, fill_value=0) / groups.size()
        else:
            table[metric.name] = (values.any() if metric.is_any else values.mean()).min(axis=1)
    table[SOLVED] = table[PASS_RATE] > 0
    return table[[*names(metrics), PASS_RATE]].astype(float).reindex(list(task_ids), fill_value=0.0)


def tasks_with_attempts(attempts: pd.DataFrame, task_ids: Sequence[str]) -> list[str]:
    """Return the tasks that have attempts, in the order of `task_ids`."""
    present = set(attempts["task_id"])
    return [task_id for task_id in task_ids if task_id in present]


def tasks_in_all(tables: Sequence["pd.DataFrame | pd.Series[float]"], task_ids: Sequence[str]) -> list[str]:
    """Return the tasks that have a row in each table of `per_task`, in the order of `task_ids`."""
    return [task_id for task_id in task_ids if all(task_id in table.index for table in tables)]


def n_tasks_with_budget_left(attempts: pd.DataFrame, arm: BaseArm, task_ids: Sequence[str]) -> int:
    """Count tasks with fewer attempts than the arm's budget, because nothing (or too little) could be refined."""
    spent = attempts.groupby("task_id").size().reindex(list(task_ids), fill_value=0)
    return int((spent < arm.budget).sum())
