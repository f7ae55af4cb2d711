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

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Side, find
from arc_refinery.refining.config import Refining
from arc_refinery.refining.domain import Domain, GradedAttempt, load_domain
from arc_refinery.refining.evaluation.results import load_results, read_task_ids
from arc_refinery.refining.graded import read_attempts
from arc_refinery.refining.prompts import split_prefix

MOST_NUMBERS = 12  # longest list of attempts that solve the task


def show(side: Side[Refining], set_name: str | None, task_id: str | None, number: int | None) -> str:
    """Return an attempt of the last turn that the arm has on a task, with the attempts that it refines.

    Without `number`: the first that solves the task, else the first. Without `task_id`: the task is chosen in this way.
    """
    experiment, folder = side.experiment, side.folder
    domain = load_domain(experiment.domain)
    arms = experiment.arms_called(side.arm)[:1] or [arm for arm in experiment.arms if not arm.is_control]
    arm = (arms or experiment.arms)[-1]
    ids = {name: read_task_ids(domain, folder, experiment.evaluation_set(name)) for name in experiment.set_names}
    set_name, task_id = find(ids, set_name, task_id, side)
    results = load_results(experiment, folder, experiment.evaluation_set(set_name), [arm])
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
    attempt_id = (_best_first(numbered) if number is None else numbered)["attempt_id"].iloc[number or 0]
    head = [f"{folder}: task {task_id} of the set {set_name}, arm {arm.name}", *_counts(attempts)]
    chain: list[GradedAttempt] = []
    for branch in reversed(arm.branches[: int(numbered["turn"].iloc[0])]):
        chain.insert(0, read_attempts(domain, experiment.files(folder, set_name, branch), [attempt_id])[attempt_id])
        attempt_id = chain[0].attempt.parent_id
    return "\n".join([*head, *_blocks(domain, chain)])


def _last_turn(attempts: pd.DataFrame) -> pd.DataFrame:
    return attempts[attempts["turn"] == attempts["turn"].max()]


def _best_first(attempts: pd.DataFrame) -> pd.DataFrame:
    return attempts.sort_values("solved", ascending=False, kind="stable")


def _counts(attempts: pd.DataFrame) -> Iterator[str]:
    """Yield a line per turn: its attempts, and how many of them solve the task."""
    for turn, of_turn in attempts.groupby("turn"):
        solving = list(map(str, np.flatnonzero(of_turn["solved"])))
        line = f"turn {turn}: {len(of_turn)} attempts, {len(solving)} solve the task"
        if solving and turn == attempts["turn"].max():
            more = ", ..." if len(solving) > MOST_NUMBERS else ""
            line += f": --attempt {', '.join(solving[:MOST_NUMBERS])}{more}"
        yield line


def _blocks(domain: Domain, chain: Sequence[GradedAttempt]) -> Iterator[str]:
    shown: list[str] = []  # texts that an earlier prompt has, too
    for turn, graded in enumerate(chain, 1):
        prompt, attempt = graded.prompt, graded.attempt
        augmented = "" if domain.shows_task_itself(prompt) else ", of the task in another form"
        yield f"\n--- turn {turn}: {'feedback' if shown else 'prompt'}, {prompt.n_tokens} tokens in all{augmented} ---"
        messages = split_prefix(prompt.messages)[0] if prompt.messages else []
        asked = [f"[{m['role']}]\n{m['content'].strip()}" for m in messages if m["role"] != "assistant"]
        yield from [text for text in asked if text not in shown] or asked[-1:] or [prompt.text]
        shown += asked
        end = "" if attempt.finish_reason == "stop" else ", cut off"
        yield f"\n--- turn {turn}: answer, {attempt.n_tokens} tokens{end}; {attempt.adapter or attempt.model} ---"
        yield attempt.completion.strip("\n")
        yield f"\n--- turn {turn}: verdict ---"
        yield from domain.verdict_lines(graded)
