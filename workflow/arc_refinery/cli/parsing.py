"""Words of a command line become a command: tyro reads them, then pydantic checks all values at once.

`completion` is the script with which bash completes commands, flags and files: `source <(arc-refinery --completion)`.
It holds all names, because starting this program at each press of Tab would take longer than typing.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from inspect import getdoc
from typing import Annotated, Any, TypeVar, cast

import tyro
from pydantic import BaseModel, ValidationError
from tyro.conf import Positional
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from arc_refinery.cli import COMMANDS, load
from arc_refinery.commands.flags import Command
from arc_refinery.config import KINDS
from arc_refinery.config.base import explain, faults_of
from arc_refinery.config.flags import FLAT, NEEDED, flag_names, flag_of, lacking, section_of
from arc_refinery.config.own_code import Entry

AnyCommand = TypeVar("AnyCommand", bound=Command)
# Flags of the published scripts that have another name here, and a former name of ours
OTHER_NAMES = {
    "--base-model-path": "--model-path",
    "--code-execution-memory-limit-mb": "--memory-mb",
    "--config": "--configfile",
    "--output-dir": "--output",
    "--output-folder": "--output",
    "--reward-name": "--rewards",
}
SCRIPT = """\
_arc_refinery() {{
  local before="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" word="${{COMP_WORDS[COMP_CWORD]}}" choices=
  if [[ $word == -* ]]; then
    case "$before " in
{flags}
    esac
  else
    case "$before" in
{words}
    esac
  fi
  COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _arc_refinery arc-refinery"""


def read(kind: type[AnyCommand], words: Sequence[str], prog: str) -> AnyCommand:
    """Return a command; exit with code 2 and a line per mistake on a wrong command line."""
    renamed = [_renamed(word) for word in words]
    values: Any = tyro.cli(kind, prog=prog, description=getdoc(kind), args=renamed, registry=rules_for(kind))
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = [explain({**fault, "loc": _place(kind, fault["loc"])}) for fault in faults_of(error)]
        print("\n".join(f"{prog}: {fault}" for fault in faults), file=sys.stderr)
        sys.exit(2)


def _renamed(word: str) -> str:
    flag, *value = word.split("=", 1)
    return "=".join([OTHER_NAMES.get(flag.replace("_", "-"), flag), *value])


def rules_for(kind: type[Command]) -> ConstructorRegistry:
    """Rules of tyro: sections stay plain values, which pydantic checks later, and an entry of a list is one word."""
    registry = ConstructorRegistry()
    needed = _required_in_sections(kind)
    hidden = {section_of(field): lacking(field) | needed.keys() for field in kind.model_fields.values()}
    is_inside = False  # whether this rule has asked tyro for its own

    def flag(spec: StructFieldSpec, section: type[BaseModel]) -> StructFieldSpec:
        annotation: Any = Annotated[spec.type, tyro.conf.DisallowNone]
        if FLAT in section.model_fields[spec.name].metadata:
            annotation = Annotated[annotation, tyro.conf.OmitArgPrefixes]
        if spec.default is None or (isinstance(spec.default, Sized) and not spec.default):
            annotation = Annotated[annotation, tyro.conf.arg(help_behavior_hint="")]  # the help says what it means
        return replace(spec, type=annotation, default=tyro.MISSING if spec.default is NEEDED else spec.default)

    @registry.struct_rule
    def section(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal is_inside
        if is_inside or not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
            return None
        is_inside = True
        spec = ConstructorRegistry.get_struct_spec(info)
        is_inside = False
        assert isinstance(spec, StructConstructorSpec)
        flags = [flag(field, info.type) for field in spec.fields if field.name not in hidden.get(info.type, ())]
        if info.type is kind:
            flags += [spec for spec, _ in needed.values()]
            flags.sort(key=lambda field: field.default not in (tyro.MISSING, tyro.MISSING_NONPROP))

        def values(**values_of_flags: Any) -> dict[str, Any]:
            if info.type is kind:
                for name, (_, place) in needed.items():
                    values_of_flags[place][name] = values_of_flags.pop(name)
            return values_of_flags

        values.__doc__ = info.type.__doc__
        return StructConstructorSpec(values, tuple(flags))

    @registry.primitive_rule
    def entry(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if not (isinstance(info.type, type) and issubclass(info.type, Entry)):
            return None
        return PrimitiveConstructorSpec(
            1, "STR", lambda words: words[0], lambda value: isinstance(value, str | Entry), lambda value: [str(value)]
        )

    return registry


def _required_in_sections(kind: type[Command]) -> dict[str, tuple[StructFieldSpec, str]]:
    """Flags without a default in sections without a prefix, and the section: help shows all required flags first."""
    return {
        name: (StructFieldSpec(name, cast(Any, field.annotation), tyro.MISSING, field.description), place)
        for place, outer in kind.model_fields.items()
        if FLAT in outer.metadata and outer.is_required() and (section := section_of(outer))
        for name, field in section.model_fields.items()
        if field.is_required() and name not in lacking(outer)
    }


def _place(section: type[BaseModel] | None, place: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return where a fault is: the flag, and the place in its value."""
    prefix = ""
    for depth, name in enumerate(place, 1):
        assert section
        field = section.model_fields[str(name)]
        section = section_of(field)
        if not section:
            return (flag_of(f"{prefix}{name}"), *place[depth:])
        prefix += "" if FLAT in field.metadata else f"{name}."
    return (flag_of(prefix[:-1]),) if prefix else ()


def completion() -> str:
    """Return the script for bash."""
    words: dict[str, dict[str, None]] = defaultdict(dict, {"train --kind": dict.fromkeys(KINDS)})
    for name in COMMANDS:
        first, _, second = name.partition(" ")
        words[""][first] = None
        if second:
            words[first][second] = None
    words |= {f"help {before}".strip(): choices for before, choices in words.items() if "--" not in before}
    names = [*COMMANDS, *(f"train --kind {kind}" for kind in KINDS)]
    flags = {f"{name} ": _flags_of(name) for name in sorted(names, key=len, reverse=True)}  # longer names first
    flags[" "] = ["--help", "--version", "--completion"]
    return SCRIPT.format(flags=_cases(flags, "*"), words=_cases(words, ""))


def _flags_of(name: str) -> list[str]:
    kind = load(name)
    named = [field_name for field_name, field in kind.model_fields.items() if Positional not in field.metadata]
    return list(flag_names(kind, named))


def _cases(choices: Mapping[str, Iterable[str]], end: str) -> str:
    return "\n".join(f'      "{before}"{end}) choices="{" ".join(after)}" ;;' for before, after in choices.items())
