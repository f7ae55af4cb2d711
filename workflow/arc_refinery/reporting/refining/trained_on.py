"""Evaluated tasks that were trained on: in this training, or by the model before, as far as its rows are known."""

from collections.abc import Mapping
from pathlib import Path

from arc_refinery import records
from arc_refinery.config import Refining
from arc_refinery.records import RecordError
from arc_refinery.refine.overlap import TEMPLATE_ROWS, read_overlap

MAX_IDS = 5


def of_sets(experiment: Refining, folder: Path, sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """Return sentences for each evaluation set that was trained on; `sizes` are the sets' numbers of tasks.

    Raises `RecordError` if the primary comparison is on tasks that were trained on before its set had them.
    """
    training, overlap, primary = experiment.training, read_overlap(folder), experiment.evaluation.primary
    is_kept = training is not None and training.evaluated_tasks == "keep"
    sentences: dict[str, list[str]] = {name: [] for name in sizes}
    for name in training.sets if training else ():
        left_out = {one.task_id for one in overlap if one.tasks == name and not is_kept}
        sentences[name].append(f"The model was trained on {sizes[name] - len(left_out)} of its {sizes[name]} tasks.")
    learned = {name: _task_ids(folder / name / "training") for name in experiment.training_tasks}
    for name, n in sizes.items():
        in_set = [one for one in overlap if one.evaluated_in == name]
        if trained := [one.evaluated_id for one in in_set if one.task_id in learned.get(one.tasks, ())]:
            sentence = f"The model was trained on {_count(trained, n)}, in this or another form"
            again = "" if is_kept else "; to train without them: snakemake -R training_prompts demonstrations"
            if primary and primary.set == name:
                raise RecordError(f"evaluation.primary: {name}: {sentence}{again}, with the config of this experiment")
            sentences[name].append(f"{sentence}{again}.")
        if in_rows := [one.evaluated_id for one in in_set if one.tasks == TEMPLATE_ROWS]:
            n_rows = experiment.template_rows.n_rows if experiment.template_rows else 0
            sentences[name].append(
                f"Of the model's earlier training data, the first {n_rows} rows (`template_rows`) have "
                f"{_count(in_rows, n)}."
            )
    return {name: of_set for name, of_set in sentences.items() if of_set}


def _task_ids(folder: Path) -> set[str]:
    """Return the ids of the tasks that were trained on."""
    files: dict[str, records.RecordKind] = {"prompts.parquet": "prompts", "demonstrations.parquet": "demonstrations"}
    found = {folder / name: kind for name, kind in files.items() if (folder / name).exists()}
    return {task_id for path, kind in found.items() for task_id in records.texts(path, kind, "task_id")}


def _count(task_ids: list[str], n: int) -> str:
    """Return, say, ``2 of its 400 tasks (070dd51e, 40853293)``."""
    distinct = sorted(set(task_ids))
    more = ", ..." if len(distinct) > MAX_IDS else ""
    return f"{len(distinct)} of its {n} tasks ({', '.join(distinct[:MAX_IDS])}{more})"
