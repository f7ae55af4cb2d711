"""Jobs: what a rule tells a stage, apart from the files that it reads and writes.

    arc-refinery stage grade '{"kind": "refining", "domain": "arc", "sandbox": {"cpu_seconds": 1.0, ...}, "seed": 0}'
        --attempts attempts/000.parquet --tasks heldout.parquet --n-jobs 2 --output verdicts/000.parquet

A job has sections of the config, and values that follow from it, as JSON. `settings` decide the result: a rule has them
among its `params`, and Snakemake makes the result again when they change. `tuning` may change between two runs of one
job, so it is among the `resources`: sampling that ran out of memory continues with another value.

>>> from arc_refinery.config import load_experiment
>>> experiment = load_experiment(Path("config/tool-use-demo.yaml"))
>>> sft(experiment, "sft").tuning
'{"sft": {"save_steps": 50}}'
>>> json.loads(train(experiment, "trained").settings)["grpo"]["learning_rate"]
0.0003
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from arc_refinery.config import GRADING, ROWS, TUNING, Experiment, Mark, ModelConfig, marked, part
from arc_refinery.config.base import PROMPTS, run_and_step
from arc_refinery.config.inputs import model_path


class Job(NamedTuple):
    """Two objects in JSON."""

    settings: str
    tuning: str


class Part(NamedTuple):
    """A section without the keys that a stage does not read."""

    section: BaseModel
    left_out: set[str]


def without(section: BaseModel, *marks: Mark) -> Part:
    """Leave out the keys with such a mark."""
    return Part(section, marked(type(section), *marks))


def only(section: BaseModel, *keys: str) -> Part:
    """Leave out all keys but these."""
    return Part(section, type(section).model_fields.keys() - set(keys))


def job(experiment: Experiment, tuning: Mapping[str, Any] | None = None, **values: Any) -> Job:
    """Return the job of a stage with these arguments; keys of sections that only tune are told apart by their mark."""
    settings: dict[str, Any] = {"kind": experiment.kind}
    if domain := getattr(experiment, "domain", ""):
        settings["domain"] = domain
    tuned = dict(tuning or {})
    for name, value in values.items():
        section, left_out = value if isinstance(value, Part) else (value, set())
        if not isinstance(section, BaseModel):
            settings[name] = section
            continue
        tuning_keys = marked(type(section), TUNING) - left_out
        settings[name] = section.model_dump(exclude=tuning_keys | left_out)
        if tuning_keys:
            tuned[name] = section.model_dump(include=tuning_keys)
    return Job(_json(settings), _json(tuned))


def _json(value: Any) -> str:
    return json.dumps(to_jsonable_python(value))


# Jobs of every kind of experiment


def fetch(experiment: Experiment, repository: str) -> Job:
    (download,) = (download for download in experiment.downloads if download.path == repository)
    return job(experiment, download=download)


def sft(experiment: Experiment, adapter: str) -> Job:
    training = experiment.training
    assert training and training.sft
    return job(
        experiment,
        model=trained_model(experiment, window=1),  # it samples nothing
        lora=training.lora,
        sft=without(training.sft, ROWS),
        seed=experiment.seed_of(adapter),
    )


def train(experiment: Experiment, adapter: str) -> Job:
    """The job that ends with an adapter: a whole training, or its part up to a kept step (`trained@1000`)."""
    run, step = run_and_step(adapter)
    of_kind: dict[str, Any] = part(experiment.kind, "jobs").training(experiment, run)
    training = experiment.training
    assert training
    return job(
        experiment,
        lora=experiment.runs[run].lora,
        grpo=experiment.runs[run].grpo,
        guard=training.guard,
        seed=experiment.seed_of(run),
        until_step=step,
        **{"sandbox": without(experiment.sandbox, GRADING)} | of_kind,
    )


def settings_text(experiment: Experiment) -> str:
    """The validated configuration as JSON, without what changes no result."""
    return json.dumps(experiment.model_dump(mode="json", exclude={"resources", "compare"}), indent=1)


# Models, as jobs get them: a fetched one by its folder


def trained_model(experiment: Experiment, window: int, run: str | None = None) -> Part:
    """The model as a training opens it, with a window of so many tokens."""
    dtype = experiment.runs[run].dtype if run else None
    changes = {"dtype": dtype or experiment.model.dtype, "window": window}
    return only(local(experiment, **changes), "path", "window", "dtype", "n_threads")


def sampling_model(experiment: Experiment) -> Part:
    """The model as it samples answers to prompts that are written already."""
    return Part(local(experiment), {"revision"} | marked(type(experiment.model), PROMPTS))


def paid_in(experiment: Experiment) -> dict[str, str]:
    """The folder with the answers of a run that a server is asked for; what it has used changes no result."""
    is_limited = experiment.model.max_tokens_total is not None
    return {"run": f"results/{experiment.experiment}"} if is_limited else {}


def local(experiment: Experiment, **changes: Any) -> ModelConfig:
    return experiment.model.model_copy(update={"path": model_path(experiment), "revision": None, **changes})
