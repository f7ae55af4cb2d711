"""The section about what jobs ask of the machine."""

from pydantic import Field, PositiveInt

from arc_refinery.config.base import Strict


class Needs(Strict):
    cpus: PositiveInt = Field(1, description="CPU cores.")
    mem_mb: PositiveInt = Field(2000, description="Memory.")
    disk_mb: PositiveInt = Field(2000, description="Scratch disk.")
    gpus: int = Field(0, ge=0, description="GPUs.")
    gpu_mem_mb: int = Field(0, ge=0, description="Least memory of each GPU, in MiB.")
    runtime: PositiveInt = Field(60, description="Minutes after which the job is overdue.")
    requirements: str = Field("", description="HTCondor requirements expression, for instance to pin a machine.")


class ModelNeeds(Needs):
    venv: str = Field(
        "",
        description="Folder of the virtual environment that these jobs use, for instance one with CUDA and vLLM; by "
        "default that of Snakemake.",
    )


class Resources(Strict):
    cpu: Needs = Field(default_factory=lambda: Needs(), description="Jobs that never hold a GPU.")
    sample: ModelNeeds = Field(default_factory=lambda: ModelNeeds(), description="Sampling jobs.")
    train: ModelNeeds = Field(default_factory=lambda: ModelNeeds(), description="The training job.")
