"""Records of ARC: the columns of prompts, attempts and verdicts that hold grids and augmentations.

prompt     detail: the task as the prompt shows it, turned and recolored, its train pairs in another order: first those
           that the first turn shows
attempt    detail: this augmentation and order
verdict    detail: train_outputs [[1, 0]], ..., train_correct_grids 0.0, train_pixel_score 0.167
"""

from dataclasses import dataclass, replace
from typing import Annotated

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair


@dataclass(frozen=True, slots=True)
class View:
    """Form in which a task was shown."""

    augmentation: Augmentation
    train_order: tuple[Annotated[int, "int8"], ...]


@dataclass(frozen=True, slots=True)
class ShownTask(View):
    """A task as a prompt shows it: augmented, its train pairs reordered. Hidden pairs are for rewards alone."""

    train: tuple[Pair, ...]
    test: tuple[Pair, ...]
    hidden: tuple[Pair, ...] = ()
    n_revealable: Annotated[int, "int8"] = 0  # train pairs, at the end, that only feedback may show

    @property
    def n_shown(self) -> int:
        """Number of train pairs, from the first, that the first turn shows."""
        return len(self.train) - self.n_revealable

    def showing(self, index: int) -> "ShownTask":
        """Return the task with this revealable train pair as the last shown one."""
        n = self.n_shown
        places = [*range(n), index, *(place for place in range(n, len(self.train)) if place != index)]
        order, train = ([of[place] for place in places] for of in (self.train_order, self.train))
        return replace(self, train_order=tuple(order), train=tuple(train), n_revealable=self.n_revealable - 1)

    def fault(self) -> str:
        return self.augmentation.fault() or (
            "" if self.train else "column 'train' is empty, expected at least one pair"
        )


@dataclass(frozen=True, slots=True)
class Outputs:
    """A program's grids, with augmentation and order undone, and their scores.

    Without outputs, all scores are 0; see arc/metrics.py.
    """

    train_outputs: tuple[Grid, ...] = ()
    test_outputs: tuple[Grid, ...] = ()  # on test and hidden pairs
    train_pixel_score: float = 0.0
    train_correct_grids: float = 0.0
    test_pixel_score: float = 0.0
    test_correct_grids: float = 0.0

    @property
    def outputs(self) -> tuple[Grid, ...]:
        """For all pairs of the task, in its order."""
        return self.train_outputs + self.test_outputs


@dataclass(frozen=True, slots=True)
class Prompt(records.Prompt):
    detail: ShownTask

    def fault(self) -> str:
        return records.Prompt.fault(self) or self.detail.fault()


@dataclass(frozen=True, slots=True)
class Attempt(records.Attempt):
    detail: View

    def fault(self) -> str:
        return self.detail.augmentation.fault()


@dataclass(frozen=True, slots=True)
class Verdict(records.Verdict):
    detail: Outputs
