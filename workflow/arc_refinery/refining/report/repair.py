"""Report section on what a later attempt does with the program that it refines: repeat it, repair it, or start over.

| program and the one that it refines | n tasks | same program | same outputs | likeness |
| turn 2 × 8 of `refine` | 45 | 46.4 % [39.2, 53.6] | 70.3 % [62.7, 77.9] | 90.6 % [88.8, 92.4] |
| for comparison: other answers to the first prompt | 45 | 0.0 % [0.0, 7.9] | 12.2 % [6.5, 17.9] | 37.1 % [34.1, 40.0] |
"""

from collections.abc import Callable, Collection

import pandas as pd

from arc_refinery.branch_files import BranchFiles
from arc_refinery.programs import likeness
from arc_refinery.refining.config import Refining
from arc_refinery.refining.domain import load_domain
from arc_refinery.refining.evaluation.results import SetResults, turns_of
from arc_refinery.refining.graded import program_of, read_attempts
from arc_refinery.refining.report.tables import turn_title
from arc_refinery.reporting.markdown import markdown_table, share_text

N_COMPARED = 8  # attempts per task and turn: comparing programs takes milliseconds each


def section(experiment: Refining, results: SetResults, files: Callable[[str], BranchFiles]) -> list[str]:
    """Return Markdown blocks on a set; `files` returns the files of a branch. None if no arm refines."""
    domain = load_domain(experiment.domain)
    programs: dict[str, dict[str, str]] = {}  # by branch and attempt

    def read(branch: str, attempt_ids: Collection[str]) -> dict[str, str]:
        known = programs.setdefault(branch, {})
        graded = read_attempts(domain, files(branch), sorted({*attempt_ids} - known.keys()))
        known |= {name: program_of(domain, attempt) for name, attempt in graded.items()}
        return known

    def row(title: str, branch: str, of_parents: str, pairs: pd.DataFrame) -> list[object]:
        """`pairs`: columns `task_id`, `attempt_id`, `fingerprint`, `parent_id`."""
        of_attempts, of_refined = read(branch, pairs["attempt_id"]), read(of_parents, pairs["parent_id"])
        alike = [
            likeness(of_attempts[attempt], of_refined[parent])
            for attempt, parent in zip(pairs["attempt_id"], pairs["parent_id"], strict=True)
        ]
        parents = results.branches[of_parents].set_index("attempt_id")["fingerprint"]
        outputs = pairs["fingerprint"].astype(str)
        same = (outputs != "") & (outputs.to_numpy() == parents.loc[pairs["parent_id"]].astype(str).to_numpy())
        measured = pairs.assign(program=[value == 1.0 for value in alike], outputs=same, likeness=alike)
        means = measured.groupby("task_id")[["program", "outputs", "likeness"]].mean()
        return [title, len(means), *(share_text(list(means[column])) for column in means)]

    rows: list[list[object]] = []
    references: dict[str, list[object]] = {}
    for turn in turns_of(experiment.arms):
        arm = turn.arms[0]
        attempts = results.attempts_of_turn(arm, turn.turn)
        attempts = attempts[attempts["place"] < N_COMPARED]
        if turn.turn == 1 or attempts.empty:
            continue
        before = arm.branch(turn.turn - 1)
        rows.append(row(turn_title(turn), turn.branch, before, attempts))
        if turn.turn == 2 and before not in references:
            first = results.branches[before].drop(columns="parent_id")
            refined = first[first["attempt_id"].isin(attempts["parent_id"])]
            refined = refined[["prompt_id", "attempt_id"]].rename(columns={"attempt_id": "parent_id"})
            pairs = first.groupby("prompt_id").head(N_COMPARED).merge(refined, on="prompt_id")
            pairs = pairs[pairs["attempt_id"] != pairs["parent_id"]]
            by = before.removeprefix("turn1").removeprefix("-")
            title = f"for comparison: other answers to the first prompt{f' ({by})' if by else ''}"
            references[before] = row(title, before, before, pairs)
    if not rows:
        return []
    return [
        "### Repeated, repaired or started over",
        "Programs of a later turn beside the one that each of them refines; for comparison, other first attempts at "
        "the same prompt, which have not read it. *Likeness*: the words and signs that two programs have in common, in "
        "order, as a share of all their words and signs; *same program*: a likeness of 100 %; *same outputs*: it ran, "
        f"and gave the same on the {domain.shown}. Means over tasks, of at most {N_COMPARED} attempts each.",
        markdown_table(
            ["program and the one that it refines", "n tasks", "same program", "same outputs", "likeness"],
            [*rows, *references.values()],
        ),
    ]
