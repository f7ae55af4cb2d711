"""The commands that begin a project outside a checkout, and a domain: a copy of a package that works."""

import json
import re
import shlex
import shutil
from functools import partial
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import AfterValidator
from tyro.conf import Positional

from arc_refinery.cli.command import Command
from arc_refinery.config import DOMAINS, Line
from arc_refinery.errors import InputError
from arc_refinery.files import writing
from arc_refinery.outputs import Output, Outputs
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
                for page in unfinished.rglob("*.md"):
                    page.write_text(
                        re.sub(r"\[([^]]*)\]\(([^)#:]+)(#[^)]*)?\)", partial(_link, page), page.read_text())
                    )
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
        if path.name.startswith((".", "__pycache__")):
            continue  # of an editor, of Python
        if path.is_dir():
            _copy_folder(path, copy / path.name)
        else:
            shutil.copy(path, copy / path.name)


def _link(page: Path, link: re.Match[str]) -> str:
    """Return a link to a file; of one that stays in the repository only its words and its path there."""
    if (page.parent / link[2]).exists():
        return link[0]
    path = re.sub(r"^(\.\./)+", "", link[2])
    return f"{link[1]} ({path} of the repository)" if path not in link[1] else f"{path} of the repository"


def _package_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or iskeyword(name):
        raise ValueError(f"is {name!r}; expected the name of a package: lower-case letters, digits and _, such as sums")
    if name in DOMAINS or find_spec(name):
        raise ValueError(f"is {name!r}, but there is a domain or a module of this name already; choose another")
    return name


class NewDomain(Command):
    """Write a package with a domain of your own, which works and is to be changed: docs/development.md.

    Example:
        arc-refinery dev new-domain sums --output mine
    """

    name: Annotated[str, Positional, AfterValidator(_package_name)]  # name of the package, and of the domain
    output: Path = Path(".")  # folder to write the package to

    @property
    def folder(self) -> Path:
        return self.output / self.name

    def writes(self) -> Outputs:
        return {"output": [Output(self.folder, "a new package", lambda _: "it has files", is_folder=True)]}

    def _quoted(self, name: re.Match[str]) -> str:
        return f"path: {json.dumps(str(self.folder / name[1]))}"

    def run(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in (project_files() / "examples/my_domain").iterdir():
            if path.is_file():
                text = path.read_text().replace("my_domain", self.name)
                text = text.replace("my-domain", self.name.replace("_", "-"))
                text = re.sub(f"path: {self.name}/([\\w.]+)", self._quoted, text)
                (self.folder / path.name.replace("my_domain", self.name)).write_text(text)
        print(
            f"{self.folder}: change what its comments name. Then try it:\n"
            f"  export PYTHONPATH={self.output.resolve()}\n"
            f"  pytest {self.folder}\n"
            f"  snakemake --cores 2 --configfile {self.folder / self.name}.yaml"
        )
