"""The config of the domain `gsm8k`: rows of a file, or of its generator."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from arc_refinery.config.base import Seed
from arc_refinery.config.experiment import Experiment as AnyExperiment
from arc_refinery.refining.config import RowsExperiment, RowsSet
from arc_refinery.refining.config.evaluation import Evaluation

CAVEAT = (
    "The generator's questions follow a few patterns, and one text in eight is held out, so no held-out pattern is new "
    "to the model."
)


class TaskSet(RowsSet):
    source: Literal["generator", "file", "hub"] = Field(  # type: ignore[assignment]
        "file", description="Generated, rows on disk, or a data set of the hub."
    )
    levels: tuple[Annotated[int, Field(ge=1, le=3)], ...] = Field(
        (1,), min_length=1, description="For `generator`: difficulty levels, 1 to 3, in equal shares."
    )
    seed: Seed | None = Field(None, description="For `generator`: default: the experiment's.")

    def completed(self, experiment: AnyExperiment) -> Self:
        if self.source != "generator":
            return super().completed(experiment)
        return self.model_copy(update={"seed": experiment.seed}) if self.seed is None else self

    @property
    def caveats(self) -> str:
        return " ".join(filter(None, (CAVEAT if self.source == "generator" else "", self.caveat)))

    @model_validator(mode="after")
    def _the_source_has_the_keys(self) -> Self:
        if self.source == "generator" and self.n_tasks is None:
            raise ValueError("n_tasks is missing: the generator needs the number to make")
        if self.source != "generator" and (changed := self.not_default("levels", "seed")):
            raise ValueError(f"{changed[0]} belongs to the source `generator`; remove it")
        return self


class Experiment(RowsExperiment):
    evaluation: Evaluation[TaskSet] = Field(description=RowsExperiment.model_fields["evaluation"].description)
