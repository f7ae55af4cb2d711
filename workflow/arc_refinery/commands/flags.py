"""The base of all commands, flags that several of them share, and defaults that depend on the machine.

    class SampleAttempts(SamplerFlags):
        dataset_path: Annotated[Path, RULE] = NEEDED  # prompts
        temperature: config.Temperature = 1.0  # 0: greedy

A comment, or the description of a `Field`, is the help of a flag. Marks say what a flag changes: a rule of Snakemake
gives those with RULE itself, has those with TUNING among its `resources`, and all others among its `params`.
"""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from arc_refinery import config
from arc_refinery.commands.outputs import Output, Outputs, Writes, adapter, check_outputs, lines
from arc_refinery.config import RULE, TUNING
from arc_refinery.config.base import Strict
from arc_refinery.config.flags import FLAT, NEEDED, flag_words
from arc_refinery.errors import InputError
from arc_refinery.sampling.gpus import keep_gpus
from arc_refinery.training.job import TrainingJob

# The default of the published scripts, whose command lines still work
PUBLISHED_MODEL = "barc0/Llama-3.1-ARC-Potpourri-Induction-8B"
MODEL = "folder with a model, or its name on the hub"


def _named_once(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    places = [os.path.realpath(path) for path in paths]
    if twice := [path for path, place in zip(paths, places, strict=True) if places.count(place) > 1]:
        raise ValueError(f"names {twice[-1]} twice; remove one")
    return paths


Files = Annotated[tuple[Path, ...], AfterValidator(_named_once)]
RulePath = Annotated[Path, RULE]
RuleFiles = Annotated[Files, RULE]


class Command(Strict):
    """A command, and what a rule is given to run it.

    The functions in stages.py make one from an experiment, without the flags that the rule gives.
    """

    def run(self) -> None:
        raise NotImplementedError

    def writes(self) -> Outputs:
        """Outputs by the name of their flag: those of fields with the mark `Writes`."""
        marks = [(name, mark) for name, field in type(self).model_fields.items() for mark in field.metadata]
        return {name: mark.outputs(getattr(self, name)) for name, mark in marks if isinstance(mark, Writes)}

    def reads(self) -> list[Path]:
        """Files that it reads, though no flag names them."""
        return []

    def check_outputs(self) -> None:
        """Raise `InputError` if it would replace an input or something that it did not make."""
        check_outputs(self, self.writes(), self.reads())

    def words(self, tuning: bool = False) -> list[str]:
        """Return the flags that were set and decide the result; with `tuning`, those that do not."""
        unset = type(self).model_fields.keys() - self.model_fields_set
        return flag_words(self, tuning=tuning, without=unset)

    def flags(self, tuning: bool = False) -> str:
        """Return the same, quoted for a shell."""
        return shlex.join(self.words(tuning))

    def decisive(self) -> dict[str, Any]:
        """Return all that decides the result, but for the contents of files; sections are merged."""
        settings: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if {RULE, TUNING}.isdisjoint(field.metadata):
                settings |= value.model_dump() if isinstance(value, BaseModel) else {name: value}
        return settings


class ModelFlags(Command):
    model_path: config.Line = Field(description=MODEL)
    dtype: config.Dtype | None = None  # default: bfloat16 if there is a GPU
    n_threads: config.Threads = 1  # CPU threads; results depend on it

    def model(self, window: int, **more: Any) -> config.ModelConfig:
        """The model with a window of so many tokens."""
        return config.ModelConfig(
            path=self.model_path, window=window, dtype=self.dtype or _usual_dtype(), n_threads=self.n_threads, **more
        )


class SamplerFlags(ModelFlags):
    max_model_len: config.PositiveInt  # longest prompt and completion together, in tokens
    backend: config.Backend | None = None  # default: vllm if it is installed and there is a GPU
    tensor_parallel_size: config.PositiveInt = 1  # GPUs that share one vLLM sampler
    kv_cache_dtype: config.KvCacheDtype = "auto"  # precision of vLLM's KV cache; fp8 needs an H100
    batch_invariant: bool = False  # vLLM's mode in which sums do not depend on the batch (GPU only)
    use_4bit_quantization: bool = False  # load the weights in 4 bits (GPU only)
    gpu_memory_utilization: Annotated[config.OfMemory, TUNING] = 0.9  # share of the GPU's memory that vLLM takes
    kv_cache_gb: Annotated[config.Gigabytes | None, TUNING] = None  # GiB of its KV cache; default: its share's rest

    def sampler(self) -> config.ModelConfig:
        """The model as it samples."""
        return self.model(
            self.max_model_len,
            backend=self.backend or ("vllm" if _has_gpu() and find_spec("vllm") else "transformers"),
            tensor_parallel_size=self.tensor_parallel_size,
            kv_cache_dtype=self.kv_cache_dtype,
            batch_invariant=self.batch_invariant,
            use_4bit_quantization=self.use_4bit_quantization,
            gpu_memory_utilization=self.gpu_memory_utilization,
            kv_cache_gb=self.kv_cache_gb,
        )


class ShardFlags(SamplerFlags):
    """Flags of commands that sample a shard of prompts or questions."""

    output: RulePath = NEEDED  # folder to write <shard>.parquet to
    shard: Annotated[config.NonNegativeInt, RULE] = 0  # index of the shard to sample
    n_shards: Annotated[config.PositiveInt, RULE] = 1  # number of shards; does not change results
    lora_path: Annotated[Path | None, RULE] = None  # folder of an adapter; default: none

    @property
    def shard_file(self) -> Path:
        return self.output / f"{self.shard:03d}.parquet"


class AdapterFlags(ModelFlags):
    """Flags of all commands that train an adapter."""

    output: RulePath = NEEDED  # folder to write the adapter and training.jsonl to
    lora: Annotated[config.Lora, FLAT]
    checkpoints: Annotated[Path | None, RULE] = None  # folder outside any rule's outputs; default: next to --output
    measurements: Annotated[Path | None, RULE] = None  # JSON lines: seconds and peak memory per step
    tensorboard: Annotated[Path | None, RULE] = None  # folder for TensorBoard; default: next to --output
    seed: config.Seed = 0  # seeds every random choice

    def writes(self) -> Outputs:
        from arc_refinery.training.checkpoints import foreign

        curves = self.tensorboard and Output(self.tensorboard, "a folder of curves", lambda _: "", is_folder=True)
        return {
            "output": [adapter(self.output)],
            "checkpoints": [Output(self.work, "a folder of checkpoints", foreign, is_folder=True, is_whole=True)],
            "measurements": [lines(self.measurements, "step")] if self.measurements else [],
            "tensorboard": [curves] if curves else [],
        }

    @property
    def work(self) -> Path:
        """Folder for checkpoints."""
        return self.checkpoints or self._sibling("checkpoints")

    def _sibling(self, what: str) -> Path:
        if self.output.name in ("", ".."):
            raise InputError(f"--output: {self.output} has no name of its own; expected the path of a new folder")
        return self.output.with_name(f"{self.output.name}.{what}")


class GrpoFlags(AdapterFlags):
    """Flags of every `arc-refinery train --kind <kind>`; each kind adds its own and the settings of GRPO."""

    guard: config.Guard
    lora_path: Annotated[Path | None, RULE] = None  # adapter to start from, as written by SFT; default: a new one
    until_step: config.PositiveInt | None = None  # stop after this step, a multiple of save_steps
    continue_from: Annotated[Path | None, RULE] = None  # adapter of the part that ended with until_step

    def job(self, training: config.PolicyGradient, window: int, sandbox: config.Sandbox | None = None) -> TrainingJob:
        """Return the training, with a window of so many tokens; `sandbox` is for rewards that run programs.

        From here on, this process sees only the GPUs that train.
        """
        step, last = self.until_step, training.max_steps
        if step and step % training.save_steps:
            raise InputError(f"--until-step is {step}; expected a multiple of --save-steps {training.save_steps}")
        if step and 0 < last < step:
            raise InputError(f"--until-step is {step}, but the training ends at --max-steps {last}; lower it")
        keep_gpus(training.n_training_processes)  # before a dtype starts CUDA
        return TrainingJob(
            model=self.model(window),
            lora=self.lora,
            training=training,
            guard=self.guard,
            sandbox=sandbox or config.Sandbox(),
            seed=self.seed,
            start=self.lora_path,
            until_step=self.until_step,
            before=self.continue_from,
            output=self.output,
            work=self.work,
            measurements=self.measurements,
            tensorboard=self.tensorboard or self._sibling("tensorboard"),
        )


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _usual_dtype() -> Literal["float32", "bfloat16"]:
    return "bfloat16" if _has_gpu() else "float32"
