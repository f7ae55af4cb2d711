"""Bootstrap 95 % intervals over the tasks of one evaluation set, as numbers and as text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from arc_refinery.config import Refining, ToolUse
from arc_refinery.evaluation.statistics import Difference, Interval, bootstrap_interval, paired_difference, percent


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Intervals over the tasks of one evaluation set. All metrics use the same resamples, seeded by `address`."""

    n_resamples: int
    address: tuple[int | str, ...]

    @classmethod
    def of(cls, experiment: Refining | ToolUse, set_name: str) -> "Bootstrap":
        """Return the bootstrap of a set: the same resamples wherever the set is reported or compared."""
        return cls(experiment.evaluation.n_bootstrap, (experiment.seed, "bootstrap", set_name))

    def interval(self, values: ArrayLike) -> Interval:
        return bootstrap_interval(values, self.n_resamples, *self.address)

    def share(self, values: Sequence[float]) -> str:
        if len(values) < 2:  # one value has no interval
            return percent(float(np.mean(values)))
        low, high = self.interval(values)
        return f"{percent(float(np.mean(values)))} [{100 * low:.1f}, {100 * high:.1f}]"

    def solved(self, values: Sequence[float]) -> str:
        return f"{round(sum(values))}/{len(values)} = {self.share(values)}"

    def difference(self, a: ArrayLike, b: ArrayLike) -> Difference:
        return paired_difference(a, b, self.n_resamples, *self.address)
