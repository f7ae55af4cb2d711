"""The config of the domain `code`."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from arc_refinery.config.base import PROMPTS, Line, PositiveInt
from arc_refinery.config.rewards import described, distinct
from arc_refinery.refining.config import rewards, sampling, tasks, training
from arc_refinery.refining.config.experiment import Refining
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS, Grade, by_name, score, solved
from arc_refinery.refining.config.rows import RowsEvaluation, RowsExperiment, RowsSet

PLAIN = "plain"
FeedbackForm = Literal["failing-tests", "traceback", "verdict-only"]
FORMS: tuple[FeedbackForm, ...] = get_args(FeedbackForm)
TEXTS = (
    *("system", "task", "starter", "tests", "request"),  # first turn
    *("passed", "returned", "compared", "raised", "not_run", "traceback", "frame", "correct"),  # later turns
)


def wording_files(name: str) -> list[Path]:
    """Return the files of a wording; the built-in one has none."""
    return [] if name == PLAIN else [Path(name, f"{text}.txt") for text in TEXTS]


N_SHOWN = (
    "Tests that a prompt shows, from the first; default: one, of HumanEval the docstring's, of your own rows with "
    "`hidden_tests` all `tests`. Hidden ones decide, too, whether a task is solved."
)


class Problems(tasks.Problems):
    content: ClassVar = "rows of MBPP, HumanEval, or your own (docs/your-own.md)"
    n_shown_tests: PositiveInt | None = Field(None, description=N_SHOWN)
    n_tasks: PositiveInt | None = Field(None, description="Number of tasks, from the first; default: all.")


class TaskSet(RowsSet):
    content: ClassVar = Problems.content
    n_shown_tests: PositiveInt | None = Field(None, description=N_SHOWN)


class PromptedModel(sampling.PromptedModel):
    template: Annotated[Line, PROMPTS] = Field(
        PLAIN,
        description=f"Wording of prompts: `{PLAIN}`, or a folder that `arc-refinery prompts export --domain code` "
        "wrote.",
    )


class Refinement(sampling.Refinement):
    include_errors: bool = Field(
        True, description="Also refine programs that failed before they could be called, or at a limit."
    )
    form: FeedbackForm = Field(
        FORMS[0],
        description="Form of the feedback: each shown test that fails, with the program's value; as Python "
        "shows it; or only how many shown tests pass.",
    )


class Evaluation(RowsEvaluation):
    sets: tuple[TaskSet, ...] = Field(min_length=1, description=RowsEvaluation.model_fields["sets"].description)


def tests(grade: Any) -> float:
    """share of all tests that pass"""
    return float(grade.passed)


def staged(grade: Grade) -> float:
    """0.1 if its calls of the shown tests end, 0.2 x share of the shown tests, 0.7 if it passes all"""
    return 0.1 * grade.is_valid + 0.2 * grade.score + 0.7 * grade.is_solved


class AttemptTerm(rewards.AttemptTerm):
    of_program: ClassVar = by_name(solved, score, tests, staged)
    built_in: ClassVar = of_program | ATTEMPT_REWARDS
    reward: str = Field(description=described(built_in, "docs/methods.md"))


class Grpo(training.Grpo):
    rewards: Annotated[tuple[AttemptTerm, ...], AfterValidator(distinct)] = Field(
        (AttemptTerm(reward="solved"),),
        min_length=1,
        description=training.Grpo.model_fields["rewards"].description,
    )


class Training(training.Training):
    grpo: Grpo | None = Field(None, description=training.Training.model_fields["grpo"].description)


class CodeExperiment(RowsExperiment):
    domain: Literal["code"] = Field(description=Refining.model_fields["domain"].description)
    executes_tasks: ClassVar = True
    forms: ClassVar = get_args(FeedbackForm)
    templates: ClassVar = f"`{PLAIN}`"
    model: PromptedModel = Field(description="The model that answers.")
    problems: Problems | None = Field(None, description=Refining.model_fields["problems"].description)
    refinement: Refinement = Field(
        default_factory=lambda: Refinement(), description=Refining.model_fields["refinement"].description
    )
    training: Training | None = Field(None, description=Refining.model_fields["training"].description)
    evaluation: Evaluation = Field(description=Refining.model_fields["evaluation"].description)

    def template_files(self) -> list[str]:
        return [str(path) for path in wording_files(self.model.template)]


Experiment = CodeExperiment
