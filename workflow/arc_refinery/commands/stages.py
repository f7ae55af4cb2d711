"""Commands of the stages that every experiment has, as far as the experiment decides them.

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
from dataclasses import asdict
from typing import Any, TypeVar

from arc_refinery.commands.fetch import Fetch
from arc_refinery.commands.flags import GrpoFlags
from arc_refinery.commands.training import FineTune
from arc_refinery.config import Experiment, ModelConfig, marked, part
from arc_refinery.config.base import PROMPTS, run_and_step
from arc_refinery.config.inputs import fetched_folder, model_path
from arc_refinery.config.rows import RowsSource

Rows = TypeVar("Rows", bound=RowsSource)


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


def on_disk(experiment: Experiment, rows: Rows) -> Rows:
    """Return problems or questions with the fetched file instead of its name on the hub."""
    if not rows.download:
        return rows
    path = f"{fetched_folder(experiment, rows.download)}/{getattr(rows, rows.file_key)}"
    return rows.model_copy(
        update={"source": "file", "path": path, "repository": None, rows.file_key: None, "revision": None}
    )
