"""Every flag of every command, and every argument of every stage, with every mistake: refused by name, or right.

The words of flags become values in tyro; mistakes are tried in the values, and a few are typed.
"""

import inspect
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import pytest
import tyro
from pydantic import BaseModel, ValidationError
from unit.test_outputs import STAGES as JOBS

from arc_refinery import cli, stages
from arc_refinery.cli.command import rules_for
from arc_refinery.config import experiment_class
from arc_refinery.errors import InputError
from arc_refinery.outputs import flag_of

COMMANDS = [*cli.COMMANDS]
WRONG = [math.nan, math.inf, -math.inf, 2**70, -(2**70), 1e300, "\udcff", "x" * 200_000]
# Right for the flags that `ALLOWED` names; 1e-300 also where 0 is
RARE = [-1, 1e-300, "", " ", "a\nb"]
ALLOWED: dict[str, set[Any]] = {
    "caveat": {"", " ", "a\nb"},
    "frequency_penalty": {-1},
    "max_steps": {-1},  # no limit
    "start": {""},
    "stop_token": {" ", "a\nb"},
    "system": {"", " ", "a\nb"},
    "template": {""},  # the usual one
    "form": {""},
}


class Field(NamedTuple):
    owner: BaseModel  # a command, or a section of it
    name: str
    kind: str  # INT, FLOAT or STR


def actions_of(command: str) -> list[Any]:
    kind = cli.load(command)
    with pytest.warns(DeprecationWarning), rules_for(kind):
        return list(tyro.extras.get_parser(kind)._actions)


def kind_of(action: Any) -> str:
    """INT, FLOAT, STR, PATH, or another word for other types."""
    return re.sub(r"[^A-Z]", "", str(action.metavar or "").replace("None", ""))


def words_of(command: str, folder: Path) -> list[str]:
    """A command with all flags that it needs."""
    words = command.split()
    for number, action in enumerate(candidate for candidate in actions_of(command) if candidate.required):
        value = {"INT": "3", "FLOAT": "3", "STR": "x"}.get(kind_of(action), str(folder / f"{number}"))
        words += [*action.option_strings[:1], str(next(iter(action.choices))) if action.choices else value]
    return words


def fields_of(command: str, folder: Path) -> Iterator[Field]:
    """The flags of numbers and texts."""
    kinds = {
        option.rpartition(".")[2].lstrip("-"): kind_of(action)
        for action in actions_of(command)
        for option in action.option_strings
    }
    sections: list[BaseModel] = [cli.parse(words_of(command, folder))]
    for section in sections:
        for name, value in section:
            if isinstance(value, BaseModel):
                sections.append(value)
            elif (kind := kinds.get(name.replace("_", "-"))) in ("INT", "FLOAT", "STR"):
                yield Field(section, name, kind)


def refusal(field: Field, value: Any) -> str:
    """The message on another value of a flag; empty: it is accepted."""
    try:
        type(field.owner).model_validate(dict(field.owner) | {field.name: value})
    except ValidationError as error:
        return str(error)
    return ""


def mistakes(kind: str) -> list[Any]:
    kinds = {"INT": int | float, "FLOAT": int | float, "STR": str}[kind]
    return [mistake for mistake in [*WRONG, *RARE] if isinstance(mistake, kinds)]


def is_right(field: Field, mistake: Any) -> bool:
    return is_right_answer(field.name, mistake, lambda value: refusal(field, value))


def is_right_answer(name: str, mistake: Any, refusal: Callable[[Any], str]) -> bool:
    if message := refusal(mistake):
        return name in message.replace("-", "_")
    if mistake in ALLOWED.get(name, ()):
        return True
    return bool(mistake == 1e-300 and not refusal(0.0))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_mistake_in_every_flag(name: str, tmp_path: Path) -> None:
    wrong = [
        f"{field.name} = {mistake!r:.30}"
        for field in fields_of(name, tmp_path)
        for mistake in mistakes(field.kind)
        if not is_right(field, mistake)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", random.Random(0).sample(COMMANDS, 8))
@pytest.mark.parametrize("mistake", ["nan", "-1.5", "x", ""])
def test_typed_mistakes_end_with_the_flag_and_code_2(name: str, mistake: str, tmp_path: Path) -> None:
    words = words_of(name, tmp_path)
    numbers = [field for field in fields_of(name, tmp_path) if field.kind != "STR"]
    for field in random.Random(name).sample(numbers, min(2, len(numbers))):
        flag = field.name.replace("_", "-")
        with redirect_stderr(StringIO()) as said, pytest.raises(SystemExit) as ended:
            cli.parse([*words, f"--{flag}={mistake}"])
        assert ended.value.code == 2
        assert flag in said.getvalue() or field.name in said.getvalue()


# Stages


class Job(NamedTuple):
    stage: stages.Stage
    settings: dict[str, Any]
    flags: dict[str, list[str]]
    experiment: Any

    @classmethod
    def of(cls, name: str) -> "Job":
        settings, flags, _ = JOBS[name]
        kind = settings.get("kind", "refining")
        return cls(stages.load(name, kind), settings, stages._flags(flags.split()), experiment_class(kind, "arc"))

    def arguments(self) -> dict[str, Any]:
        return stages.validated(self.stage, self.settings, self.flags, self.experiment)

    def refusal(self, place: tuple[str, ...], value: Any) -> str:
        """The message on another value of a setting; empty: it is accepted."""
        try:
            self._replace(settings=changed(self.settings, place, value)).arguments()
        except InputError as error:
            return str(error)
        return ""


def changed(settings: Mapping[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = place
    return {**settings, first: changed(settings.get(first) or {}, tuple(rest), value) if rest else value}


def kind_in(annotation: Any) -> str:
    """INT, FLOAT, STR, or nothing for other types."""
    if annotation in (int, float, str):
        return str(annotation.__name__).upper()
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return next(filter(None, map(kind_in, get_args(annotation))), "")
    return ""


def places_in(value: Any, hint: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Numbers and texts in an argument: their place and kind."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from places_in(getattr(value, name), field.annotation, (*place, name))
    elif kind := kind_in(hint):
        yield place, kind


@pytest.mark.parametrize("name", JOBS)
def test_every_mistake_in_every_setting_of_a_stage(name: str) -> None:
    job = Job.of(name)
    hints, arguments = get_type_hints(job.stage), job.arguments()
    wrong = [
        f"{'.'.join(place)} = {mistake!r:.30}"
        for argument in job.settings.keys() - {"kind", "domain"}
        for place, kind in places_in(arguments[argument], hints[argument], (argument,))
        for mistake in mistakes(kind)
        if not is_right_answer(place[-1], mistake, partial(job.refusal, place))
    ]
    assert wrong == []


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("mistake", ["nan", "-1.5", "x", "", "-1"])
def test_every_mistake_in_every_number_that_a_rule_gives_a_stage(name: str, mistake: str) -> None:
    job = Job.of(name)
    for flag in ("n_jobs", "shard", "n_shards"):
        parameter = inspect.signature(job.stage).parameters.get(flag)
        if parameter and parameter.kind is parameter.KEYWORD_ONLY:
            with pytest.raises(InputError, match=f"stage {name}: {flag_of(flag)} is "):
                job._replace(flags=job.flags | {flag: [mistake]}).arguments()
