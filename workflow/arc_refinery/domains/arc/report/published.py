"""Report section on the published experiments: their results (published.csv), and the evidence that they give."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from math import ceil, sqrt

import pandas as pd
from scipy.stats import binomtest, chi2_contingency, fisher_exact, norm

from arc_refinery.domains.arc.domain import Domain
from arc_refinery.evaluation.metrics import PROGRAMS, SOLVED, counted, names
from arc_refinery.evaluation.power import POWER, SIGNIFICANCE
from arc_refinery.evaluation.statistics import mcnemar
from arc_refinery.reporting.markdown import markdown_table, p_text, points, share_text

PUBLISHED_METRICS = tuple(
    metric for metric in names((*PROGRAMS, *Domain.metrics)) if metric not in ("any code", SOLVED)
)
MULTI_TURN = "multi-turn-rl"
COMPARED = (("refine-trained", "independent"), ("refine-trained", "refine-base"))


@dataclass(frozen=True, slots=True)
class Published:
    """One arm of a published experiment. Shares were published with one or two decimals."""

    experiment: str  # the config that repeats it
    set: str  # all 400 tasks of a part of ARC-AGI-1
    arm: str
    first_turn: int  # attempts per task
    second_turn: int
    adapter: str
    n_tasks: int
    source: str
    percent: Mapping[str, float]  # the 12 published metrics

    @property
    def solved_percent(self) -> float:
        return self.percent["is_correct"]

    @property
    def n_solved(self) -> int:
        return self.count("is_correct")

    def count(self, metric: str) -> int:
        """Return the number of tasks that gives a published share; raises ValueError if none rounds to it."""
        share = self.percent[metric]
        nearest = round(self.n_tasks * share / 100)
        if abs(100 * nearest / self.n_tasks - share) > 0.05 + 1e-9:
            raise ValueError(f"{self.arm}: no number of {self.n_tasks} tasks is {share} %")
        return nearest

    def interval(self, metric: str = "is_correct") -> tuple[float, float]:
        """Return the 95 % interval of a share of tasks (Wilson 1927)."""
        interval = binomtest(self.count(metric), self.n_tasks).proportion_ci(method="wilson")
        return float(interval.low), float(interval.high)


def results() -> list[Published]:
    """Read all published results of Iterations 24, 33 and 34."""
    with resources.files(__package__).joinpath("published.csv").open() as file:
        table = pd.read_csv(file, keep_default_na=False)
    percent = table[list(PUBLISHED_METRICS)].to_dict("records")
    facts = table.drop(columns=list(PUBLISHED_METRICS)).to_dict("records")
    return [Published(**row, percent=values) for row, values in zip(facts, percent, strict=True)]


def arms() -> dict[str, Published]:
    """Return the arms of the published multi-turn experiment, by name."""
    return {arm.arm: arm for arm in results() if arm.experiment == MULTI_TURN}


def unpaired(first: Published, second: Published) -> float:
    """Return p of the two-sided, pooled two-proportion z test without continuity correction (z² = this chi-squared)."""
    return float(chi2_contingency(_contingency(first, second), correction=False).pvalue)


def tasks_needed(first: float, second: float) -> int:
    """Return the tasks per arm, in independent samples, to detect a difference of two shares, two-sided, with `POWER`.

    Fleiss, Levin and Paik (2003), Statistical Methods for Rates and Proportions, chapter 4, without continuity
    correction: (z_0.975 sqrt(2 m (1 - m)) + z_power sqrt(p (1 - p) + q (1 - q)))² / (p - q)², m the mean of p and q.
    """
    mean = (first + second) / 2
    by_chance: float = norm.ppf(1 - SIGNIFICANCE / 2) * sqrt(2 * mean * (1 - mean))
    by_difference: float = norm.ppf(POWER) * sqrt(first * (1 - first) + second * (1 - second))
    return ceil((by_chance + by_difference) ** 2 / (first - second) ** 2)


def section(experiment: str, ours: Mapping[tuple[str, str], tuple[int, pd.DataFrame]]) -> list[str]:
    """Return Markdown blocks: published results with intervals, the evidence for a difference, and ours next to them.

    `ours`: attempts per task and `per_task` metrics, by set and arm.
    """
    by_name = arms()
    pairs = [(by_name[first], by_name[second]) for first, second in COMPARED]
    trained, baseline = pairs[0]
    gained = trained.n_solved - baseline.n_solved
    fisher = float(fisher_exact(_contingency(trained, baseline)).pvalue)
    return [
        "## The published experiments, for reference",
        "Not ours: figures of the repository ironbar/arc25, for Llama-3.1-8B trained on BARC, on the 400 ARC-AGI-1 "
        "evaluation tasks. Multi-turn RL (Iteration 34):",
        markdown_table(
            ["arm", "attempts per task", "published", "tasks solved", "95 % interval"], map(_row, by_name.values())
        ),
        f"Shares were published with one decimal, which determines the number of tasks: each of {trained.n_tasks} is "
        "0.25 points. Intervals: Wilson.",
        markdown_table(
            ["difference of published shares", "points", "p, unpaired", "tasks needed"], map(_difference, pairs)
        ),
        "p: two-proportion z test, pooled, without continuity correction, as if each arm had its own tasks (Fisher's "
        f"exact test of {baseline.solved_percent} and {trained.solved_percent} %: {p_text(fisher)}). Tasks needed: per "
        f"arm, to detect a difference of this size with {100 * POWER:.0f} % power at p < {SIGNIFICANCE} (Fleiss, Levin "
        f"and Paik 2003, chapter 4). **Whether {baseline.solved_percent} and {trained.solved_percent} % of "
        f"{trained.n_tasks} tasks differ cannot be known from the published shares.** Unpaired, they do not.",
        "Both had the same tasks, so the test should be paired, which requires knowing the tasks that each solved: "
        f"{gained} more would give {p_text(mcnemar(gained, 0))} (exact McNemar) if none was lost, "
        f"{p_text(mcnemar(gained + 2, 2))} if 2 were lost, and {p_text(mcnemar(gained + 10, 10))} if 10 were.",
        "All figures of these iterations, in %, with the meanings of ours; *valid code* counts closed blocks. "
        "`is_correct` counts a task if one program is right on its train pairs and one, perhaps another, on its test "
        "pairs; *solved* in our own tables asks for one program that is right on all:",
        markdown_table(
            ["config", "set", "arm", "attempts", "adapter", *PUBLISHED_METRICS, "source"], map(_metrics, results())
        ),
        *_beside(experiment, ours),
    ]


def _beside(experiment: str, ours: Mapping[tuple[str, str], tuple[int, pd.DataFrame]]) -> list[str]:
    """Return the published metrics of each arm that this experiment repeats, next to its own."""
    repeated = [
        (arm, *ours[arm.set, arm.arm])
        for arm in results()
        if arm.experiment == experiment.removesuffix("-unsloth") and (arm.set, arm.arm) in ours
    ]
    if not repeated:
        return ["No arm of this experiment repeats a published one, so none of its figures can be compared with these."]
    tables = [
        markdown_table(
            [f"`{arm.set}`, `{arm.arm}`", f"published, {_budget(arm)} attempts", f"here, {budget} attempts"],
            [[metric, _published_cell(arm, metric), share_text(metrics[metric])] for metric in PUBLISHED_METRICS],
        )
        for arm, budget, metrics in repeated
    ]
    return [
        "### Published and here",
        "With 95 % intervals. Published means have none, because the values of the tasks are not known. Means "
        "over attempts can be compared whatever the number of attempts. *unique outputs* falls with it, and the shares "
        "of tasks (`is_correct`) rise, so these can be compared at equal numbers only. Overlapping intervals do not "
        "show that two figures are equal.",
        *tables,
    ]


def _published_cell(arm: Published, metric: str) -> str:
    if metric not in counted(Domain.metrics):
        return f"{arm.percent[metric]:g} %"
    low, high = arm.interval(metric)
    return f"{arm.percent[metric]:g} % [{100 * low:.1f}, {100 * high:.1f}]"


def _metrics(arm: Published) -> list[object]:
    values = [f"{arm.percent[metric]:g}" for metric in PUBLISHED_METRICS]
    return [
        f"`{arm.experiment}`",
        arm.set.removeprefix("arc-agi-1-"),
        f"`{arm.arm}`",
        _budget(arm),
        arm.adapter,
        *values,
        arm.source,
    ]


def _budget(arm: Published) -> object:
    return f"{arm.first_turn} + {arm.second_turn}" if arm.second_turn else arm.first_turn


def _row(arm: Published) -> list[object]:
    low, high = arm.interval()
    counted = f"{arm.n_solved}/{arm.n_tasks} = {100 * arm.n_solved / arm.n_tasks:.2f} %"
    return [f"`{arm.arm}`", _budget(arm), f"{arm.solved_percent} %", counted, f"[{100 * low:.1f}, {100 * high:.1f}]"]


def _difference(pair: tuple[Published, Published]) -> list[object]:
    p, q = (arm.n_solved / arm.n_tasks for arm in pair)
    p_value = p_text(unpaired(*pair)).removeprefix("p = ")
    return [f"`{pair[0].arm}` − `{pair[1].arm}`", points(p - q, 2), p_value, tasks_needed(p, q)]


def _contingency(first: Published, second: Published) -> list[list[int]]:
    return [[arm.n_solved, arm.n_tasks - arm.n_solved] for arm in (first, second)]
