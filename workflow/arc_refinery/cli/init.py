"""The command that begins a project outside a checkout."""

import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tyro.conf import Positional

from arc_refinery.commands.flags import Command
from arc_refinery.commands.outputs import Output, Outputs
from arc_refinery.config import Line
from arc_refinery.errors import InputError
from arc_refinery.files import writing
from arc_refinery.runs.project import LINKS, PARTS, project_files


class Init(Command):
    """Lay out a folder in which experiments run: Snakefile, rules, profiles, configs, the embedded models.

    For a package that `pip install` has installed; a checkout is such a folder.

    Example:
        arc-refinery init mine/project
    """

    folder: Annotated[Line, Positional]  # a new folder, or an empty one

    def writes(self) -> Outputs:
        return {
            "folder": [Output(Path(self.folder).resolve(), "a new project", lambda _: "it has files", is_folder=True)]
        }

    def run(self) -> None:
        source, folder = project_files(), Path(self.folder).resolve()
        if any(folder.is_relative_to(source / part) for part in PARTS):
            raise InputError(f"{folder}: is inside of what would be copied; name a folder outside of {source}")
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)  # an empty one stays: it may be where the command was typed
            with TemporaryDirectory(dir=folder) as temporary:
                unfinished = Path(temporary)
                for part in PARTS:
                    (unfinished / part).parent.mkdir(exist_ok=True)
                    if (source / part).is_dir():
                        _copy_folder(source / part, unfinished / part)
                    else:
                        shutil.copy(source / part, unfinished / part)
                for link, target in LINKS.items():
                    (unfinished / link).symlink_to(target)
                for path in unfinished.iterdir():
                    path.rename(folder / path.name)
        print(
            f"{folder}: choose or write a config (config/README.md, examples/), and run it:\n"
            f"  cd {shlex.quote(str(folder))}\n"
            "  snakemake --cores 2 --configfile config/quick.yaml"
        )


def _copy_folder(source: Path, copy: Path) -> None:
    """Copy a folder; raises `OSError` at the first file that cannot be copied, where shutil would go on."""
    copy.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_dir():
            _copy_folder(path, copy / path.name)
        else:
            shutil.copy(path, copy / path.name)
