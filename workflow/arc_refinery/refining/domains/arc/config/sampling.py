"""The section `arc`: how prompts show tasks, and rows that the wording is learned from."""

from typing import ClassVar, Literal

from pydantic import Field

from arc_refinery.config.base import Line, PositiveInt, Strict
from arc_refinery.config.sampling import RowsSource

LEARNED = "learned"


class TemplateRows(RowsSource):
    file_key: ClassVar = "files"
    source: Literal["hub", "file"] = Field(
        description="`hub`: a data set of the Hugging Face hub; `file`: rows on disk."
    )
    path: Line | None = Field(
        None, description="For `file`: a .jsonl, .json (also .gz) or .parquet file, or a folder of them."
    )
    files: Line | None = Field(
        None, description="For `hub`: glob of the files to read, such as `*test_sft*`; `*` also matches `/`."
    )
    n_rows: PositiveInt = Field(1000, description="Number of rows to read, from the first; a few hundred are enough.")


class Showing(Strict):
    """How first-turn prompts show tasks."""

    use_data_augmentation: bool = Field(True, description="Give each prompt its own symmetry and coloring.")
    test_inputs: Literal["all", "one"] = Field(
        "all", description="Test inputs that a first-turn prompt shows: all, or one drawn at random."
    )


class Arc(Showing):
    augment_parts: bool | None = Field(
        None, description="`use_data_augmentation` for attempts on training parts; default: as for all."
    )
    template_rows: TemplateRows | None = Field(
        None,
        description="Rows that the model was trained on; `model.template: learned` takes its wording from them.",
    )
