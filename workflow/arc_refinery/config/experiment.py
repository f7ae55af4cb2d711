"""Base of every kind of experiment: its name, its model, the adapters that it trains.

A kind is a package with the modules `config`, `jobs`, `stages` and `report` (docs/development.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, Field, model_validator

from arc_refinery.config.base import (
    AT,
    OTHER_PAGES,
    LineOrNone,
    Name,
    NonNegativeInt,
    PositiveInt,
    Seed,
    Strict,
    run_and_step,
)
from arc_refinery.config.grpo import ADVANTAGE
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.rewards import Functions, RewardTerm, function_of
from arc_refinery.config.sampling import ModelConfig, Sandbox
from arc_refinery.config.training import SFT, TRAINED, Methods, Run
from arc_refinery.errors import InputError
from arc_refinery.models.hub import Download, distinct

DISK_MB = 2000  # scratch disk of a job


class CpuNeeds(Strict):
    cpus: PositiveInt | None = Field(
        None,
        description="CPU cores; default: one per thread: `model.n_threads` to sample and to train, else 1.",
    )
    mem_mb: PositiveInt = Field(2000, description="Memory, in MB.")
    runtime: PositiveInt = Field(60, description="Time limit in minutes.")
    requirements: LineOrNone = Field("", description="HTCondor requirements expression, e.g. to pin a machine.")
    venv: LineOrNone = Field(
        "",
        description="Folder of these jobs' virtual environment, e.g. one with CUDA and vLLM; default: Snakemake's.",
    )


class Needs(CpuNeeds):
    disk_mb: PositiveInt = Field(DISK_MB, description="Scratch disk, in MB.")
    gpus: NonNegativeInt = Field(0, le=1024, description="GPUs.")
    gpu_mem_mb: NonNegativeInt = Field(0, description="Minimum memory per GPU, in MiB.")


class TrainNeeds(Needs):
    mem_mb: PositiveInt = Field(4000, description="Memory, in MB.")


class Resources(Strict):
    cpu: CpuNeeds = Field(default_factory=lambda: CpuNeeds(), description="Jobs without a GPU.")
    sample: Needs = Field(default_factory=lambda: Needs(), description="Sampling jobs.")
    train: TrainNeeds = Field(default_factory=lambda: TrainNeeds(), description="Training jobs.")


class Wanted(NamedTuple):
    """A file or folder that a config names."""

    key: str  # key that names the path
    path: Path
    what: str  # expected file or folder
    form: Literal["file", "folder", "either"] = "file"

    @property
    def fault(self) -> str:
        """The fault of the path; empty if there is none."""
        is_file, is_folder = isfile(self.path), isdir(self.path)  # False also for names that no file can have
        if not is_file and not is_folder:
            there = "is neither a file nor a folder" if exists(self.path) else "does not exist"
            return f"{self.key}: {self.path} {there}; expected {self.what}"
        if (is_folder and self.form == "file") or (is_file and self.form == "folder"):
            return f"{self.key}: {self.path} is a {'folder' if is_folder else 'file'}; expected {self.what}"
        return ""


class SampledTogether(NamedTuple):
    """Completions that are sampled at a time with transformers, for the estimate of a GPU's memory."""

    n_rows: int
    n_tokens: int = 0  # length of the longest completion if the rows share one prompt, else 0


class TrainedRow(NamedTuple):
    """The longest row of a training, in tokens, for the estimate of a GPU's memory."""

    n_tokens: int
    n_scored: int


