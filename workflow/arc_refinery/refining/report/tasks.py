"""Tasks that were trained on, and tasks that were left out, as sentences and rows of the report."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from arc_refinery import records
from arc_refinery.records import RecordError
from arc_refinery.refining.config import Refining
from arc_refinery.refining.prompt_files import TOO_HIGH, TOO_LOW
from arc_refinery.refining.training_tasks import TEMPLATE_ROWS, read_overlap
from arc_refinery.reporting import provenance

MAX_IDS = 5  # longest list of ids of the evaluated tasks that were trained on


def trained_on(experiment: Refining, folder: Path, sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """Return sentences for each evaluation set that was trained on; `sizes` are the sets' numbers of tasks.

    Raises `RecordError` if the primary comparison is on tasks that were trained on before its set had them.
    """
    training, overlap, primary = experiment.training, read_overlap(folder), experiment.evaluation.primary
    sentences: dict[str, list[str]] = {name: [] for name in sizes}
    for name in training.sets if training else ():
        left_out = {pair.task_id for pair in overlap if pair.tasks == name}
        sentences[name].append(f"The model was trained on {sizes[name] - len(left_out)} of its {sizes[name]} tasks.")
    files = {"prompts.parquet": records.Prompt, "demonstrations.parquet": records.Demonstration}
    learned = {
        name: {
            task_id
            for file, kind in files.items()
            if (path := folder / name / "training" / file).exists()
            for task_id in records.texts(path, kind, "task_id")
        }
        for name in experiment.training_tasks
    }
    for name, n in sizes.items():
        in_set = [pair for pair in overlap if pair.evaluated_in == name]
        if trained := [pair.evaluated_id for pair in in_set if pair.task_id in learned.get(pair.tasks, ())]:
            sentence = f"The model was trained on {_listed(trained, n)}, in this or another form"
            again = "; to train without them: snakemake -R training_prompts demonstrations"
            if primary and primary.set == name:
                raise RecordError(f"evaluation.primary: {name}: {sentence}{again}, with the config of this experiment")
            sentences[name].append(f"{sentence}{again}.")
        if in_rows := [pair.evaluated_id for pair in in_set if pair.tasks == TEMPLATE_ROWS]:
            n_rows = experiment.more_to_keep_apart.get("n_rows", 0)
            sentences[name].append(
                f"Of the model's earlier training data, the first {n_rows} rows (`template_rows`) have "
                f"{_listed(in_rows, n)}."
            )
    return {name: listed for name, listed in sentences.items() if listed}


def _listed(task_ids: list[str], n: int) -> str:
    """Return, say, ``2 of its 400 tasks (070dd51e, 40853293)``."""
    distinct = sorted(set(task_ids))
    more = ", ..." if len(distinct) > MAX_IDS else ""
    return f"{len(distinct)} of its {n} tasks ({', '.join(distinct[:MAX_IDS])}{more})"


def left_out(experiment: Refining, folder: Path) -> list[str]:
    """Return Markdown blocks on problems that gave no task, and tasks left out; none if neither can occur."""
    files: dict[str, Path] = {}
    if parts := experiment.part_names:  # each part has the notes of all
        files["problems to train on"] = folder / f"tasks/{parts[0]}.parquet"
    for task_set in experiment.evaluation.sets:
        if task_set.may_leave_out:
            files[f"{task_set.unit} of `{task_set.name}`"] = folder / f"tasks/{task_set.name}.parquet"
    rows = _not_trained_on(experiment, folder) + _not_chosen(experiment, folder)
    if not files and not rows:
        return []
    for purpose, path in files.items():
        notes = provenance.notes_of(path)
        rows += provenance.rows_of(f"pairs of {purpose}", notes.get("pairs_left_out", {}))
        rows += provenance.rows_of(purpose, notes.get("problems_left_out", {}))
    has_problems = any(what.startswith("problems") for what in files)
    if_none = "Every problem became a task." if has_problems else "Every task was used."
    return provenance.left_out(rows, if_none)


def _not_trained_on(experiment: Refining, folder: Path) -> list[list[str]]:
    if experiment.training is None:
        return []
    pairs = {
        (pair.tasks, pair.task_id, pair.evaluated_in) for pair in read_overlap(folder) if pair.tasks != TEMPLATE_ROWS
    }
    counts = Counter((tasks, evaluated_in) for tasks, _, evaluated_in in pairs)
    return [
        [f"tasks of `{tasks}` to train on", f"also in `{evaluated_in}`", str(n)]
        for (tasks, evaluated_in), n in sorted(counts.items())
    ]


def _not_chosen(experiment: Refining, folder: Path) -> list[list[str]]:
    """Return rows on the prompts that `training.select` left out."""
    training = experiment.training
    if training is None or training.select is None or training.grpo is None:
        return []
    select, rows = training.select, []
    for tasks in experiment.training_tasks:
        notes = provenance.notes_of(folder / tasks / "training/prompts.parquet")
        reasons = {
            f"below {100 * select.min_pass_rate:g} % of the first attempts are right": notes.get(TOO_LOW, 0),
            f"above {100 * select.max_pass_rate:g} % of the first attempts are right": notes.get(TOO_HIGH, 0),
        }
        rows += provenance.rows_of(f"tasks of `{tasks}` to train on", reasons)
    return rows
