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
import subprocess
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from arc_refinery import config
from arc_refinery.config import Compared, Experiment, ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Side
from arc_refinery.files import read_json, read_text
from arc_refinery.models.hub import fetched_folder, record_of
from arc_refinery.reporting import provenance
from arc_refinery.reporting.markdown import fenced
from arc_refinery.reporting.show import show
from arc_refinery.sampling.checks import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    adapter_config,
    adapter_shapes,
    check_adapter,
    check_folder,
)

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
STEPS, SETTINGS, WORDING, CARD = "training.jsonl", "settings.json", "wording", "README.md"
NAMES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, *TOKENIZER, SETTINGS, STEPS, WORDING, CARD)
MOST_LINES = 200  # of an example
TEMPLATE = """---
{{ card_data }}
---

# {{ experiment }}: {{ name }}

{{ license }}

A LoRA adapter for [{{ base.path }}](https://huggingface.co/{{ base.path }})
{%- if base.revision %} at revision `{{ base.revision }}`{% endif %}, trained by {{ method }} with seed {{ seed }},
with {{ project }}.

## What was found

From the report of the experiment `{{ experiment }}`; this adapter is its `{{ name }}`.
{%- if arms %} The arms that use it: `{{ arms | join('`, `') }}`.
{%- else %} No arm uses it: what follows was found of other adapters.{% endif %}

{{ findings }}

{% if limitations %}### Limitations

{{ limitations }}

{% endif %}## Use

```python
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

folder = "."  # this folder, or its name on the hub
model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype="{{ base.dtype }}")
tokenizer = AutoTokenizer.from_pretrained(folder)
messages = {{ messages }}
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
written = model.generate(**inputs, max_new_tokens=512)
print(tokenizer.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
```

It was trained on prompts with one wording, and other wordings were not tried. With vLLM:
`vllm serve <base> --enable-lora --lora-modules refine=<this folder>`, and `--max-lora-rank` not below {{ rank }}.

{% if example %}## An example

Prompts, answers and verdicts of an arm that uses it; `[user]` and the like mark messages.

{{ example }}

{% endif %}## Training

{{ settings }}

{{ reproduction }}
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A trained adapter where its experiment made it: `results/<experiment>/adapters/<name>`."""

    folder: Path
    experiment: Experiment
    results: Path


def read_source(folder: Path) -> Source:
    """Find the experiment of an adapter; raises `InputError`."""
    adapter_config(folder)
    adapter_shapes(folder)
    results = folder.absolute().parent.parent
    if not (results / SETTINGS).is_file():
        raise InputError(f"{results / SETTINGS}: no such file; expected results/<experiment>/adapters/<name>")
    experiment = config.load_experiment(results / SETTINGS)
    known = [*experiment.adapters, *experiment.kept_adapters]
    if folder.absolute().name not in known:
        raise InputError(
            f"{folder}: the experiment trains no adapter of this name; its adapters are {', '.join(known)}"
        )
    base = experiment.model.model_copy(update={"path": str(results.parents[1] / experiment.model.path)})
    if Path(base.path).is_dir():  # else only the training's machine had it
        check_adapter(folder, base, check_folder(base)[0])
    return Source(folder.absolute(), experiment, results)


def base_on_hub(source: Source, named: str | None) -> ModelConfig:
    """Return the base model by its name on the hub: `owner/name` or `owner/name@revision`, else the fetched one."""
    model = source.experiment.model
    if named:
        repository, _, revision = named.partition("@")
        if not config.HUB_NAME.fullmatch(repository):
            raise InputError(f"--base is {named}; expected owner/name on the hub, or owner/name@commit")
    elif model.download:
        repository = model.download.repository
        record = record_of(fetched_folder(source.results, model.download))
        revision = read_json(record, "what the stage `fetch` wrote", dict[str, object]).get("commit")
    else:
        raise InputError(
            f"{source.results / SETTINGS}: model.path is the folder {model.path}, which others do not have; give the "
            "model's name on the hub with --base owner/name"
        )
    return model.model_copy(update={"path": repository, "revision": revision or None})


