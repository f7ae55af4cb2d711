"""Report section on how to reproduce a result: command, commit, packages, seeds. Equal runs give equal text."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from arc_refinery.config import Experiment
from arc_refinery.models.hub import fetched_folder, readable_size, record_of
from arc_refinery.reporting.markdown import markdown_table

PACKAGES = ("arc-refinery", "snakemake", "torch", "transformers", "trl", "peft", "vllm", "unsloth", "numpy", "scipy")


def section(experiment: Experiment, folder: Path, seeds: Mapping[str, Sequence[int]]) -> list[str]:
    """Return Markdown blocks for a report in `results/`; `folder` holds the experiment's results."""
    name = experiment.experiment
    named = "; ".join(f"{what} {', '.join(map(str, values))}" for what, values in seeds.items() if values)
    return [
        "## How to reproduce",
        f"```\nsnakemake --cores 2 --configfile results/{name}/settings.json\n```",
        f"with the code of commit {_commit()}, seeds: {named}. That file holds every key of the configuration. "
        f"[Time and memory of the stages](../logs/{name}/machine-time.md), as measured by Snakemake.",
        markdown_table(["package", "version"], _versions(PACKAGES)),
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


def _versions(packages: Sequence[str]) -> list[list[str]]:
    """Return (package, version) of the installed packages."""
    rows = []
    for package in packages:
        try:
            rows.append([package, version(package)])
        except PackageNotFoundError:
            continue
    return rows


def _commit() -> str:
    """Return the commit of the checkout that this code runs from, marked if it has uncommitted changes."""
    command = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty=, with uncommitted changes",
        "--abbrev=12",
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown (the package does not run from a git checkout)"
