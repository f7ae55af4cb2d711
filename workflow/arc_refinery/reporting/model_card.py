"""A trained adapter as a folder for others: it loads without this project, and its card says what was shown of it.

    adapter_config.json, adapter_model.safetensors   names the base model on the hub, with its commit
    tokenizer.json, chat_template.jinja, ...         the base model's, as the adapter was trained with them
    wording/                                         texts of the prompts, of domains that have an editable wording
    settings.json                                    every key of the experiment, with the base model's name on the hub
    training.jsonl                                   every step of the training
    README.md                                        the model card

The card quotes the report, so nothing is said of an adapter that its experiment did not find.
"""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from arc_refinery import config
from arc_refinery.config import Compared, Experiment
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Side
from arc_refinery.files import read_json, read_text
from arc_refinery.models.hub import fetched_folder, record_of
from arc_refinery.reporting import provenance
from arc_refinery.reporting.markdown import fenced
from arc_refinery.sampling.checks import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_config

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
STEPS, SETTINGS = "training.jsonl", "settings.json"
WORDING = "wording"
CARD = "README.md"
NAMES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, *TOKENIZER, SETTINGS, STEPS, WORDING, CARD)
MOST_LINES = 200  # of an example
COMMIT = re.compile("[0-9a-f]{7,40}")
CODE = "with the code of commit"  # begins a block of reports (provenance.py)


@dataclass(frozen=True, slots=True)
class Base:
    """The base model on the hub."""

    repository: str
    revision: str | None  # commit, if it is known

    @property
    def at(self) -> str:
        if not self.revision:
            return ""
        return f" at {'commit' if COMMIT.fullmatch(self.revision) else 'revision'} `{self.revision}`"


@dataclass(frozen=True, slots=True)
class Source:
    """A trained adapter where its experiment made it: `results/<experiment>/adapters/<name>`."""

    folder: Path
    experiment: Experiment
    results: Path
    report: str

    @property
    def name(self) -> str:
        return self.folder.name


def read_source(folder: Path) -> Source:
    """Find an adapter's experiment and report; raises `InputError`."""
    results = folder.absolute().parent.parent
    for path, what in (
        (folder / ADAPTER_CONFIG, "the folder of a trained adapter, such as results/demo/adapters/trained"),
        (folder / ADAPTER_WEIGHTS, "the weights of the adapter; train it again"),
        (
            results / SETTINGS,
            "an adapter in the results of its experiment, results/<experiment>/adapters/<name>",
        ),
    ):
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected {what}")
    experiment = config.load_experiment(results / SETTINGS)
    known = [*experiment.adapters, *experiment.kept_adapters]
    if folder.absolute().name not in known:
        raise InputError(
            f"{folder}: the experiment trains no adapter of this name; its adapters are {', '.join(known)}"
        )
    report = results.with_name(f"{results.name}.md")
    if not report.is_file():
        raise InputError(
            f"{report}: no such file; the card quotes the report. Make it first: "
            f"snakemake --cores 2 --configfile {results / SETTINGS}"
        )
    return Source(folder.absolute(), experiment, results, read_text(report, "a report"))


def base_of(source: Source, named: str | None) -> Base:
    """Return the base model by its name on the hub: `owner/name` or `owner/name@revision`, else the fetched one."""
    if named:
        repository, _, revision = named.partition("@")
        if not config.HUB_NAME.fullmatch(repository):
            raise InputError(f"--base is {named}; expected owner/name on the hub, or owner/name@commit")
        return Base(repository, revision or None)
    if download := source.experiment.model.download:
        record = record_of(fetched_folder(source.results, download))
        return Base(download.repository, read_json(record, "what `arc-refinery fetch` wrote").get("commit"))
    raise InputError(
        f"{source.results / SETTINGS}: model.path is the folder {source.experiment.model.path}, which others do "
        "not have; give the model's name on the hub with --base owner/name"
    )


def write_folder(source: Source, base: Base, license_name: str | None, folder: Path) -> None:
    """Write the files to publish into a new folder."""
    folder.mkdir()
    model = _model_folder(source)
    settings = adapter_config(source.folder)
    settings |= {"base_model_name_or_path": base.repository, "revision": base.revision}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    keys = read_json(source.results / SETTINGS, "the settings of an experiment")
    keys["model"] |= {"path": base.repository, "revision": base.revision}
    (folder / SETTINGS).write_text(json.dumps(keys, indent=1) + "\n")
    files = [source.folder / ADAPTER_WEIGHTS, source.folder / STEPS, *(model / name for name in TOKENIZER)]
    for path in filter(Path.is_file, files):
        shutil.copyfile(path, folder / path.name)
    if save := getattr(config.part(source.experiment.kind, "report"), "save_wording", None):
        save(source.experiment, folder / WORDING)
    (folder / CARD).write_text("\n\n".join(_card(source, base, license_name)) + "\n")


