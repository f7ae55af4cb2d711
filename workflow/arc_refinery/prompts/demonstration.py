"""A problem's own program as an answer: `main` becomes `transform`, and what makes inputs is left out."""

import ast

from arc_refinery.prompts.conversation import extract_code


def transform_program(source: str, bare: bool = False) -> str | None:
    """The program of a BARC row's `source` (with `main` and `generate_input`) as the model is to write it.

    Imports, constants, helpers and comments stay; with `bare`, comments between statements go. None where the source
    cannot be parsed or has no function `main`.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as `ast` counts lines
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):  # a ValueError: a null byte
        return None
    if not any(_defines(statement, "main") for statement in statements):
        return None
    lines = _renamed(source, statements)
    kept = [statement for statement in statements if not _makes_inputs(statement)]
    if bare:
        return "\n\n".join("\n".join(lines[slice(*_extent(statement))]) for statement in kept)
    for place in reversed(range(len(statements))):
        if statements[place] not in kept:
            start, end = _extent(statements[place])
            earliest = _extent(statements[place - 1])[1] if place else 0
            while start > earliest and lines[start - 1].startswith("#"):  # a comment right above belongs to it
                start -= 1
            del lines[start:end]
    return "\n".join(lines).strip("\n")


def completed_answer(program: str, prefix: str) -> str | None:
    """The answer that holds the program and begins with `prefix`; None where no such answer has just this program.

    The prefix may be words, the opening of the block of code, or the first lines of the program too.
    """
    words, opening, begun = prefix.partition("```python")
    if opening and not f"\n{program}".startswith(begun):
        return None
    if words and not opening:
        words += "\n"
    answer = f"{words}```python\n{program}\n```"
    return answer if extract_code(answer) == f"{program}\n" else None


def _defines(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.FunctionDef) and statement.name == name


def _makes_inputs(statement: ast.stmt) -> bool:
    """Whether it is `generate_input`, or does something with it."""
    names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
    return _defines(statement, "generate_input") or "generate_input" in names


def _extent(statement: ast.stmt) -> tuple[int, int]:
    """First line from 0, and the line after the last; decorators belong to it."""
    decorators = getattr(statement, "decorator_list", [])
    return min(node.lineno for node in [statement, *decorators]) - 1, int(statement.end_lineno or statement.lineno)


def _renamed(source: str, statements: list[ast.stmt]) -> list[str]:
    """The lines, with `main` called `transform` where it is defined and where it is used."""
    lines = [line.encode() for line in source.split("\n")]  # positions of `ast` count bytes
    found = [node for statement in statements for node in ast.walk(statement)]
    places = [(node.lineno - 1, node.col_offset) for node in found if isinstance(node, ast.Name) and node.id == "main"]
    for node in statements:
        if _defines(node, "main"):
            places.append((node.lineno - 1, lines[node.lineno - 1].index(b"main", node.col_offset + len("def"))))
    for line, start in sorted(places, reverse=True):
        lines[line] = lines[line][:start] + b"transform" + lines[line][start + len(b"main") :]
    return [line.decode() for line in lines]
