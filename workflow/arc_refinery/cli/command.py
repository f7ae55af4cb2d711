"""The base of the commands that people type, and how words become one: tyro reads them, pydantic checks all values.

    class Show(Command):
        '''Print one attempt.'''

        side: Annotated[config.Line, Positional]  # folder of results
        attempt: config.NonNegativeInt | None = None  # number of the attempt; default: the first that is correct

A comment is the help of a flag.

`completion` is the script with which bash completes commands, flags and files: `source <(arc-refinery --completion)`.
It holds all names, because starting this program at each press of Tab would take longer than typing.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from inspect import getdoc
from itertools import chain
from typing import Annotated, Any, TypeVar

import tyro
from pydantic import BaseModel, ValidationError
from tyro.conf import Positional
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from arc_refinery.cli import COMMANDS, load
from arc_refinery.config import KINDS
from arc_refinery.config.base import Strict, explain, faults_of
from arc_refinery.outputs import Outputs, Writes, check_outputs, flag_of
from arc_refinery.stages import stages_of


class Command(Strict):
    def run(self) -> None:
        raise NotImplementedError

    def writes(self) -> Outputs:
        """Outputs by the name of their flag: those of fields with the mark `Writes`."""
        marks = [(name, mark) for name, field in type(self).model_fields.items() for mark in field.metadata]
        return {name: mark.outputs(getattr(self, name)) for name, mark in marks if isinstance(mark, Writes)}

    @classmethod
    def label(cls, name: str) -> str:
        """Return what a person typed for a field: a flag, or an argument without one."""
        field = cls.model_fields.get(name)
        return name if field and Positional in field.metadata else flag_of(name)

    def check_outputs(self) -> None:
        """Raise `InputError` if it would replace an input or something that it did not make."""
        check_outputs(dict(self), self.writes(), self.label)


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
    """Rules of tyro: a command and its sections stay plain values, which pydantic checks later."""
    registry = ConstructorRegistry()
    is_inside = False  # whether this rule has asked tyro for its own

    def flag(spec: StructFieldSpec) -> StructFieldSpec:
        annotation: Any = Annotated[spec.type, tyro.conf.DisallowNone]
        if spec.default is None or (isinstance(spec.default, Sized) and not spec.default):
            annotation = Annotated[annotation, tyro.conf.arg(help_behavior_hint="")]  # the help says what it means
        return replace(spec, type=annotation)

    @registry.struct_rule
    def section(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal is_inside
        if is_inside or not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
            return None
        is_inside = True
        spec = ConstructorRegistry.get_struct_spec(info)
        is_inside = False
        assert isinstance(spec, StructConstructorSpec)
        flags = sorted(map(flag, spec.fields), key=lambda field: field.default is not tyro.MISSING)

        def values(**values_of_flags: Any) -> dict[str, Any]:
            return values_of_flags

        values.__doc__ = info.type.__doc__
        return StructConstructorSpec(values, tuple(flags))

    return registry


def _place(kind: type[Command], place: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return where a fault is: the flag, and the place in its value. Flags of a section have no prefix."""
    if not place:
        return ()
    is_section = isinstance(kind.model_fields[str(place[0])].annotation, type(BaseModel))
    first, *rest = place[1:] if is_section and place[1:] else place
    return (kind.label(str(first)), *rest)


def completion() -> str:
    """Return the script for bash."""
    words: dict[str, dict[str, None]] = defaultdict(dict, {"stage": dict.fromkeys(chain(*map(stages_of, KINDS)))})
    words[""]["stage"] = None
    for name in COMMANDS:
        first, _, second = name.partition(" ")
        words[""][first] = None
        if second:
            words[first][second] = None
    words |= {f"help {before}".strip(): choices for before, choices in words.items() if "--" not in before}
    flags = {
        f"{name} ": _flags_of(load(name)) for name in sorted(COMMANDS, key=len, reverse=True)
    }  # longer names first
    flags[" "] = ["--help", "--version", "--completion"]
    return SCRIPT.format(flags=_cases(flags, "*"), words=_cases(words, ""))


def _flags_of(kind: type[BaseModel]) -> list[str]:
    flags = []
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type(BaseModel)):
            flags += _flags_of(field.annotation)
        elif Positional not in field.metadata:
            flags.append(flag_of(name))
    return flags


def _cases(choices: Mapping[str, Iterable[str]], end: str) -> str:
    return "\n".join(f'      "{before}"{end}) choices="{" ".join(after)}" ;;' for before, after in choices.items())
