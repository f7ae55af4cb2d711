"""Experiments that compare arms: an arm with trained adapters is repeated for each training.

Of a tool-use experiment with `training.seeds: [0, 1]` and the arms `untrained` and `trained`:

    repetitions    {"untrained": [untrained], "trained": [trained-seed-0, trained-seed-1]}
    paired_runs("trained", "untrained") == [[(trained-seed-0, untrained)], [(trained-seed-1, untrained)]]
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from pydantic import Field, model_validator

from arc_refinery.config.base import EPISODES, REPORT, TUNING, Name, PositiveInt, Strict, marked, run_and_step
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.sampling import ModelConfig
from arc_refinery.config.training import SFT, TRAINED


class BaseArm(Strict):
    """A way to answer the questions or tasks of the evaluation."""

    name: Name = Field(description="Name of the arm, used in file names and in the report.")

    if TYPE_CHECKING:

        @property
        def turns(self) -> Sequence[Any]:
            """Each has `n_predictions`, `adapter` and `control`: what its feedback is instead of results, if any."""

    def branch(self, turn: int) -> str:
        """Folder name of turn `turn` (1, 2, ...)."""
        raise NotImplementedError

    @property
    def branches(self) -> tuple[str, ...]:
        """Folder names of the arm's turns, in order."""
        return tuple(self.branch(turn) for turn in range(1, len(self.turns) + 1))

    @property
    def budget(self) -> int:
        """Attempts per task."""
        return sum(turn.n_predictions for turn in self.turns)

    @property
    def turn_ends(self) -> tuple[int, ...]:
        """Attempts per task after each turn but the last."""
        return tuple(accumulate(turn.n_predictions for turn in self.turns[:-1]))

    @property
    def is_control(self) -> bool:
        """Whether a turn gets no feedback on its attempts."""
        return any(turn.control for turn in self.turns)

    @property
    def adapters(self) -> set[str]:
        """Adapters that sample the arm; `none` is the untrained model."""
        return {turn.adapter for turn in self.turns}

    @property
    def sampling_seed(self) -> int | None:
        """The arm's own seed of sampling; None: the experiment's."""
        return None

    def with_adapters(self, name: str, adapters: Mapping[str, str]) -> Self:
        """Return this arm with some adapters replaced and `name` appended to its name."""
        raise NotImplementedError


class Primary(Strict):
    set: Name = Field(description="Evaluation set.")
    arms: tuple[str, str] = Field(
        description="Pair of arms to compare, as in `comparisons`: the first minus the second."
    )
    turn: PositiveInt | None = Field(
        None, description="Compare the pass rate of this turn alone; default: tasks solved by all attempts."
    )
    minus: tuple[str, str] | None = Field(
        None,
        description="With `turn`: subtract the difference of this pair, task by task (docs/methods.md).",
    )

    @model_validator(mode="after")
    def _pairs_differ_in_a_turn(self) -> "Primary":
        if self.minus and self.turn is None:
            raise ValueError("minus subtracts pass rates of one turn; add `turn`")
        return self

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [self.arms, self.minus] if self.minus else [self.arms]

    @property
    def title(self) -> str:
        first, *others = [" − ".join(pair) for pair in self.pairs]
        return f"({first}) − ({others[0]})" if others else first

    @property
    def outcome(self) -> str:
        return "tasks solved" if self.turn is None else f"right attempts in turn {self.turn}"


AnyArm = TypeVar("AnyArm", bound=BaseArm)


