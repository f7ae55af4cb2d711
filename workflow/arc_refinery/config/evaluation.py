"""The section about evaluation: arms, turns, sets."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from arc_refinery.config.base import Name, RunName, Strict
from arc_refinery.config.sampling import Refinement, Selection
from arc_refinery.config.tasks import TaskSet

# What a refining prompt tells of the attempt: what executing it gave, nothing, or what another task's attempt gave. The
# last two are controls: a model that reads its feedback refines worse with them.
Feedback = Literal["real", "none", "other-task"]


OF_LATER_TURNS = ("feedback", "select", "n_parents", "include_errors")


class Turn(Strict):
    n_predictions: PositiveInt = Field(description="Completions per task in this turn.")
    model: RunName | None = Field(
        None, description="Which of `models` samples them, without an adapter; by default the experiment's `model`."
    )
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
    select: Selection | None = Field(None, description="For turn 2 and later, in place of `refinement.select`.")
    n_parents: PositiveInt | None = Field(None, description="For turn 2 and later, in place of `refinement.n_parents`.")
    include_errors: bool | None = Field(
        None, description="For turn 2 and later, in place of `refinement.include_errors`."
    )

    @model_validator(mode="after")
    def _adapters_belong_to_the_experiments_model(self) -> "Turn":
        if self.model and self.adapter != "none":
            raise ValueError(f"the adapter {self.adapter} belongs to the experiment's model; remove it or `model`")
        return self

    def refinement(self, usual: Refinement) -> Refinement:
        """Which attempts of the turn before it refines."""
        own = {key: getattr(self, key) for key in Refinement.model_fields if getattr(self, key) is not None}
        return usual.model_copy(update=own)


class Arm(Strict):
    name: Name = Field(description="Name of the arm, used in file names and in the report.")
    turns: tuple[Turn, ...] = Field(
        min_length=1,
        description="Turn 1 answers the task; each later turn refines incorrect attempts of the one before.",
    )
    seed: NonNegativeInt | None = Field(
        None,
        description="Of its sampling and augmentation; the experiment's unless given. Arms with equal first turns and "
        "seeds share these.",
    )

    @model_validator(mode="after")
    def _first_turns_refine_nothing(self) -> "Arm":
        first = self.turns[0]
        if given := [key for key in OF_LATER_TURNS if getattr(first, key) != Turn.model_fields[key].default]:
            raise ValueError(f"{self.name}: turn 1 refines nothing; remove {', '.join(given)}")
        return self

    @property
    def budget(self) -> int:
        return sum(turn.n_predictions for turn in self.turns)

    def branch(self, turn: int) -> str:
        """Folder name of what samples turn `turn` (1, 2, ...). Arms share their first turns, not the later ones."""
        if turn > 1:
            return f"{self.name}-turn{turn}"
        first = self.turns[0]
        sampler = first.model or ("" if first.adapter == "none" else first.adapter)
        seed = "" if self.seed is None else f"sampling-{self.seed}"
        return "-".join(word for word in ("turn1", sampler, seed) if word)

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

    def with_seed(self, seed: int) -> "Arm":
        """This arm, sampled with another seed."""
        return self.model_copy(update={"name": f"{self.name}-sampling-{seed}", "seed": seed})


class Evaluation(Strict):
    sets: tuple[TaskSet, ...] = Field(min_length=1, description="Sets of tasks that the arms are compared on.")
    arms: tuple[Arm, ...] = Field(
        min_length=1,
        description="Ways to spend a budget. The first one is the baseline that the others are compared with.",
    )
    comparisons: tuple[tuple[str, str], ...] = Field(
        (),
        description="Pairs of arms to compare besides, `[refine-trained, refine-base]`: the first less the second. "
        "Without any, up to three arms are all compared with each other.",
    )
    seeds: tuple[NonNegativeInt, ...] = Field(
        (),
        description="Repeat all arms with each of these seeds of sampling; they are then called "
        "`<arm>-sampling-<seed>`, and the report says how far figures hold over them. By default once, with the seed "
        "of the experiment.",
    )
    n_bootstrap: PositiveInt = Field(10000, description="Resamples of the tasks for the 95 % intervals.")

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Evaluation":
        for what, names in (("sets", [s.name for s in self.sets]), ("arms", [a.name for a in self.arms])):
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"two {what} have the name {', '.join(sorted(twice))}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {', '.join(map(str, self.seeds))}: name each seed once")
        if itself := [first for first, second in self.comparisons if first == second]:
            raise ValueError(f"comparisons: {itself[0]} cannot be compared with itself")
        if self.seeds and (seeded := [arm.name for arm in self.arms if arm.seed is not None]):
            raise ValueError(f"seeds: the arm {seeded[0]} has a seed of its own; remove one of them")
        return self
