"""Episodes in which a tool could not work: they carry no loss, and too many of them end the training.

Four episodes earn 1, 0, 0 and, because a database was away, nothing that could be graded. The fourth counts as the mean
of the others, 1/3, so that their mean stays what it is without it.
"""

from collections import deque
from collections.abc import Sequence
from statistics import fmean

from arc_refinery.errors import InputError

N_STEPS = 50  # over which failures are counted


def without_failed(rewards: Sequence[float], failed: Sequence[bool], group: int) -> list[float]:
    """Return the rewards, those of failed episodes replaced by the mean of the others of their group; 0 without any."""
    replaced: list[float] = []
    for start in range(0, len(rewards), group):
        pairs = list(zip(rewards[start : start + group], failed[start : start + group], strict=True))
        graded = [reward for reward, has_failed in pairs if not has_failed]
        mean = fmean(graded) if graded else 0.0
        replaced += [mean if has_failed else reward for reward, has_failed in pairs]
    return replaced


def spread(values: Sequence[float], failed: Sequence[bool]) -> list[float]:
    """Return the values of graded episodes at their places among all; those of failed ones are 0."""
    rest = iter(values)
    return [0.0 if has_failed else next(rest) for has_failed in failed]


class FailureLimit:
    """Counts failed episodes of the last `N_STEPS` steps."""

    def __init__(self, max_failed: float, episodes_per_step: int) -> None:
        self._max_failed = max_failed
        self._n_episodes = N_STEPS * episodes_per_step
        self._latest: deque[bool] = deque(maxlen=self._n_episodes)

    def add(self, failures: Sequence[str]) -> None:
        """Add episodes of training: why a tool could not work, empty if all could. Raises `InputError`."""
        self._latest.extend(reason != "" for reason in failures)
        n_failed = sum(self._latest)
        if any(failures) and n_failed > self._max_failed * self._n_episodes:
            reason = next(filter(None, reversed(failures)))
            raise InputError(
                f"a tool could not work in {n_failed} of the last {len(self._latest)} episodes, more than max_failed = "
                f"{self._max_failed:g} of the {self._n_episodes} of {N_STEPS} steps: {reason}. Make it work, then "
                "start the job again: it resumes from the newest checkpoint"
            )
