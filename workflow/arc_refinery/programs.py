"""Take the program out of an answer with blocks of code.

Of the blocks tagged as Python the last one counts that defines a wanted name, because an example of its use may follow;
without such a block, the last one. Blocks without a tag, which often show output, count only where none is tagged. An
unclosed block counts. A block may begin behind a list's mark or, if it is tagged as Python, behind other text.

Refining (`extract_code`) and tool use (tool_use/grading/rewards.py) share this rule, except that refining takes the
first lower-case `python` block, as published, if there is one.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection
from difflib import SequenceMatcher
from textwrap import dedent

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # errors of `ast.parse`

# Tags around what a model thinks before it answers; Qwen, DeepSeek and SmolLM write the first, EXAONE the second
OPENED_THOUGHT, CLOSED_THOUGHT = (re.compile(f"<{slash}(?:think|thought|thinking|reasoning)>") for slash in ("", "/"))
_TAGS = ("python", "python3", "py")
_WORD = re.compile(r"\w+|[^\w\s]")
_QUOTES = ('"""', "'''")
_OPENING = re.compile(
    rf"""^(?:
        [ \t]* (?:(?:[-*+]|\d+[.)])[ \t]*)?                            # nothing before it, or a list's mark
        | [^`~\n]* (?=(?:```|~~~)[ \t]*(?:{"|".join(_TAGS)})[ \t]*$)  # other text
    ) (`{{3,}}|~{{3,}}) [ \t]* (\w*) [^`\n]*\n""",
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)


def last_program(text: str, wanted: Collection[str]) -> str | None:
    """Return the program of an answer, or None without a block; `wanted` are names that it should define."""
    blocks = blocks_of(text.replace("\r\n", "\n"))
    tagged = [code for tag, code, _ in blocks if tag in _TAGS]
    candidates = tagged or [code for tag, code, _ in blocks if not tag]
    defining = (code for code in reversed(candidates) if not defined_names(code).isdisjoint(wanted))
    return next(defining, None) or next(reversed(candidates), None)


def last_block(text: str) -> tuple[str | None, bool]:
    """Return the code of the last block, in Python if there is one, else in a language; and whether it ends."""
    blocks = blocks_of(text.replace("\r\n", "\n"))
    ranked = sorted(blocks, key=lambda block: (block[0] in _TAGS, bool(block[0])))  # stable: the last one is last
    return ranked[-1][1:] if ranked else (None, False)


def tested_program(text: str, wanted: Collection[str]) -> str | None:
    """Return the program of an answer as it is tested: `last_program` without its own tests."""
    code = last_program(text, wanted)
    return code and _without_own_tests(code)


def after_thought(text: str) -> str:
    """Return the part of an answer after its last thought, empty if one is never closed."""
    return OPENED_THOUGHT.split(CLOSED_THOUGHT.split(text)[-1], 1)[0]


def without_first_thought(text: str) -> str:
    """Return an answer without a thought that it begins with; empty if that is never closed."""
    if not OPENED_THOUGHT.match(text.lstrip()):
        return text
    closed = CLOSED_THOUGHT.search(text)
    return text[closed.end() :] if closed else ""


def likeness(program: str, other: str) -> float:
    """Return which share of two programs is equal, 0..1: twice the words and signs in common, in order, of all."""
    words, others = (_WORD.findall(text) for text in (program, other))
    return SequenceMatcher(None, words, others, autojunk=False).ratio()


def blocks_of(text: str) -> list[tuple[str, str, bool]]:
    """Return all blocks that are not blank: lower-case tag, dedented code, whether a fence closes it."""
    blocks: list[tuple[str, str, bool]] = []
    start = 0
    while opening := _OPENING.search(text, start):
        code, start = _block(text, opening.end(), opening[1])
        if code.strip():
            blocks.append((opening[2].lower(), dedent(code), opening.end() + len(code) < start))
    return blocks


def _block(text: str, start: int, fence: str) -> tuple[str, int]:
    """Return the code from `start` to its closing fence, or to the end of the text, and where that ends.

    It is closed by a fence that begins a line, which may open another block, or that follows code in its line. A
    docstring may hold fences: the first one counts that is outside of triple quotes, else the first that has a line of
    its own.
    """
    first: tuple[str, int] | None = None
    n_open = dict.fromkeys(_QUOTES, 0)
    counted = start
    lines = re.compile(rf"^([^{fence[0]}\n]*)({fence}{fence[0]}*)([^\n]*)$\n?", re.MULTILINE)
    for line in lines.finditer(text, start):
        before, _, after = line.groups()
        n_open = {quotes: n + text.count(quotes, counted, line.start(2)) for quotes, n in n_open.items()}
        counted = line.start(2)
        is_alone = not before.strip() and not after.strip()
        if any(n % 2 for n in n_open.values()):
            if is_alone:
                first = first or (text[start : line.start()], line.end())
        elif not before.strip():
            end = line.end() if is_alone else line.end(2) if after[0].isspace() else line.start()
            return text[start : line.start()], end
        elif fence[0] == "`" and "#" not in before and not any(before.count(quote) % 2 for quote in "\"'"):
            return text[start : line.start(2)], line.end(2)
    return first or (text[start:], len(text))


def _without_own_tests(code: str) -> str:
    """Return a program with empty lines in place of the asserts at its top level, none at its end.

    Models append these unasked, and they are often wrong. Other lines keep their numbers.
    """
    tree = parsed(code)
    if tree is None or "\r" in code:
        return code
    spans = [(node, range(node.lineno - 1, node.end_lineno or node.lineno)) for node in tree.body]
    n_statements = Counter(line for _, span in spans for line in span)
    tests = [
        span for node, span in spans if isinstance(node, ast.Assert) and all(n_statements[line] == 1 for line in span)
    ]
    removed = {line for span in tests for line in span}
    if not removed:
        return code
    return "\n".join("" if number in removed else line for number, line in enumerate(code.split("\n"))).rstrip()


def parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except UNREADABLE:
        return None


def defined_names(code: str) -> set[str]:
    """Return the names of functions and classes that a program defines, also by assigning one to another name."""
    tree = parsed(code)
    names: set[str] = set()
    open_blocks: list[ast.AST] = [tree] if tree else []
    while open_blocks:
        for node in ast.iter_child_nodes(open_blocks.pop()):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Assign(targets=targets, value=ast.Lambda() | ast.Name() | ast.Attribute()):
                    names |= {target.id for target in targets if isinstance(target, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Lambda()):
                    names.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):  # not `double = double(2)`
                    names |= {name} - {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
                case ast.If() | ast.Try() | ast.With() | ast.ExceptHandler():
                    open_blocks.append(node)
                case _:
                    pass
    return names
