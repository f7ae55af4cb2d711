"""The section `evaluation`: arms, turns, sets."""

from collections.abc import Mapping
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr, model_validator

from arc_refinery.config.arms import BaseArm, Primary
from arc_refinery.config.base import (
    AT,
    EVERY,
    REPORT,
    AdapterName,
    Line,
    PositiveInt,
    Seed,
    Strict,
    check_names,
    check_once,
)
from arc_refinery.refining.config.sampling import Refinement
from arc_refinery.refining.config.tasks import TaskSet

# Feedback in a refining prompt: the results of executing the attempt or, in a control, something else. The twin is the
# neutral placebo: text of the same form on the same task, so only a model that reads its results refines worse with it.
FeedbackKind = Literal["real", "twin", "none", "fresh", "stale", "other-rule"]
CONTROLS: Mapping[FeedbackKind, str] = {
    "twin": "the results of another wrong attempt at the same task",
    "none": "no results",
    "fresh": "the first turn again, without the program, with the check that feedback reveals",
    "stale": "the results, but revealing a check that the program passes",
    "other-rule": "the results of a wrong attempt at the paired task, `-a` of `-b`, of the same text and another rule",
}


# The name in `answers` and in branches, and the model of such attempts
BROKEN = "broken"


class Turn(Strict):
    n_predictions: PositiveInt = Field(description="Completions per task in this turn.")
    answers: Literal["sampled", "broken"] = Field(
        "sampled",
        description="For turn 1, `broken`: instead of sampled completions, the task's own right program, each with "
        "another mutation that makes it wrong on what the prompt shows; at most `n_predictions` of them.",
    )
    adapter: AdapterName = Field(
        "none",
        description="Adapter that samples them: `none`; `trained`, in a sweep one arm per run; the name of "
        "one run; `trained@1000` of `training.keep_steps`, or `trained@*` for all of them.",
    )
    feedback: FeedbackKind = Field(
        "real",
        description="For turn 2 and later, feedback on the attempt. `real`: the results of executing it; or a control, "
        f"{'; '.join(f'`{kind}`: {text}' for kind, text in CONTROLS.items())}.",
    )
    form: Line | None = Field(None, description="For turn 2 and later, overrides `refinement.form`.")

    @property
    def control(self) -> str | None:
        """What a control shows instead of the attempt's own results; None: the turn is no control."""
        return CONTROLS.get(self.feedback)

    def refinement(self, usual: Refinement) -> Refinement:
        """Return the settings that select the attempts to refine."""
        return usual if self.form is None else usual.model_copy(update={"form": self.form})


class Arm(BaseArm):
    turns: tuple[Turn, ...] = Field(
        min_length=1,
        description="Turn 1 answers the task; each later turn refines incorrect attempts of the previous one.",
    )
    _seed: int | None = PrivateAttr(None)  # one of `evaluation.seeds`; arms with the same one share first turns

    @model_validator(mode="after")
    def _first_turns_refine_nothing(self) -> "Arm":
        first = self.turns[0]
        if changed := first.not_default("feedback", "form"):
            raise ValueError(f"{self.name}: turn 1 refines nothing; remove {', '.join(changed)}")
        if any(turn.answers == BROKEN for turn in self.turns[1:]):
            raise ValueError(
                f"{self.name}: only the answers of turn 1 can be broken; remove `answers` from later turns"
            )
        if first.answers == BROKEN and first.adapter != "none":
            raise ValueError(f"{self.name}: broken answers of turn 1 are not sampled; remove its adapter")
        return self

    def branch(self, turn: int) -> str:
        """Folder name of turn `turn` (1, 2, ...). Arms share first turns, not later ones."""
        if turn > 1:
            return f"{self.name}-turn{turn}"
        first = self.turns[0]
        adapter = "" if first.adapter == "none" else first.adapter
        broken = BROKEN if first.answers == BROKEN else ""
        seed = "" if self.sampling_seed is None else f"sampling-{self.sampling_seed}"
        return "-".join(word for word in ("turn1", adapter, broken, seed) if word)

    @property
    def sampling_seed(self) -> int | None:
        return self._seed

    def with_adapters(self, name: str, adapters: Mapping[str, str]) -> "Arm":
        return self._with(f"{self.name}-{name}", adapters)

    def _with(self, name: str, adapters: Mapping[str, str]) -> "Arm":
        turns = tuple(
            turn.model_copy(update={"adapter": adapters.get(turn.adapter, turn.adapter)}) for turn in self.turns
        )
        return self.model_copy(update={"name": name, "turns": turns})

    @property
    def over_steps(self) -> list[str]:
        """The trainings whose adapters of every kept step this arm asks for."""
        return [turn.adapter.removesuffix(AT + EVERY) for turn in self.turns if turn.adapter.endswith(AT + EVERY)]

    def at_step(self, step: int) -> "Arm":
        """Return this arm with the adapters of one step instead of those of every step."""
        names = {f"{run}{AT}{EVERY}": f"{run}{AT}{step}" for run in self.over_steps}
        return self._with(f"{self.name}{AT}{step}", names)

    def with_seed(self, seed: int) -> "Arm":
        """Return this arm, sampled with another seed."""
        seeded = self.model_copy(update={"name": f"{self.name}-sampling-{seed}"})
        seeded._seed = seed
        return seeded


AnySet = TypeVar("AnySet", bound=TaskSet, covariant=True)


class Evaluation(Strict, Generic[AnySet]):
    sets: tuple[AnySet, ...] = Field(min_length=1, description="Sets of tasks that the arms are compared on.")
    arms: tuple[Arm, ...] = Field(
        min_length=1,
        description="Ways to answer that are compared; the first one is the baseline of the others.",
    )
    comparisons: tuple[tuple[str, str], ...] = Field(
        (),
        description="Further pairs of arms to compare, such as `[refine-trained, refine-base]`: the first "
        "minus the second. Without any, up to three arms are all compared.",
    )
    seeds: tuple[Seed, ...] = Field(
        (),
        description="Repeat all arms with each of these sampling seeds, as `<arm>-sampling-<seed>`. Default: "
        "once, with the experiment's seed.",
    )
    primary: Primary | None = Field(
        None,
        description="The comparison that the experiment was made for, declared before looking at results; the "
        "only one that is not corrected (Holm).",
    )
    reference_logprobs: Annotated[bool, REPORT] = Field(
        False,
        description="Also compute the log-probability of each task's own program as the answer to each second-turn "
        "prompt, with transformers: the report then compares own results with controls without sampling.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        check_names("sets", [task_set.name for task_set in self.sets])
        check_names("arms", [arm.name for arm in self.arms])
        check_once("seeds", self.seeds)
        if itself := [first for first, second in self.comparisons if first == second]:
            raise ValueError(f"comparisons: {itself[0]} cannot be compared with itself")
        return self
