"""Report section on what a later attempt does with the program that it refines: repeat it, repair it, or start over.

| program and the one that it refines | n tasks | same program | same outputs | likeness |
| turn 2 × 8 of `refine` | 45 | 46.4 % [39.2, 53.6] | 70.3 % [62.7, 77.9] | 90.6 % [88.8, 92.4] |
| for comparison: other answers to the first prompt | 45 | 0.0 % [0.0, 7.9] | 12.2 % [6.5, 17.9] | 37.1 % [34.1, 40.0] |
"""

import pandas as pd

from arc_refinery.evaluation.attempts import Results, turns_of
from arc_refinery.programs import likeness
from arc_refinery.reporting.kind import Reported
from arc_refinery.reporting.markdown import markdown_table, share_text
from arc_refinery.reporting.tables import sampled_by, turn_title


def section(of_kind: Reported, results: Results) -> list[str]:
    """Return Markdown blocks on a set; none if no arm refines."""
    rows: list[list[object]] = []
    references: dict[str, list[object]] = {}
    n_compared = 0
    for turn in turns_of(of_kind.experiment.arms):
        arm = turn.arms[0]
        attempts = results.attempts_of_turn(arm, turn.turn)
        attempts = attempts[attempts["likeness"].notna()]
        if turn.turn == 1 or attempts.empty:
            continue
        n_compared = max(n_compared, int(attempts["sample"].max()) + 1)
        before = arm.branch(turn.turn - 1)
        first = results.attempts_of_branch(before)
        rows.append(_row(turn_title(turn), attempts, first))
        if turn.turn == 2 and before not in references:
            refined = first[first["attempt_id"].isin(attempts["parent_id"])]
            refined = refined[["prompt_id", "attempt_id"]].rename(columns={"attempt_id": "parent_id"})
            siblings = first.drop(columns=["parent_id", "likeness"]).groupby("prompt_id").head(n_compared)
            pairs = siblings.merge(refined, on="prompt_id")
            pairs = pairs[pairs["attempt_id"] != pairs["parent_id"]]
            programs = of_kind.programs(results.name, before, {*pairs["attempt_id"], *pairs["parent_id"]})
            two = zip(pairs["attempt_id"], pairs["parent_id"], strict=True)
            alike = [likeness(programs[attempt], programs[parent]) for attempt, parent in two]
            title = f"for comparison: other answers to the first prompt{sampled_by(before)}"
            references[before] = _row(title, pairs.assign(likeness=alike), first)
    if not rows:
        return []
    return [
        "### Repeated, repaired or started over",
        "Programs of a later turn beside the one that each of them refines; for comparison, other first attempts at "
        "the same prompt, which have not read it. *Likeness*: the words and signs that two programs have in common, in "
        "order, as a share of all their words and signs; *same program*: a likeness of 100 %; *same outputs*: it ran, "
        f"and gave the same on the {of_kind.shown}. Means over tasks, of at most {n_compared} attempts each.",
        markdown_table(
            ["program and the one that it refines", "n tasks", "same program", "same outputs", "likeness"],
            [*rows, *references.values()],
        ),
    ]


def _row(title: str, pairs: pd.DataFrame, parents: pd.DataFrame) -> list[object]:
    """`pairs`: columns `task_id`, `parent_id`, `fingerprint`, `likeness`."""
    of_parents = parents.set_index("attempt_id")["fingerprint"].loc[pairs["parent_id"]].to_numpy()
    same = (pairs["fingerprint"] != "") & (pairs["fingerprint"].to_numpy() == of_parents)
    measured = pairs.assign(program=pairs["likeness"] == 1.0, outputs=same)
    means = measured.groupby("task_id")[["program", "outputs", "likeness"]].mean()
    return [title, len(means), *(share_text(list(means[column])) for column in means)]
