"""The published scripts' command lines for ARC, with their names and defaults: `arc-refinery sample`, `train`.

Each becomes one job of a stage. What is asked about tasks is written to a file of prompts first.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from arc_refinery import config, records, stages
from arc_refinery.cli.command import Command
from arc_refinery.config.base import explain, faults_of
from arc_refinery.config.rewards import function_of
from arc_refinery.domains.arc.config import REWARDS, Showing
from arc_refinery.errors import InputError
from arc_refinery.outputs import Output, Outputs, adapter, checkpoints, curves, flag_of, lines, records_file
from arc_refinery.refining.config import Grpo, Sampling
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS
from arc_refinery.sampling.gpus import keep_gpus

MODEL = "barc0/Llama-3.1-ARC-Potpourri-Induction-8B"
# Of both training scripts, and of what they leave to Unsloth 2025.9.3 and TRL 0.23.0, where ours are others
TRAINING = {"weight_decay": 0.01, "loss_type": "bnpo", "importance_sampling_correction": False}


class Published(Command):
    dataset_path: Path  # prompts; tasks (.parquet, .json, .json.gz), for first-turn prompts; or refine_dataset.json.gz
    output: Path  # folder to write
    model_path: config.Line = Field(MODEL, description="folder with a model, or its name on the hub")
    template: config.Line = "words"  # wording of prompts and feedback: compact for the embedded model, or a folder
    use_data_augmentation: bool = True  # for tasks: give each prompt its own symmetry and coloring

    @property
    def has_prompts(self) -> bool:
        return self.dataset_path.suffix == ".parquet" and records.kind_of(self.dataset_path) == records.Prompt.KIND

    def prompts_written(self, path: Path) -> list[Output]:
        return [] if self.has_prompts else [records_file(path, "prompts")]

    def prompts(self, path: Path, n_predictions: int, batch_size: int, answer: int) -> Path:
        """Return the file of prompts; those for tasks are written to `path` first."""
        from arc_refinery.domains.arc.prompt_files import prompts_in
        from arc_refinery.domains.arc.records import Prompt

        if self.has_prompts:
            return self.dataset_path
        sampling = Sampling(n_predictions=n_predictions, batch_size=batch_size, max_output_tokens=answer)
        shown = Showing(use_data_augmentation=self.use_data_augmentation, test_inputs="one")
        prompts = prompts_in(self.dataset_path, sampling, shown, self.template, self.model_path, seed=0)
        records.write(path, Prompt, prompts, 0, sampling.model_dump() | {"template": self.template})
        return path

    def model(self, window: int, **more: Any) -> dict[str, Any]:
        return {"path": self.model_path, "window": window, "dtype": "bfloat16" if _has_gpu() else "float32", **more}


class Sample(Published):
    r"""Sample completions with a command line of the published scripts; an interrupted run resumes.

    Example:
        arc-refinery sample --dataset-path mine/turn1/prompts.parquet --model-path workflow/models/tiny \
            --max-model-len 1024 --max-output-tokens 48 --output mine/sampled
    """

    n_predictions: config.PositiveInt = 8  # for tasks: completions per task
    batch_size: config.PositiveInt = 8  # for tasks: completions per prompt
    lora_path: Path | None = None  # folder of an adapter; default: none
    max_model_len: config.PositiveInt = 9700  # longest prompt and completion together, in tokens
    max_output_tokens: config.PositiveInt = 1024  # longest completion, in tokens
    temperature: config.Temperature = 1.0  # 0: greedy
    top_p: config.Mass = 0.95  # nucleus sampling: probability mass to sample from

    def writes(self) -> Outputs:
        attempts = records_file(self.output / "000.parquet", "attempts")
        return {"output": [attempts, *self.prompts_written(self.output / "prompts.parquet")]}

    def run(self) -> None:
        answer = self.max_output_tokens
        backend = "vllm" if _has_gpu() and find_spec("vllm") else "transformers"
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "max_output_tokens": answer}
        _do(
            "sample",
            {"model": self.model(self.max_model_len, backend=backend), "sampling": sampling},
            prompts=self.prompts(self.output / "prompts.parquet", self.n_predictions, self.batch_size, answer),
            adapter=self.lora_path,
            output=self.output / "000.parquet",
        )


class Train(Published):
    r"""Train a LoRA adapter with a command line of the published scripts; an interrupted run resumes.

    Example:
        arc-refinery train --dataset-path mine/turn2/prompts.parquet --model-path workflow/models/tiny \
            --template compact --max-seq-length 1024 --max-completion-length 48 --max-steps 4 --output mine/trained
    """

    lora_r: config.PositiveInt = 16  # rank of the adapter
    load_in_4bit: bool = False  # train with the model's weights in 4 bits (GPU only)
    rewards: str = "arc-v1"  # function that scores completions
    num_generations: int = 4  # completions per prompt
    learning_rate: config.PositiveFloat = 1e-5  # peak learning rate
    beta: float = 0.001  # weight of the KL from the start
    max_grad_norm: config.PositiveFloat = 0.1  # the gradient is clipped to this norm
    gradient_accumulation_steps: config.PositiveInt = 1  # passes per optimizer step
    repetition_penalty: config.PositiveFloat = 1.0  # on repeated tokens, while sampling
    epochs: config.PositiveFloat = 10.0  # passes over the prompts
    max_steps: int = -1  # optimizer steps; -1: as many as the epochs have
    save_steps: config.PositiveInt = 100  # steps between checkpoints
    warmup_ratio: config.Share = 0.1  # share of the steps in which the learning rate grows
    mask_truncated_completions: bool = True  # learn nothing from completions that are cut off
    scale_rewards: str = "group"  # whose standard deviation divides advantages: group, batch or none
    gpu_memory_utilization: config.OfMemory = 0.3  # share of the GPU's memory that vLLM takes
    max_seq_length: config.PositiveInt = 2048  # longest prompt and completion together, in tokens
    max_completion_length: config.PositiveInt = 1024  # longest completion, in tokens
    memory_mb: config.Megabytes = 512  # memory limit per program
    n_jobs: config.PositiveInt = 1  # sandbox servers

    @property
    def sections(self) -> dict[str, BaseModel]:
        """Sections of the job whose keys are flags here."""
        of_grpo = {name: value for name, value in self if name in Grpo.model_fields}
        return {
            "lora": config.Lora(lora_r=self.lora_r, load_in_4bit=self.load_in_4bit),
            "grpo": Grpo.model_validate(of_grpo | TRAINING | {"rewards": [self.rewards]}),
            "lengths": config.Lengths(
                max_completion_length=self.max_completion_length, max_seq_length=self.max_seq_length
            ),
            "sandbox": config.Sandbox(memory_mb=self.memory_mb),
        }

    @model_validator(mode="after")
    def _check(self) -> "Train":
        try:
            _ = self.sections
        except ValidationError as error:
            (fault, *_) = faults_of(error)
            place = tuple(flag_of(str(key)) if index == 0 else key for index, key in enumerate(fault["loc"]))
            raise ValueError(explain({**fault, "loc": place})) from None
        term = self.sections["grpo"].rewards[0]  # type: ignore[attr-defined]
        try:
            _ = term.own_code or function_of(term, REWARDS | ATTEMPT_REWARDS)
        except ValueError as error:
            raise ValueError(f"--rewards.0: {error}") from None
        return self

    def _beside(self, what: str) -> Path:
        if self.output.name in ("", ".."):
            raise InputError(f"--output: {self.output} has no name of its own; expected the path of a new folder")
        return self.output.with_name(f"{self.output.name}.{what}")

    def writes(self) -> Outputs:
        beside = [
            checkpoints(self._beside("checkpoints")),
            lines(self._beside("measurements"), "step"),
            curves(self._beside("tensorboard")),
        ]
        return {"output": [adapter(self.output), *beside, *self.prompts_written(self._beside("prompts.parquet"))]}

    def run(self) -> None:
        keep_gpus(1)  # before a dtype starts CUDA
        settings = {"model": self.model(self.max_seq_length, template=self.template), "guard": {}, "refinement": {}}
        _do(
            "train",
            settings | {name: section.model_dump() for name, section in self.sections.items()},
            data=self.prompts(self._beside("prompts.parquet"), 1, 1, self.max_completion_length),
            output=self.output,
            **{what: self._beside(what) for what in ("checkpoints", "measurements", "tensorboard")},
        )


def _do(stage: str, settings: Mapping[str, Any], **paths: Path | None) -> None:
    flags = {name: [str(path)] for name, path in paths.items() if path}
    stages.call(stage, {"kind": "refining", "domain": "arc", "seed": 0, **settings}, flags)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
