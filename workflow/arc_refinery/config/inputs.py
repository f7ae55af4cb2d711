"""The files that stages of every kind read. `<results>` is Snakemake's variable for the folder of results."""

from pathlib import Path
from typing import Any, TypeVar

from arc_refinery.config.arms import Compared
from arc_refinery.config.base import ConfigError, run_and_step
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.sampling import RowsSource
from arc_refinery.models import hub
from arc_refinery.models.hub import Download

Paths = list[str]
Rows = TypeVar("Rows", bound=RowsSource)


# Places of models and rows, which may be fetched


def fetched_folder(experiment: Experiment, download: Download) -> str:
    """The folder of files that takes the place of a repository of the hub."""
    return str(hub.fetched_folder(Path(f"results/{experiment.experiment}"), download))


def model_path(experiment: Experiment) -> str:
    return next(iter(models(experiment)), experiment.model.path)


def rows_files(experiment: Experiment, rows: RowsSource) -> list[str]:
    """Source of problems, questions or rows of a template: a file on disk, or the folder that is fetched."""
    if rows.download:
        return [fetched_folder(experiment, rows.download)]
    return [str(rows.path)] if rows.source == "file" else []


def with_local_path(experiment: Experiment, rows: Rows) -> Rows:
    """Return problems or questions with the fetched file instead of its name on the hub."""
    if not rows.download:
        return rows
    path = f"{fetched_folder(experiment, rows.download)}/{getattr(rows, rows.file_key)}"
    return rows.model_copy(
        update={"source": "file", "path": path, "repository": None, rows.file_key: None, "revision": None}
    )


# Models, templates, adapters


def models(experiment: Experiment) -> Paths:
    """The model where it is fetched, or the file of its answers: an input of all that read it."""
    download, answers = experiment.model.download, experiment.model.answers_file
    if answers:
        return [str(answers)]
    return [fetched_folder(experiment, download)] if download else []


def fetched_records(experiment: Experiment) -> Paths:
    return [str(hub.record_of(Path(fetched_folder(experiment, download)))) for download in experiment.downloads]


def adapters(names: list[str]) -> Paths:
    return [f"<results>/adapters/{name}" for name in names]


def start_of(experiment: Experiment, adapter: str) -> Paths:
    """The adapter of SFT, where GRPO follows it."""
    name = experiment.start_of(run_and_step(adapter)[0])
    return adapters([name] if name else [])


def kept_before(experiment: Experiment, adapter: str) -> Paths:
    """The adapter, with its checkpoints, that ends the part before of a training."""
    name = experiment.kept_before(adapter)
    return adapters([name] if name else [])


def files_of_grpo(experiment: Experiment) -> Paths:
    """Files of the user that define terms of the reward, or the advantage."""
    functions = experiment.own_functions
    return sorted({str(code.path) for key, code, _ in functions if key.startswith("training.grpo.")})


def reports(experiment: Compared[Any], origin: str) -> Paths:
    """The reports of the experiments to compare. Each is made with its own config: here, others have to be there.

    Raises `ConfigError` that blames the file `origin`.
    """
    if not experiment.compare:
        raise ConfigError(f"{origin}: compare: names no experiments; name those to compare, [demo, seeds-demo]")
    for name in experiment.compare:
        if name != experiment.experiment and not Path(f"results/{name}.md").exists():
            raise ConfigError(
                f"{origin}: compare: results/{name}.md does not exist. Make it first: snakemake --cores 2"
                f" --configfile <the config with `experiment: {name}`>"
            )
    return [f"results/{name}.md" for name in experiment.compare]
