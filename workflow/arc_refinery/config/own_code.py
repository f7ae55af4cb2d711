"""Python code of the user that a config names as `file.py:name`: where it is, and whether it can be used.

    >>> OwnCode.parse("mine/tools.py:lookup")
    OwnCode(path=PosixPath('mine/tools.py'), name='lookup')

The file is parsed, not imported: every job reads the config, and imports may take long, fail, or do something.
"""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import model_validator

from arc_refinery.config.base import Strict
from arc_refinery.errors import InputError
from arc_refinery.files import read_text
from arc_refinery.programs import UNREADABLE

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A function or class of a file."""

    path: Path
    name: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return what `file.py:name` names; None for any other text."""
        path, _, name = text.rpartition(":")
        return cls(Path(path), name) if path.endswith(".py") and name.isidentifier() else None

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def source(self) -> str:
        """Return the text of the file; raises `InputError`."""
        return read_text(self.path, "a Python file")

    def definition(self) -> Definition:
        """Return the definition of the function or class; raises `InputError`."""
        source = self.source()
        try:
            tree = ast.parse(source)
        except UNREADABLE as error:
            line = f" line {error.lineno}:" if isinstance(error, SyntaxError) and error.lineno else ""
            reason = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
            raise InputError(f"{self.path}:{line} is not valid Python ({reason}); correct it") from None
        named = [node for node in tree.body if getattr(node, "name", None) == self.name]
        match named[-1:]:
            case [ast.FunctionDef() | ast.ClassDef() as definition]:
                return definition
            case [ast.AsyncFunctionDef() as definition]:
                raise self.error(definition, "is `async`", "an ordinary function; write `def`")
            case _:
                pass
        there = ", ".join(node.name for node in tree.body if isinstance(node, Definition))
        raise InputError(
            f"{self.path}: defines no function or class `{self.name}` at its top level; "
            + (f"expected one of those it defines: {there}" if there else "it defines none")
        )

    def check_function(self, example: str) -> None:
        """Raise `InputError` unless it is a function of one argument; `example` is the first line of one."""
        definition = self.definition()
        if isinstance(definition, ast.ClassDef):
            raise self.error(definition, "is a class", f"a function of one argument: `{example}`")
        arguments = definition.args
        n_positional = len(arguments.posonlyargs) + len(arguments.args)
        n_required = n_positional - len(arguments.defaults)
        has_required_names = any(default is None for default in arguments.kw_defaults)
        if n_positional < 1 or n_required > 1 or has_required_names:
            raise self.error(definition, "cannot be called with one argument", f"`{example}`")

    def error(self, node: ast.stmt | ast.expr | ast.arg, what: str, expected: str) -> InputError:
        """Return an error about a line of the file."""
        return InputError(f"{self.path}: line {node.lineno}: `{self.name}` {what}; expected {expected}")


class Entry(Strict):
    """An entry of a list: something built in or `file.py:name`, as a section or as a word.

    rewards: [correct, {reward: rewards.py:score, weight: 0.5}]
    """

    key: ClassVar[str]

    @property
    def own_code(self) -> OwnCode | None:
        return OwnCode.parse(getattr(self, self.key))

    def __str__(self) -> str:
        """The entry as one word, from which it can be read again: `python,seconds=5.0`."""
        settings = self.model_dump(exclude_defaults=True)
        name = settings.pop(self.key)
        if not settings:
            return str(name)
        texts = {key: "+".join(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        return ",".join([_escaped(name), *(f"{key}={_escaped(value)}" for key, value in texts.items())])

    @classmethod
    def settings_of(cls, word: str) -> dict[str, Any]:
        """Return the keys and values of an entry that is given as one word; a comma in a value is written twice."""
        if OwnCode.parse(word):
            return {cls.key: word}
        name, *settings = [part.replace("\0", ",") for part in word.replace(",,", "\0").split(",")]
        if wrong := [part for part in settings if "=" not in part]:
            raise ValueError(f"is {word!r:.100}, with {wrong[0]!r:.100} after a comma; expected `key=value` there")
        keys = [part.partition("=")[0] for part in settings]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ValueError(f"is {word!r:.100}, with two `{twice[0]}`; remove one")
        return {cls.key: name} | dict(part.split("=", 1) for part in settings)

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_word(cls, value: Any) -> Any:
        if not isinstance(value, str | dict | cls):
            raise ValueError(
                f"is {value!r}; expected the name of a {cls.key}, `file.py:name`, or a section with `{cls.key}`"
            )
        return cls.settings_of(value) if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


def _escaped(value: object) -> str:
    return str(value).replace(",", ",,")
