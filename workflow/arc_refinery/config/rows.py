"""Sections that name rows: a file on disk, or a file of a data set on the hub."""

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator

from arc_refinery.config.base import Strict
from arc_refinery.models.hub import Download


class RowsSource(Strict):
    """A section declares these keys itself, so that the tables of config/README.md list them after its own."""

    content: ClassVar[str] = "rows"  # content of the file, for messages
    file_key: ClassVar[str] = "filename"  # names the files in the data set
    if TYPE_CHECKING:
        source: str
        path: str | None
        repository: str | None
        revision: str | None

    @property
    def download(self) -> Download | None:
        """The files to fetch; None if they are on disk."""
        if self.source != "hub":
            return None
        return Download(str(self.repository), "dataset", self.revision, (str(getattr(self, self.file_key)),))

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        if self.source == "file" and not self.path:
            raise ValueError(f"source is `file`, so `path` must name the file of {self.content}")
        if self.source == "hub" and not (self.repository and getattr(self, self.file_key)):
            raise ValueError(f"source is `hub`, so `repository` and `{self.file_key}` must be given")
        if self.revision and self.source != "hub":
            raise ValueError(f"revision belongs to the source `hub`, but source is `{self.source}`; remove one")
        return self
