"""The stages that every experiment has: their commands, made from an experiment as far as it decides them.

A rule gives such a command its files. Snakemake makes a result again when `flags()`, its `params`, change. What
`flags(tuning=True)` returns may change between two runs of one job: sampling that ran out of memory continues with
another value.

    >>> from arc_refinery.config import load_experiment
    >>> experiment = load_experiment(Path("config/tool-use-demo.yaml"))
    >>> sft(experiment, "sft").flags(tuning=True)
    '--save-steps 50'
    >>> training_job(experiment, "trained").training.learning_rate
    0.0003
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from arc_refinery.commands.flags import AdapterFlags, Command, GrpoFlags, RuleFiles, RulePath
from arc_refinery.commands.outputs import Output, Outputs, json_file
from arc_refinery.config import Experiment, Imitation, Line, ModelConfig, marked, part
from arc_refinery.config.base import PROMPTS, run_and_step
from arc_refinery.config.flags import FLAT, NEEDED
from arc_refinery.config.inputs import model_path
from arc_refinery.errors import InputError
from arc_refinery.models.hub import Download, RepositoryKind, fetch_repository, record_of
from arc_refinery.sampling.gpus import keep_gpus, let_segments_grow

if TYPE_CHECKING:
    from arc_refinery.training.sft import SftRow

NO_DEMONSTRATIONS = (
    "For refining, a task needs an attempt that ran to valid outputs and is wrong, and a correct program "
    "(training.sft.demonstrations.targets): sample more, or raise max_pass_rate if tasks are too easy. For tool use, a "
    "question needs a worked solution whose results the tools give. What is too long needs a larger "
    "training.max_seq_length and max_completion_length, or generation.max_episode_tokens"
)


# Commands


class Fetch(Command):
    """Download a Hugging Face hub repository, as far as it is not cached, and link its files into a folder.

    Example:
        arc-refinery fetch --repository Qwen/Qwen2.5-Coder-1.5B-Instruct --output mine/qwen
    """

    repository: Line  # owner/name
    output: RulePath = NEEDED  # folder for the links; <output>.json records commit, files and sizes
    kind: RepositoryKind = "model"  # kind of repository
    revision: Line | None = None  # branch, tag or commit; default: the default branch
    patterns: tuple[str, ...] = ()  # names or globs of files; default: all that transformers and vLLM may read

    def writes(self) -> Outputs:
        links = Output(self.output, "a folder of links", lambda _: "", is_folder=True)
        return {"output": [links, json_file(record_of(self.output), "repository", "commit", "files")]}

    def run(self) -> None:
        fetch_repository(Download(self.repository, self.kind, self.revision, self.patterns), self.output)


class FineTune(AdapterFlags):
    r"""Train a LoRA adapter on demonstrations; an interrupted run resumes from its last checkpoint.

    Example:
        arc-refinery sft --dataset-path mine/demonstrations.parquet --model-path workflow/models/tiny \
            --learning-rate 1e-3 --max-steps 4 --output mine/fine-tuned
    """

    dataset_path: RuleFiles = NEEDED  # demonstrations of refining, or conversations with tools
    training: Annotated[Imitation, FLAT]

    def run(self) -> None:
        keep_gpus(1)
        let_segments_grow()
        from arc_refinery.training.sft import train_sft

        train_sft(
            self._rows(),
            self.model(window=1),  # it samples nothing
            self.lora,
            self.training,
            self.seed,
            self.output,
            self.work,
            self.measurements,
            self.tensorboard,
        )

    def _rows(self) -> "Iterator[SftRow]":
        from arc_refinery import records
        from arc_refinery.models.tokenizers import load_tokenizer
        from arc_refinery.training.sft import SftRow

        if not sum(map(records.count, self.dataset_path)):
            counts: Counter[str] = Counter()
            for path in self.dataset_path:
                counts.update(records.notes(path))
            raise InputError(
                f"{' '.join(map(str, self.dataset_path))}: there are no demonstrations to learn from: "
                f"{', '.join(f'{name} {n}' for name, n in sorted(counts.items())) or 'the files say no reason'}. "
                f"{NO_DEMONSTRATIONS}"
            )
        end = str(load_tokenizer(self.model_path).eos_token)
        if records.kind_of(self.dataset_path[0]) == records.Conversation.KIND:
            for _, conversation in records.read_all(self.dataset_path, records.Conversation):
                yield SftRow(conversation.question_id, conversation.segments)
        else:
            for _, demonstration in records.read_all(self.dataset_path, records.Demonstration):
                yield SftRow(demonstration.demonstration_id, demonstration.segments(end))


# Made from an experiment


def settings_text(experiment: Experiment) -> str:
    """The validated configuration as JSON, without what changes no result."""
    return json.dumps(experiment.model_dump(mode="json", exclude={"resources", "compare"}), indent=1)


def fetch(experiment: Experiment, repository: str) -> Fetch:
    (download,) = (download for download in experiment.downloads if download.path == repository)
    return Fetch(**asdict(download))


def sft(experiment: Experiment, adapter: str) -> FineTune:
    training = experiment.training
    assert training and training.sft
    return FineTune(
        model_path=model_path(experiment, experiment.model),
        dtype=experiment.model.dtype,
        n_threads=experiment.model.n_threads,
        lora=training.lora,
        training=training.sft,
        seed=experiment.seed_of(adapter),
    )


def training_job(experiment: Experiment, adapter: str) -> GrpoFlags:
    """The job that ends with an adapter: a whole training, or its part up to a kept step (`trained@1000`)."""
    run, step = run_and_step(adapter)
    whole: GrpoFlags = part(experiment.kind, "stages").train(experiment, run)
    return whole.model_copy(update={"until_step": step})


# Keywords of commands of several kinds


def training_settings(experiment: Experiment, adapter: str) -> dict[str, Any]:
    """Return what all kinds give to the command that trains an adapter with GRPO."""
    run = experiment.runs[adapter]
    assert experiment.training
    return {
        "model_path": model_path(experiment, experiment.model),
        "dtype": run.dtype or experiment.model.dtype,
        "n_threads": experiment.model.n_threads,
        "lora": run.lora,
        "training": run.grpo,
        "guard": experiment.training.guard,
        "seed": experiment.seed_of(adapter),
    }


def sampler_settings(experiment: Experiment, model: ModelConfig) -> dict[str, Any]:
    """Return what commands that sample from a model are given about it: its prompts are written already."""
    others = model.model_dump(exclude={"path", "revision", "window"} | marked(type(model), PROMPTS))
    return others | {"model_path": model_path(experiment, model), "max_model_len": model.window}
