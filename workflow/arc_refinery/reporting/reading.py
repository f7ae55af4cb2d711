"""Does a model read what its program did, and was it taught to? Attempts with own results, beside controls.

| attempts | control | n tasks | own results | with control | own − control | per training |
| `trained`, turn 2: right | `twin` | 300 | 4.3 % | 3.3 % | **+0.9 [+0.6, +1.2]** | +1.0, +0.8, +0.9 |

| own − control | control | n tasks | trained | untrained | trained − untrained | per training |
| `trained` − `base`, turn 2: right | `twin` | 300 | +0.9 | +0.0 | **+0.9 [+0.6, +1.3]** | +1.0, +0.7, +1.0 |
"""

from collections.abc import Sequence
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from arc_refinery.config import Compared
from arc_refinery.evaluation.attempts import Results
from arc_refinery.reporting.markdown import folded, markdown_table, number, points
from arc_refinery.reporting.tables import PairedMetric, contrast, difference_cells

FEEDBACK = {"feedback", "form"}  # keys of a turn
EXPLAINED = (
    "Does the model read what its program did? *Own − control*: what seeing its own results adds to the share of right "
    "attempts, in points, bold if the evidence supports a difference. Near 0, nothing shows that results are read. The "
    "neutral control is `twin`: same task, same form. Programs that only one of the two arms refines are left out. "
    "Controls show instead:"
)
EXPLAINED_LIKELIHOOD = (
    "*Likelihood*: ln p of the task's own program as the answer, per token, times 100; +1.0 is one percent likelier "
    "per token. It takes no sampling."
)
EXPLAINED_SPLIT = (
    "*After an exception*: the refined program raised one; *after a wrong value*: it ran to its end. *Likeness*: the "
    "words and signs that a program has in common with the refined one, in order, as a share of all."
)


class Measure(NamedTuple):
    title: str
    column: str
    failure: str = ""  # of the refined programs; empty: any
    unit: str = " %"

    def text(self, value: float) -> str:
        return number(100 * value, ".1f") + self.unit


RIGHT = Measure("right", "solved")
LIKELIHOOD = Measure("likelihood of the right program", "reference_logprob", unit="")
SPLIT = (
    Measure("right after an exception", "solved", "exception"),
    Measure("right after a wrong value", "solved", "wrong value"),
    Measure("likeness to the refined program", "likeness"),
)


class FeedbackPair(NamedTuple):
    """Two compared names whose arms differ in the feedback of one turn, and before that in nothing."""

    own: str
    control: str
    turns: tuple[Any, ...]  # of the first arm up to that turn, then that one of the second arm

    @property
    def title(self) -> str:
        """What the second arm shows instead."""
        return f"`{self.turns[-1].feedback if self.turns[-1].control else self.turns[-1].form}`"

    @property
    def untrained(self) -> tuple[Any, ...]:
        return tuple(turn.model_copy(update={"adapter": "none"}) for turn in self.turns)


def feedback_pairs(experiment: Compared[Any]) -> list[FeedbackPair]:
    """Return each pair once: own results come first, of two forms of them the usual one."""
    pairs = {}
    for names in experiment.compared:
        turns = [arm.turns for arm in experiment.paired_runs(*names)[0][0]]
        index = next((index for index, (a, b) in enumerate(zip(*turns, strict=False)) if a != b), 0)
        if index == 0:  # first turns have no feedback
            continue
        sides = zip((of_arm[index] for of_arm in turns), names, strict=True)
        (turn, own), (other, control) = sorted(
            sides, key=lambda side: (side[0].control is not None, side[0].form is not None)
        )
        if turn.control is None and turn.model_dump(exclude=FEEDBACK) == other.model_dump(exclude=FEEDBACK):
            pairs[own, control] = FeedbackPair(own, control, (*turns[0][:index], turn, other))
    return [*pairs.values()]


