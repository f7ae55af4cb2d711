"""Write one table for pandas: one row per attempt and arm. Grids and texts are in other files, by `attempt_id`."""

from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from arc_refinery.files import atomic_write
from arc_refinery.refining.config import Refining
from arc_refinery.refining.domain import Domain, load_domain
from arc_refinery.refining.evaluation.results import SetResults, load_branch, read_task_ids


def schema_of(domain: Domain) -> pa.Schema:
    """Return the columns of the table; those after `fingerprint` depend on the domain."""
    return pa.schema(
        [
            ("set", pa.string()),
            ("arm", pa.string()),
            ("turn", pa.int64()),
            ("slot", pa.int64()),  # index 0, 1, ... in the task's budget; turn 2 starts after the budget of turn 1
            ("branch", pa.string()),  # folder of its files; arms share first turns
            ("task_id", pa.string()),
            ("attempt_id", pa.string()),
            ("prompt_id", pa.string()),
            ("parent_id", pa.string()),  # attempt that this one refines; empty in turn 1
            ("model", pa.string()),
            ("adapter", pa.string()),  # name; none: the untrained model
            ("seed", pa.int64()),
            ("status", pa.string()),
            ("error_type", pa.string()),  # empty unless the program failed
            ("fingerprint", pa.string()),  # hash of its outputs; empty unless status is ok
            *((name, pa.float64()) for name in domain.columns),
            *((name, pa.bool_()) for name in domain.flags),
            ("n_prompt_tokens", pa.int64()),
            ("n_tokens", pa.int64()),
            ("tokens", pa.float64()),  # with an equal share of the prompt, which its completions read once
            ("tokens_unshared", pa.int64()),  # with the whole prompt
            ("finish_reason", pa.string()),
            ("logprob", pa.float64()),
        ]
    )


EXTRA_COLUMNS = ("model", "seed", "logprob")  # columns of attempts that the report does not use


def write_attempts_table(experiment: Refining, folder: Path, output: Path) -> None:
    """Write all attempts of the experiment's arms, with one branch in memory at a time.

    Rows are ordered by set, branch, arm, task (in the set's order) and slot, so the bytes do not depend on sharding.
    """
    domain = load_domain(experiment.domain)
    schema = schema_of(domain).with_metadata({"package_version": version("arc-refinery"), "seed": str(experiment.seed)})
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with (
        atomic_write(output) as unfinished,
        pq.ParquetWriter(unfinished, schema, compression="zstd", use_dictionary=texts) as file,
    ):
        for task_set in experiment.evaluation.sets:
            task_ids = read_task_ids(domain, folder, task_set)
            order = {task_id: index for index, task_id in enumerate(task_ids)}
            for branch in experiment.branches:
                loaded = load_branch(domain, experiment.files(folder, task_set.name, branch), task_ids, EXTRA_COLUMNS)
                attempts = loaded.assign(error_type=loaded["error_type"].astype(str)).sort_values(
                    "task_id", key=lambda ids: ids.map(order), kind="stable", ignore_index=True
                )
                results = SetResults(task_set.name, task_ids, {branch: attempts})
                for arm in experiment.arms:
                    if branch in arm.branches:
                        turn = arm.branches.index(branch) + 1
                        names = {"set": task_set.name, "arm": arm.name, "branch": branch}
                        rows = results.attempts_of_turn(arm, turn).assign(**names, adapter=arm.turns[turn - 1].adapter)
                        file.write_table(pa.Table.from_pandas(rows[schema.names], schema, preserve_index=False))
