"""Every key of a configuration changes what its mark says, and nothing else: one that reaches nothing fails here."""

import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from unittest.mock import MagicMock

import pytest
import tyro
from checkout import ROOT, SMALL, TOOLS
from experiments import REFINING, TOOL_USE, Changes, contents, put, refining_jobs, settings, tool_use_jobs
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from arc_refinery import cli, jobs
from arc_refinery.cli.command import rules_for
from arc_refinery.config import (
    REPORT,
    TUNING,
    ConfigError,
    Experiment,
    Guard,
    Imitation,
    Lora,
    ModelConfig,
    Needs,
    Optimizer,
    PolicyGradient,
    Sandbox,
)
from arc_refinery.config import validate_experiment as validate
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.refining import inputs as refining_inputs
from arc_refinery.refining import jobs as refining
from arc_refinery.refining.config import Grpo
from arc_refinery.sampling import library_arguments
from arc_refinery.tool_use import inputs as tool_inputs
from arc_refinery.tool_use.config import ToolGrpo, ToolUse

# Other values where the type gives none, by the last word of the key
VALUES: dict[str, list[Any]] = {
    "advantage": ["best-of-2", "group"],
    "adapter": ["sft", "none"],
    "arms": [["refine-base", "independent"]],
    "address": ["http://other/v1"],
    "key_variable": ["OTHER_KEY"],
    "prices": [{"prompt": 0.15, "completion": 0.6}],
    "extra_body": [{"effort": "high"}],
    "colors": [[f"colour-{n}" for n in range(10)]],
    "compare": [["small", "other"]],
    "domain": ["text"],
    "comparisons": [[["refine-trained", "refine-base"]]],
    "form": ["residual", "text"],
    "path": ["workflow/models/tiny-tools", "workflow/models/tiny"],
    "primary": [{"set": "heldout", "arms": ["refine-trained", "refine-base"]}],
    "retry_on": [["OSError"]],
    "reward": ["format", "staged"],
    "sets": [["arc-agi-1-evaluation"]],
    "sweep": [[{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]],
    "trl": [{"top_entropy_quantile": 0.5}],
    "tool": ["python", "tests/handmade.py:other"],
    "tools": [[{"tool": "calculator"}]],
}
SETS = ("evaluation.sets", "data.heldout")
REFUSED = ("n_revealed", "two_rules")  # by tool use
# Keys that no job is given, and the files that read them
READ_BY = {
    "kind": ["Snakefile"],
    "domain": ["workflow/arc_refinery/jobs.py"],
    "compare": ["workflow/arc_refinery/config/inputs.py"],
    "evaluation.comparisons": ["workflow/arc_refinery/refining/config/experiment.py"],
    "evaluation.primary": ["workflow/arc_refinery/refining/config/experiment.py"],
    "evaluation.reference_logprobs": ["workflow/arc_refinery/refining/inputs.py"],
    **{f"{sets}.validation": ["workflow/arc_refinery/reporting/report.py"] for sets in SETS},
    **{f"{sets}.caveat": ["workflow/arc_refinery/refining/config/tasks.py"] for sets in SETS},
    # refused
    **{f"data.heldout.{name}": ["workflow/arc_refinery/tool_use/config/experiment.py"] for name in REFUSED},
    **{
        f"resources.{job}.{name}": ["rules/common.smk", "workflow/arc_refinery/config/experiment.py"]
        for job in ("cpu", "sample", "train")
        for name in Needs.model_fields
    },
}


class Planned(NamedTuple):
    """The jobs of an experiment by name, and what else its rules know."""

    settings: dict[str, str]
    tuning: dict[str, str]
    beside: dict[str, Any]


def planned(experiment: Experiment) -> Planned:
    if isinstance(experiment, ArcExperiment):
        named, sets = refining_jobs(experiment), [*experiment.set_names, *experiment.part_names]
        read = {
            name: refining_inputs.adapter(experiment, name.split()[1], name.split()[2])
            for name in named
            if "sample" in name
        }
        named |= {"overlap": refining.overlap(experiment)}
    else:
        assert isinstance(experiment, ToolUse)
        named, sets = tool_use_jobs(experiment), experiment.set_names
        read = {arm.name: tool_inputs.arm_adapter(experiment, arm.name) for arm in experiment.arms}
    named |= {f"fetch {download.path}": jobs.fetch(experiment, download.path) for download in experiment.downloads}
    beside = {
        "shards": [experiment.n_shards(name) for name in sets],
        "adapters": (experiment.adapters, experiment.kept_adapters, read),
        "training": getattr(experiment, "training_tasks", []),
    }
    settings, tuning = ({name: job[part] for name, job in named.items()} for part in (0, 1))
    return Planned(settings, tuning, beside)


def others(annotation: Any, value: Any) -> Iterator[Any]:
    """Other values that a key might have, and perhaps the same."""
    inner = get_args(annotation)
    if annotation in (None, type(None)):
        yield None
    elif annotation is bool:
        yield not value
    elif annotation is int:
        yield from ((value or 0) + 1, (value or 0) + 8, 2 * (value or 1), (value or 3) - 1)
    elif annotation is float:
        yield from (0.5 * (value or 1.0), (value or 0.0) + 0.25)
    elif annotation is str:
        yield "other"
    elif get_origin(annotation) is Literal:
        yield from inner
    elif get_origin(annotation) is Annotated:
        yield from others(inner[0], value)
    elif get_origin(annotation) in (Union, UnionType):
        yield from (other for argument in inner for other in others(argument, value))
    elif get_origin(annotation) in (tuple, list):
        yield from ([item] for item in others(inner[0], value[0] if value else None))


def changes_of(content: Changes, place: str, field: FieldInfo, before: Experiment, value: Any) -> Iterator[Experiment]:
    """The experiment with other values of a key, as far as they are valid."""
    for other in [*VALUES.get(place.rpartition(".")[2], []), *others(field.annotation, value)]:
        content_after = deepcopy(content)
        put(content_after, place, other)
        with suppress(ConfigError):
            after = validate(content_after, "after.yaml")
            if after != before:
                yield after


@pytest.mark.parametrize(("base", "variants"), [(SMALL, REFINING), (TOOLS, TOOL_USE)], ids=["refining", "tool use"])
@pytest.mark.slow
def test_a_key_changes_what_its_mark_says(base: str, variants: dict[str, Changes]):
    places, with_effect, sections, against_its_mark = set(), set(), set(), set()
    for content in contents(base, variants):
        before = validate(deepcopy(content), base)
        planned_before = planned(before)
        for place, field, value in settings(before):
            key = re.sub(r"^data\.\w+\.tools\.", "tools.", re.sub(r"\.\d+\b", "", place))
            key = re.sub(r"^data\.train\.", "data.heldout.", key)
            places.add(key)
            sections |= {key[: dot.start()] for dot in re.finditer(r"\.", key)}
            if key in with_effect:
                continue
            for after in changes_of(content, place, field, before, value):
                planned_after = planned(after)
                if planned_before == planned_after:
                    continue
                with_effect.add(key)
                changes_result = planned_before.settings != planned_after.settings
                if changes_result and not {TUNING, REPORT}.isdisjoint(field.metadata):
                    against_its_mark.add(key)
                break
    assert against_its_mark == set()
    assert places - with_effect - sections - READ_BY.keys() == set()


@pytest.mark.parametrize("key", READ_BY)
def test_a_key_that_no_job_is_given_is_read(key: str):
    name = key.rpartition(".")[2]
    assert any(re.search(rf"[.\"]{name}\b", (ROOT / file).read_text()) for file in READ_BY[key])


# keywords of libraries

LORA = Lora()
MODEL = ModelConfig(path="model", window=1024)
# Keys of a training that no library is given, and the modules that read them
READ_IN_TRAINING = {
    "advantage": "training/trainer.py",
    "drop_zero_variance": "training/trainer.py",
    "feedback": "refining/environment.py",
    "feedback_loss": "refining/environment.py",
    "keep_best": "training/callbacks.py",
    "kv_cache_gb": "training/colocated.py",
    "max_failed": "tool_use/training/environment.py",
    "n_heldout": "training/callbacks.py",
    "n_jobs": "refining/stages/training.py",
    "n_turns": "refining/environment.py",
    "refill": "refining/environment.py",
    "rewards": "refining/environment.py",
    "rollout": "refining/environment.py",
    "shared_prefix": "training/trainer.py",
    "unsloth": "refining/config/training.py",
}


def keywords(training: Optimizer) -> dict[str, Any]:
    """Return TRL's arguments for a training on a GPU."""
    if isinstance(training, Imitation):
        return library_arguments.sft_settings(MODEL, training, 0, Path("work"), on_gpu=True)
    assert isinstance(training, PolicyGradient)
    return library_arguments.grpo_settings(MODEL, training, {}, 0, Path("work"), on_gpu=True, has_heldout=True)


@pytest.mark.parametrize("section", [Imitation, ToolGrpo, Grpo])
def test_a_key_of_a_training_reaches_a_library_or_our_own_code(section: type[Optimizer]):
    common = {"learning_rate": 1e-4, "save_steps": 8, "gradient_accumulation_steps": 4}
    variants = [{}, {"sampler": "vllm-colocate"}] if section != Imitation else [{}]
    arguments = {
        name
        for variant in variants
        for name, field in section.model_fields.items()
        for training in with_other(section, common | variant, name, field)
        if keywords(training) != keywords(section.model_validate(common | variant))
    }
    ours = section.model_fields.keys() - arguments
    assert ours <= READ_IN_TRAINING.keys()
    package = ROOT / "workflow/arc_refinery"
    assert {name for name in ours if f".{name}" not in (package / READ_IN_TRAINING[name]).read_text()} == set()


def with_other(section: type[Optimizer], content: Changes, name: str, field: FieldInfo) -> Iterator[Optimizer]:
    """The section with other values of a key, as far as they are valid."""
    before = section.model_validate(content)
    for other in [*VALUES.get(name, []), *others(field.annotation, getattr(before, name))]:
        with suppress(ValidationError):
            after = section.model_validate(content | {name: other})
            if after != before:
                yield after


def test_a_key_of_an_adapter_reaches_peft():
    def keywords_of(lora: Lora) -> Any:
        return library_arguments.lora_adapter(lora), lora.load_in_4bit and library_arguments.four_bits("float32")

    changes = {"lora_r": 3, "lora_alpha": 3, "target_modules": ("q_proj",), "load_in_4bit": True}
    assert changes.keys() == Lora.model_fields.keys()
    assert all(
        keywords_of(LORA.model_copy(update={name: value})) != keywords_of(LORA) for name, value in changes.items()
    )


# options of the command line

PUBLISHED = ("sample", "train")  # whose flags are those of other scripts: test_published_commands.py
TEXTS = ("rules/*.smk", "docs/*.md", "README.md", "config/README.md", "tests/gpu/README.md")


def options(command: str) -> set[str]:
    """The options of a command, without those that others are short for or undo."""
    kind = cli.load(command)
    with pytest.warns(DeprecationWarning), rules_for(kind):
        actions = tyro.extras.get_parser(kind)._actions
    long = {name for action in actions for name in action.option_strings[:1] if name.startswith("--")}
    return {name for name in long - {"--help"} if not re.search(r"(--|\.)no-", name)}


def test_every_option_is_used_by_a_rule_or_explained_in_a_document():
    texts = [path.read_text() for pattern in TEXTS for path in ROOT.glob(pattern)]
    used = {option for text in texts for option in re.findall(r"--[a-z][\w.-]*", text)}
    used |= {"--version"}  # of ARC: a key of the config, explained there
    commands = [name for name in cli.COMMANDS if not name.startswith("dev ") and name not in PUBLISHED]
    assert {name: unused for name in commands if (unused := options(name) - used)} == {}


@pytest.mark.parametrize("section", [Imitation, ToolGrpo, Grpo])
def test_a_key_of_a_training_refuses_its_checkpoints_unless_it_changes_no_result(section: type[Optimizer]):
    from arc_refinery.training import sft
    from arc_refinery.training.job import TrainingJob

    folder = Path("unused")

    def identity(training: Optimizer) -> str:
        if isinstance(training, Imitation):
            return sft._identity([], MODEL, LORA, training, 0)
        assert isinstance(training, PolicyGradient)
        environment = MagicMock(identity=dict)
        job = TrainingJob(MODEL, LORA, training, Guard(), Sandbox(), 0, None, folder, folder, None, folder)
        return job.identity(environment)

    common = {"learning_rate": 1e-4, "save_steps": 8, "gradient_accumulation_steps": 4}
    unchanged = identity(section.model_validate(common))
    for name, field in section.model_fields.items():
        equalities = {identity(other) == unchanged for other in with_other(section, common, name, field)}
        assert equalities <= {TUNING in field.metadata}, name