def _model_folder(source: Source) -> Path:
    """Return the folder of the base model, wherever the command is typed; raises `InputError` without a tokenizer."""
    download, path = source.experiment.model.download, source.experiment.model.path
    project = source.results.parent.parent  # where the experiment ran, unless its results were copied
    folder = fetched_folder(source.results, download) if download else project / path
    if not folder.is_dir():
        folder = Path(path)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise InputError(
            f"{folder}: holds no tokenizer.json; expected the folder of the base model, which {path} names"
        )
    return folder


def _card(source: Source, base: Base, license_name: str | None) -> Iterator[str]:
    """Yield the Markdown blocks of the model card."""
    experiment = source.experiment
    yield f"---\n{yaml.safe_dump(_metadata(experiment, base, license_name), sort_keys=False)}---"
    yield f"# {experiment.experiment}: {source.name}"
    yield (
        f"A LoRA adapter for [{base.repository}](https://huggingface.co/{base.repository}){base.at}, trained by "
        f"{_method(source)} with seed {experiment.seed_of(source.name)}."
    )
    yield "## What was found"
    yield (
        f"From the report of the experiment `{experiment.experiment}`; this adapter is its `{source.name}`. "
        f"{_use(source)}"
    )
    yield from _findings(source.report)
    yield "## Use"
    yield fenced(_usage(base, experiment), "python", MOST_LINES)
    yield (
        "It was trained on prompts with one wording, and other wordings were not tried. With vLLM: `vllm serve <base> "
        "--enable-lora --lora-modules refine=<this folder>`, and `--max-lora-rank` not "
        f"below {adapter_config(source.folder)['r']}."
    )
    if example := _example(source):
        yield "## An example"
        yield "Prompts, answers and verdicts of an arm that uses it; `[user]` and the like mark messages."
        headings = re.compile(rf"(?<=; ){re.escape(experiment.model.path)}(?= ---$)", re.MULTILINE)
        yield fenced(headings.sub(base.repository, example), "text", MOST_LINES)
    yield "## Training"
    model = experiment.model.model_copy(update={"path": base.repository, "revision": base.revision})
    yield from provenance.settings(experiment.model_copy(update={"model": model}))
    for block in _section(source.report, "How to reproduce"):
        if block.startswith(CODE):
            yield f"Made {block.partition('. ')[0]}."
        elif block.startswith("|"):
            yield block


def _metadata(experiment: Experiment, base: Base, license_name: str | None) -> dict[str, Any]:
    datasets = list(dict.fromkeys(download.repository for download in filter(None, experiment.trained_on())))
    return {
        "base_model": base.repository,
        "base_model_relation": "adapter",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        **({"license": license_name} if license_name else {}),
        **({"datasets": datasets} if datasets else {}),
        "tags": ["lora", "arc-refinery", experiment.kind],
    }


def _method(source: Source) -> str:
    is_sft = source.name in source.experiment.sft_adapters
    if is_sft:
        return "supervised fine-tuning"
    return "supervised fine-tuning, then GRPO," if source.experiment.start_of(source.name) else "GRPO"


def _without_links(block: str) -> str:
    """Leave out pictures, and links to files beside the report, which are not published."""
    return re.sub(r"(?<!\w)(!?)\[([^]]*)\]\((?!https?:)[^)]*\)", lambda link: "" if link[1] else link[2], block)


def _findings(report: str) -> Iterator[str]:
    """Yield the answer and the first table of a report, and its limitations."""
    blocks = report.strip().split("\n\n")
    first_table = next((number for number, block in enumerate(blocks) if block.startswith("|")), 1)
    yield from map(_without_links, blocks[1 : first_table + 2])
    if limits := _section(report, "Limitations"):
        yield "### Limitations"
        yield from map(_without_links, limits)


def _section(report: str, title: str) -> list[str]:
    """Return the Markdown blocks of a section of a report; none if it has no such section."""
    _, _, rest = report.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0].strip().split("\n\n") if rest else []


def _usage(base: Base, experiment: Experiment) -> str:
    revision = f', revision="{base.revision}"' if base.revision else ""
    return f"""from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

folder = "."  # this folder, or its name on the hub
model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype="{experiment.model.dtype}")
tokenizer = AutoTokenizer.from_pretrained("{base.repository}"{revision})"""


def _arms(source: Source) -> list[str]:
    """Return the arms that use the adapter."""
    arms = source.experiment.arms if isinstance(source.experiment, Compared) else ()
    return [arm.name for arm in arms if source.name in arm.adapters]


def _use(source: Source) -> str:
    arms = ", ".join(f"`{name}`" for name in _arms(source))
    return f"The arms that use it: {arms}." if arms else "No arm uses it: what follows was found of other adapters."


def _example(source: Source) -> str:
    """Return an attempt or an episode of the last arm that uses the adapter; empty if none does."""
    experiment, arms = source.experiment, _arms(source)
    if not isinstance(experiment, Compared) or not arms:
        return ""
    text = config.part(experiment.kind, "report:show")(Side(source.results, experiment, arms[-1]), None, None, None)
    return str(text).partition("\n\n")[2]  # without the folder
