"""The section `resources`: what jobs request."""

from pydantic import Field

from arc_refinery.config.base import LineOrNone, NonNegativeInt, PositiveInt, Strict


class Needs(Strict):
    cpus: PositiveInt | None = Field(
        None,
        description="CPU cores; default: one per thread: `model.n_threads` to sample and to train, else 1.",
    )
    mem_mb: PositiveInt = Field(2000, description="Memory, in MB.")
    disk_mb: PositiveInt = Field(2000, description="Scratch disk, in MB.")
    gpus: NonNegativeInt = Field(0, le=1024, description="GPUs.")
    gpu_mem_mb: NonNegativeInt = Field(0, description="Minimum memory per GPU, in MiB.")
    gpu_capability: float = Field(
        8.0,
        ge=0,
        le=100,
        description="Minimum compute capability per GPU; 0: any. bfloat16 needs 8.0 (Ampere); the pinned torch, 7.5.",
    )
    gpu_cuda: float = Field(
        13.0,
        ge=0,
        le=100,
        description="CUDA version that a GPU's driver must support; 0: any. The pinned environments need 13.0.",
    )
    runtime: PositiveInt = Field(60, description="Time limit in minutes.")
    requirements: LineOrNone = Field("", description="HTCondor requirements expression, e.g. to pin a machine.")


class ModelNeeds(Needs):
    venv: LineOrNone = Field(
        "",
        description="Folder of these jobs' virtual environment, e.g. one with CUDA and vLLM; default: Snakemake's.",
    )


class TrainNeeds(ModelNeeds):
    mem_mb: PositiveInt = Field(4000, description="Memory, in MB.")


class Resources(Strict):
    cpu: Needs = Field(default_factory=lambda: Needs(), description="Jobs without a GPU.")
    sample: ModelNeeds = Field(default_factory=lambda: ModelNeeds(), description="Sampling jobs.")
    train: TrainNeeds = Field(default_factory=lambda: TrainNeeds(), description="Training jobs.")
