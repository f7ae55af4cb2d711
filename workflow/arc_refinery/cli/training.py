"""Stages that train. The flags of `train` keep the names of the published scripts."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from arc_refinery import config, records
from arc_refinery.cli.flags import Flat
from arc_refinery.pretraining.settings import PretrainingSettings


@dataclass
class Train:
    """Train a LoRA adapter with GRPO on prompts; an interrupted run goes on from its last checkpoint."""

    model_path: str
    dataset_path: tuple[Path, ...]  # prompts
    output_dir: Path  # gets the adapter and training.jsonl
    training: Annotated[config.Grpo, Flat]
    checkpoints: Path | None = None  # folder that no rule owns; by default beside output_dir
    dtype: Literal["float32", "bfloat16"] | None = None  # by default bfloat16 where there is a GPU
    n_threads: int = 1
    code_execution_cpu_seconds: float = 1.0
    code_execution_wall_seconds: float = 10.0
    code_execution_memory_limit_mb: int = 512
    allow_without_seccomp: bool = False
    seed: int = 0

    def run(self) -> None:
        import torch

        from arc_refinery.training.grpo import train

        model = config.Model(
            path=self.model_path,
            window=self.training.max_seq_length,
            dtype=self.dtype or ("bfloat16" if torch.cuda.is_available() else "float32"),
            n_threads=self.n_threads,
        )
        sandbox = config.Sandbox(
            cpu_seconds=self.code_execution_cpu_seconds,
            wall_seconds=self.code_execution_wall_seconds,
            memory_mb=self.code_execution_memory_limit_mb,
            allow_without_seccomp=self.allow_without_seccomp,
        )
        checkpoints = self.checkpoints or self.output_dir.with_name(f"{self.output_dir.name}.checkpoints")
        longest = self.training.max_seq_length - self.training.max_completion_length
        prompts = [prompt for path in self.dataset_path for prompt in records.read_prompts(path)]
        fitting = [prompt for prompt in prompts if prompt.n_tokens <= longest]
        n_left_out = len(prompts) - len(fitting)
        logging.info("%d of %d prompts leave no room for an answer and are left out", n_left_out, len(prompts))
        train(fitting, model, self.training, sandbox, self.seed, self.output_dir, checkpoints)


@dataclass
class Pretrain:
    """Train the embedded model from scratch on generated problems; an interrupted run goes on."""

    output_folder: Path
    checkpoint: Path  # file that no rule owns
    settings: Annotated[PretrainingSettings, Flat]

    def run(self) -> None:
        from arc_refinery.pretraining.train import pretrain

        pretrain(self.settings, self.output_folder, self.checkpoint)
