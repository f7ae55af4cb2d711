"""Report text: arms and settings, explanations of the metrics, limitations, tasks trained on or left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from arc_refinery import records
from arc_refinery.evaluation.power import FEWEST_CHANGED
from arc_refinery.records import RecordError
from arc_refinery.refining.config import CONTROLS, Refining
from arc_refinery.refining.domain import load_domain
from arc_refinery.refining.overlap import TEMPLATE_ROWS, read_overlap
from arc_refinery.refining.pass_rates import TOO_HIGH, TOO_LOW
from arc_refinery.refining.report.tables import COMPARISON
from arc_refinery.reporting import provenance, registration
from arc_refinery.reporting.markdown import TOO_FEW, columns_explained, folded

MAX_IDS = 5  # longest list of ids of the evaluated tasks that were trained on
VALIDATION = (
    "Settings were chosen with results on these tasks known, so they look better here than on tasks that nobody has "
    "seen."
)
UNFILTERED = (
    "**The configuration allows programs to run on machines where their system calls cannot be filtered "
    "(`sandbox.allow_without_seccomp`). There, they could reach files and the network, so verdicts could depend on "
    "more than the programs.**"
)
METRICS_EXPLAINED = f"""\
<details><summary>How to read the metrics</summary>

All metrics are means over tasks; the metric of a task is the mean over its attempts unless stated otherwise. Brackets: 95 % interval for other tasks like these (of repeated trainings also for other training runs).

- **valid code**: attempts with a closed Python block; **any code**: attempts with a program, even one cut off; **valid outputs**: attempts whose program ran to its end and gave outputs of the right form; **unique outputs**: distinct outputs / attempts.
{{own}}
- **pass@k**: probability that k of a turn's attempts solve the task, if they are spent as they were sampled: all attempts of one prompt, then those of another, in random order. Attempts on one prompt are alike, so this is less than for attempts drawn singly (Chen et al. 2021).
- **tokens per task**: those of completions, and of each prompt once for all completions that share it; *prompt per attempt*: of each prompt as often as it was answered, as if nothing were shared.
{columns_explained(COMPARISON)}

</details>"""  # noqa: E501


def arms_and_settings(experiment: Refining, sizes: Mapping[str, int]) -> list[str]:
    """Return blocks on the arms and the settings; `sizes` are the numbers of tasks of the evaluation sets."""
    domain = load_domain(experiment.domain)
    sets = ", ".join(f"`{name}` ({n} {'task' if n == 1 else 'tasks'})" for name, n in sizes.items())
    shared = len({arm.branch(1) for arm in experiment.arms}) < len(experiment.arms)
    budgets = {
        name: " + ".join(str(turn.n_predictions) for turn in arms[0].turns)
        for name, arms in experiment.repetitions.items()
    }
    return [
        "## Arms and settings",
        f"*Arms* are ways to spend a budget of attempts per task. Attempts per task, turn by turn: "
        f"{', '.join(f'`{name}` {budget}' for name, budget in budgets.items())}. The baseline is "
        f"`{experiment.arms[0].name}`. Differences are paired by task. Evaluation sets: {sets}."
        f"{' Arms share first-turn attempts of the same model.' if shared else ''}",
        *_controls(experiment),
        *provenance.settings(experiment),
        METRICS_EXPLAINED.format(own=domain.metrics_explained),
    ]


def _controls(experiment: Refining) -> list[str]:
    kinds = {turn.feedback for arm in experiment.arms for turn in arm.turns if turn.is_control}
    shown = [f"with `feedback: {kind}`, {text}" for kind, text in CONTROLS.items() if kind in kinds]
    return (
        [f"Controls do not show the results of the attempt that they refine but, {'; '.join(shown)}."] if shown else []
    )


def limits(
    experiment: Refining, folder: Path, n_comparisons: int, trained_on: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the limitations, folded those that do not concern the primary comparison.

    `trained_on`: sentences on the tasks of a set that were trained on, by its name.
    """
    arms, sets, primary = experiment.arms, experiment.evaluation.sets, experiment.evaluation.primary
    trained = {number for arm in arms for number, turn in enumerate(arm.turns, 1) if turn.adapter != "none"}
    refines = any(len(arm.turns) > 1 for arm in arms)
    first = primary.set if primary else sets[0].name
    items = [
        *registration.limits(experiment, folder),
        _scope_of_intervals(experiment),
        "No arm answers first turns with the trained model, so a gain in later turns may come from better answers in "
        "general, not from learning to refine."
        if trained and 1 not in trained
        else "",
        "No arm controls for the feedback: a gain in later turns may come without it."
        if refines and not any(arm.is_control for arm in arms)
        else "",
        UNFILTERED if experiment.sandbox.allow_without_seccomp else "",
        *(f"`{task_set.name}`: {VALIDATION}" for task_set in sets if task_set.validation),
        *(f"`{name}`: {sentence}" for name, sentences in trained_on.items() for sentence in sentences),
        *(f"`{task_set.name}`: {task_set.caveat}" for task_set in sets if task_set.caveat and task_set.name == first),
    ]
    more = [
        f"Few tasks can show only large differences: p < 0.05 takes at least {FEWEST_CHANGED} tasks that one arm "
        "solves and the other does not. An unsupported difference may still exist.",
        "Differences in one turn, and intervals in bold, are not corrected for their number."
        if n_comparisons > 1
        else "",
        "Arms of equal budget spend equal numbers of attempts, not of tokens: refining prompts are longer. "
        "Comparisons at equal tokens count a token read as much as one generated, or not at all; it takes less time."
        if refines
        else "",
        *load_domain(experiment.domain).limits,
        *(f"`{task_set.name}`: {task_set.caveat}" for task_set in sets if task_set.caveat and task_set.name != first),
    ]
    unfolded, rest = ("\n".join(f"- {item}" for item in some if item) for some in (items, more))
    return ["## Limitations", unfolded, folded("More limitations", rest)]


def _scope_of_intervals(experiment: Refining) -> str:
    """Return which variation the intervals cover. Resampled tasks bring their own sampling noise with them."""
    n_runs = len(experiment.training.seeds) if experiment.training else 0
    if n_runs == 2:
        return f"{TOO_FEW} Other intervals cover other tasks and other samples of the same model."
    if n_runs > 2:
        scope = f"other tasks, other samples and other training runs, estimated from {n_runs} of them"
        shared = " All runs trained on the same tasks, whose choice the intervals do not cover."
        return f"Intervals of arms with repeated trainings cover {scope}.{shared} Others do not."
    missing = " They do not cover other training runs: there was one." if experiment.adapters else ""
    return f"Intervals cover other tasks and other samples of the same model.{missing}"


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
            sentences[name].append(
                f"Of the model's earlier training data, the first {experiment.n_earlier_rows} rows (`template_rows`) "
                f"have {_listed(in_rows, n)}."
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
