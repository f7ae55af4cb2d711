"""Files of a project that are not part of the package: Snakefile, rules, profiles, configs, embedded models."""

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from arc_refinery.errors import InputError

PARTS = ("Snakefile", "config", "envs", "examples", "profiles", "rules", "workflow/models", "workflow/report")
LINKS = {name: f"profiles/{name}" for name in ("condor", "condor-transfer")}  # so that `--profile condor` finds it


def project_files() -> Path:
    """Return the checkout that the package runs from, else the folder where pip has put these files.

    Raises `InputError` if there is neither.
    """
    places = [Path(__file__).parents[3] / "Snakefile"]
    with suppress(PackageNotFoundError):
        places += [Path(str(file.locate())) for file in distribution("arc-refinery").files or []]
    for place in places:
        if place.name == "Snakefile" and place.is_file():
            return place.resolve().parent
    raise InputError("arc-refinery was installed without its Snakefile; install it again, without --target")


def check_that_it_travels(paths: Iterable[str]) -> None:
    """Raise `InputError` for a path at which HTCondor would hold every job."""
    for path in paths:
        if "," in path or ".." in Path(path).parts:
            raise InputError(
                f"{path}: HTCondor copies no path with a comma or with `..` to its jobs; rename it, or move it below "
                "this folder"
            )
        folders = [Path(path), *(Path(place, name) for place, names, _ in os.walk(path) for name in names)]
        if links := [folder for folder in folders if folder.is_symlink() and folder.is_dir()]:
            raise InputError(
                f"{links[0]}: is a link to a folder, which HTCondor does not copy to its jobs; put the folder itself "
                "there, or name an absolute path that the machines of the jobs have"
            )
