"""Words of a report: the answer, tasks solved by arm and set, limitations, arms and settings.

**Second attempts are right in 4.1 % after training, in 1.7 % before: +2.4 points [+1.5, +3.3].**

| tasks solved | `heldout`: 100 tasks |
| `refine-base`: 64 + 64 | 54 (54.0 %) |
| `refine-trained`: 64 + 64 | 61 (61.0 %) |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from arc_refinery.config import Compared
from arc_refinery.config.arms import Primary
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.intervals import estimate
from arc_refinery.evaluation.metrics import PASS_RATE, SOLVED
from arc_refinery.evaluation.power import FEWEST_CHANGED, POWER, SIGNIFICANCE
from arc_refinery.evaluation.statistics import Comparison
from arc_refinery.reporting import provenance, registration, tables
from arc_refinery.reporting.kind import Reported
from arc_refinery.reporting.markdown import (
    TOO_FEW,
    columns_explained,
    count_text,
    detectable_text,
    estimate_text,
    folded,
    markdown_table,
    p_text,
    percent,
    points,
    points_text,
    runs_text,
)

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
{columns_explained(tables.COMPARISON)}

</details>"""  # noqa: E501
ORDINALS = {1: "First", 2: "Second", 3: "Third", 4: "Fourth"}


@dataclass(frozen=True, slots=True)
class EvaluatedSet:
    """One evaluation set with its results and comparisons."""

    task_set: Any
    results: Results
    arms: Mapping[str, pd.DataFrame]  # `per_task` of each arm
    comparisons: list[Comparison]  # in the order of `Refining.compared`
    turns: tables.TurnDifferences
    curves: Mapping[str, pd.DataFrame]  # `budget_curve` of each arm

    @property
    def n(self) -> int:
        return len(self.results.task_ids)


def headline(of_kind: Reported, evaluated: Sequence[EvaluatedSet], is_registered: bool) -> list[str]:
    """Return the answer of the first screen: the primary comparisons, else how many differences are supported."""
    experiment, by_set = of_kind.experiment, {result.task_set.name: result for result in evaluated}
    primaries = [
        block
        for primary in experiment.primaries
        for block in _primary(experiment, primary, by_set[primary.set], is_registered)
    ]
    return primaries or [comparisons(evaluated)]


def _primary(experiment: Compared[Any], primary: Primary, result: EvaluatedSet, is_registered: bool) -> list[str]:
    """Return a primary comparison in plain words; if it is one of a turn, also in tasks solved; controls."""
    first, second = primary.arms
    ordinal = ORDINALS.get(primary.turn or 0, f"Turn-{primary.turn}")
    solved = dict(zip(experiment.compared, result.comparisons, strict=True))[primary.arms]
    if primary.turn is None:
        sentence, difference, p_value = _solved_sentence(solved), solved.difference, solved.p_value
    elif not (rates := tables.contrast_of_turn(experiment, result.results, primary.pairs, primary.turn)):
        arms = " and ".join(f"`{name}`" for pair in primary.pairs for name in pair)
        return [f"**Primary comparison**: {arms} have no turn {primary.turn} to compare."]
    elif primary.minus:
        difference, p_value = rates.difference, rates.difference.p_value
        of_pairs = (
            f"`{'` − `'.join(pair)}` is {points(result.turns[pair][primary.turn][PASS_RATE].difference.mean)} points"
            for pair in primary.pairs
        )
        sentence = (
            f"In right {ordinal.lower()} attempts, {', '.join(of_pairs)}; the first minus the second is "
            f"{points_text(difference)}"
        )
    else:
        difference, p_value = rates.difference, rates.difference.p_value
        sides = ("after training", "before") if _differ_in_training(experiment, first, second) else None
        with_first, with_second = sides or (f"with `{first}`", f"with `{second}`")
        has_turns = any(len(arm.turns) > 1 for arm in experiment.arms)
        attempts = f"{ordinal} attempts" if has_turns else f"Attempts on `{primary.set}`"
        sentence = (
            f"{attempts} are right in {percent(rates.first)} "
            f"{with_first}, in {percent(rates.second)} {with_second}: {points_text(difference)}"
        )
    runs = f"; {runs_text(difference)}" if len(difference.runs) > 1 else ""
    supports = "supports" if difference.supports_difference and p_value < SIGNIFICANCE else "does not support"
    smallest = detectable_text(difference)
    power = (
        f" An experiment like this one detects a true difference of {smallest} points with {100 * POWER:.0f} % power."
    )
    p = f", {p_text(p_value)}" if difference.has_interval else ""
    on = f"{difference.n_tasks} tasks of `{result.task_set.name}`"
    since = ", unchanged since this run's first result" if is_registered else ""
    declares = primary == getattr(experiment.evaluation, "primary", None)
    declared = f" It is the comparison that the config declares as `primary`{since}." if declares else ""
    blocks = [
        f"**{sentence}.** The evidence {supports} a difference ({on}{p}{runs}).{declared}"
        f"{'' if smallest == '–' else power}"
    ]
    if primary.turn is not None:
        verdict = "supports" if solved.supports_difference else "does not support"
        blocks.append(f"With all attempts, {_solved_sentence(solved)}. The evidence {verdict} a difference.")
    return blocks


def _solved_sentence(solved: Comparison) -> str:
    return (
        f"`{solved.first}` solves {count_text(solved.n_first)} of {solved.difference.n_tasks} tasks, "
        f"`{solved.second}` {count_text(solved.n_second)}: {points_text(solved.difference)}"
    )


