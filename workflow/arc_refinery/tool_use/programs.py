"""Take the program out of an answer that asserts test.

Of the blocks tagged as Python the last one counts that defines a name which the asserts call, because an example of
its use may follow; without such a block, the last one. Blocks without a tag, which often show output, count only where
none is tagged. An unclosed block counts. A block may begin behind a list's mark or, if it is tagged as Python, behind
other text. This is not the rule of refining (prompts), which is the published one.
"""

import ast
import re
import symtable
from collections.abc import Iterable
from textwrap import dedent

from arc_refinery.tool_use.asserts import UNREADABLE

_TAGS = ("python", "python3", "py")
_QUOTES = ('"""', "'''")
_OPENING = re.compile(
    rf"""^(?:
        [ \t]* (?:[-*+]|\d+[.)])?                                      # nothing before it, or a list's mark
        | [^`~\n]* (?=(?:```|~~~)[ \t]*(?:{"|".join(_TAGS)})[ \t]*$)  # other text
    )[ \t]* (`{{3,}}|~{{3,}}) [ \t]* (\w*) [^\n]*\n""",
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)


def final_program(text: str, asserts: Iterable[str] = ()) -> str | None:
    """Return the program of an answer, or None without a block."""
    blocks = _blocks(text.replace("\r\n", "\n"))
    tagged = [code for tag, code in blocks if tag in _TAGS]
    candidates = tagged or [code for tag, code in blocks if not tag]
    called = {name for test in asserts for name in _called(test)}
    return next((code for code in reversed(candidates) if called & _defined(code)), None) or next(
        reversed(candidates), None
    )


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return the (lower-case tag, dedented code) of all blocks."""
    found: list[tuple[str, str]] = []
    start = 0
    while opening := _OPENING.search(text, start):
        code, start = _block(text, opening.end(), opening[1])
        found.append((opening[2].lower(), dedent(code)))
    return found


def _block(text: str, start: int, fence: str) -> tuple[str, int]:
    """Return the code from `start` to its closing fence, and where that ends.

    A docstring may hold a fence: of several closing ones the first counts that is outside of triple quotes, else the
    first. If what they leave cannot be read, the fence may end a line of code, or a text may follow it.
    """
    code, end = _fenced(text, start, fence)
    within, closing, _ = code.partition(fence)
    if closing and _parsed(dedent(code)) is None and _parsed(dedent(within)) is not None:
        return within, start + len(within) + len(fence)
    return code, end


def _fenced(text: str, start: int, fence: str) -> tuple[str, int]:
    first: tuple[str, int] | None = None
    n_open = dict.fromkeys(_QUOTES, 0)
    counted = start
    for ending in re.compile(rf"^[ \t]*{fence}{fence[0]}*[ \t]*$\n?", re.MULTILINE).finditer(text, start):
        n_open = {quotes: n + text.count(quotes, counted, ending.start()) for quotes, n in n_open.items()}
        counted = ending.start()
        first = first or (text[start:counted], ending.end())
        if not any(n % 2 for n in n_open.values()):
            return text[start:counted], ending.end()
    return first or (text[start:], len(text))


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except UNREADABLE:
        return None


def _defined(code: str) -> set[str]:
    """Return the names that a program binds at its top level."""
    try:
        symbols = symtable.symtable(code, "<program>", "exec").get_symbols()
    except UNREADABLE:
        return set()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}


def _called(test: str) -> set[str]:
    tree = _parsed(test)
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()
    return {function.id for function in calls if isinstance(function, ast.Name)}
