"""Flags that several commands share, the numbers that flags may have, and defaults that depend on the machine."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
from pydantic import TypeAdapter, ValidationError

from arc_refinery import config
from arc_refinery.cli.outputs import Output, Outputs, adapter, flag_of, lines
from arc_refinery.errors import InputError
from arc_refinery.sampling.gpus import divide
from arc_refinery.training.job import TrainingJob

Flat = tyro.conf.OmitArgPrefixes  # type: ignore[type-arg]

# The default of the published scripts, whose command lines go on working. Their `sample` has the other name.
PUBLISHED_MODEL = "barc0/Llama-3.1-ARC-Potpourri-Induction-8B"
PublishedModel = Annotated[
    config.Line, tyro.conf.arg(aliases=["--base-model-path"], help="folder with a model, or its name on the hub")
]


@dataclass(kw_only=True)
class ModelFlags:
    model_path: PublishedModel
    dtype: Literal["float32", "float16", "bfloat16"] | None = None  # default: bfloat16 if there is a GPU
    n_threads: config.Threads = 1  # CPU threads; results depend on it

    def model(self, window: int, **more: Any) -> config.ModelConfig:
        """The model with a window of so many tokens."""
        return config.ModelConfig(
            path=self.model_path, window=window, dtype=self.dtype or _usual_dtype(), n_threads=self.n_threads, **more
        )


@dataclass(kw_only=True)
class SamplerFlags(ModelFlags):
    max_model_len: config.PositiveInt  # longest prompt and completion together, in tokens
    backend: Literal["transformers", "vllm"] | None = None  # default: vllm if it is installed and there is a GPU
    tensor_parallel_size: config.PositiveInt = 1  # GPUs that share one vLLM sampler
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"  # precision of vLLM's KV cache; fp8 needs an H100
    use_4bit_quantization: bool = False  # load the weights in 4 bits (GPU only)
    gpu_memory_utilization: config.OfMemory = 0.9  # share of the GPU's memory that vLLM takes

    def sampler(self) -> config.ModelConfig:
        """The model as it samples."""
        return self.model(
            self.max_model_len,
            backend=self.backend or ("vllm" if _has_gpu() and find_spec("vllm") else "transformers"),
            tensor_parallel_size=self.tensor_parallel_size,
            kv_cache_dtype=self.kv_cache_dtype,
            use_4bit_quantization=self.use_4bit_quantization,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )


@dataclass(kw_only=True)
class AdapterFlags(ModelFlags):
    """Flags of all commands that train an adapter."""

    output_dir: Path  # the adapter and training.jsonl are written here
    lora: Annotated[config.Lora, Flat]
    checkpoints: Path | None = None  # folder outside any rule's outputs; default: next to output_dir
    measurements: Path | None = None  # JSON lines: seconds and peak memory per step
    tensorboard: Path | None = None  # folder for TensorBoard; default: next to output_dir
    seed: config.Seed = 0  # seeds every random choice

    def writes(self) -> Outputs:
        from arc_refinery.training.checkpoints import foreign

        curves = self.tensorboard and Output(self.tensorboard, "a folder of curves", lambda _: "", is_folder=True)
        return {
            "output_dir": [adapter(self.output_dir)],
            "checkpoints": [Output(self.work, "a folder of checkpoints", foreign, is_folder=True, is_whole=True)],
            "measurements": [lines(self.measurements, "step")] if self.measurements else [],
            "tensorboard": [curves] if curves else [],
        }

    @property
    def work(self) -> Path:
        """Folder for checkpoints."""
        return self.checkpoints or self._sibling("checkpoints")

    def _sibling(self, what: str) -> Path:
        if self.output_dir.name in ("", ".."):
            raise InputError(
                f"--output-dir: {self.output_dir} has no name of its own; expected the path of a new folder"
            )
        return self.output_dir.with_name(f"{self.output_dir.name}.{what}")


@dataclass(kw_only=True)
class GrpoFlags(AdapterFlags):
    """Flags of every `arc-refinery train --kind <kind>`; each kind adds its own and the settings of GRPO."""

    guard: config.Guard
    lora_path: Path | None = None  # adapter to start from, as written by SFT; default: a new one
    until_step: config.PositiveInt | None = None  # stop after this step, a multiple of save_steps
    continue_from: Path | None = None  # output_dir of the part of this training that ended with until_step

    def job(self, training: config.PolicyGradient, window: int, sandbox: config.Sandbox | None = None) -> TrainingJob:
        """Return the training, with a window of so many tokens; `sandbox` is for rewards that run programs.

        From here on, this process sees only the GPUs that train.
        """
        step, last = self.until_step, training.max_steps
        if step and step % training.save_steps:
            raise InputError(f"--until-step is {step}; expected a multiple of --save-steps {training.save_steps}")
        if step and 0 < last < step:
            raise InputError(f"--until-step is {step}, but the training ends at --max-steps {last}; lower it")
        variables = dict(os.environ)
        sampler_gpus = divide(training.n_training_processes, training.n_server_gpus)  # before a dtype starts CUDA
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
            output=self.output_dir,
            work=self.work,
            measurements=self.measurements,
            tensorboard=self.tensorboard or self._sibling("tensorboard"),
            sampler_gpus=tuple(sampler_gpus),
            variables=variables,
        )


def faults_of_flags(command: Any) -> Iterator[str]:
    """Yield what is wrong with the flags of a command: values outside their bounds, and files that are named twice."""
    for name, hint in get_type_hints(type(command), include_extras=True).items():
        value = getattr(command, name)
        flag = flag_of(name)
        if is_dataclass(value):
            yield from faults_of_flags(value)
        elif isinstance(value, int | float | str):
            try:
                TypeAdapter(hint).validate_python(value)
            except ValidationError as error:
                yield config.explain({**error.errors()[0], "loc": (flag,)})
        elif isinstance(value, tuple) and all(isinstance(one, Path) for one in value):
            paths = [os.path.realpath(one) for one in value]
            if twice := [one for one, path in zip(value, paths, strict=True) if paths.count(path) > 1]:
                yield f"{flag} names {twice[-1]} twice; remove one"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _usual_dtype() -> Literal["float32", "bfloat16"]:
    return "bfloat16" if _has_gpu() else "float32"
