"""The section about evaluation: arms, turns, sets."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from arc_refinery.config.base import Name, RunName, Strict
from arc_refinery.config.tasks import TaskSet

# What a refining prompt tells of the attempt: what executing it gave, nothing, or what another task's attempt gave. The
# last two are controls: a model that reads its feedback refines worse with them.
Feedback = Literal["real", "none", "other-task"]


class Turn(Strict):
    n_predictions: PositiveInt = Field(description="Completions per task in this turn.")
    adapter: RunName = Field(
        "none",
        description="Which adapter samples them: `none`, `trained`, or the name of one run of a sweep. In a sweep, an "
        "arm with `trained` stands for one arm for each run.",
    )
    feedback: Feedback = Field(
        "real",
        description="For turn 2 and later, what the model is told of the attempt that it refines: what executing it "
        "gave; nothing; what executing an attempt on another task gave. The last two are controls.",
    )


class Arm(Strict):
    name: Name = Field(description="Name of the arm, used in file names and in the report.")
    turns: tuple[Turn, ...] = Field(
        min_length=1,
        description="Turn 1 answers the task; each later turn refines incorrect attempts of the one before.",
    )

    @model_validator(mode="after")
    def _first_turns_have_no_feedback(self) -> "Arm":
        if self.turns[0].feedback != "real":
            raise ValueError(f"{self.name}: turn 1 refines nothing, so it has no feedback; remove the key")
        return self

    @property
    def budget(self) -> int:
        return sum(turn.n_predictions for turn in self.turns)

    def branch(self, turn: int) -> str:
        """Folder name of what samples turn `turn` (1, 2, ...). Arms share their first turns, not the later ones."""
        if turn == 1:
            adapter = self.turns[0].adapter
            return "turn1" if adapter == "none" else f"turn1-{adapter}"
        return f"{self.name}-turn{turn}"

    @property
    def branches(self) -> tuple[str, ...]:
        """Folder names of its turns, in order."""
        return tuple(self.branch(turn) for turn in range(1, len(self.turns) + 1))

    def with_adapters(self, name: str, adapters: Mapping[str, str]) -> "Arm":
        """This arm, called after `name`, with other adapters in place of some."""
        turns = tuple(
            turn.model_copy(update={"adapter": adapters.get(turn.adapter, turn.adapter)}) for turn in self.turns
        )
        return self.model_copy(update={"name": f"{self.name}-{name}", "turns": turns})


class Evaluation(Strict):
    sets: tuple[TaskSet, ...] = Field(min_length=1, description="Sets of tasks that the arms are compared on.")
    arms: tuple[Arm, ...] = Field(
        min_length=1,
        description="Ways to spend a budget. The first one is the baseline that the others are compared with.",
    )
    n_bootstrap: PositiveInt = Field(10000, description="Resamples of the tasks for the 95 % intervals.")

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Evaluation":
        for what, names in (("sets", [s.name for s in self.sets]), ("arms", [a.name for a in self.arms])):
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"two {what} have the name {', '.join(sorted(twice))}")
        return self