def section(experiment: Compared[Any], results: Results) -> list[str]:
    """Return what own results add on a set, and what training adds to that; folded, by kind of failure."""
    pairs = feedback_pairs(experiment)
    if not pairs:
        return []
    failures = _failures(results)
    attempts = {pair: _attempts(experiment, results, pair, failures) for pair in pairs}

    def compare(measure: Measure, *compared: FeedbackPair) -> PairedMetric | None:
        by_arm = {name: rows for pair in compared for name, rows in attempts[pair].items()}
        names = [(pair.own, pair.control) for pair in compared]
        return contrast(experiment, results, names, lambda arm: _means(by_arm[arm.name], measure))

    def rows(measures: Sequence[Measure]) -> list[list[object]]:
        return [
            [f"`{pair.own}`, turn {len(pair.turns) - 1}: {measure.title}", pair.title, n_tasks, *shares, *cells]
            for pair, measure in product(pairs, measures)
            if (both := compare(measure, pair))
            for n_tasks, *cells in [difference_cells(both.difference)]
            for shares in [(measure.text(both.first), measure.text(both.second))]
        ]

    taught = [
        [
            f"`{pair.own}` − `{before.own}`, turn {len(pair.turns) - 1}: {measure.title}",
            *(pair.title, n_tasks, *differences, *cells),
        ]
        for pair, before, measure in product(pairs, pairs, (RIGHT, LIKELIHOOD))
        if pair.turns != pair.untrained == before.turns
        if (both := compare(measure, pair, before))
        for n_tasks, *cells in [difference_cells(both.difference)]
        for differences in [(points(both.first), points(both.second))]
    ]
    header = ["attempts", "control", "n tasks", "own results", "with control", "own − control", "per training"]
    of_training = ["own − control", "control", "n tasks", "trained", "untrained", "trained − untrained", "per training"]
    controls = {pair.title: pair.turns[-1].control or "own results in that form" for pair in pairs}
    unsplit, split = rows([RIGHT, LIKELIHOOD]), [EXPLAINED_SPLIT, markdown_table(header, rows(SPLIT))]
    is_scored = any(LIKELIHOOD.title in str(row[0]) for row in unsplit)
    blocks = [
        f"{EXPLAINED} {'; '.join(f'{name}, {text}' for name, text in controls.items())}.",
        EXPLAINED_LIKELIHOOD if is_scored else "",
        markdown_table(header, unsplit),
        markdown_table(of_training, taught) if taught else "",
        folded("Own − control by kind of failure, and likeness to the refined program", *split),
    ]
    return [block for block in blocks if block and unsplit]


def _failures(results: Results) -> "pd.Series[str]":
    """Return the kind of failure of each attempt, by id."""
    refined = results.attempts.drop_duplicates("attempt_id").set_index("attempt_id")
    kinds = np.select([refined["raised"], refined["is_valid"]], ["exception", "wrong value"], "")
    return pd.Series(kinds, refined.index)


def _attempts(
    experiment: Compared[Any], results: Results, pair: FeedbackPair, failures: "pd.Series[str]"
) -> dict[str, pd.DataFrame]:
    """Return the attempts of the pair's turn by arm, with the `failure` of what they refine."""
    number, by_arm = len(pair.turns) - 1, {}
    for arms in chain(*experiment.paired_runs(pair.own, pair.control)):
        both = [results.attempts_of_turn(arm, number) for arm in arms]
        if len({arm.branch(number - 1) for arm in arms}) == 1:  # some have no control, such as no twin
            shared = {*both[0]["parent_id"]} & {*both[1]["parent_id"]}
            both = [attempts[attempts["parent_id"].isin(shared)] for attempts in both]
        for arm, attempts in zip(arms, both, strict=True):
            by_arm[arm.name] = attempts.assign(failure=attempts["parent_id"].map(failures))
    return by_arm


def _means(attempts: pd.DataFrame, measure: Measure) -> "pd.Series[float]":
    if measure.failure:
        attempts = attempts[attempts["failure"] == measure.failure]
    means: pd.Series[float] = attempts.dropna(subset=measure.column).groupby("task_id")[measure.column].mean()
    return means
