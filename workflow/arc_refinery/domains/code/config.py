"""The config of the domain `code`."""

from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from arc_refinery.config.base import NonNegativeInt, PositiveInt, Seed
from arc_refinery.config.sampling import RowsFile
from arc_refinery.domains.code import two_rules
from arc_refinery.grades import Grade, by_name, score, solved
from arc_refinery.refining.config import tasks
from arc_refinery.refining.config.evaluation import Evaluation
from arc_refinery.refining.config.experiment import Refining
from arc_refinery.refining.config.rows import RowsExperiment, RowsSet

PLAIN = "plain"
FeedbackForm = Literal["failing-tests", "expected-only", "traceback", "verdict-only"]
FORMS: tuple[FeedbackForm, ...] = get_args(FeedbackForm)
TEXTS = (
    *("system", "task", "starter", "tests", "names", "request"),  # first turn
    *("passed", "returned", "compared", "raised", "not_run", "traceback", "frame", "correct"),  # later turns
)


def wording_files(name: str) -> list[Path]:
    """Return the files of a wording; the built-in one has none."""
    return [] if name == PLAIN else [Path(name, f"{text}.txt") for text in TEXTS]


N_SHOWN = (
    "Tests that a first turn shows, from the first; 0: none, it names the functions. Default: one, of HumanEval the "
    "docstring's, of your own rows with `hidden_tests` all `tests`. Hidden ones decide, too, whether a task is solved."
)
N_REVEALED = (
    "Tests after the shown ones, besides `revealed_tests` of your own rows, that feedback may reveal: the first that "
    "fails. The others are hidden. Rewards, ranks and metrics count these among the shown ones."
)


SEED = (
    "For `two-rules`: order of the pairs. Even seeds and odd ones have no pairs and no kinds of rules in common; with "
    "one seed, `first_row` of a set skips the rows that are trained on."
)


class Rows(RowsFile):
    """Rows of files, or made by the generator of pairs with one text and two rules."""

    content: ClassVar = "rows of MBPP, HumanEval, or your own (docs/your-own.md)"
    source: Literal["file", "hub", "two-rules"] = Field(  # type: ignore[assignment]
        "file",
        description="`file`: rows on disk; `hub`: a data set of the hub; `two-rules`: generated pairs of tasks with "
        "one text and two rules; only revealed tests tell which one is meant.",
    )
    n_shown_tests: NonNegativeInt | None = Field(None, description=N_SHOWN)
    n_revealed: NonNegativeInt = Field(0, description=N_REVEALED)
    n_tasks: PositiveInt | None = Field(
        None, description="Number of tasks, from the first; default: all. For `two-rules`: needed, and even."
    )
    seed: Seed = Field(0, description=SEED)

    @model_validator(mode="after")
    def _generated_rows_are_pairs(self) -> Self:
        if self.source != "two-rules":
            if self.not_default("seed"):
                raise ValueError("seed belongs to the source `two-rules`; remove it")
            return self
        if not self.n_tasks:
            raise ValueError("source is `two-rules`, so `n_tasks` must be given: two for each pair")
        if odd := next((key for key in ("n_tasks", "first_row") if getattr(self, key, 0) % 2), None):
            raise ValueError(f"{odd} is {getattr(self, odd)}; the source `two-rules` has pairs, give an even number")
        n_rows, wanted = 2 * two_rules.n_pairs(self.seed), getattr(self, "first_row", 0) + self.n_tasks
        if wanted > n_rows:
            raise ValueError(f"{wanted} rows are wanted, and seed {self.seed} has {n_rows}; lower n_tasks or first_row")
        return self


class Problems(Rows, tasks.Problems):
    pass


class TaskSet(Rows, RowsSet):
    seed: Seed = Field(1, description=SEED)


def tests(grade: Any) -> float:
    """share of all tests that pass"""
    return float(grade.passed)


def staged(grade: Grade) -> float:
    """0.1 if its calls of the shown tests end, 0.2 x share of the shown tests, 0.7 if it passes all"""
    return 0.1 * grade.is_valid + 0.2 * grade.score + 0.7 * grade.is_solved


REWARDS = by_name(solved, score, tests, staged)


class CodeExperiment(RowsExperiment):
    domain: Literal["code"] = Field(description=Refining.model_fields["domain"].description)
    executes_tasks: ClassVar = True
    refines_errors: ClassVar = True
    forms: ClassVar = get_args(FeedbackForm)
    templates: ClassVar = f"`{PLAIN}`"
    program_rewards: ClassVar = REWARDS
    problems: Problems | None = Field(None, description=Refining.model_fields["problems"].description)
    evaluation: Evaluation[TaskSet] = Field(description=Refining.model_fields["evaluation"].description)

    def template_files(self) -> list[str]:
        return [str(path) for path in wording_files(self.model.template or PLAIN)]


Experiment = CodeExperiment
