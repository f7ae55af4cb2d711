"""Building blocks of the config models, and messages for wrong keys."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from arc_refinery.errors import InputError


def _not_almost_greedy(temperature: float) -> float:
    """Logits divided by a tiny number are infinite, so that every token is as likely as any other."""
    if 0 < temperature < 0.01:
        raise ValueError(f"is {temperature:g}; expected 0 (greedy), or at least 0.01")
    return temperature


# Used in folder names, file names and Snakemake wildcards
NAME = r"^[a-z0-9][a-z0-9-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=100)]
RUN_NAME = r"^[a-z0-9][a-z0-9.-]*$"  # allows a decimal point
RunName = Annotated[str, StringConstraints(pattern=RUN_NAME, max_length=100)]
# Pages in `results/` that are not an experiment's report
OTHER_PAGES = {"compare": "the page that compares experiments", "doctor": "what `snakemake doctor` writes"}
# A trained adapter; `trained@1000`: as it was after 1000 steps; `trained@*`: after each step that is kept
AT, EVERY = "@", "*"
ADAPTER_NAME = r"^[a-z0-9][a-z0-9.-]*(@([0-9]+|\*))?$"
AdapterName = Annotated[str, StringConstraints(pattern=ADAPTER_NAME, max_length=100)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
# Numbers have bounds on both sides, so that a slip, or a date as a seed, is refused before the first job
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9)]
PositiveFloat = Annotated[float, Field(ge=1e-12, le=1e9)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, le=1e9)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]  # numpy takes no larger one
Threads = Annotated[int, Field(ge=1, le=1024)]
Mass = Annotated[float, Field(ge=1e-6, le=1.0)]  # probability mass
OfMemory = Annotated[float, Field(ge=0.01, le=1.0)]
Gigabytes = Annotated[float, Field(ge=0.01, le=1000.0)]
Penalty = Annotated[float, Field(ge=0.01, le=100.0)]  # logits are divided by it
Temperature = Annotated[float, Field(ge=0.0, le=100.0), AfterValidator(_not_almost_greedy)]
# A path, or a name on the hub
LINE = r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?"
Line = Annotated[str, StringConstraints(max_length=1000, pattern=f"^{LINE}$")]
LineOrNone = Annotated[str, StringConstraints(max_length=1000, pattern=f"^({LINE})?$")]
ADDRESS = r"^https?://[^\s@]+$"
Address = Annotated[str, StringConstraints(max_length=1000, pattern=ADDRESS)]
VARIABLE = "^[A-Z_][A-Z0-9_]*$"  # no small letters, which keys have
Variable = Annotated[str, StringConstraints(max_length=100, pattern=VARIABLE)]
Text = Annotated[str, StringConstraints(max_length=100_000)]


class ConfigError(InputError):
    """The configuration cannot be used; the message names the file, the key and what was expected."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _not_another_type(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` for a number, which pydantic would read as 1, and bytes for a text."""
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, bytes) for item in items):
            raise ValueError("is binary; expected a text or a number")
        field = cls.model_fields[str(info.field_name)]
        if any(isinstance(item, bool) for item in items) and not _allows(field.annotation, bool):
            raise ValueError(f"is {str(value).lower()}; expected a number or a text, not true or false")
        return value

    def not_default(self, *keys: str) -> list[str]:
        """Return those of the keys that differ from their defaults."""
        return [key for key in keys if getattr(self, key) != type(self).model_fields[key].default]


def _allows(annotation: Any, kind: type) -> bool:
    """Return whether values of a kind fit into an annotation, at any depth."""
    return annotation in (kind, Any) or any(_allows(inner, kind) for inner in get_args(annotation))


def check_names(what: str, names: Sequence[str]) -> None:
    """Raise `ValueError` if two of these have one name."""
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two {what} have the name {', '.join(sorted(twice))}; rename one")


