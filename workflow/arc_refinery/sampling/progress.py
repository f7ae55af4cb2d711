"""Progress of a job, kept for when it is interrupted: JSON lines in a file that no Snakemake rule declares.

Snakemake deletes the outputs of failed jobs, so progress cannot be kept in them.
"""

import json
from pathlib import Path
from typing import Any


class Progress:
    """The finished entries of one job; each is on disk as soon as it is added.

    `identity` is a hash of everything that affects the entries: progress with another identity is discarded.
    """

    def __init__(self, output: Path, identity: str) -> None:
        self.path = progress_path(output)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = self.path.read_text() if self.path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # a half-written last line is dropped
        if not lines or json.loads(lines[0]) != {"settings": identity}:
            lines = [json.dumps({"settings": identity})]
        self.path.write_text("".join(f"{line}\n" for line in lines))
        self.entries: list[dict[str, Any]] = [json.loads(line) for line in lines[1:]]

    def add(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def progress_path(output: Path) -> Path:
    return output.parent / ".progress" / f"{output.stem}.jsonl"
