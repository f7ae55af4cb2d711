"""Check that HTCondor can copy files to the machine of a job."""

import os
from collections.abc import Iterable
from pathlib import Path

from arc_refinery.errors import InputError


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
