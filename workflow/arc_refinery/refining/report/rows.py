"""The rows of the table of attempts (evaluation/attempts.py), from the records of a refining experiment.

Grids and completions are not loaded: 400 tasks x 256 attempts take some tens of MB.
"""

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from arc_refinery import records
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import inputs
from arc_refinery.domains.domain import Domain, load_domain
from arc_refinery.evaluation import attempts
from arc_refinery.evaluation.attempts import ArmRows
from arc_refinery.evaluation.sides import ADVICE, check_rows
from arc_refinery.programs import likeness
from arc_refinery.records import Attempt, Prompt, RecordError, ReferenceLogprob
from arc_refinery.refining.config import BROKEN, Arm, Refining, is_broken
from arc_refinery.refining.graded import program_of, read_attempts
from arc_refinery.reporting.kind import settings_hash

N_COMPARED = 8  # attempts per task and turn: comparing programs takes milliseconds each
VERDICTS = [
    *("attempt_id", "prompt_id", "task_id", "has_closed_code", "status", "error", "fingerprint", "score", "solved")
]
ATTEMPTS = ["parent_id", "model", "seed", "n_prompt_tokens", "n_tokens", "finish_reason", "logprob"]


def write_attempts(experiment: Refining, folder: Path) -> None:
    """Write the table of attempts; raises `RecordError` for records that the settings did not make."""
    domain = load_domain(experiment.domain)
    paths = {name: folder / f"tasks/{name}.parquet" for name in experiment.set_names}
    # a hash of each task, equal for equal tasks, whatever their source is called
    tasks = {
        name: {
            task.task_id: sha256(domain.content(task).encode()).hexdigest()[:16]
            for task in records.read(path, domain.task_class)
        }
        for name, path in paths.items()
    }
    if empty := [path for name, path in paths.items() if not tasks[name]]:
        raise RecordError(f"{empty[0]}: has no tasks, so nothing can be compared")
    flags = ["has_closed_code", *(name for name in domain.flags if name not in attempts.NAMES)]
    extra = pa.schema([*((name, pa.float64()) for name in domain.columns), *((name, pa.bool_()) for name in flags)])
    rows = _rows(experiment, domain, folder, tasks)
    attempts.write(folder / attempts.TABLE, experiment, tasks, extra, rows, settings_hash(experiment))


def _rows(
    experiment: Refining, domain: Domain, folder: Path, tasks: Mapping[str, Mapping[str, str]]
) -> Iterator[ArmRows]:
    for name, known in tasks.items():
        order = {task_id: index for index, task_id in enumerate(known)}
        loaded: dict[str, pd.DataFrame] = {}
        for branch in experiment.branches:
            files = experiment.files(folder, name, branch)
            loaded[branch] = load_branch(domain, files, known)
            check_branch(experiment, files, name, branch)
        for arm in experiment.arms:
            _check_parents(arm, folder / name, loaded)
            turns = []
            for turn, branch in enumerate(arm.branches, 1):
                rows = loaded[branch]
                rows = rows[rows["sample"] < arm.turns[turn - 1].n_predictions].assign(turn=turn, branch=branch)
                if turn > 1:
                    refined = experiment.files(folder, name, arm.branch(turn - 1))
                    files = experiment.files(folder, name, branch)
                    rows = rows.assign(likeness=_likeness(domain, rows, files, refined))
                    if turn == 2 and experiment.evaluation.reference_logprobs:
                        rows = rows.assign(reference_logprob=rows["parent_id"].map(reference_logprobs_by_parent(files)))
                turns.append(rows)
            rows = pd.concat(turns, ignore_index=True)
            yield ArmRows(name, arm.name, rows.sort_values("task_id", key=lambda ids: ids.map(order), kind="stable"))


def load_branch(domain: Domain, files: BranchFiles, task_ids: Collection[str]) -> pd.DataFrame:
    """Load one branch in file order; raises `RecordError`."""
    records.check_branch(files, domain.prompt_class, domain.attempt_class)
    records.check_made_from(files.prompts, [files.tasks])
    own = {f"detail.{name}": name for name in domain.columns}
    verdicts = pd.concat(
        [_read(path, domain.verdict_class, [*VERDICTS, *own]).rename(columns=own) for path in files.verdicts],
        ignore_index=True,
    )
    sampled = pd.concat([_read(path, Attempt, ATTEMPTS) for path in files.attempts])
    if unknown := sorted(set(verdicts["task_id"]) - set(task_ids)):
        raise RecordError(
            f"{files.folder}: has attempts on task {unknown[0]}, which is not in {files.tasks}. "
            "Delete the folder, then run snakemake again"
        )
    table = pd.concat([verdicts, sampled.reset_index(drop=True)], axis=1)  # rows match: they were checked
    completions_of_prompt = table.groupby("prompt_id")["attempt_id"].transform("size")
    return domain.derive(table.drop(columns="error")).assign(
        error_type=_error_types(table["error"]),
        sample=table.groupby("task_id").cumcount(),
        n_calls=0,
        tokens=table["n_tokens"] + table["n_prompt_tokens"] / completions_of_prompt,
        tokens_unshared=table["n_tokens"] + table["n_prompt_tokens"],
    )