def check_once(key: str, values: Sequence[object]) -> None:
    """Raise `ValueError` if a list names something twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{key}: {', '.join(map(str, values))}: name each {key.removesuffix('s')} once")


def faults_in(checks: Iterable[tuple[str, Callable[[], Any]]]) -> list[str]:
    """Return what checks that raise `InputError` find, each after the key that it is about."""
    faults = []
    for key, check in checks:
        try:
            check()
        except InputError as error:
            faults.append(f"{key}: {error}")
    return faults


def run_and_step(adapter: str) -> tuple[str, int | None]:
    """Split `trained@1000` into the training and the step; None: its last one."""
    run, _, step = adapter.partition(AT)
    return run, int(step) if step else None


class Mark(Enum):
    """All that a field of the configuration changes: `Annotated[PositiveInt, TUNING]`.

    A field without a mark changes every result of the stages that read its section.
    """

    TUNING = "how jobs run, and no result"
    ATTEMPTS = "attempts, not the prompts that they answer"
    PROMPTS = "prompts, which later stages read as they are written"
    ROWS = "rows to learn from, which fine-tuning reads as they are written"
    EVALUATION = "evaluation, not training"
    GRADING = "grading, not the rewards of a training"
    EPISODES = "episodes on questions, not the questions"
    REPORT = "the report"


TUNING, ATTEMPTS, PROMPTS, ROWS, EVALUATION, GRADING, EPISODES, REPORT = Mark


def marked(section: type[BaseModel], *marks: Mark) -> set[str]:
    """Names of the fields that have one of the marks."""
    return {name for name, field in section.model_fields.items() if any(mark in field.metadata for mark in marks)}


_IN_WORDS = {
    NAME: "small letters, digits and dashes",
    RUN_NAME: "small letters, digits, dashes and points",
    ADAPTER_NAME: "an adapter, such as trained, trained@1000 or trained@*",
    ADDRESS: "the URL of a server, without a user or a key, such as http://localhost:8000/v1",
    VARIABLE: "the name of a variable of the environment, such as OPENAI_API_KEY",
    f"^{LINE}$": "one line of text, without white space at its ends",
    f"^({LINE})?$": "one line of text, without white space at its ends",
}
_OF_TYPE = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a section with keys",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a section with keys",
    "string_type": "a text",
    "string_unicode": "valid Unicode text",
    "tuple_type": "a list",
}


# Keys of earlier versions, and where they went
GONE = {
    r"(.*\.)?grpo\.(epsilon|entropy_coef)": "give it among the keywords of `training.grpo.trl`",
    r"(.*\.)?grpo\.(num_iterations|keep_best|frequency_penalty|importance_sampling_(level|mode|cap))": (
        "it has one value now; remove it"
    ),
    r"training\.guard\.(max_truncated|max_repetition|min_reward|max_kl)": "it has one value now; remove it",
    r"training\.sft\.(loss_type|optimizer|weight_decay|demonstrations\.(n_parents|max_pass_rate))": (
        "it has one value now; remove it"
    ),
    r"(refinement|evaluation\.arms\.turns)\.select": "it has one value now; remove it",
    r"(model|models\.[^.]*)\.kv_cache_dtype": "vLLM's cache has the precision of the weights; remove it",
    r"sandbox\.wall_seconds": "it is twice cpu_seconds, and at least 10 seconds; remove it",
    r"resources\.\w+\.(gpu_capability|gpu_cuda)": (
        "set `gpus_minimum_capability` or `gpus_minimum_runtime` with `--set-resources` (docs/run.md)"
    ),
    r"resources\.cpu\.(disk_mb|gpus|gpu_mem_mb)": "such jobs use no GPU and 2,000 MB of disk; remove it",
    r"evaluation\.arms\.turns\.(n_parents|include_errors|history)": "set it for all turns, in `refinement`",
    r"evaluation\.arms\.turns\.temperature": "set it for all turns, in `sampling`",
    r"data\.(train|heldout)\.form": "it is called `domain` now",
    r"data\.(train|heldout)\.n_questions": "it is called `n_tasks` now",
    r"models|evaluation\.arms\.turns\.model": "one model samples all turns, `model`; remove it",
    r"evaluation\.arms\.seed": "set it for all arms, in `evaluation.seeds`",
    r"evaluation\.sets\.leave_out_too_large": "name a file with the tasks to keep, in `only`",
    r"training\.evaluated_tasks": "tasks that are evaluated are left out of training; remove it",
    r"sampling\.(use_data_augmentation|test_inputs)|template_rows": "it is a key of the section `arc` now",
    r"parts\.use_data_augmentation": "it is `arc.augment_parts` now",
    r"model\.colors": "give a template folder its own (notation.json); remove it",
    r"(arc\.)?template_rows\.min_share": "it has one value now; remove it",
}


def faults_of(error: ValidationError) -> list[Any]:
    """Return the faults that pydantic found; it also calls a list empty if its only item is wrong."""
    return [fault for fault in error.errors() if fault["type"] != "too_short" or not fault["input"]]


def explain(problem: Any, section: type[BaseModel] | None = None) -> str:
    """Return one line on a fault that pydantic found in a section: the key, its value and what was expected."""
    context = problem.get("ctx", {})
    key = ".".join(str(part) for part in problem["loc"]) or "the file"
    is_odd = isinstance(problem["input"], float) and not isfinite(problem["input"])
    match "finite_number" if is_odd else problem["type"]:
        case "extra_forbidden":
            place = ".".join(str(part) for part in problem["loc"] if not isinstance(part, int))
            for gone, instead in GONE.items():
                if re.fullmatch(gone, place):
                    return f"{key} is gone: {instead}"
            similar = _similar_key(section, problem["loc"]) if section else ""
            return f"{key} is not a known key; {similar or 'see config/README.md for the known ones'}"
        case "missing":
            return f"{key} is missing; see config/README.md for its meaning"
        case "value_error":
            text = str(context["error"])
            first = re.split(r"\W", text, maxsplit=1)[0]
            begins_with_key = section is not None and first in _keys_at(section, problem["loc"])
            between = "." if begins_with_key else " " if text.startswith(("is ", "names ")) else ": "
            return f"{key}{between}{text}" if problem["loc"] else text
        case "too_short":
            return f"{key} is empty; expected a list of at least {context['min_length']}"
        case "greater_than_equal":
            expected = f"at least {context['ge']:.12g}"
        case "less_than_equal":
            expected = f"at most {context['le']:.12g}"
        case "literal_error":
            expected = context["expected"]
        case "string_pattern_mismatch":
            expected = _IN_WORDS[context["pattern"]]
        case "string_too_long":
            expected = f"at most {context['max_length']} characters"
        case kind if kind in _OF_TYPE:
            expected = _OF_TYPE[kind]
        case _:
            return f"{key} is {problem['input']!r:.200}; {problem['msg'][0].lower()}{problem['msg'][1:]}"
    return f"{key} is {problem['input']!r:.200}; expected {expected}"


def _similar_key(section: type[BaseModel], place: Sequence[str | int]) -> str:
    """Ask whether a known key was meant: of the same section, or that of another one with this name."""
    *sections, name = map(str, place)
    siblings = _keys_at(section, sections)
    if name in siblings:  # `Questions.variants`
        return "it belongs to another domain"
    initials = [key for key in siblings if "".join(word[0] for word in key.split("_")) == name]
    for key in [*get_close_matches(name, siblings, 1), *initials][:1]:
        return f"did you mean {'.'.join([*sections, key])}?"
    elsewhere = [path for path in _paths(section) if path.rpartition(".")[2] == name]
    return f"did you mean {' or '.join(elsewhere)}?" if elsewhere else ""


def _keys_at(section: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the known keys of the section at a place inside another one."""
    here = [section]
    for part in map(str, place):  # an index, or a name that the user chose, is not a field
        here = [inner for model in here if part in model.model_fields for inner in sections_in(model, part)] or here
    here += [variant for model in here for variant in getattr(model, "variants", list)()]
    return list(dict.fromkeys(key for model in here for key in model.model_fields))


def sections_in(model: type[BaseModel], key: str) -> list[type[BaseModel]]:
    """Return the sections that are values of a key, at any depth of its type."""

    def inside(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        for inner in get_args(annotation):
            yield from inside(inner)

    return list(inside(model.model_fields[key].annotation))


def _paths(model: type[BaseModel]) -> Iterator[str]:
    for key in model.model_fields:
        yield key
        yield from (f"{key}.{path}" for inner in sections_in(model, key) for path in _paths(inner))
