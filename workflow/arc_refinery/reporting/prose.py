"""Report text: arms and settings, explanations of the metrics, limitations."""

from collections.abc import Mapping, Sequence
from typing import Any

from arc_refinery.config import Compared
from arc_refinery.evaluation.power import FEWEST_CHANGED
from arc_refinery.reporting import provenance, registration
from arc_refinery.reporting.kind import Reported
from arc_refinery.reporting.markdown import TOO_FEW, columns_explained, folded
from arc_refinery.reporting.tables import COMPARISON

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

{{own}}
- **pass@k**: probability that k of a turn's attempts solve the task, if they are spent as they were sampled: all attempts of one prompt, then those of another, in random order. Attempts on one prompt are alike, so this is less than for attempts drawn singly (Chen et al. 2021).
- **tokens per task**: those of completions, and of each prompt once for all completions that share it; *prompt per attempt*: of each prompt as often as it was answered, as if nothing were shared.
{columns_explained(COMPARISON)}

</details>"""  # noqa: E501


def arms_and_settings(of_kind: Reported, sizes: Mapping[str, int]) -> list[str]:
    """Return blocks on the arms and the settings; `sizes` are the numbers of tasks of the evaluation sets."""
    experiment = of_kind.experiment
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
        METRICS_EXPLAINED.format(own=of_kind.metrics_explained),
    ]


def _controls(experiment: Compared[Any]) -> list[str]:
    turns = [turn for arm in experiment.arms for turn in arm.turns if turn.control]
    shown = dict.fromkeys(f"with `feedback: {turn.feedback}`, {turn.control}" for turn in turns)
    if not shown:
        return []
    return [f"Controls do not show the results of the attempt that they refine but, {'; '.join(shown)}."]


def limits(of_kind: Reported, n_comparisons: int, trained_on: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the limitations, folded those that do not concern the primary comparison.

    `trained_on`: sentences on the tasks of a set that were trained on, by its name.
    """
    experiment = of_kind.experiment
    arms, sets, primaries = experiment.arms, experiment.evaluated_sets, experiment.primaries
    trained = {number for arm in arms for number, turn in enumerate(arm.turns, 1) if turn.adapter != "none"}
    refines = any(len(arm.turns) > 1 for arm in arms)
    first = primaries[0].set if primaries else sets[0].name
    items = [
        *registration.limits(experiment, of_kind.folder),
        _scope_of_intervals(experiment),
        "No arm answers first turns with the trained model, so a gain in later turns may come from better answers in "
        "general, not from learning to refine."
        if refines and trained and 1 not in trained
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
        *of_kind.limits,
        *(f"`{task_set.name}`: {task_set.caveat}" for task_set in sets if task_set.caveat and task_set.name != first),
    ]
    unfolded, rest = ("\n".join(f"- {item}" for item in some if item) for some in (items, more))
    return ["## Limitations", unfolded, folded("More limitations", rest)]


def _scope_of_intervals(experiment: Compared[Any]) -> str:
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