class Compared(Experiment, Generic[AnyArm]):
    """An experiment whose `evaluation` has `arms`."""

    compare: tuple[Name, ...] = Field(
        (),
        description="Names of experiments that `snakemake compare` compares in `results/compare.md`: later ones minus "
        "earlier ones.",
    )
    report_tables: ClassVar[Mapping[str, str]] = {"attempts": "<results>/attempts.parquet"}
    if TYPE_CHECKING:
        evaluation: Any

    @property
    def sampler(self) -> ModelConfig:
        return self.model

    @property
    def evaluated_sets(self) -> Sequence[Any]:
        """The sets that the arms are compared on; each has `name`, `validation`, `caveats`, `note`, `completed`."""
        raise NotImplementedError

    @property
    def set_names(self) -> list[str]:
        return [evaluated.name for evaluated in self.evaluated_sets]

    def decisive_settings(self, name: str) -> dict[str, Any]:
        """All that decides which tasks a set has, for messages."""
        task_set = next(evaluated for evaluated in self.evaluated_sets if evaluated.name == name).completed(self)
        settings: dict[str, Any] = task_set.model_dump(exclude=marked(type(task_set), TUNING, EPISODES, REPORT))
        return settings

    @cached_property
    def compared(self) -> list[tuple[str, str]]:
        """Pairs of names in `repetitions` to compare: the first minus the second."""
        raise NotImplementedError

    @property
    def primaries(self) -> list[Primary]:
        """The comparisons that the report begins with."""
        raise NotImplementedError

    @cached_property
    def over_steps(self) -> dict[str, dict[int, str]]:
        """Names in `repetitions` by kept step, of each arm that asks for all of them."""
        return {}

    def expanded(self, arm: AnyArm) -> Iterable[tuple[str, AnyArm]]:
        """Repeat a configured arm, as (name without seeds, arm) pairs."""
        return self.per_training(arm)

    @cached_property
    def arms(self) -> tuple[AnyArm, ...]:
        """The configured arms, expanded to one arm per adapter and seed."""
        return tuple(arm for repeated in self.repetitions.values() for arm in repeated)

    @cached_property
    def repetitions(self) -> dict[str, list[AnyArm]]:
        """The arms, grouped by their name without seeds: arms of one group differ only in seeds."""
        named: dict[str, list[AnyArm]] = {}
        for configured in self.evaluation.arms:
            for name, arm in self.expanded(configured):
                named.setdefault(name, []).append(arm)
        return named

    def per_training(self, arm: AnyArm) -> list[tuple[str, AnyArm]]:
        """Repeat an arm for each trained adapter, as (name without the seed, arm) pairs."""
        steps = {name: run_and_step(name)[1] for name in arm.adapters if run_and_step(name)[0] == TRAINED}
        if self.training and steps and self.trained not in ([], [TRAINED]):
            return [
                (
                    arm.name if base == TRAINED else f"{arm.name}-{base}",
                    arm.with_adapters(run, own | {SFT: self.start_of(run) or SFT}),
                )
                for run in self.trained
                if {*filter(None, steps.values())} <= {*self.kept_steps(run)}
                for base in [self.training.base_of(run)]
                for own in [{name: run + name.removeprefix(TRAINED) for name in steps}]
            ]
        if SFT in arm.adapters and self.sft_adapters not in ([], [SFT]):
            names = {name: name.removeprefix("sft-") for name in self.sft_adapters}
            return [(arm.name, arm.with_adapters(short, {SFT: name})) for name, short in names.items()]
        return [(arm.name, arm)]

    def arms_called(self, name: str) -> list[AnyArm]:
        """Return the repetitions of that name, or the one arm of that name."""
        return self.repetitions.get(name) or [arm for arm in self.arms if arm.name == name]

    def training_seed(self, arm: AnyArm) -> int | None:
        """Seed of the training whose adapters an arm uses; None if it uses none, or trainings are not repeated."""
        adapters = arm.adapters - {"none"}
        repeated = self.training is not None and len(self.training.seeds) > 1
        return self.seed_of(min(adapters)) if adapters and repeated else None

    def paired_runs(self, first: str, second: str) -> list[list[tuple[AnyArm, AnyArm]]]:
        """Pair the repetitions of two arms, one list per training: samplings with one adapter are one run.

        Repetitions are paired with those of the same seeds of training, then of sampling, if both have such seeds.
        """
        pairs = list(product(self.arms_called(first), self.arms_called(second)))
        for seed_of in (self.training_seed, lambda arm: arm.sampling_seed):
            seeds = [(seed_of(a), seed_of(b)) for a, b in pairs]
            matched = [pair for pair, two in zip(pairs, seeds, strict=True) if None in two or two[0] == two[1]]
            pairs = matched or pairs
        runs: dict[int | None, list[tuple[AnyArm, AnyArm]]] = {}
        for a, b in pairs:
            seed = self.training_seed(a)
            runs.setdefault(self.training_seed(b) if seed is None else seed, []).append((a, b))
        return list(runs.values())

    def check_arm_names(self) -> None:
        """Raise `ValueError` if two arms have one name after they are repeated."""
        names = [arm.name for arm in self.arms]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"evaluation.arms: {min(twice)} is also what a repeated arm would be called; rename one")

    @model_validator(mode="after")
    def _compared_are_several(self) -> Self:
        if len(self.compare) == 1 or len(set(self.compare)) < len(self.compare):
            raise ValueError(
                f"compare names {', '.join(self.compare)}; expected two experiments or more, each of them once"
            )
        return self
