"""The stage that downloads what an experiment reads from the Hugging Face hub."""

import logging
from dataclasses import dataclass
from pathlib import Path

from arc_refinery.hub import Download, Kind, fetch


@dataclass
class Fetch:
    """Download a repository of the Hugging Face hub, or what its cache lacks, and link the files into a folder."""

    repository: str  # owner/name
    output: Path  # folder that gets the links; <output>.json records commit, files and sizes
    kind: Kind = "model"
    revision: str | None = None  # branch, tag or commit; by default the default branch
    patterns: tuple[str, ...] = ()  # names or globs of files; by default all that transformers and vLLM may read

    def run(self) -> None:
        logging.getLogger("httpx").setLevel(
            logging.WARNING
        )  # it logs each address, and those of large files are signed
        fetch(Download(self.repository, self.kind, self.revision, self.patterns), self.output)
