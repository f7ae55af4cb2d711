"""The command that downloads models and data from the Hugging Face hub."""

import logging

from arc_refinery import config
from arc_refinery.commands.flags import Command, RulePath
from arc_refinery.commands.outputs import Output, Outputs, json_file
from arc_refinery.config.flags import NEEDED
from arc_refinery.models.hub import Download, RepositoryKind, fetch_repository, record_of


class Fetch(Command):
    """Download a Hugging Face hub repository, as far as it is not cached, and link its files into a folder."""

    repository: config.Line  # owner/name
    output: RulePath = NEEDED  # folder for the links; <output>.json records commit, files and sizes
    kind: RepositoryKind = "model"  # kind of repository
    revision: config.Line | None = None  # branch, tag or commit; default: the default branch
    patterns: tuple[str, ...] = ()  # names or globs of files; default: all that transformers and vLLM may read

    def writes(self) -> Outputs:
        links = Output(self.output, "a folder of links", lambda _: "", is_folder=True)
        return {"output": [links, json_file(record_of(self.output), "repository", "commit", "files")]}

    def run(self) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every URL, and URLs of large files are signed
        fetch_repository(Download(self.repository, self.kind, self.revision, self.patterns), self.output)