def _error_types(errors: "pd.Series[str]") -> "pd.Series[str]":
    """Return the type of `Type: message` or `Type (line 2)`, shortened; `error` of a message without a type."""
    types = errors.str.extract(r"^([\w.]+)(?=:| \(line |$)", expand=False).str[:40]
    return types.fillna("error").where(errors != "", "")


def programs(domain: Domain, files: BranchFiles, attempt_ids: Collection[str]) -> dict[str, str]:
    """Return the programs of some attempts of a branch, by id."""
    graded = read_attempts(domain, files, sorted({*attempt_ids}))
    return {name: program_of(domain, attempt) for name, attempt in graded.items()}


def _likeness(domain: Domain, rows: pd.DataFrame, files: BranchFiles, refined: BranchFiles) -> "pd.Series[float]":
    """Return the likeness of the first attempts of each task to their parents; nan for the others."""
    compared = rows[rows["sample"] < N_COMPARED]
    own, parents = programs(domain, files, compared["attempt_id"]), programs(domain, refined, compared["parent_id"])
    pairs = zip(compared["attempt_id"], compared["parent_id"], strict=True)
    values = [likeness(own[attempt], parents[parent]) for attempt, parent in pairs]
    return pd.Series(values, compared.index, dtype=float).reindex(rows.index)


def reference_logprobs_by_parent(files: BranchFiles) -> "pd.Series[float]":
    """Return the log-probability per token of the task's own program by parent, a mean over its prompts."""
    records.check_made_from(files.reference, [files.prompts])
    table = records.columns(files.reference, ReferenceLogprob, ["parent_id", "logprob", "n_tokens"]).to_pandas()
    values: pd.Series[float] = (table["logprob"] / table["n_tokens"]).groupby(table["parent_id"]).mean()
    return values


def _check_parents(arm: Arm, folder: Path, branches: Mapping[str, pd.DataFrame]) -> None:
    for before, branch in pairwise(["", *arm.branches]):
        parents = set(branches[before]["attempt_id"]) if before else {""}
        if strange := set(branches[branch]["parent_id"]) - parents:
            raise RecordError(
                f"{folder / branch}: has attempts that refine {min(strange)!r}, which is not in "
                f"{before or 'a first turn'}. Delete the folder, then run snakemake again"
            )


def _read(path: Path, cls: type[Any], columns: list[str]) -> pd.DataFrame:
    table: pd.DataFrame = records.columns(path, cls, columns).to_pandas()
    return table


def check_branch(experiment: Refining, files: BranchFiles, tasks: str, branch: str) -> None:
    """Raise `RecordError` unless a branch's attempts were sampled with an experiment's settings, in their number."""
    sampled = experiment.sampled(tasks, branch)
    expected = {
        "model": ("model.path", inputs.model_path(experiment)),
        "adapter": ("adapter", sampled.adapter or ""),
        "seed": ("seed", sampled.seed),
        "temperature": ("sampling.temperature", experiment.sampling.temperature),
        "top_p": ("sampling.top_p", experiment.sampling.top_p),
    }
    if is_broken(branch):
        expected = {"model": ("answers", BROKEN), "seed": expected["seed"]}
    for path in files.attempts:
        check_rows(path, Attempt, expected)
    if branch.startswith("turn1"):
        n_predictions = experiment.first_turn_predictions(tasks, branch)
    else:
        arm, number = experiment.arm_and_turn(branch)
        n_predictions = arm.turns[number - 1].n_predictions
    # prompts that are too long were dropped; few broken programs may be wrong
    table = records.columns(files.prompts, Prompt, ["task_id", "n_predictions"])
    sums = table.group_by("task_id").aggregate([("n_predictions", "sum")])["n_predictions_sum"].to_pylist()
    n = max(sums, default=n_predictions)
    may_be_fewer = is_broken(branch) or records.notes(files.prompts).get("n_dropped")
    if n > n_predictions or (n < n_predictions and not may_be_fewer):
        raise RecordError(
            f"{files.prompts}: asks for {n} completions per task, but the settings say {n_predictions} "
            f"(n_predictions). {ADVICE}"
        )
