"""Problems in BARC's format (Li et al. 2024): a program that generates inputs and maps them to outputs; examples."""

from dataclasses import dataclass
from typing import Literal

from arc_refinery.arc.tasks import Pair

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
