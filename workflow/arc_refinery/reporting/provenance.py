"""Report sections on how results were made: settings, data left out, command, commit. Equal runs give equal text.

settings    model: {path: workflow/models/tiny, window: 1024}
            sampling: {batch_size: 4, max_output_tokens: 24}
"""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from arc_refinery import records
from arc_refinery.config import REPORT, TUNING, Experiment, marked
from arc_refinery.config.loading import domain_sources
from arc_refinery.files import content_hash
from arc_refinery.models.hub import fetched_folder, readable_size, record_of
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.training.samples import FILE as SAMPLES

NO_RESULT = {"experiment", "compare", "resources", "shards_per_grading_job"}  # settings that do not affect results
COMMIT = "ARC_REFINERY_COMMIT"  # variable of the environment


def settings(experiment: Experiment) -> list[str]:
    """Return Markdown blocks with the settings that differ from their defaults and change results, as YAML."""
    text = yaml.safe_dump(
        result_settings(experiment), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    return ["Settings that differ from their defaults; `config/README.md` explains the keys:", f"```yaml\n{text}```"]


def result_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that differ from their defaults and change results or comparisons."""
    return {key: value for key, value in _differing(experiment).items() if key not in NO_RESULT}


def _differing(value: Any) -> Any:
    if isinstance(value, BaseModel):
        keys = value.model_dump(exclude_defaults=True).keys() - marked(type(value), TUNING, REPORT)
        return {key: _differing(section) for key, section in value if key in keys}
    if isinstance(value, Mapping):
        return {key: _differing(section) for key, section in value.items()}
    return list(map(_differing, value)) if isinstance(value, list | tuple) else value


def section(experiment: Experiment, folder: Path) -> list[str]:
    """Return Markdown blocks for a report in `results/`; `folder` holds the experiment's results."""
    name, trainings = experiment.experiment, experiment.training.seeds if experiment.training else ()
    arms = getattr(getattr(experiment, "evaluation", None), "seeds", ())
    seeds: dict[str, Sequence[int]] = {"experiment": (experiment.seed,), "arms": arms, "training": trainings}
    evaluated: Sequence[Any] = getattr(experiment, "evaluated_sets", ())
    domains = {getattr(task_set, "domain", getattr(experiment, "domain", "")) for task_set in evaluated}
    own = {name: sources for name in sorted(domains) if (sources := domain_sources(name))}  # not built in
    named = "; ".join(f"{what} {', '.join(map(str, values))}" for what, values in seeds.items() if values)
    return [
        "## How to reproduce",
        f"```\nsnakemake --cores 2 --configfile results/{name}/settings.json\n```",
        f"with the code of commit {commit()}, seeds: {named}. That file holds every key of the configuration. "
        f"Snakemake measured time and memory of each job: `logs/{name}/benchmarks/`.",
        *(f"Domain `{name}`: modules with the hash `{content_hash(paths)}`." for name, paths in own.items()),
        _packages(experiment, folder),
        *_downloads(experiment, folder),
    ]


def _downloads(experiment: Experiment, folder: Path) -> list[str]:
    """Return Markdown blocks on downloads from the hub."""
    rows = []
    for download in experiment.downloads:
        record = json.loads(record_of(fetched_folder(folder, download)).read_text())
        requested = download.revision or "default branch"
        rows.append([download.path, requested, f"`{record['commit']}`", readable_size(record["bytes"])])
    if not rows:
        return []
    return [
        "Downloads from the Hugging Face hub. To pin a commit for later runs, set `revision` in the configuration.",
        markdown_table(["repository", "requested revision", "commit", "size"], rows),
    ]


def _sampled(experiment: Experiment, folder: Path) -> list[Path]:
    """Return the files of attempts or episodes."""
    return [
        path
        for name in experiment.sampled_folders
        for path in sorted((folder / name / "attempts").glob("*.parquet")) or (folder / name).glob("[0-9]*.parquet")
    ]


def servers(experiment: Experiment, folder: Path) -> tuple[str, str]:
    """Return a sentence on the servers that answered and a warning if they changed; empty without servers."""
    if not experiment.model.is_served:
        return "", ""
    rows = records.by_server(
        row for path in _sampled(experiment, folder) for row in notes_of(path).get(records.SERVED_BY, [])
    )
    if answers := experiment.model.answers_file:
        hashes = ", ".join(f"`{fingerprint}`" for _, _, fingerprint, *_ in rows)
        return f"No model answered: the file `{answers}` (hash {hashes}) decides the answers.", ""
    listed = "; ".join(
        f"`{model or experiment.model.path}` at {address}{f', fingerprint `{fingerprint}`' * bool(fingerprint)} "
        f"({n:,} answers)"
        for address, model, fingerprint, n, *_ in rows
    )
    n_read, n_written = (sum(row[column] for row in rows) for column in (-2, -1))
    prices = experiment.model.prices
    cost = f", which cost {prices.of(n_read, n_written)} at the config's prices" if prices else ""
    models = {tuple(row[1:3]) for row in rows if any(row[1:3])}  # a prompt without room names none
    return (
        f"A server answered: {listed}. It read {n_read:,} tokens and wrote {n_written:,}{cost}. Another run gives "
        "other answers, because servers compute what comes together.",
        "**The served model changed during the run**, by its name or fingerprint: arms may differ by that. See the "
        "limitations."
        if len(models) > 1
        else "",
    )


def _packages(experiment: Experiment, folder: Path) -> str:
    """Return a table of the versions that sampled, trained, and wrote the report; one column if these are equal."""
    sampled = _sampled(experiment, folder)
    trained = [folder / "adapters" / name / SAMPLES for name in experiment.adapters]
    columns = {
        "sampling": _versions(sampled),
        "training": _versions(path for path in trained if path.exists()),
        "this report": records.installed_versions(),
    }
    columns = {name: versions for name, versions in columns.items() if versions}
    if all(versions == records.installed_versions() for versions in columns.values()):
        columns = {"version": records.installed_versions()}
    names = [name for name in records.PACKAGES if any(name in versions for versions in columns.values())]
    rows = [[name, *(versions.get(name, "–") for versions in columns.values())] for name in names]
    return markdown_table(["package", *columns], rows)


def _versions(paths: Iterable[Path]) -> dict[str, str]:
    """Return the versions of the packages that wrote these files, several if they differ."""
    versions: dict[str, set[str]] = {}
    for path in paths:
        for name, text in records.packages_of(path).items():
            versions.setdefault(name, set()).add(text)
    return {name: ", ".join(sorted(texts)) for name, texts in versions.items()}


def commit() -> str:
    """Return the commit of the checkout that this code runs from, marked if it has uncommitted changes.

    A job that only has a copy of the code is given the commit in `COMMIT`.
    """
    if known := os.environ.get(COMMIT):
        return known
    state = "--dirty=, with uncommitted changes"
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", state, "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown (the package does not run from a git checkout)"


def notes_of(path: Path) -> dict[str, Any]:
    """Return the notes of a file, empty if it has been deleted."""
    return records.notes(path) if path.exists() else {}


def rows_of(what: str, left_out: Mapping[str, int]) -> list[list[str]]:
    return [[what, reason, str(n)] for reason, n in sorted(left_out.items()) if n]


def left_out(rows: list[list[str]], if_none: str) -> list[str]:
    return ["## Data left out", markdown_table(["left out", "reason", "number"], rows) if rows else if_none]
