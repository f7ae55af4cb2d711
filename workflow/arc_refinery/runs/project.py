"""Files of a project that are no part of the package: Snakefile, rules, profiles, configs, embedded models."""

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
