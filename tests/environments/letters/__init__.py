"""A kind of experiment from outside the package: a model learns to write words with the letter e.

A config names this module as its `kind`. The module has four parts: `Experiment` (the config), what the shared rules
are given, `Train` (the command that trains), and `write_report`. The rules of its own stages are in stages.smk.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from arc_refinery import config
from arc_refinery.cli.flags import Flat, GrpoFlags
from arc_refinery.config import inputs, stages
from arc_refinery.training.job import train

if TYPE_CHECKING:
    from arc_refinery.reporting.publish import Attachments

    from .environment import Letters

# The config


class Experiment(config.Experiment):
    kind: Literal["letters"]
    n_words: int = Field(description="Number of prompts.")
    sandbox: config.Sandbox = config.Sandbox()
    training: config.Methods = Field(description="Training of a LoRA adapter.")
    resources: config.Resources = config.Resources()
    rules: ClassVar[str] = str(Path(__file__).with_name("stages.smk"))


# What the rules `train` and `report` are given


@inputs.grpo_inputs.register
def _(_: Experiment) -> dict[str, list[str]]:
    return {"data": ["<results>/words.txt"]}


@inputs.report_inputs.register
def _(_: Experiment) -> list[str]:
    return []


@stages.train.register
def _(experiment: Experiment, adapter: str) -> stages.Stage:
    model = {"model_path": inputs.model_path(experiment, experiment.model), "window": experiment.model.window}
    trained = stages.trained(experiment, experiment.runs[adapter])
    return stages.Stage(model | trained | {"seed": experiment.seed_of(adapter)})


# The commands


@dataclass(kw_only=True)
class Train(GrpoFlags):
    """Train a LoRA adapter with GRPO to write words with the letter e."""

    dataset_path: tuple[Path, ...]  # text files with one prompt per line
    training: Annotated[config.PolicyGradient, Flat]
    window: int  # longest prompt and completion together, in tokens

    def run(self) -> None:
        train(self.job(self.training, self.window), self.environment)

    @contextmanager
    def environment(self) -> "Iterator[Letters]":
        from .environment import Letters

        yield Letters(
            [word for path in self.dataset_path for word in path.read_text().split()], self.training, self.seed
        )


def write_report(experiment: Experiment, folder: Path, output: Path) -> None:
    from arc_refinery.reporting import provenance, training
    from arc_refinery.reporting.publish import publish

    def compose(files: "Attachments") -> Sequence[str]:
        return [
            f"# Experiment {experiment.experiment}",
            *training.section(experiment, folder, files),
            *provenance.section(experiment, folder, {"experiment": [experiment.seed]}),
        ]

    publish(output, folder, compose)
