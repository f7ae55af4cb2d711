"""The command that begins a domain: it copies a package that works, and gives it a name."""

import json
import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from tyro.conf import Positional

from arc_refinery.commands.flags import Command
from arc_refinery.commands.outputs import Output, Outputs
from arc_refinery.config import DOMAINS
from arc_refinery.runs.project import project_files


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
