"""Every flag of every command with every mistake: refused by name before anything is read, or a value that is right.

The words of flags become values in tyro; mistakes are tried in the values, and a few are typed.
"""

import math
import random
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tyro
from pydantic import BaseModel, ValidationError

from arc_refinery import cli
from arc_refinery.cli.parsing import rules_for

COMMANDS = [*cli.COMMANDS, "train --kind tool-use"]
WRONG = [math.nan, math.inf, -math.inf, 2**70, -(2**70), 1e300, "\udcff", "x" * 200_000]
# Right for the flags that `ALLOWED` names; 1e-300 also where 0 is
RARE = [-1, 1e-300, "", " ", "a\nb"]
ALLOWED: dict[str, set[Any]] = {
    "frequency_penalty": {-1},
    "max_steps": {-1},  # no limit
    "start": {""},
    "stop_token": {" ", "a\nb"},
    "system": {"", " ", "a\nb"},
}
NEEDED = {"tasks evaluation": ["--n-tasks", "1"], "tools questions": ["--n-questions", "1"]}


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
    words = [*command.split(), *NEEDED.get(command, ())]
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


def mistakes(field: Field) -> list[Any]:
    kinds = {"INT": int | float, "FLOAT": int | float, "STR": str}[field.kind]
    return [mistake for mistake in [*WRONG, *RARE] if isinstance(mistake, kinds)]


def is_right(field: Field, mistake: Any) -> bool:
    if message := refusal(field, mistake):
        return field.name in message.replace("-", "_")
    if mistake in ALLOWED.get(field.name, ()):
        return True
    return mistake == 1e-300 and not refusal(field, 0.0)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_mistake_in_every_flag(name: str, tmp_path: Path) -> None:
    wrong = [
        f"{field.name} = {mistake!r:.30}"
        for field in fields_of(name, tmp_path)
        for mistake in mistakes(field)
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
