"""Paths of the records of a branch.

Two shards per grading job, five shards in all:

    prompts.parquet    attempts/000.parquet .. 004.parquet    verdicts/000.parquet (shards 0 and 1), 001, 002 (shard 4)
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class BranchFiles:
    """The files of one branch, in `folder`: <results>/<part or set>/<branch>.

    A file of verdicts has those of its shards one after the other, in the attempts' order.
    """

    folder: Path
    n_shards: int
    shards_per_grading_job: int = 1
    tasks_per_batch: int = 1  # a shard has every `n_shards`-th batch of so many tasks

    @property
    def tasks(self) -> Path:
        """The tasks that the branch answers."""
        return self.folder.parents[1] / f"tasks/{self.folder.parent.name}.parquet"

    @property
    def prompts(self) -> Path:
        return self.folder / "prompts.parquet"

    @property
    def reference(self) -> Path:
        """Log-probabilities of the tasks' own programs, if the config asks for them."""
        return self.folder / "reference.parquet"

    @property
    def n_grading_jobs(self) -> int:
        return -(-self.n_shards // self.shards_per_grading_job)

    @property
    def attempts(self) -> list[Path]:
        return self._attempts(range(self.n_shards))

    @property
    def verdicts(self) -> list[Path]:
        return [self.folder / f"verdicts/{job:03d}.parquet" for job in range(self.n_grading_jobs)]

    def attempts_of_job(self, job: int) -> list[Path]:
        """Return the attempts that one file of verdicts is about."""
        first = job * self.shards_per_grading_job
        return self._attempts(range(first, min(first + self.shards_per_grading_job, self.n_shards)))

    def _attempts(self, shards: range) -> list[Path]:
        return [self.folder / f"attempts/{shard:03d}.parquet" for shard in shards]
