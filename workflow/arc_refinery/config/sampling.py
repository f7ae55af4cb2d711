"""The sections `model` and `sandbox`, and keys of sections that name rows: a file on disk or on the hub."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from arc_refinery.config.base import (
    GRADING,
    TUNING,
    Address,
    Gigabytes,
    Line,
    NonNegativeFloat,
    OfMemory,
    PositiveInt,
    Strict,
    Threads,
    Variable,
)
from arc_refinery.models.hub import Download
from arc_refinery.sandbox import Executor, Limits
from arc_refinery.sandbox.types import MAX_MEMORY_MB, MAX_SECONDS

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
Connections = Annotated[int, Field(ge=1, le=1024)]
Dtype = Literal["float32", "float16", "bfloat16"]
BackendName = Literal["transformers", "vllm", "endpoint", "answers"]


class Backend(NamedTuple):
    """All that is asked about a library that samples; its memory is counted in sampling/gpu_memory.py."""

    title: str
    sampler: str = ""  # class that is called as `open_sampler` (sampling/backends.py); empty: no model is here
    package: str = ""  # installed where it samples, if this package does not require it
    keys: tuple[str, ...] = ()  # keys of `model` that it alone has; they are off by default
    refused: Mapping[str, str] = {}  # other keys that must be off, and why
    has_own_memory: bool = False  # takes a share of a GPU, so that MIG matters


BACKENDS: Mapping[BackendName, Backend] = {
    "transformers": Backend("transformers", "arc_refinery.sampling.transformers_sampler:TransformersSampler"),
    "vllm": Backend(
        "vLLM",
        "arc_refinery.sampling.vllm_sampler:VllmSampler",
        "vllm",
        keys=("batch_invariant", "kv_cache_gb"),
        refused={"use_4bit_quantization": "vLLM 0.31 cannot load 4-bit bitsandbytes weights"},
        has_own_memory=True,
    ),
    "endpoint": Backend(
        "a server",
        keys=("address", "key_variable", "max_connections", "extra_body", "prices", "max_tokens_total"),
        refused=dict.fromkeys(
            ("revision", "use_4bit_quantization", "tensor_parallel_size"), "the server has the weights"
        ),
    ),
    "answers": Backend(
        "a file of answers",
        refused=dict.fromkeys(("revision", "use_4bit_quantization", "tensor_parallel_size"), "there are no weights"),
    ),
}


class Prices(Strict):
    prompt: NonNegativeFloat = Field(description="Of a million tokens that the model reads.")
    completion: NonNegativeFloat = Field(description="Of a million tokens that it writes.")

    def of(self, n_prompt_tokens: int, n_tokens: int) -> str:
        """Return what tokens cost, small sums to two digits."""
        cost = (self.prompt * n_prompt_tokens + self.completion * n_tokens) / 1e6
        return f"{cost:,.2f}" if cost >= 0.1 or not cost else f"{cost:.2g}"


class ModelConfig(Strict):
    path: Line = Field(
        description="Folder with the model's weights, tokenizer and chat template, or its `owner/name` on the hub; for "
        "`endpoint`, the model's name at the server; for `answers`, a file."
    )
    revision: Line | None = Field(
        None,
        description="For a hub model: branch, tag or commit; default: the default branch. The report shows the commit.",
    )
    backend: BackendName = Field(
        "transformers",
        description="Library that samples from the model; `endpoint`: a server with OpenAI's chat completions, such as "
        "vLLM's, llama.cpp's, ollama or a hosted model; `answers`: a file that decides them (docs/development.md). No "
        "weights are needed for these two; nothing can be trained.",
    )
    address: Annotated[Address | None, TUNING] = Field(
        None, description="For `endpoint`: the server's URL, `http://localhost:8000/v1`; default: `OPENAI_BASE_URL`."
    )
    key_variable: Annotated[Variable, TUNING] = Field(
        "OPENAI_API_KEY",
        description="For `endpoint`: variable of the environment with the key, if the server needs one.",
    )
    max_connections: Annotated[Connections, TUNING] = Field(
        16, description="For `endpoint`: requests at a time, fewer while the server is busy."
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="For `endpoint`: more keys of each request, such as `reasoning_effort: low`; null removes one of "
        "ours (`max_tokens`, `temperature`, `top_p`, `seed`).",
    )
    prices: Annotated[Prices | None, TUNING] = Field(
        None, description="For `endpoint`: what tokens cost, in any currency; the report then says what the run cost."
    )
    max_tokens_total: Annotated[PositiveInt | None, TUNING] = Field(
        None,
        description="For `endpoint`: tokens read and written after which a run asks nothing more and ends; with a "
        "larger number it continues.",
    )
    window: PositiveInt = Field(description="Longest prompt and completion together, in tokens.")
    dtype: Dtype = Field(
        "float32", description="Precision of sampling and training; only float32 on a CPU repeats to the byte."
    )
    n_threads: Threads = Field(
        1,
        le=1024,
        description="CPU threads for sampling and training; results depend on it.",
    )
    tensor_parallel_size: PositiveInt = Field(1, description="GPUs that share one vLLM sampler.")
    gpu_memory_utilization: Annotated[OfMemory, TUNING] = Field(
        0.9, description="Share of the GPU's memory that vLLM takes when sampling."
    )
    kv_cache_gb: Annotated[Gigabytes | None, TUNING] = Field(
        None,
        description="GiB of vLLM's KV cache when sampling, so that jobs can share a GPU; "
        "`gpu_memory_utilization` is then only the share that must be free at the start.",
    )
    batch_invariant: bool = Field(
        False,
        description="vLLM's mode in which sums do not depend on the batch, except in training, so that "
        "resumed or differently sharded jobs give the same. Slower; GPU only.",
    )
    use_4bit_quantization: bool = Field(False, description="Load the weights in 4 bits (bitsandbytes, GPU only).")

    @property
    def is_served(self) -> bool:
        """Whether answers come without weights, tokenizer and chat template: from a server, or from a file."""
        return not BACKENDS[self.backend].sampler

    @property
    def has_address(self) -> bool:
        return "address" in BACKENDS[self.backend].keys

    @property
    def answers_file(self) -> Path | None:
        """The file that decides the answers; None if something else gives them."""
        return Path(self.path) if self.is_served and not self.has_address else None

    @property
    def download(self) -> Download | None:
        """The repository to fetch; None if `path` is a folder, or a server's name of a model."""
        if self.is_served or not HUB_NAME.fullmatch(self.path) or Path(self.path).exists():
            return None
        return Download(self.path, "model", self.revision)

    @property
    def folder(self) -> Path | None:
        """The folder that `path` names; None if the model is fetched, or a server has it."""
        return None if self.download or self.is_served else Path(self.path)

    @field_validator("extra_body")
    @classmethod
    def _is_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"cannot be sent as JSON: {error}") from None
        return value

    @model_validator(mode="after")
    def _a_revision_is_of_the_hub(self) -> "ModelConfig":
        if self.revision and not self.download:
            raise ValueError(f"revision belongs to a hub model, but path {self.path} is a folder; remove one")
        return self

    @model_validator(mode="after")
    def _the_backend_can(self) -> "ModelConfig":
        reasons = dict(BACKENDS[self.backend].refused)
        for name, other in BACKENDS.items():
            if name != self.backend:
                reasons |= dict.fromkeys(other.keys, f"only {other.title} has it")
        for key, reason in reasons.items():
            if getattr(self, key) != (off := type(self).model_fields[key].get_default(call_default_factory=True)):
                raise ValueError(f"{key} with backend `{self.backend}`: {reason}; set {key} to {json.dumps(off)}")
        return self


