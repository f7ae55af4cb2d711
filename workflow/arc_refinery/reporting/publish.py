"""Publish a report: compose its text, write its pictures and tables, then replace the earlier report."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arc_refinery.files import atomic_write
from arc_refinery.reporting import plots

Write = Callable[[Path], None]


@dataclass
class Attachments:
    """Pictures and tables that a report links to. Adding one writes nothing, so text can be composed alone."""

    link: str  # from the report to their folder
    _writers: dict[str, Write] = field(default_factory=dict)

    def add(self, name: str, write: Write) -> str:
        """Register `write`, to be called with the path of the file `name`; return the link to it."""
        self._writers[name] = write
        return f"{self.link}/{name}"

    def write(self, folder: Path) -> None:
        with plots.style():
            for name, write in self._writers.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write(folder / name)


def publish(report: Path, folder: Path, compose: Callable[[Attachments], Sequence[str]]) -> None:
    """Write the Markdown file `report` and replace `folder`/report by the files that it links to."""
    attachments = Attachments(os.path.relpath(folder / "report", report.parent))
    blocks = compose(attachments)
    with atomic_write(folder / "report") as unfinished:
        unfinished.mkdir()
        attachments.write(unfinished)
    with atomic_write(report) as unfinished:
        unfinished.write_text("\n\n".join(blocks) + "\n")