def write_folder(source: Source, base: ModelConfig, license_name: str | None, folder: Path) -> None:
    """Write the files to publish into a new folder."""
    folder.mkdir()
    results, model = source.results, source.experiment.model
    # A path in a config begins where the experiment ran, not where this command is typed
    local = fetched_folder(results, model.download) if model.download else results.parent.parent / model.path
    if not any((local / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise InputError(f"{local}: holds no tokenizer.json; expected the folder of the base model, {model.path}")
    for path in (source.folder / ADAPTER_WEIGHTS, source.folder / STEPS, *(local / name for name in TOKENIZER)):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    settings = adapter_config(source.folder) | {"base_model_name_or_path": base.path, "revision": base.revision}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    keys = read_json(results / SETTINGS, "the settings of an experiment")
    keys["model"] |= {"path": base.path, "revision": base.revision}
    (folder / SETTINGS).write_text(json.dumps(keys, indent=1) + "\n")
    if save := getattr(config.part(source.experiment.kind, "report"), "save_wording", None):
        save(source.experiment, folder / WORDING)
    _card(source, base, license_name).save(folder / CARD)


def _card(source: Source, base: ModelConfig, license_name: str | None) -> ModelCard:
    experiment, name = source.experiment, source.folder.name
    report = read_text(source.results.with_name(f"{source.results.name}.md"), "a report, which the card quotes")
    # pictures, and links to files beside the report, are not published
    report = re.sub(r"(?<!\w)(!?)\[([^]]*)\]\((?!https?:)[^)]*\)", lambda link: "" if link[1] else link[2], report)
    blocks = report.strip().split("\n\n")
    first_table = next((number for number, block in enumerate(blocks) if block.startswith("|")), 1)
    terms_of_report = [block for block in blocks if "*arms*" in block][:1]
    findings = [block for block in blocks[1 : first_table + 1] if not block.startswith("<")] + terms_of_report
    if name in experiment.sft_adapters:
        method = "supervised fine-tuning"
    else:
        method = "supervised fine-tuning, then GRPO," if experiment.start_of(name) else "GRPO"
    arms = [arm.name for arm in experiment.arms if name in arm.adapters] if isinstance(experiment, Compared) else []
    example = ""
    if isinstance(experiment, Compared) and arms:
        without_folder = show(Side(source.results, experiment, arms[-1]), None, None, None).partition("\n\n")[2]
        example = without_folder.replace(f"; {experiment.model.path} ---\n", f"; {base.path} ---\n")
    data = ModelCardData(
        base_model=base.path,
        base_model_relation="adapter",
        library_name="peft",
        pipeline_tag="text-generation",
        license=license_name,
        datasets=list(dict.fromkeys(rows.repository for rows in experiment.trained_on() if rows)) or None,
        tags=["lora", "arc-refinery", experiment.kind],
    )
    if license_name:
        terms = f"License: {license_name}."
    else:
        terms = (
            "No license: none was named when it was published (`--license`). Terms of the base model apply to it, too."
        )
    return ModelCard.from_template(
        data,
        license=terms,
        project=_project(),
        messages=json.dumps(_messages(example), ensure_ascii=False, indent=4),
        template_str=TEMPLATE,
        experiment=experiment.experiment,
        name=name,
        base=base,
        method=method,
        seed=experiment.seed_of(name),
        arms=arms,
        findings="\n\n".join(findings),
        limitations=_section(report, "Limitations"),
        rank=adapter_config(source.folder)["r"],
        example=fenced(example, "text", MOST_LINES) if example else "",
        settings="\n\n".join(provenance.settings(experiment.model_copy(update={"model": base}))),
        reproduction=_section(report, "How to reproduce"),
    )


def _messages(example: str) -> list[dict[str, str]]:
    """Return the prompt that an example begins with, as `show` prints it."""
    text = example.partition(" ---\n")[2]
    prompt = re.split(r"\n\n--- (?:turn 1: answer|tests|correct answer)", text)[0]
    _, *parts = re.split(r"(?:^|\n)\[(system|user)\]\n", prompt)
    roles = [{"role": role, "content": content} for role, content in zip(parts[::2], parts[1::2], strict=True)]
    return roles or [{"role": "user", "content": prompt.strip() or "Write a Python function that reverses a list."}]


def _project() -> str:
    """Return the project's name, as a link to where the code came from if that is known."""
    command = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
    try:
        origin = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return "arc-refinery"
    place = re.fullmatch(r"(?:(?:https?|ssh|git)://)?(?:[^/@]+@)?([\w.-]+\.\w+)[:/](.+?)(?:\.git)?/?", origin)
    return f"[arc-refinery](https://{place[1]}/{place[2]})" if place else "arc-refinery"


def _section(report: str, title: str) -> str:
    """Return the text of a section of a report; empty if it has no such section."""
    return report.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()
