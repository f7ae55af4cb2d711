"""Sections of the config, and commands that hold them, as flags of a command line.

>>> class Job(BaseModel):
...     output: Annotated[Path, RULE] = NEEDED  # a rule gives it; a person has to type it
...     lora: Annotated[Lora, FLAT]
...     guard: Guard
...     n_jobs: Annotated[int, TUNING] = 1
>>> job = Job(lora=Lora(lora_r=8), guard=Guard(window=5))
>>> flag_words(job)[:4]
['--lora-r', '8', '--lora-alpha', '64']
>>> "--guard.window" in flag_words(job), flag_words(job, tuning=True)
(True, ['--n-jobs', '1'])
"""

from collections.abc import Container, Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from arc_refinery.config.base import RULE, TUNING, Mark, marked
from arc_refinery.config.own_code import Entry

NEEDED: Any = RULE  # default of a flag that a rule gives, and that has to be typed by hand
FLAT = object()  # on a section: its flags have no prefix


class Without:
    """On a section: the command lacks its fields with these marks."""

    def __init__(self, *marks: Mark) -> None:
        self.marks = marks


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The class of a field that is a section of flags; None for a single flag."""
    kind: Any = field.annotation
    is_section = isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, Entry)
    return kind if is_section else None


def lacking(field: FieldInfo) -> set[str]:
    """Names of the fields of a section that the command lacks."""
    section = section_of(field)
    marks = [mark for without in field.metadata if isinstance(without, Without) for mark in without.marks]
    return marked(section, *marks) if section else set()


def flag_names(kind: type[BaseModel], names: Iterable[str], prefix: str = "") -> Iterator[str]:
    """Yield the flags of some fields of a command, or of a section."""
    for name in names:
        field = kind.model_fields[name]
        if section := section_of(field):
            inner = prefix if FLAT in field.metadata else f"{prefix}{name}."
            yield from flag_names(section, [name for name in section.model_fields if name not in lacking(field)], inner)
        else:
            yield flag_of(f"{prefix}{name}")


def flag_words(
    values: BaseModel,
    kind: type[BaseModel] | None = None,
    tuning: bool | None = None,
    without: Container[str] = (),
    prefix: str = "",
) -> list[str]:
    """Return a command, or a section as far as `kind` has its fields, as words of a command line.

    The flags that a rule gives are left out; with `tuning`, also those that decide results, or all others.
    """
    words: list[str] = []
    for name, field in (kind or type(values)).model_fields.items():
        if name in without:
            continue
        value = getattr(values, name)
        if section := section_of(field):
            inner = prefix if FLAT in field.metadata else f"{prefix}{name}."
            words += flag_words(value, section, tuning, lacking(field), inner)
        elif RULE not in field.metadata and tuning in (None, TUNING in field.metadata):
            words += _words(prefix, name, value)
    return words


def _words(prefix: str, name: str, value: Any) -> list[str]:
    flag = flag_of(prefix + name)
    match value:
        case None | "":
            return []
        case True:
            return [flag]
        case False:
            return [flag_of(f"{prefix}no_{name}")]  # tyro writes the `no` before the last word
        case dict() | tuple() | list():
            return [flag, *_flat(value)]
        case _:
            return [flag, str(value)]


def _flat(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for pair in value.items():
                yield from map(str, pair)
        case tuple() | list():
            for item in value:
                yield from _flat(item)
        case _:
            yield str(value)
