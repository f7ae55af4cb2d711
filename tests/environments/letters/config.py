"""The config."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from arc_refinery import config


class Experiment(config.Experiment):
    kind: Literal["letters"]
    n_words: int = Field(description="Number of prompts.")
    sandbox: config.Sandbox = config.Sandbox()
    training: config.Methods = Field(description="Training of a LoRA adapter.")
    resources: config.Resources = config.Resources()

    @property
    def rules(self) -> list[str]:
        return [str(Path(__file__).with_name("stages.smk"))]
