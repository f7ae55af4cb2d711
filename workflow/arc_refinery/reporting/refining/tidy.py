"""One table for pandas: a row for each attempt of each arm. No grids and no texts: `attempt_id` finds them."""

from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery import records
from arc_refinery.config import Arm, Experiment, TaskSet
from arc_refinery.evaluation.arms import SCORES
from arc_refinery.files import atomic_write
from arc_refinery.records import RecordError

SCHEMA = pa.schema(
    [
        ("set", pa.string()),
        ("arm", pa.string()),
        ("turn", pa.int64()),
        ("slot", pa.int64()),  # place 0, 1, ... in the task's budget; turn 2 begins where the budget of turn 1 ends
        ("branch", pa.string()),  # folder of its files; arms share first turns
        ("task_id", pa.string()),
        ("attempt_id", pa.string()),
        ("prompt_id", pa.string()),
        ("parent_id", pa.string()),  # the attempt that it refines; empty in turn 1
        ("model", pa.string()),
        ("adapter", pa.string()),  # its name; none: the model as it is
        ("seed", pa.int64()),
        ("status", pa.string()),
        ("error_type", pa.string()),  # empty unless the program failed
        ("fingerprint", pa.string()),  # of its outputs; empty unless status is ok
        *((score, pa.float64()) for score in SCORES),
        ("train_is_correct", pa.bool_()),
        ("test_is_correct", pa.bool_()),
        ("n_prompt_tokens", pa.int64()),
        ("n_tokens", pa.int64()),
        ("finish_reason", pa.string()),
        ("logprob", pa.float64()),
    ]
)
_OF_VERDICT = ["attempt_id", "prompt_id", "task_id", "status", "error", "fingerprint", *SCORES]
_OF_ATTEMPT = ["attempt_id", "parent_id", "model", "seed", "n_prompt_tokens", "n_tokens", "finish_reason", "logprob"]


def write(experiment: Experiment, folder: Path, output: Path) -> None:
    """Write all attempts of the experiment's arms, read from its folder, one branch in memory at a time.

    Rows: by set, branch, arm, task (in the set's order), slot; so the bytes do not depend on the number of shards.
    """
    schema = SCHEMA.with_metadata({"package_version": version("arc-refinery"), "seed": str(experiment.seed)})
    texts = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
    with (
        atomic_write(output) as unfinished,
        pq.ParquetWriter(unfinished, schema, compression="zstd", use_dictionary=texts) as file,
    ):
        for task_set in experiment.evaluation.sets:
            for branch in experiment.branches:
                attempts = _branch(folder, task_set, branch)
                for arm in experiment.arms:
                    if branch in arm.branches:
                        rows = _of_arm(attempts, arm, arm.branches.index(branch) + 1)
                        file.write_table(pa.Table.from_pandas(rows[SCHEMA.names], schema, preserve_index=False))


def _branch(folder: Path, task_set: TaskSet, branch: str) -> pd.DataFrame:
    """The attempts of a branch with their verdicts, task by task in the set's order; `place`: 0, 1, ... of its task."""
    place = folder / task_set.name / branch
    verdicts = _read(place / "verdicts", task_set.shards, "verdicts", _OF_VERDICT)
    attempts = _read(place / "attempts", task_set.shards, "attempts", _OF_ATTEMPT)
    table = verdicts.merge(attempts, on="attempt_id", validate="one_to_one")
    if not len(table) == len(verdicts) == len(attempts):
        raise RecordError(
            f"{place / 'verdicts'}: its verdicts are not those of the attempts beside them. Re-make them: delete the "
            "verdicts, then run snakemake again"
        )
    tasks = pq.read_table(folder / "tasks" / f"{task_set.name}.parquet", columns=["task_id"])["task_id"].to_pylist()
    order = {task_id: number for number, task_id in enumerate(tasks)}
    table = table.sort_values("task_id", key=lambda ids: ids.map(order), kind="stable", ignore_index=True)
    return table.assign(
        set=task_set.name,
        branch=branch,
        place=table.groupby("task_id").cumcount(),
        error_type=table["error"].str.extract(r"^(\w*)", expand=False),
        train_is_correct=table["train_correct_grids"] == 1.0,
        test_is_correct=table["test_correct_grids"] == 1.0,
    )


def _of_arm(attempts: pd.DataFrame, arm: Arm, turn: int) -> pd.DataFrame:
    """What an arm owns of a branch: the first attempts of each task, as many as the turn's budget."""
    chosen = arm.turns[turn - 1]
    start = sum(earlier.n_predictions for earlier in arm.turns[: turn - 1])
    own = attempts[attempts["place"] < chosen.n_predictions]
    return own.assign(arm=arm.name, turn=turn, slot=own["place"] + start, adapter=chosen.adapter)


def _read(folder: Path, n_shards: int, kind: records.Kind, columns: list[str]) -> pd.DataFrame:
    paths = [folder / f"{shard:03d}.parquet" for shard in range(n_shards)]
    for path in paths:
        records.check(path, kind)
    return pd.concat([pq.read_table(path, columns=columns).to_pandas() for path in paths], ignore_index=True)
