"""Building blocks of the config models, and messages for wrong keys."""

from enum import Enum
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from arc_refinery.errors import InputError

# Used in folder names, file names and Snakemake wildcards
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
RUN_NAME = r"^[a-z0-9][a-z0-9.-]*$"  # allows a decimal point
RunName = Annotated[str, StringConstraints(pattern=RUN_NAME)]
# Pages in `results/` that are not an experiment's report
OTHER_PAGES = {"compare": "the page that compares experiments", "doctor": "what `snakemake doctor` writes"}
# A trained adapter; `trained@1000`: as it was after 1000 steps; `trained@*`: after each step that is kept
AT, EVERY = "@", "*"
AdapterName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*(@([0-9]+|\*))?$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ConfigError(InputError):
    """The configuration cannot be used; the message names the file, the key and what was expected."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _not_a_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` for a number, which pydantic would read as 1."""
        given = value if isinstance(value, list) else [value]
        field = cls.model_fields[str(info.field_name)]
        if any(isinstance(one, bool) for one in given) and not _allows(field.annotation, bool):
            raise ValueError(f"is {str(value).lower()}; expected a number or a text, not true or false")
        return value


def _allows(annotation: Any, kind: type) -> bool:
    """Whether values of a kind fit into an annotation, at any depth."""
    return annotation in (kind, Any) or any(_allows(inner, kind) for inner in get_args(annotation))


def run_and_step(adapter: str) -> tuple[str, int | None]:
    """Split `trained@1000` into the training and the step; None: its last one."""
    run, _, step = adapter.partition(AT)
    return run, int(step) if step else None


class Mark(Enum):
    """All that a field of the configuration changes: `Annotated[PositiveInt, TUNING]`.

    A field without a mark changes every result of the stages that read its section.
    """

    TUNING = "how jobs run, and no result"
    PROMPTS = "prompts, which later stages read as they are written"
    ROWS = "rows to learn from, which fine-tuning reads as they are written"
    EVALUATION = "evaluation, not training"
    EPISODES = "episodes on questions, not the questions"
    REPORT = "the report"


TUNING, PROMPTS, ROWS, EVALUATION, EPISODES, REPORT = Mark


def marked(section: type[BaseModel], *marks: Mark) -> set[str]:
    """Names of the fields that have one of the marks."""
    return {name for name, field in section.model_fields.items() if not set(marks).isdisjoint(_marks(field))}


def _marks(field: FieldInfo) -> list[Mark]:
    return [one for one in field.metadata if isinstance(one, Mark)]


def check_source(source: str, rows: str, path: str | None, on_hub: dict[str, str | None], revision: str | None) -> None:
    """Raise `ValueError` unless the keys that belong to the source `file` or `hub` are given."""
    if source == "file" and not path:
        raise ValueError(f"source is `file`, so `path` must name the file of {rows}")
    if source == "hub" and not all(on_hub.values()):
        raise ValueError(f"source is `hub`, so {' and '.join(f'`{key}`' for key in on_hub)} must be given")
    if revision and source != "hub":
        raise ValueError(f"revision belongs to the source `hub`, but source is `{source}`; remove one")


def explain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or "the file"
    match problem["type"]:
        case "extra_forbidden":
            return f"{key} is not a known key; see config/README.md for the known ones"
        case "missing":
            return f"{key} is missing; see config/README.md for its meaning"
        case "value_error":
            text = str(problem["ctx"]["error"])
            between = " " if text.startswith("is ") else ": "
            return f"{key}{between}{text}" if problem["loc"] else text
        case "tuple_type":
            return f"{key} is {problem['input']!r}; expected a list"
        case "too_short":
            return f"{key} is empty; expected a list of at least {problem['ctx']['min_length']}"
        case _:
            return f"{key} is {problem['input']!r}; {problem['msg'][0].lower()}{problem['msg'][1:]}"