WALL_SECONDS = 10.0  # at least, for a program that sleeps
Seconds = Annotated[float, Field(ge=0.01, le=MAX_SECONDS / 2)]
Megabytes = Annotated[int, Field(ge=1, le=MAX_MEMORY_MB)]


class Sandbox(Strict):
    cpu_seconds: Seconds = Field(
        1.0,
        description="CPU time limit per program, over all its inputs; twice this, at least 10 s, ends one that sleeps.",
    )
    memory_mb: Megabytes = Field(512, description="Memory limit per program, above the server's own.")
    programs_per_child: Annotated[PositiveInt, GRADING] = Field(
        1,
        description="For grading: programs that may share a process, if they cannot disturb each other; 32 is "
        "faster, 1 isolates each.",
    )
    allow_without_seccomp: bool = Field(
        False,
        description="Execute programs even if the kernel cannot filter their system calls; they can then "
        "reach whatever the user can.",
    )

    def limits(self) -> Limits:
        return Limits(self.cpu_seconds, max(WALL_SECONDS, 2 * self.cpu_seconds), self.memory_mb)

    def executor(self, n_jobs: int, modules: Sequence[str] = ()) -> Executor:
        """Return an executor with these limits and `n_jobs` sandbox servers; programs may also import `modules`."""
        return Executor(n_jobs, self.limits(), self.programs_per_child, self.allow_without_seccomp, modules=modules)


class RowsSource(Strict):
    """Rows of files, on disk or on the hub."""

    content: ClassVar[str] = "rows"  # content of the file, for messages
    file_key: ClassVar[str] = "filename"  # names the files in the data set
    source: Literal["file", "hub"] = Field("file", description="`file`: rows on disk; `hub`: a data set of the hub.")
    path: Line | None = Field(None, description="For `file`: a .jsonl, .json (optionally with .gz) or .parquet file.")
    repository: Line | None = Field(None, description="For `hub`: name of the data set.")
    revision: Line | None = Field(
        None, description="For `hub`: branch, tag or commit to fetch; default: the default branch."
    )

    @property
    def download(self) -> Download | None:
        """The files to fetch; None if they are on disk."""
        if self.source != "hub":
            return None
        return Download(str(self.repository), "dataset", self.revision, (str(getattr(self, self.file_key)),))

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        if self.source == "file" and not self.path:
            raise ValueError(f"source is `file`, so `path` must name the file of {self.content}")
        if self.source == "hub" and not (self.repository and getattr(self, self.file_key)):
            raise ValueError(f"source is `hub`, so `repository` and `{self.file_key}` must be given")
        named = next((key for key in ("path", "repository", self.file_key) if getattr(self, key)), None)
        if named and self.source not in ("file", "hub"):
            raise ValueError(
                f"{named} belongs to the sources `file` and `hub`, but source is `{self.source}`; remove one"
            )
        if self.revision and self.source != "hub":
            raise ValueError(f"revision belongs to the source `hub`, but source is `{self.source}`; remove one")
        return self


class RowsFile(RowsSource):
    filename: Line | None = Field(None, description="For `hub`: the file inside the data set.")
