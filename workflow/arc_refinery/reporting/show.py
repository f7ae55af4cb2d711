"""One attempt at a task, and the attempts that it refines, as text for a terminal.

results/demo: task 68b67ca3 of the set arc-agi-1-evaluation, arm refine-trained
turn 1: 64 attempts, 0 solve the task
turn 2: 64 attempts, 3 solve the task: --attempt 17, 20, 41

--- turn 1: prompt, 212 tokens ---
[user]
[...]
--- turn 2: verdict ---
ok, 3 of 3 train pairs and 1 of 1 test pairs are correct
"""

import numpy as np
import pandas as pd

from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Side, find
from arc_refinery.reporting.kind import reported

MOST_NUMBERS = 12  # longest list of attempts that solve the task


def show(side: Side, set_name: str | None, task_id: str | None, number: int | None) -> str:
    """Return an attempt of the last turn that the arm has on a task, with the attempts that it refines.

    Without `number`: the first that solves the task, with calls if tools are offered, else the first. Without
    `task_id`: the task is chosen in this way.
    """
    experiment, folder = side.experiment, side.folder
    of_kind = reported(experiment, folder)
    arm = experiment.arms_called(side.arm or of_kind.arm_to_show)[0]
    by_set = {name: of_kind.results(name) for name in side.sets}
    ids = {name: results.task_ids for name, results in by_set.items()}
    set_name, task_id = find(ids, set_name, task_id, side)
    results = by_set[set_name]
    attempts = results.attempts_of_arm(arm)
    if task_id is None:
        task_id = str(_best_first(_last_turn(attempts))["task_id"].iloc[0]) if len(attempts) else results.task_ids[0]
    attempts = attempts[attempts["task_id"] == task_id]
    if attempts.empty:
        raise InputError(
            f"{folder}: {arm.name} has no attempt at the task {task_id}: its prompts are longer than model.window "
            "leaves; raise it, or name another task"
        )
    numbered = _last_turn(attempts)
    if number is not None and number >= len(numbered):
        raise InputError(
            f"--attempt is {number}, but {arm.name} has {len(numbered)} attempts at the task {task_id} in its last "
            "turn, numbered from 0"
        )
    row = (_best_first(numbered) if number is None else numbered).iloc[number or 0]
    lines = [f"{folder}: task {task_id} of the set {set_name}, arm {arm.name}"]
    for turn, of_turn in attempts.groupby("turn"):
        solving = list(map(str, np.flatnonzero(of_turn["solved"])))
        line = f"turn {turn}: {len(of_turn)} attempts, {len(solving)} solve the task"
        if solving and turn == row["turn"]:
            more = ", ..." if len(solving) > MOST_NUMBERS else ""
            line += f": --attempt {', '.join(solving[:MOST_NUMBERS])}{more}"
        lines.append(line)
    return "\n".join([*lines, *of_kind.show(set_name, arm, row)])


def _last_turn(attempts: pd.DataFrame) -> pd.DataFrame:
    return attempts[attempts["turn"] == attempts["turn"].max()]


def _best_first(attempts: pd.DataFrame) -> pd.DataFrame:
    rank = attempts["solved"].astype(int) * 2 + (attempts["n_calls"] > 0)
    return attempts.loc[rank.sort_values(ascending=False, kind="stable").index]