def _differ_in_training(experiment: Compared[Any], first: str, second: str) -> bool:
    """Return whether only the adapters of two arms differ, and the second arm has none."""
    trained, untrained = (experiment.arms_called(name)[0] for name in (first, second))
    without = trained.with_adapters("", dict.fromkeys(trained.adapters, "none"))
    texts = [arm.model_dump_json(exclude={"name", "seed"}) for arm in (trained, without, untrained)]
    return bool(texts[0] != texts[1] == texts[2])


def solved_table(experiment: Compared[Any], evaluated: Sequence[EvaluatedSet]) -> str:
    """Count the tasks solved: one row per arm, the mean of its repetitions; one column per set.

    Without arms that refine, also the share of right attempts.
    """
    rows, has_turns = [], any(len(arm.turns) > 1 for arm in experiment.arms)
    for name, arms in experiment.repetitions.items():
        budget = "\N{NO-BREAK SPACE}+\N{NO-BREAK SPACE}".join(str(turn.n_predictions) for turn in arms[0].turns)
        counts = [float(np.mean([result.arms[arm.name][SOLVED].sum() for arm in arms])) for result in evaluated]
        rates = [
            "" if has_turns else f"{estimate_text(estimate([result.arms[arm.name][PASS_RATE] for arm in arms]))}; "
            for result in evaluated
        ]
        cells = [
            f"{rate}{count_text(count)} ({percent(count / result.n)})"
            for rate, count, result in zip(rates, counts, evaluated, strict=True)
        ]
        rows.append([f"`{name}`: {budget}{f', mean of {len(arms)}' if len(arms) > 1 else ''}", *cells])
    header = [f"`{result.task_set.name}`: {result.n} {'task' if result.n == 1 else 'tasks'}" for result in evaluated]
    title = "tasks solved" if has_turns else "right attempts; tasks solved"
    return markdown_table([title, *header], rows)


def comparisons(evaluated: Sequence[EvaluatedSet]) -> str:
    """Return which differences in tasks solved the evidence supports, but for the primary one."""
    compared = [(result.task_set.name, c) for result in evaluated for c in result.comparisons if not c.is_primary]
    n_all = sum(len(result.comparisons) for result in evaluated)
    if not n_all:
        return "There is one arm, so nothing is compared."
    if all(result.n == 1 for result in evaluated):
        return "One task cannot show a difference between arms; metrics of its attempts are below."
    if not compared:
        return "There are no other comparisons."
    if len(compared) == 1:
        ((name, only),) = compared
        verdict = "supports" if only.supports_difference else "does not support"
        return f"**On `{name}`, {_solved_sentence(only)}.** The evidence {verdict} a difference."
    supported = [
        f"`{c.first}` solves {'more' if c.difference.mean > 0 else 'fewer'} than `{c.second}` on `{name}`"
        for name, c in compared
        if c.supports_difference
    ]
    out_of = f"{len(compared)} {'other ' if len(compared) < n_all else ''}differences in tasks solved"
    if not supported:
        return f"**The evidence supports none of {out_of}**, corrected for their number (Holm)."
    return f"The evidence supports {len(supported)} of {out_of}, corrected for their number (Holm): " + (
        f"{'; '.join(supported)}."
    )


def arms_and_settings(of_kind: Reported, sizes: Mapping[str, int]) -> list[str]:
    """Return blocks on the arms and the settings; `sizes` are the numbers of tasks of the evaluation sets."""
    experiment = of_kind.experiment
    sets = ", ".join(f"`{name}` ({n} {'task' if n == 1 else 'tasks'})" for name, n in sizes.items())
    shared = len({arm.branch(1) for arm in experiment.arms}) < len(experiment.arms)
    budgets = {
        name: " + ".join(str(turn.n_predictions) for turn in arms[0].turns)
        for name, arms in experiment.repetitions.items()
    }
    controls = [turn for arm in experiment.arms for turn in arm.turns if turn.control]
    shown = dict.fromkeys(f"with `feedback: {turn.feedback}`, {turn.control}" for turn in controls)
    return [
        "## Arms and settings",
        f"*Arms* are ways to spend a budget of attempts per task. Attempts per task, turn by turn: "
        f"{', '.join(f'`{name}` {budget}' for name, budget in budgets.items())}. The baseline is "
        f"`{experiment.arms[0].name}`. Differences are paired by task. Evaluation sets: {sets}."
        f"{' Arms share first-turn attempts of the same model.' if shared else ''}",
        *[f"Controls do not show the results of the attempt that they refine but, {'; '.join(shown)}."] * bool(shown),
        *provenance.settings(experiment),
        METRICS_EXPLAINED.format(own=of_kind.metrics_explained),
    ]


def limits(
    of_kind: Reported, n_comparisons: int, trained_on: Mapping[str, Sequence[str]], answered_by: str
) -> list[str]:
    """Return the limitations, folded those that do not concern the primary comparison.

    `trained_on`: sentences on the tasks of a set that were trained on, by its name. `answered_by`: one on servers.
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
        answered_by,
        UNFILTERED if experiment.sandbox.allow_without_seccomp else "",
        *(f"`{task_set.name}`: {VALIDATION}" for task_set in sets if task_set.validation),
        *(f"`{name}`: {sentence}" for name, sentences in trained_on.items() for sentence in sentences),
        *(f"`{task_set.name}`: {task_set.caveats}" for task_set in sets if task_set.caveats and task_set.name == first),
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
        *(f"`{task_set.name}`: {task_set.caveats}" for task_set in sets if task_set.caveats and task_set.name != first),
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
