"""Commands that train. The flags of `train` keep the names of the published scripts."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from arc_refinery import config, records
from arc_refinery.cli.flags import Flat, beside, start_again, usual_dtype
from arc_refinery.files import content_hash
from arc_refinery.pretraining.settings import PretrainingSettings

if TYPE_CHECKING:
    from arc_refinery.training.sft import Row


@dataclass
class Train:
    """Train a LoRA adapter with GRPO on prompts; an interrupted run resumes from its last checkpoint."""

    model_path: str
    dataset_path: tuple[Path, ...]  # prompts
    output_dir: Path  # the adapter and training.jsonl are written here
    training: Annotated[config.Grpo, Flat]
    guard: config.Guard
    lora_path: Path | None = None  # adapter to start from, as written by SFT; default: a new one
    checkpoints: Path | None = None  # folder outside any rule's outputs; default: next to output_dir
    dtype: Literal["float32", "float16", "bfloat16"] | None = None  # default: bfloat16 if there is a GPU
    n_threads: int = 1
    template: str = "words"  # wording of the feedback in on-policy second turns: compact, words, or a learned folder
    colors: tuple[str, ...] | None = None  # ten words for the colors 0 to 9 in that feedback
    include_errors: bool = False  # on-policy: also refine programs that raised an exception
    code_execution_cpu_seconds: float = 1.0
    code_execution_wall_seconds: float = 10.0
    code_execution_memory_limit_mb: int = 512
    allow_without_seccomp: bool = False
    measurements: Path | None = None  # JSON lines: seconds and peak memory per step
    tensorboard: Path | None = None  # folder for TensorBoard; default: next to output_dir
    seed: int = 0

    def run(self) -> None:
        if self.training.unsloth:
            from arc_refinery.training import unsloth_backend  # noqa: F401  # replaces parts of trl, so it comes first
        from arc_refinery.prompts import load_template
        from arc_refinery.refine.environment import RefineEnvironment
        from arc_refinery.training.grpo import Job, train

        model = config.Model(
            path=self.model_path,
            window=self.training.max_seq_length,
            dtype=self.dtype or usual_dtype(),
            n_threads=self.n_threads,
        )
        sandbox = config.Sandbox(
            cpu_seconds=self.code_execution_cpu_seconds,
            wall_seconds=self.code_execution_wall_seconds,
            memory_mb=self.code_execution_memory_limit_mb,
            allow_without_seccomp=self.allow_without_seccomp,
        )
        job = Job(
            model=model,
            training=self.training,
            guard=self.guard,
            sandbox=sandbox,
            seed=self.seed,
            start=self.lora_path,
            output=self.output_dir,
            work=self.checkpoints or beside(self.output_dir, "checkpoints"),
            measurements=self.measurements,
            tensorboard=self.tensorboard or beside(self.output_dir, "tensorboard"),
        )
        prompts_hash, template = content_hash(self.dataset_path), load_template(self.template, self.colors)
        with sandbox.executor(self.training.n_jobs) as executor:
            environment = RefineEnvironment(
                self._fitting_prompts, prompts_hash, self.training, template, self.include_errors, self.seed, executor
            )
            is_done = train(job, environment)
        if not is_done:
            start_again()

    def _fitting_prompts(self) -> Iterator[records.Prompt]:
        longest = self.training.max_seq_length - self.training.max_completion_length
        n_left_out = 0
        for path in self.dataset_path:
            for prompt in records.read_prompts(path):
                if prompt.n_tokens <= longest:
                    yield prompt
                else:
                    n_left_out += 1
        logging.info("%d prompts leave no room for an answer and were left out", n_left_out)


@dataclass
class Sft:
    """Train a LoRA adapter on demonstrations; an interrupted run resumes from its last checkpoint."""

    model_path: str
    dataset_path: tuple[Path, ...]  # demonstrations of refining, or conversations with tools
    output_dir: Path  # the adapter and training.jsonl are written here
    lora: Annotated[config.Lora, Flat]
    training: Annotated[config.Imitation, Flat]
    checkpoints: Path | None = None  # folder outside any rule's outputs; default: next to output_dir
    dtype: Literal["float32", "float16", "bfloat16"] | None = None  # default: bfloat16 if there is a GPU
    n_threads: int = 1
    measurements: Path | None = None  # JSON lines: seconds and peak memory per step
    tensorboard: Path | None = None  # folder for TensorBoard
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.training.sft import train

        model = config.Network(
            path=self.model_path,
            window=1,  # it samples nothing
            dtype=self.dtype or usual_dtype(),
            n_threads=self.n_threads,
        )
        train(
            self._rows(),
            model,
            self.lora,
            self.training,
            self.seed,
            self.output_dir,
            self.checkpoints or beside(self.output_dir, "checkpoints"),
            self.measurements,
            self.tensorboard,
        )

    def _rows(self) -> "Iterator[Row]":
        from arc_refinery.tokenizers import load_tokenizer
        from arc_refinery.training.sft import Row, refinement_row

        end = str(load_tokenizer(self.model_path).eos_token)
        for path in self.dataset_path:
            if records.kind_of(path) == "conversations":
                for one in records.read_conversations(path):
                    yield Row(one.question_id, one.segments)
            else:
                yield from (refinement_row(one, end) for one in records.read_demonstrations(path))


@dataclass
class Pretrain:
    """Train the embedded model from scratch on generated problems; an interrupted run resumes."""

    output_folder: Path
    checkpoint: Path  # file outside any rule's outputs
    settings: Annotated[PretrainingSettings, Flat]

    def run(self) -> None:
        from arc_refinery.pretraining.train import pretrain

        pretrain(self.settings, self.output_folder, self.checkpoint)
