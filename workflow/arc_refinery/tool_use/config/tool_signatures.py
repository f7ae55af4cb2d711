"""Description of a tool for the model, read from the signature and the docstring of a Python function or class.

    def lookup(word: str, n: int = 1) -> str:
        '''Look a word up in the dictionary.

        Args:
            word: The word
            n: How many meanings to return
        '''

becomes the name `lookup`, the docstring's first part, and for each argument a JSON schema, as transformers'
`get_json_schema` gives them. That one needs the imported function, and a second to be imported itself.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from arc_refinery.config.own_code import OwnCode
from arc_refinery.errors import InputError

JsonSchema = dict[str, Any]

_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_EXPECTED = "str, int, float, bool, list[...], Literal[...], or one of these with `| None`"
_EXAMPLES: dict[str, Any] = {"string": "...", "integer": 1, "number": 1.5, "boolean": True}
# TRL takes these methods of an environment for others than tools, or ours uses the name (tool_use/training/)
_RESERVED = {"reset", "get_reward", "question", "toolbox", "episode"}
_SECTION = re.compile(r"\s*(?:Args|Returns|Raises):")  # ends the description
_READ_OTHERWISE = re.compile(r"Returns:|Raises:|\(choices:.*\)\s*$", re.IGNORECASE)  # by transformers, in a description
_ARGUMENT = re.compile(r"(\w+)(?: ?\([^()]*\))?: *(.*)")


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A tool as described to the model."""

    name: str
    description: str
    parameters: dict[str, JsonSchema]
    required: tuple[str, ...]
    example: dict[str, Any]  # arguments of a correct call

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema for the chat template."""
        parameters: JsonSchema = {"type": "object", "properties": self.parameters}
        if self.required:
            parameters["required"] = list(self.required)
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


def text_signature(name: str, description: str, argument: str, meaning: str, example: str) -> ToolSignature:
    """Return the signature of a tool with one text as its argument."""
    parameters = {argument: {"type": "string", "description": meaning}}
    return ToolSignature(name, description, parameters, (argument,), {argument: example})


def signatures(code: OwnCode) -> list[ToolSignature]:
    """Return the signature of a function, or those of a class's tools; raises `InputError`.

    The tools of a class are its public methods with a docstring. Its `__init__` must do without arguments.
    """
    definition = code.definition()
    if isinstance(definition, ast.FunctionDef):
        return [_signature(code, definition, is_method=False)]
    methods = [node for node in definition.body if isinstance(node, ast.FunctionDef)]
    tools = [node for node in methods if not node.name.startswith("_") and ast.get_docstring(node)]
    for node in methods:
        if node.name == "__init__" and len(_needed(node)) > 1:
            raise code.error(node, f"needs `{_needed(node)[1]}` to be created", "an `__init__` without arguments")
    if not tools:
        raise code.error(definition, "has no tools", "at least one public method with a docstring")
    return [_signature(OwnCode(code.path, f"{code.name}.{node.name}"), node, is_method=True) for node in tools]


def _needed(node: ast.FunctionDef) -> list[str]:
    """Return the arguments without defaults."""
    positional = [*node.args.posonlyargs, *node.args.args]
    named = [arg for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is None]
    return [arg.arg for arg in [*positional[: len(positional) - len(node.args.defaults)], *named]]


def _signature(code: OwnCode, node: ast.FunctionDef, is_method: bool) -> ToolSignature:
    arguments = node.args
    if node.name in _RESERVED or node.name.startswith("_"):
        raise code.error(node, "cannot be a tool's name", "another name; the training uses this one, or hides it")
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise code.error(node, "has arguments without names (*, ** or /)", "named ones; give each argument a name")
    if is_method and node.decorator_list:
        raise code.error(
            node, "is decorated", "a plain method; remove the decorator, or the docstring if it is not a tool"
        )
    named = [*arguments.args[is_method:], *arguments.kwonlyargs]
    doc = ast.get_docstring(node)
    description = _SECTION.split(doc, maxsplit=1)[0].strip() if doc else ""
    if not doc or not description:
        raise code.error(node, "has no description", 'a docstring such as """Look a word up.""" for the model')
    meanings = _meanings(doc, {arg.arg for arg in named})
    parameters = {}
    for argument in named:
        if argument.annotation is None:
            raise code.error(argument, f"does not say the type of `{argument.arg}`", f"an annotation: {_EXPECTED}")
        if not meanings.get(argument.arg):
            raise code.error(
                node,
                f"does not describe `{argument.arg}`",
                f"a line `{argument.arg}: ...` under `Args:` in its docstring",
            )
        if match := _READ_OTHERWISE.search(meanings[argument.arg]):
            expected = "other words (choices are an annotation `Literal[...]`)"
            raise code.error(
                node, f"describes `{argument.arg}` with {match[0]!r}, which chat templates leave out", expected
            )
        schema = _schema(code, argument.arg, argument.annotation)
        parameters[argument.arg] = schema | {"description": meanings[argument.arg]}
    required = tuple(name for name in _needed(node) if name in parameters)
    example = {name: _example(parameters[name]) for name in required}
    return ToolSignature(node.name, description, parameters, required, example)


def _meanings(doc: str, names: set[str]) -> dict[str, str]:
    """Return the texts under `Args:`, each in one line."""
    meanings: dict[str, str] = {}
    last = ""
    for line in _lines_of_arguments(doc):
        if (match := _ARGUMENT.fullmatch(line)) and match[1] in names:
            last = match[1]
            meanings[last] = match[2]
        elif last:
            meanings[last] = f"{meanings[last]} {line}".strip()
    return meanings


def _lines_of_arguments(doc: str) -> Iterator[str]:
    lines = iter(doc.splitlines())
    for line in lines:
        if line.strip() == "Args:":
            break
    for line in lines:
        if line.strip() and not line.startswith(" "):
            return
        if line.strip():
            yield line.strip()


def _schema(code: OwnCode, argument: str, node: ast.expr) -> JsonSchema:
    """Return the schema of an annotation."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _schema(code, argument, ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            raise _wrong_type(code, argument, node) from None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [
            side for side in (node.left, node.right) if not (isinstance(side, ast.Constant) and side.value is None)
        ]
        if len(sides) == 1:
            return _schema(code, argument, sides[0]) | {"nullable": True}
    if isinstance(node, ast.Subscript):
        match _name(node.value):
            case "list" | "List":
                return {"type": "array", "items": _schema(code, argument, node.slice)}
            case "Optional":
                return _schema(code, argument, node.slice) | {"nullable": True}
            case "Literal":
                return _choices(code, argument, node)
            case _:
                pass
    if kind := _TYPES.get(_name(node)):
        return {"type": kind}
    raise _wrong_type(code, argument, node)


def _choices(code: OwnCode, argument: str, node: ast.Subscript) -> JsonSchema:
    try:
        value = ast.literal_eval(node.slice)
    except ValueError:
        raise _wrong_type(code, argument, node) from None
    choices = value if isinstance(value, tuple) else (value,)
    kinds = {_TYPES.get(type(choice).__name__) for choice in choices}
    if len(kinds) != 1 or not kinds <= {"string", "integer"}:
        raise code.error(node, f"has mixed choices of `{argument}`", "only texts, or only whole numbers, in Literal")
    return {"type": kinds.pop(), "enum": list(choices)}


def _name(node: ast.expr) -> str:
    """Return the name of a type, also of `typing.List`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _wrong_type(code: OwnCode, argument: str, node: ast.expr) -> InputError:
    return code.error(node, f"has an argument `{argument}` of the type `{ast.unparse(node)}`", _EXPECTED)


def _example(schema: JsonSchema) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    return [_example(schema["items"])] if schema["type"] == "array" else _EXAMPLES[schema["type"]]
