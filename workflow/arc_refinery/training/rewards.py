"""Rewards of completions, 0..10: what executing the program gives on all pairs of the task, train and test pooled."""

from collections.abc import Sequence
from typing import Any

from arc_refinery.grids import Grid, as_grid
from arc_refinery.metrics import correct_grids, mean_pixel_score
from arc_refinery.prompts import extract_code
from arc_refinery.sandbox import Executor, Outcome, Program


def arc_v1(outputs: Sequence[Grid], truths: Sequence[Grid]) -> float:
    """1 + 8 x share of correct grids + pixel score; 0 where the outputs are not all valid."""
    if not outputs:
        return 0.0
    return 1.0 + 8.0 * correct_grids(outputs, truths) + mean_pixel_score(outputs, truths)


def arc_v2_no_pixel_score(outputs: Sequence[Grid], truths: Sequence[Grid]) -> float:
    """1 + 9 x share of correct grids; 0 where the outputs are not all valid."""
    if not outputs:
        return 0.0
    return 1.0 + 9.0 * correct_grids(outputs, truths)


REWARDS = {"arc-v1": arc_v1, "arc-v2-no-pixel-score": arc_v2_no_pixel_score}


class ExecutionReward:
    """A reward function of TRL: one number for each completion, from executing it on its prompt's task.

    TRL hands over every column of the data set, repeated for each completion; `pairs` holds the augmented task's
    input/output grids as nested lists, `assistant_prefix` the text that an answer began with before it was sampled.
    """

    def __init__(self, name: str, executor: Executor) -> None:
        self.reward = REWARDS[name]
        self.executor = executor
        self.__name__ = name  # TRL's metrics carry it

    def __call__(
        self,
        completions: list[list[dict[str, str]]],
        pairs: list[list[dict[str, Any]]],
        assistant_prefix: Sequence[str] = (),
        **_: Any,
    ) -> list[float]:
        begun = assistant_prefix or [""] * len(completions)
        answers = zip(begun, completions, strict=True)
        codes = [extract_code(prefix + completion[0]["content"]) for prefix, completion in answers]
        grids = [[(as_grid(pair["input"]), as_grid(pair["output"])) for pair in task] for task in pairs]
        programs = [
            Program(str(number), code, tuple(given for given, _ in grids[number]))
            for number, code in enumerate(codes)
            if code is not None
        ]
        outcomes: dict[str, Outcome] = {outcome.program_id: outcome for outcome in self.executor.run(programs)}
        return [
            self.reward(outcomes[str(number)].outputs, [truth for _, truth in grids[number]])
            if code is not None
            else 0.0
            for number, code in enumerate(codes)
        ]
