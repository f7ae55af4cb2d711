"""The config of the domain `code`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from arc_refinery.commands.stages import on_disk
from arc_refinery.config.base import PROMPTS, Line, NonNegativeInt, PositiveInt, RunName
from arc_refinery.config.experiment import Wanted
from arc_refinery.config.inputs import rows_files
from arc_refinery.config.rewards import described, distinct
from arc_refinery.config.sampling import RowsSource
from arc_refinery.models.hub import Download
from arc_refinery.refining.config import evaluation, rewards, sampling, tasks, training
from arc_refinery.refining.config.experiment import Refining
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS, Grade, by_name, program_reward, score, solved
from arc_refinery.refining.domains.code.forms import FORMS, PLAIN, FeedbackForm, wording_files

ROWS = "a file of rows of MBPP, HumanEval, or your own (docs/your-own.md)"
N_SHOWN = (
    "Tests that a prompt shows, from the first; default: one of MBPP, the docstring's of HumanEval, `tests` of rows "
)
N_SHOWN += (
    "of your own with `hidden_tests`, else one. The others are hidden; they decide, too, whether a task is solved."
)


class Problems(tasks.Problems):
    content: ClassVar = "rows of MBPP, HumanEval, or your own"
    n_shown_tests: PositiveInt | None = Field(None, description=N_SHOWN)
    n_tasks: PositiveInt | None = Field(None, description="Number of tasks, from the first; default: all.")


class TaskSet(tasks.TaskSet, RowsSource):
    source: Literal["file", "hub"] = Field("file", description="`file`: rows on disk; `hub`: a data set of the hub.")
    path: Line | None = Field(None, description="For `file`: a .jsonl, .json (optionally with .gz) or .parquet file.")
    repository: Line | None = Field(None, description="For `hub`: name of the data set.")
    filename: Line | None = Field(None, description="For `hub`: the file inside the data set.")
    revision: Line | None = Field(
        None, description="For `hub`: branch, tag or commit to fetch; default: the default branch."
    )
    n_shown_tests: PositiveInt | None = Field(None, description=N_SHOWN)
    n_tasks: PositiveInt | None = Field(None, description="Number of tasks, from the first; default: all.")
    first_row: NonNegativeInt = Field(0, description="Rows to skip, so that one file can give several sets.")

    @property
    def expected_size(self) -> int | None:
        return self.n_tasks

    def files_named(self, key: str) -> list[Wanted]:
        return [Wanted(f"{key}.path", Path(self.path), ROWS)] if self.path else []

    def files_read(self) -> list[str]:
        return [self.path] if self.path else []


class PromptedModel(sampling.PromptedModel):
    template: Annotated[Line, PROMPTS] = Field(
        PLAIN,
        description=f"Wording of prompts: `{PLAIN}`, or a folder that `arc-refinery prompts export --domain code` "
        "wrote.",
    )


class Refinement(sampling.Refinement):
    include_errors: bool = Field(
        True, description="Also refine programs that failed before they could be called, or ran out of time or memory."
    )
    form: FeedbackForm = Field(
        FORMS[0],
        description="Form of the feedback: `failing-tests`: each shown test that fails, with the value that the "
        "program gave; `traceback`: as Python shows it; `verdict-only`: how many shown tests pass.",
    )


class Evaluation(evaluation.Evaluation):
    sets: tuple[TaskSet, ...] = Field(min_length=1, description=evaluation.Evaluation.model_fields["sets"].description)


@program_reward
def tests(grade: Any) -> float:
    """share of all tests that pass, shown and hidden"""
    return float(grade.passed)


@program_reward
def staged(grade: Grade) -> float:
    """0.1 for a program whose calls of the shown tests end, 0.2 x share of the shown tests, 0.7 if it passes all"""
    return 0.1 * grade.is_valid + 0.2 * grade.score + 0.7 * grade.is_solved


class AttemptTerm(rewards.AttemptTerm):
    built_in: ClassVar = by_name(solved, score, tests, staged) | ATTEMPT_REWARDS
    reward: str = Field(description=described(built_in, "docs/methods.md"))


class Grpo(training.Grpo):
    rewards: Annotated[tuple[AttemptTerm, ...], AfterValidator(distinct)] = Field(
        (AttemptTerm(reward="solved"),),
        min_length=1,
        description=training.Grpo.model_fields["rewards"].description,
    )


class Training(training.Training):
    grpo: Grpo | None = Field(None, description=training.Training.model_fields["grpo"].description)


class CodeExperiment(Refining):
    domain: Literal["code"] = Field(description=Refining.model_fields["domain"].description)
    forms: ClassVar = get_args(FeedbackForm)
    templates: ClassVar = f"`{PLAIN}`"
    model: PromptedModel = Field(description="The model that answers.")
    models: dict[RunName, PromptedModel] = Field(
        default_factory=dict, description=Refining.model_fields["models"].description
    )
    problems: Problems | None = Field(None, description=Refining.model_fields["problems"].description)
    refinement: Refinement = Field(
        default_factory=lambda: Refinement(), description=Refining.model_fields["refinement"].description
    )
    training: Training | None = Field(None, description=Refining.model_fields["training"].description)
    evaluation: Evaluation = Field(description=Refining.model_fields["evaluation"].description)

    def template_files(self) -> list[str]:
        return [str(path) for path in wording_files(self.model.template)]

    @property
    def task_settings(self) -> dict[str, Any]:
        return {"sandbox": self.sandbox}

    def settings_of_set(self, tasks: str) -> dict[str, Any]:
        task_set = self.evaluation_set(tasks)
        return {"task_set": on_disk(self, task_set)} | self.task_settings

    def files_of_set(self, tasks: str) -> list[str]:
        return rows_files(self, self.evaluation_set(tasks))

    def evaluation_set(self, name: str) -> TaskSet:
        task_set = super().evaluation_set(name)
        assert isinstance(task_set, TaskSet)
        return task_set

    def sources(self) -> Iterable[Download | None]:
        return [*super().sources(), *(task_set.download for task_set in self.evaluation.sets)]


Experiment = CodeExperiment
