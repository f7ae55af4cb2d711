"""The sections `model`, `template_rows`, `sampling`, `refinement` and `parts` of ARC."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from arc_refinery.config.base import PROMPTS, Line, PositiveInt
from arc_refinery.config.sampling import RowsSource
from arc_refinery.refining.config import sampling, tasks
from arc_refinery.refining.domains.arc.prompts import FeedbackForm, Notation

LEARNED = "learned"


class PromptedModel(sampling.PromptedModel):
    template: Annotated[Line, PROMPTS] = Field(
        "words",
        description="Wording of prompts: `compact` (the embedded model's), `words` (ours), `learned` from "
        "`template_rows`, or a folder that `arc-refinery prompts export` or `prompts learn` wrote.",
    )
    colors: Annotated[tuple[str, ...] | None, PROMPTS] = Field(
        None, description="Ten words for the colors 0 to 9, instead of the template's own."
    )

    @model_validator(mode="after")
    def _colors_suit_the_template(self) -> "PromptedModel":
        if self.colors is not None and self.template == "compact":
            raise ValueError("the template `compact` writes digits, so `colors` must be left out")
        if self.colors is not None:
            Notation(self.colors)
        return self


class TemplateRows(RowsSource):
    file_key: ClassVar = "files"
    source: Literal["hub", "file"] = Field(
        description="`hub`: a data set of the Hugging Face hub; `file`: rows on disk."
    )
    path: Line | None = Field(
        None, description="For `file`: a .jsonl, .json (also .gz) or .parquet file, or a folder of them."
    )
    repository: Line | None = Field(None, description="For `hub`: name of the data set.")
    files: Line | None = Field(
        None, description="For `hub`: glob of the files to read, such as `*test_sft*`; `*` also matches `/`."
    )
    revision: Line | None = Field(
        None, description="For `hub`: branch, tag or commit to fetch; default: the default branch."
    )
    n_rows: PositiveInt = Field(1000, description="Number of rows to read, from the first; a few hundred are enough.")


TestInputs = Literal["all", "one"]


class Sampling(sampling.Sampling):
    use_data_augmentation: bool = Field(True, description="Give each prompt its own symmetry and coloring.")
    test_inputs: TestInputs = Field(
        "all", description="Test inputs that a first-turn prompt shows: all, or one drawn at random."
    )


class Refinement(sampling.Refinement):
    form: FeedbackForm = Field(
        "given",
        description="Form of the feedback on a train pair: `given`: the grid that the program gave; "
        "`residual`: that grid and the expected one, as a new pair.",
    )


class Parts(tasks.Parts):
    use_data_augmentation: bool | None = Field(
        None, description="Whether attempts on the parts are augmented; default: as in `sampling`."
    )
