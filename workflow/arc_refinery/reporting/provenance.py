"""How a result can be made again: command, code, packages, seeds. Nothing here differs between equal runs."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from arc_refinery.config import Experiment
from arc_refinery.hub import fetched_folder, readable_size, record_of
from arc_refinery.reporting.markdown import markdown_table

PACKAGES = ("arc-refinery", "snakemake", "torch", "transformers", "trl", "peft", "vllm", "unsloth", "numpy", "scipy")


def section(experiment: Experiment, folder: Path, seeds: Mapping[str, Sequence[int]]) -> list[str]:
    """Markdown blocks, for a report that lies in `results/`; `folder` is the one of the experiment's results."""
    name = experiment.experiment
    named = "; ".join(f"{what} {', '.join(map(str, values))}" for what, values in seeds.items() if values)
    return [
        "## How to reproduce",
        f"```\nsnakemake --cores 2 --configfile results/{name}/settings.json\n```",
        f"with the code of commit {_commit()}, seeds: {named}. That file holds all keys of the configuration with "
        f"their values. [What the stages took](../logs/{name}/machine-time.md), as Snakemake measured it.",
        markdown_table(["package", "version"], _versions(PACKAGES)),
        *_fetched(experiment, folder),
    ]


def _fetched(experiment: Experiment, folder: Path) -> list[str]:
    """What came from the hub."""
    rows = []
    for download in experiment.downloads:
        record = json.loads(record_of(fetched_folder(folder, download)).read_text())
        asked = download.revision or "default branch"
        rows.append([download.path, asked, f"`{record['commit']}`", readable_size(record["bytes"])])
    if not rows:
        return []
    return [
        "From the Hugging Face hub; a commit that the configuration gives as `revision` is what later runs fetch, too.",
        markdown_table(["repository", "revision asked for", "commit", "size"], rows),
    ]


def _versions(packages: Sequence[str]) -> list[list[str]]:
    """Of those that are installed."""
    rows = []
    for package in packages:
        try:
            rows.append([package, version(package)])
        except PackageNotFoundError:
            continue
    return rows


def _commit() -> str:
    """Of the checkout that this code runs from, and whether it was changed since."""
    command = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty=, and changes to it",
        "--abbrev=12",
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown (the package was not run from a git checkout)"
