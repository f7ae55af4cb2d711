"""Programs of problems as answers, for SFT. They solve a task only without augmentation.

`main` is renamed to `transform`, and the code that generates inputs is dropped.
"""

import ast

from arc_refinery.domains.prompts import extract_code
from arc_refinery.programs import UNREADABLE


def transform_program(source: str, bare: bool = False) -> str | None:
    """Return the program in a BARC row's `source` (with `main` and `generate_input`) as the model should write it.

    Keeps imports, constants, helpers and comments; `bare` drops comments between statements. Returns None if the source
    cannot be parsed or has no function `main`.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as `ast` counts lines
    try:
        statements = ast.parse(source).body
    except UNREADABLE:
        return None
    if not any(_defines(statement, "main") for statement in statements):
        return None
    lines = _rename_main(source, statements)
    others = [statement for statement in statements if not _makes_inputs(statement)]
    if bare:
        return "\n\n".join("\n".join(lines[slice(*_extent(statement))]) for statement in others)
    for index in reversed(range(len(statements))):
        if statements[index] not in others:
            start, end = _extent(statements[index])
            earliest = _extent(statements[index - 1])[1] if index else 0
            while start > earliest and lines[start - 1].startswith("#"):  # a comment right above belongs to it
                start -= 1
            del lines[start:end]
    return "\n".join(lines).strip("\n")


def completed_answer(program: str, prefix: str) -> str | None:
    """Return an answer that starts with `prefix` and whose code is exactly `program`; None if that is impossible.

    The prefix may contain words, the opening of the code block, and the first lines of the program.
    """
    words, opening, first_lines = prefix.partition("```python")
    if opening and not f"\n{program}".startswith(first_lines):
        return None
    if words and not opening:
        words += "\n"
    answer = f"{words}```python\n{program}\n```"
    return answer if extract_code(answer) == f"{program}\n" else None


def _defines(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.FunctionDef) and statement.name == name


def _makes_inputs(statement: ast.stmt) -> bool:
    """Return whether the statement defines or uses `generate_input`."""
    names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
    return _defines(statement, "generate_input") or "generate_input" in names


def _extent(statement: ast.stmt) -> tuple[int, int]:
    """Return the index of the first line, counting decorators, and of the line after the last."""
    decorators = getattr(statement, "decorator_list", [])
    return min(node.lineno for node in [statement, *decorators]) - 1, int(statement.end_lineno or statement.lineno)


def _rename_main(source: str, statements: list[ast.stmt]) -> list[str]:
    """Return the lines with `main` renamed to `transform`, in its definition and its uses."""
    lines = [line.encode() for line in source.split("\n")]  # columns in `ast` count bytes
    nodes = [node for statement in statements for node in ast.walk(statement)]
    positions = [
        (node.lineno - 1, node.col_offset) for node in nodes if isinstance(node, ast.Name) and node.id == "main"
    ]
    for node in statements:
        if _defines(node, "main"):
            positions.append((node.lineno - 1, lines[node.lineno - 1].index(b"main", node.col_offset + len("def"))))
    for line, start in sorted(positions, reverse=True):
        lines[line] = lines[line][:start] + b"transform" + lines[line][start + len(b"main") :]
    return [line.decode() for line in lines]
