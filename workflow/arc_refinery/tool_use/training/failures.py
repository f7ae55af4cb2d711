"""Episodes in which a tool could not work: left out of their groups, and too many of them end the training.

Four episodes earn 1, 0, 0 and, because a database was away, nothing that could be graded. The fourth counts as their
mean, 1/3: the group's mean stays what it is without it. It carries no loss.
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


class FailureLimit:
    """Counts failed episodes over the last steps."""

    def __init__(self, max_failed: float) -> None:
        self._max_failed = max_failed
        self._n_failed: deque[int] = deque(maxlen=N_STEPS)

    def add(self, failures: Sequence[str]) -> None:
        """Add the episodes of a step: why a tool could not work, empty if all could. Raises `InputError`."""
        reasons = [reason for reason in failures if reason]
        self._n_failed.append(len(reasons))
        n_failed, n_episodes = sum(self._n_failed), N_STEPS * len(failures)
        if n_failed > self._max_failed * n_episodes:
            raise InputError(
                f"{n_failed} episodes of the last {len(self._n_failed)} steps failed, more than max_failed = "
                f"{self._max_failed:g} of the {n_episodes} of {N_STEPS} steps: {reasons[-1]}. Make the tool work, then "
                "start the job again: it resumes from the newest checkpoint"
            )