class Experiment(Strict):
    """A kind of experiment is a subclass; it declares `sandbox` and `training` among its own keys, in running order."""

    kind: str = Field(description="Kind of experiment.")
    experiment: Name = Field(description="Names the report `results/<experiment>.md` and its folder.")
    seed: Seed = Field(0, description="Seeds every random choice.")
    model: ModelConfig = Field(description="The model that answers.")
    resources: Resources = Field(default_factory=lambda: Resources(), description="Resources that jobs request.")
    report_tables: ClassVar[Mapping[str, str]] = {}  # files that the rule `report` also writes, by name
    ends_with_answer: ClassVar[bool] = True  # a completion ends where the chat template ends an answer
    if TYPE_CHECKING:
        sandbox: Sandbox
        training: Methods | None

    @property
    def rules(self) -> Sequence[str]:
        """Snakemake files of the kind's own stages, in running order; paths are relative to the Snakefile."""
        raise NotImplementedError

    def files_named(self) -> list[Wanted]:
        """Files and folders that the config names."""
        if self.model.answers_file:
            return [Wanted("model.path", self.model.answers_file, "a file of answers")]
        # for names on the hub or at a server, a path that always exists
        file = Path() if self.model.folder is None else self.model.folder / "config.json"
        return [Wanted("model.path", file, "a folder with a model, or a hub name", "either")]

    def faults_of_contents(self) -> list[str]:
        """Return what is wrong inside files that the config names."""
        if self.model.answers_file:
            from arc_refinery.config.answers import read_decided  # imports pyarrow

            try:
                read_decided(self.model.answers_file)
            except InputError as error:
                return [str(error)]
        return []

    @property
    def sampler(self) -> ModelConfig | None:
        """The model that jobs of their own sample from; None: only training samples."""
        return None

    @property
    def sampled_together(self) -> SampledTogether:
        raise NotImplementedError

    @property
    def trained_row(self) -> TrainedRow | None:
        """None: not known."""
        return None

    @property
    def sampled_folders(self) -> Sequence[str]:
        """Folders of attempts or episodes in the experiment's results, those of trainings excluded."""
        return ()

    @property
    def expected_power(self) -> str:
        """Difference that the primary comparison is expected to detect, as a line; empty if it is not known."""
        return ""

    @property
    def most_answers(self) -> tuple[int, int] | None:
        """How many answers (or episodes) are sampled at most, and the tokens of each at most; None: not known."""
        return None

    @property
    def expected_cost(self) -> str:
        """What a server is asked at most, as a line; empty if none is, or the number of tasks is not known."""
        is_limited = self.model.extra_body.get("max_tokens", 0) is not None
        if not (self.model.has_address and is_limited and (most := self.most_answers)):
            return ""
        n, length = most
        prices = self.model.prices
        cost = f", {prices.of(0, n * length)} at the config's prices" if prices else ""
        return f"A server is asked for at most {n:,} x {length:,} tokens{cost}; what it reads comes on top."

    def sources(self) -> Iterable[Download | None]:
        """Repositories of the hub that models and data come from; None for those on disk."""
        return [self.model.download]

    def trained_on(self) -> Iterable[Download | None]:
        """Those of the sources that rows to train on come from."""
        return ()

    @cached_property
    def downloads(self) -> list[Download]:
        """Repositories to fetch from the hub."""
        return distinct(filter(None, self.sources()))

    @cached_property
    def runs(self) -> dict[str, Run]:
        """GRPO trainings by name, which is also the name of the adapter they produce."""
        return self.training.runs() if self.training else {}

    @cached_property
    def sft_adapters(self) -> list[str]:
        """Adapters that SFT produces: the final ones, or those that GRPO starts from."""
        if self.training is None or self.training.sft is None:
            return []
        return list(self.training.repeated(SFT if self.runs else TRAINED))

    @property
    def no_adapters(self) -> str:
        """Hint for messages when nothing is trained."""
        return "" if self.training else ": nothing is trained without the section `training`"

    @property
    def trained(self) -> list[str]:
        """Final adapters of the training."""
        return list(self.runs) or self.sft_adapters

    @property
    def adapters(self) -> list[str]:
        """All trained adapters, in order."""
        return list(dict.fromkeys([*self.sft_adapters, *self.runs]))

    @property
    def rewards(self) -> tuple[RewardTerm, ...]:
        """Terms of the reward of GRPO."""
        return getattr(self.training and self.training.grpo, "rewards", ())

    @classmethod
    def section_types(cls) -> Mapping[str, type[BaseModel]]:
        """Classes of arguments of stages, where they depend on the domain."""
        return {}

    @property
    def reward_functions(self) -> Functions:
        """Built-in terms of the reward, by name."""
        return {}

    @property
    def own_functions(self) -> list[tuple[str, OwnCode, str]]:
        """The user's functions: the key that names one, its code, and an example of its first line."""
        named = [(f"training.grpo.rewards.{number}", term) for number, term in enumerate(self.rewards)]
        advantages = dict.fromkeys(run.grpo.own_advantage for run in self.runs.values())
        return [
            *((key, term.own_code, term.example) for key, term in named if term.own_code),
            *(("training.grpo.advantage", code, ADVANTAGE) for code in advantages if code),
        ]

    def kept_steps(self, run: str) -> list[int]:
        """Steps of a GRPO training whose adapters are results, too, ascending."""
        return []

    @property
    def kept_adapters(self) -> list[str]:
        """Adapters of steps before the last one: `trained@1000`."""
        return [f"{run}{AT}{step}" for run in self.runs for step in self.kept_steps(run)]

    def kept_before(self, adapter: str) -> str | None:
        """The adapter up to which a training was the job before: `trained@1000` for `trained@2000`, if kept."""
        run, step = run_and_step(adapter)
        earlier = [previous for previous in self.kept_steps(run) if step is None or previous < step]
        return f"{run}{AT}{earlier[-1]}" if earlier else None

    def seed_of(self, adapter: str) -> int:
        """The seed of an adapter's training."""
        seed = self.training.seeds_of_adapters()[run_and_step(adapter)[0]] if self.training else None
        return self.seed if seed is None else seed

    def start_of(self, run: str) -> str | None:
        """The SFT adapter that a GRPO training starts from, if any."""
        starts = [name for name in self.sft_adapters if self.seed_of(name) == self.seed_of(run)]
        return starts[0] if starts else None

    def n_threads(self, kind: str) -> int:
        """Threads that a job keeps busy, at least; `kind` is a key of `resources`."""
        if kind == "train":
            return self.model.n_threads * max((run.grpo.n_training_processes for run in self.runs.values()), default=1)
        return self.model.n_threads if kind == "sample" else 1

    def cpus(self, kind: str) -> int:
        """Cores that a job requests; `kind` is a key of `resources`."""
        cpus: int | None = getattr(self.resources, kind).cpus
        return cpus or self.n_threads(kind)

    @model_validator(mode="after")
    def _jobs_get_the_cores_that_they_use(self) -> "Experiment":
        for kind in ("sample", "train"):
            if self.cpus(kind) < (n_threads := self.n_threads(kind)):
                raise ValueError(
                    f"resources.{kind}.cpus is {self.cpus(kind)}, but such a job runs {n_threads} threads "
                    f"(model.n_threads), and threads that share a core are many times slower; leave cpus out, or set "
                    f"it to {n_threads} or more"
                )
        return self

    @model_validator(mode="after")
    def _a_model_is_trained_here(self) -> "Experiment":
        if self.training and self.model.is_served:
            raise ValueError(
                f"training: no model is here with model.backend: {self.model.backend}; set training to null, or give a "
                "model's folder and another backend"
            )
        return self

    @model_validator(mode="after")
    def _rewards_are_known(self) -> "Experiment":
        for run in self.runs.values():
            for number, term in enumerate(getattr(run.grpo, "rewards", ())):
                try:
                    _ = term.own_code or function_of(term, self.reward_functions)
                except ValueError as error:
                    raise ValueError(f"training.grpo.rewards.{number}.reward: {error}") from None
        return self

    @model_validator(mode="after")
    def _a_report_has_its_own_page(self) -> "Experiment":
        if self.experiment in OTHER_PAGES:
            raise ValueError(
                f"experiment: results/{self.experiment}.md is {OTHER_PAGES[self.experiment]}; choose another"
            )
        return self

    @model_validator(mode="after")
    def _trainings_get_the_gpus_that_they_use(self) -> "Experiment":
        gpus = self.resources.train.gpus
        for name, run in self.runs.items():
            n_used = run.grpo.n_training_processes
            if 0 < gpus < n_used:
                raise ValueError(
                    f"resources.train.gpus: {name} trains in n_processes = {n_used}, each on a GPU, but gpus is "
                    f"{gpus}; set it to {n_used}"
                )
            if gpus > n_used:
                may_share = "n_processes" in type(run.grpo).model_fields
                raise ValueError(
                    f"resources.train.gpus: {name} trains on {'one GPU' if n_used == 1 else f'{n_used} GPUs'}"
                    + f", but gpus is {gpus}; set it to {n_used}"
                    + (f", or grpo.n_processes to {gpus}" if may_share else "")
                )
        return self

    @model_validator(mode="after")
    def _what_is_fetched_has_one_revision(self) -> "Experiment":
        _ = self.downloads  # raises if two revisions of one repository are requested
        return self
