"""Settings and paths of one GRPO training. Nothing here imports torch, because Unsloth has to be imported first."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arc_refinery.config import TUNING, Guard, Lora, ModelConfig, PolicyGradient, Sandbox, marked

if TYPE_CHECKING:
    from arc_refinery.training.environment import Environment


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Settings and paths of one training run."""

    model: ModelConfig
    lora: Lora
    training: PolicyGradient
    guard: Guard
    sandbox: Sandbox
    seed: int
    start: Path | None  # adapter to start from; None: a fresh one
    output: Path  # folder: the adapter and training.jsonl
    work: Path  # folder: checkpoints
    measurements: Path | None  # file: seconds and memory per step
    tensorboard: Path  # folder
    until_step: int | None = None  # a part of the run ends after this step; None: the whole run, or its last part
    before: Path | None = None  # `output` of the part before

    def identity(self, environment: "Environment") -> str:
        """Return a hash of everything that affects the adapter."""
        from arc_refinery import records
        from arc_refinery.files import content_hash
        from arc_refinery.sampling.checks import ADAPTER_WEIGHTS

        own = self.training.own_advantage
        return records.settings_hash(
            {
                "model": self.model.model_dump(),
                "lora": self.lora.model_dump(),
                "training": self.training.model_dump(exclude=marked(type(self.training), TUNING)),
                "guard": self.guard.model_dump(),
                "sandbox": self.sandbox.model_dump(),
                "seed": self.seed,
                "start": "" if self.start is None else content_hash([self.start / ADAPTER_WEIGHTS]),
                "environment": environment.identity(),
                **({"advantage": content_hash([own.path])} if own else {}),
            }
        )
