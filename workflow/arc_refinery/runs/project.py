"""Files of a project that are not part of the package: Snakefile, rules, profiles, configs, embedded models."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
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


def keep_edited(made: Mapping[Path, float | None], warn: Callable[[str], object]) -> None:
    """Rename files that were edited after a run had made them, at these times."""
    for path, seconds in made.items():
        if seconds and path.is_file() and path.stat().st_mtime > seconds + 1:
            kept = path.with_name(f"{path.name}.edited-{time.strftime('%Y-%m-%dT%H-%M-%S')}")
            path.rename(kept)
            warn(f"{path}: was edited since a run made it, and is made again; your text is in {kept}")


def check_archive(environment: str) -> None:
    """Raise `InputError` if this archive is not here, or a folder; an absolute path may be on other machines only."""
    path = Path(environment)
    if path.is_dir() or not (path.exists() or path.is_absolute()):
        found = "is a folder" if path.is_dir() else "no such file"
        raise InputError(
            f"ARC_REFINERY_ENVIRONMENT: {path}: {found}; expected an archive of an environment: "
            "tar -C <environment> -czf environment.tar.gz ."
        )


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
