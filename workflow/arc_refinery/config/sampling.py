"""The sections `model`, `template_rows`, `sampling`, `sandbox` and `refinement`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from arc_refinery.config.base import (
    ATTEMPTS,
    PROMPTS,
    TUNING,
    Line,
    Mass,
    OfMemory,
    PositiveInt,
    Share,
    Strict,
    Temperature,
    Threads,
    check_source,
)
from arc_refinery.models.hub import Download
from arc_refinery.prompts import FeedbackForm, Notation
from arc_refinery.sandbox import Executor, Limits
from arc_refinery.sandbox.types import MAX_MEMORY_MB, MAX_SECONDS

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
LEARNED = "learned"
Dtype = Literal["float32", "float16", "bfloat16"]
Backend = Literal["transformers", "vllm"]
KvCacheDtype = Literal["auto", "fp8"]


class ModelConfig(Strict):
    path: Line = Field(
        description="Folder with the model's weights, tokenizer and chat template, or its `owner/name` on the hub."
    )
    revision: Line | None = Field(
        None,
        description="For a hub model: branch, tag or commit to fetch (default: the default branch). The report shows "
        "the fetched commit; set it here to pin it.",
    )
    backend: Backend = Field("transformers", description="Library that samples from the model.")
    window: PositiveInt = Field(description="Longest prompt and completion together, in tokens.")
    dtype: Dtype = Field(
        "float32", description="Precision of sampling and training; only float32 on a CPU repeats to the byte."
    )
    n_threads: Threads = Field(
        1,
        le=1024,
        description="CPU threads for sampling and training; not taken from the machine, because results depend on it.",
    )
    tensor_parallel_size: PositiveInt = Field(1, description="GPUs that share one vLLM sampler.")
    gpu_memory_utilization: Annotated[OfMemory, TUNING] = Field(
        0.9, description="Share of the GPU's memory that vLLM takes when sampling."
    )
    kv_cache_dtype: KvCacheDtype = Field(
        "auto",
        description="Precision of vLLM's KV cache when it samples attempts or episodes, not in training. `auto`: that "
        "of `dtype`; `fp8`: half as large and faster to read, but completions change slightly. Needs an H100 or H200.",
    )
    use_4bit_quantization: bool = Field(False, description="Load the weights in 4 bits (bitsandbytes, GPU only).")

    @property
    def download(self) -> Download | None:
        """The repository to fetch; None if `path` is a folder."""
        if not _HUB_NAME.fullmatch(self.path) or Path(self.path).exists():
            return None
        return Download(self.path, "model", self.revision)

    @model_validator(mode="after")
    def _a_revision_is_of_the_hub(self) -> "ModelConfig":
        if self.revision and not self.download:
            raise ValueError(f"revision belongs to a hub model, but path {self.path} is a folder; remove one")
        return self

    @model_validator(mode="after")
    def _the_backend_can(self) -> "ModelConfig":
        if self.use_4bit_quantization and self.backend == "vllm":
            raise ValueError(
                "use_4bit_quantization with backend `vllm`: vLLM 0.31 cannot load 4-bit bitsandbytes weights; set "
                "use_4bit_quantization to false, or backend to `transformers`"
            )
        if self.kv_cache_dtype != "auto" and self.backend == "transformers":
            raise ValueError(
                f"kv_cache_dtype `{self.kv_cache_dtype}` with backend `transformers`: only vLLM has it; set "
                "kv_cache_dtype to `auto`, or backend to `vllm`"
            )
        return self


class PromptedModel(ModelConfig):
    template: Annotated[Line, PROMPTS] = Field(
        "words",
        description="Wording of prompts: `compact` for the embedded model; `words`, our own for other models; "
        "`learned`, the model's own, taken from `template_rows`; or a folder written by `arc-refinery prompts learn`.",
    )
    colors: Annotated[tuple[str, ...] | None, PROMPTS] = Field(
        None, description="Ten words for the colors 0 to 9, instead of the template's own."
    )

    @model_validator(mode="after")
    def _colors_suit_the_template(self) -> "PromptedModel":
        if self.colors is not None and self.template == "compact":
            raise ValueError("the template `compact` writes digits, so `colors` must be left out")
        if self.colors is not None:
            Notation(self.colors)
        return self


class TemplateRows(Strict):
    source: Literal["hub", "file"] = Field(
        description="`hub`: a data set of the Hugging Face hub; `file`: rows on disk."
    )
    path: Line | None = Field(
        None, description="For `file`: a .jsonl, .json (optionally with .gz) or .parquet file, or a folder of them."
    )
    repository: Line | None = Field(None, description="For `hub`: name of the data set.")
    files: Line | None = Field(
        None, description="For `hub`: glob of the files to read, such as `*test_sft*`; `*` also matches `/`."
    )
    revision: Line | None = Field(
        None, description="For `hub`: branch, tag or commit to fetch; default: the default branch."
    )
    n_rows: PositiveInt = Field(1000, description="Number of rows to read, from the first; a few hundred are enough.")
    min_share: Share = Field(0.9, description="Share of the rows that the wording must fit; otherwise the run ends.")

    @property
    def download(self) -> Download | None:
        if self.source != "hub":
            return None
        return Download(str(self.repository), "dataset", self.revision, (str(self.files),))

    @model_validator(mode="after")
    def _source_is_complete(self) -> "TemplateRows":
        on_hub = {"repository": self.repository, "files": self.files}
        check_source(self.source, "rows", self.path, on_hub, self.revision)
        return self


TestInputs = Literal["all", "one"]


class Sampling(Strict):
    n_predictions: PositiveInt = Field(8, description="Completions per training task.")
    batch_size: PositiveInt = Field(
        8, description="Completions per prompt, that is per augmentation and order of the train pairs."
    )
    use_data_augmentation: bool = Field(True, description="Give each prompt its own symmetry and coloring.")
    test_inputs: TestInputs = Field(
        "all", description="Test inputs that a first-turn prompt shows: all of the task's, or one drawn at random."
    )
    temperature: Annotated[Temperature, ATTEMPTS] = Field(
        1.0, description="Softmax temperature; 0: greedy, so all completions of a prompt are equal."
    )
    top_p: Annotated[Mass, ATTEMPTS] = Field(0.95, description="Nucleus sampling: probability mass kept.")
    max_output_tokens: PositiveInt = Field(description="Longest completion, in tokens.")


Seconds = Annotated[float, Field(ge=0.01, le=MAX_SECONDS)]
Megabytes = Annotated[int, Field(ge=1, le=MAX_MEMORY_MB)]


class Sandbox(Strict):
    cpu_seconds: Seconds = Field(1.0, description="CPU time limit per program, over all its inputs.")
    wall_seconds: Seconds = Field(10.0, description="Wall time limit per program, which ends one that sleeps.")
    memory_mb: Megabytes = Field(512, description="Memory limit per program, above the server's own.")
    programs_per_child: PositiveInt = Field(
        1,
        description="For grading: how many programs may share a process, if they cannot disturb each other; 32 makes "
        "bulk scoring cheaper, 1 isolates every program.",
    )
    allow_without_seccomp: bool = Field(
        False,
        description="Execute programs even if the kernel cannot filter their system calls: they can then reach "
        "whatever the user can. The report mentions it.",
    )

    def limits(self) -> Limits:
        return Limits(self.cpu_seconds, self.wall_seconds, self.memory_mb)

    def executor(self, n_jobs: int, modules: Sequence[str] = ()) -> Executor:
        """Return an executor with these limits and `n_jobs` sandbox servers; programs may also import `modules`."""
        return Executor(n_jobs, self.limits(), self.programs_per_child, self.allow_without_seccomp, modules=modules)


# Which incorrect attempts may be refined, best first. `best-distinct` drops one with the same outputs as a better one.
Selection = Literal["best-distinct", "best"]


# What a later turn's conversation keeps of the earlier ones
History = Literal["whole", "last"]


class Refinement(Strict):
    n_parents: PositiveInt = Field(
        8, description="Incorrect attempts per task and turn that evaluation cycles through."
    )
    select: Selection = Field(
        "best-distinct",
        description="Which ones, best first: `best-distinct` drops an attempt with the same outputs as a better one, "
        "`best` does not.",
    )
    include_errors: bool = Field(
        False, description="Also refine programs that raised an exception, with the exception as feedback."
    )
    form: FeedbackForm = Field(
        "given",
        description="Form of the feedback on a train pair: `given`: that it is correct, or the grid that the program "
        "gave; `residual`: that grid and the expected one, as a pair of a first turn; `difference`: cells that differ; "
        "`residual-only`: these pairs alone, as a new first turn, whose program runs on the earlier one's outputs.",
    )
    history: History = Field(
        "whole",
        description="What the prompts of turn 3 and later show, after the task: `whole`: all attempts of the "
        "conversation with their feedback; `last`: only the last one, which takes a smaller window.",
    )
