"""Generate problems in BARC's format from general grid operations, without using a model or any ARC task.

`generate_problem(ProblemDifficulty(max_side=4, compositions=0.0), 2, "pretraining", 0, "part1", 29)` has the source

    def main(grid):
        np.fill_diagonal(grid, 4)
        return grid

with a `generate_input`, and the examples [[0, 0], [0, 0]] -> [[4, 0], [0, 4]] and [[0, 0], [3, 0]] -> [[4, 0], [3, 4]].

Examples come from executing the source. Programs are split by their text into those that the embedded model may be
trained on and held-out ones; two different texts may still compute the same function.
"""

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice, pairwise, product
from string import Formatter
from types import CodeType
from typing import Any

import numpy as np

from arc_refinery.arc.grids import Grid, GridError, as_grid
from arc_refinery.arc.tasks import Pair, Problem, ProblemSplit
from arc_refinery.barc import common
from arc_refinery.barc.canvases import CANVASES, CHOICES, SIDE_LIMITS
from arc_refinery.barc.operations import FOLLOWING_FAMILIES, OPERATIONS, Operation
from arc_refinery.errors import InputError
from arc_refinery.seeding import stream_seed

_HELD_OUT_ONE_IN = 8
ATTEMPTS_PER_EXAMPLE = 4
_MAX_DRAWS = 20_000  # programs drawn until one fits
# For two rules: programs that others are compared with, in how many others, on how many inputs or more
_MAX_FIRST_PROGRAMS, _SECOND_PROGRAMS, _MIN_INPUTS = 3000, 12, 24
# No room for a sprite, nothing to crop, too large, no whole numbers: draw again
_NO_GRID = (ValueError, IndexError, TypeError, GridError)

_BY_FAMILY: dict[str, list[Operation]] = defaultdict(list)
for _operation in OPERATIONS:
    _BY_FAMILY[_operation.family].append(_operation)
_FAMILIES = tuple(_BY_FAMILY)
_NAMESPACE = {name: getattr(common, name) for name in common.__all__}


@dataclass(frozen=True, slots=True)
class ProblemDifficulty:
    """Limits of problems: sides of inputs, cells per example (input + output), and which programs."""

    min_side: int = 2
    max_side: int = 6
    max_cells: int = 120
    compositions: float = 0.3  # share of programs of two statements; others have one
    fixed_size: float = 0.3  # share of problems whose inputs all have the same size


@dataclass(frozen=True, slots=True)
class Statement:
    """One operation with its parameters filled in."""

    operation: Operation
    values: dict[str, str]

    @property
    def code(self) -> str:
        return self.operation.code.format(**self.values)


def program_body(statements: list[Statement]) -> str:
    """Return the lines between `def` and `return`, indented by four spaces."""
    lines = "\n".join(statement.code for statement in statements).splitlines()
    return "\n".join(f"    {line}" for line in lines)


def generate_problem(
    difficulty: ProblemDifficulty, n_examples: int, split: ProblemSplit, *address: int | str
) -> tuple[Problem, list[Statement]]:
    """Generate the problem for an address such as ``(seed, "part1", 17)``; also return the statements of its `main`.

    Equal addresses give equal problems. InputError if no program is found that fits.
    """
    seed = stream_seed(*address)
    rng = random.Random(seed)
    for _ in range(_MAX_DRAWS):
        statements = _draw_statements(rng, difficulty)
        if not _is_in(split, statements):
            continue
        canvas = _draw_canvas(rng, statements[0], difficulty)
        seeds = [rng.randrange(2**31) for _ in range(ATTEMPTS_PER_EXAMPLE * n_examples)]
        if made := _make_examples(statements, canvas, seeds, n_examples, difficulty.max_cells):
            examples, used = zip(*made, strict=True)
            source = _source(statements, canvas)
            drawn = tuple(map(str, used))
            return Problem(f"{split}-{seed:016x}", source, examples, drawn, f"generated-{split}"), statements
    raise InputError(
        f"the generator found no {split} problem among {_MAX_DRAWS:,} programs with compositions "
        f"{difficulty.compositions:g} and max_side {difficulty.max_side}; set a larger max_side or, because few "
        "programs of one operation are held out, compositions: 1.0"
    )


def generate_two_rules(
    difficulty: ProblemDifficulty, n_same: int, n_other: int, n_more: int, split: ProblemSplit, *address: int | str
) -> tuple[Problem, Problem]:
    """Generate two problems with the same inputs, whose ids end in `-a` and `-b`.

    Their outputs are equal on the first `n_same` examples and differ on the next `n_other`; on the last `n_more` they
    may do either. For example, with `n_same` 1, `np.roll(grid, 1, axis=1)` and `np.roll(grid, -1, axis=1)`: the first
    input has two columns, the others three or more. Equal addresses give equal problems. InputError if no two programs
    are found that fit.
    """
    seed = stream_seed(*address)
    rng = random.Random(seed)
    n_inputs = max(_MIN_INPUTS, ATTEMPTS_PER_EXAMPLE * (n_same + n_other + n_more))
    n_drawn = 0
    while n_drawn < _MAX_FIRST_PROGRAMS:
        first = _draw_statements(rng, difficulty)
        if not _is_in(split, first):
            continue
        n_drawn += 1
        canvas = _draw_canvas(rng, first[0], difficulty)
        drawn = [(_example(first, canvas, number), number) for number in rng.sample(range(2**31), n_inputs)]
        made = {(pair.input.shape, pair.input.tobytes()): (pair, number) for pair, number in drawn if pair}
        others = (_changed_program(first, rng, difficulty) for _ in count())
        for second in islice((other for other in others if _is_in(split, other)), _SECOND_PROGRAMS):
            tried = _both_examples([*made.values()], second, difficulty.max_cells)
            if examples := _in_order(tried, n_same, n_other, n_more):
                *outputs, used = zip(*examples, strict=True)
                seeds, rules = tuple(map(str, used)), list(zip((first, second), outputs, strict=True))
                rng.shuffle(rules)
                a, b = (
                    Problem(f"{split}-{seed:016x}-{name}", _source(rule, canvas), pairs, seeds, f"generated-{split}")
                    for name, (rule, pairs) in zip("ab", rules, strict=True)
                )
                return a, b
    raise InputError(
        f"the generator found no two {split} programs that agree on {n_same} examples and differ on {n_other}, among "
        f"{_MAX_FIRST_PROGRAMS:,} with max_side {difficulty.max_side}; set a smaller max_side or arc.n_shown_pairs"
    )


_OfBoth = tuple[Pair, Pair, int]  # an example of each of two programs, and the seed of their input


def _both_examples(made: list[tuple[Pair, int]], second: list[Statement], max_cells: int) -> list[_OfBoth]:
    """Return the examples of a program that are also examples of a second one, with another output or the same."""
    return [
        (pair, Pair(pair.input, output), seed)
        for pair, seed in made
        if (output := _output(second, pair.input)) is not None
        and pair.input.size + max(pair.output.size, output.size) <= max_cells
    ]


def _in_order(examples: list[_OfBoth], n_same: int, n_other: int, n_more: int) -> list[_OfBoth] | None:
    """Return `n_same` examples with equal outputs, `n_other` with different ones and `n_more`; None without as many."""
    same: list[int] = []
    other: list[int] = []
    for index, (first, second, _) in enumerate(examples):
        (same if np.array_equal(first.output, second.output) else other).append(index)
    more = sorted(same[n_same:] + other[n_other:])[:n_more]
    if len(same) < n_same or len(other) < n_other or len(more) < n_more:
        return None
    return [examples[index] for index in same[:n_same] + other[:n_other] + more]


def wrong_program(
    statements: list[Statement], rng: random.Random, difficulty: ProblemDifficulty, start_share: float
) -> list[Statement]:
    """Return another program of the same kind: its start, its end, one statement changed, or an unrelated one.

    `start_share` is how often it is the start of a composed program. The text is never held out.
    """
    while True:
        if len(statements) > 1 and rng.random() < start_share:
            changed = statements[: rng.randrange(1, len(statements))]
        else:
            changed = _changed_program(statements, rng, difficulty)
        if _is_in("pretraining", changed):
            return changed


def _changed_program(statements: list[Statement], rng: random.Random, difficulty: ProblemDifficulty) -> list[Statement]:
    choice = rng.random()
    if len(statements) > 1 and choice < 0.1:
        return statements[1:]
    if choice > 0.6:
        return _draw_statements(rng, difficulty)
    index = len(statements) - 1 if rng.random() < 0.7 else 0
    keeps = rng.random() < 0.5
    changed = _fill(rng, statements[index].operation) if keeps else _draw_statement(rng, index)
    return [*statements[:index], changed, *statements[index + 1 :]]


def broken_programs(body: str, rng: random.Random) -> Iterator[str]:
    """Yield, for the body of a generated program, those with one statement exchanged or left out, in random order.

    Exchanged are a statement's parameters, or its operation. The text is never held out. None for another program.
    """
    statements = _statements_of(re.sub("^ {4}", "", body, flags=re.MULTILINE)) or []
    changed = [statements[:index] + statements[index + 1 :] for index in range(len(statements)) if len(statements) > 1]
    for index, statement in enumerate(statements):
        parameters = statement.operation.parameters
        fillings = [dict(zip(parameters, values, strict=True)) for values in product(*parameters.values())]
        families = _FAMILIES if index == 0 else FOLLOWING_FAMILIES
        others = [
            *(Statement(statement.operation, values) for values in fillings if _differ(values)),
            *(_fill(rng, operation) for operation in OPERATIONS if operation.family in families),
        ]
        changed += [[*statements[:index], other, *statements[index + 1 :]] for other in others]
    rng.shuffle(changed)
    for program in changed:
        text = program_body(program)
        if text != body and _is_in("pretraining", program):
            yield text


def _statements_of(code: str) -> list[Statement] | None:
    """Return the statements that have this code; None if it is not generated."""
    if not code:
        return []
    for operation in OPERATIONS:
        if (start := _pattern(operation.code).match(code)) and all(
            value in operation.parameters[name] for name, value in start.groupdict().items()
        ):
            rest = _statements_of(code[start.end() :])
            if rest is not None:
                return [Statement(operation, start.groupdict()), *rest]
    return None


@lru_cache(maxsize=1024)
def _pattern(code: str) -> re.Pattern[str]:
    """Return what matches an operation's code with any values in its placeholders, and the end of its line."""
    pattern, names = "", set[str]()
    for text, name, _, _ in Formatter().parse(code):
        pattern += re.escape(text)
        if name:
            pattern += f"(?P={name})" if name in names else f"(?P<{name}>-?[0-9]+)"
            names.add(name)
    return re.compile(rf"{pattern}(?:\n|\Z)")


def run_statements(statements: list[Statement], grid: Grid) -> list[Any]:
    """Return the grid after each statement. Only for the generator's own programs: they run without a sandbox."""
    steps: list[Any] = []
    value: Any = grid.astype(np.int64)
    for statement in statements:
        value = _execute(statement.code, np.array(value))
        steps.append(value)
    return steps


def _is_in(split: ProblemSplit, statements: list[Statement]) -> bool:
    """Whether a split has this program: one in eight (by text) is held out, and pretraining never sees it.

    A single statement with few fillings always belongs to pretraining: nothing else would teach it.
    """
    is_always_seen = len(statements) == 1 and statements[0].operation.n_fillings < _HELD_OUT_ONE_IN
    is_held_out = not is_always_seen and has_held_out_text(program_body(statements))
    return is_held_out == (split == "heldout")


def has_held_out_text(body: str) -> bool:
    """Whether the text between `def` and `return` is held out, without the exception for single statements."""
    return int(hashlib.sha256(body.encode()).hexdigest(), 16) % _HELD_OUT_ONE_IN == 0


def _draw_statements(rng: random.Random, difficulty: ProblemDifficulty) -> list[Statement]:
    statements = [_draw_statement(rng, 0)]
    if rng.random() < difficulty.compositions:
        statements.append(_draw_statement(rng, 1))
    return statements


def _draw_statement(rng: random.Random, index: int) -> Statement:
    families = _FAMILIES if index == 0 else [family for family in _FAMILIES if family in FOLLOWING_FAMILIES]
    return _fill(rng, rng.choice(_BY_FAMILY[rng.choice(families)]))


def _fill(rng: random.Random, operation: Operation) -> Statement:
    while True:
        values = {name: rng.choice(choices) for name, choices in operation.parameters.items()}
        if _differ(values):
            return Statement(operation, values)


def _differ(values: dict[str, str]) -> bool:
    """Whether no colour is exchanged for itself."""
    return "a" not in values or values["a"] != values.get("b")


def _draw_canvas(rng: random.Random, first: Statement, difficulty: ProblemDifficulty) -> str:
    kind = first.operation.canvas
    least, most = SIDE_LIMITS.get(kind, (2, 30))
    kind = rng.choice(CHOICES.get(kind, (kind,)))
    kind_least, kind_most = SIDE_LIMITS.get(kind, (2, 30))
    low = max(difficulty.min_side, least, kind_least)
    high = max(low, min(difficulty.max_side, most, kind_most))
    if rng.random() < difficulty.fixed_size:
        low = high = rng.randint(low, high)
    read = [first.values[name] for name in first.operation.reads]
    wanted = rng.randint(1, 4)
    pool = [color for color in map(str, range(1, 10)) if color not in read]
    if rng.random() < 0.5:
        colors = f"[{', '.join(read + rng.sample(pool, wanted))}]"
    else:
        colors = f"[{', '.join(read)}] + random.sample([{', '.join(pool)}], {wanted})"
    if kind in ("dense", "square") and rng.random() < 0.5:
        colors += " + [0]"
    return CANVASES[kind].format(low=low, high=high, colors=colors, k=first.values.get("k", 2), line=rng.randint(0, 1))


def _make_examples(
    statements: list[Statement], canvas: str, seeds: list[int], n_examples: int, max_cells: int
) -> list[tuple[Pair, int]] | None:
    """Return (example, seed) for the first `n_examples` seeds that give good examples, or None if too few do."""
    made: list[tuple[Pair, int]] = []
    for tried, seed in enumerate(seeds):
        if len(seeds) - tried < n_examples - len(made):
            return None
        pair = _example(statements, canvas, seed)
        if pair is None or pair.input.size + pair.output.size > max_cells:
            continue
        if all(not np.array_equal(pair.input, other.input) for other, _ in made):
            made.append((pair, seed))
        if len(made) == n_examples:
            outputs = {pair.output.tobytes() for pair, _ in made}
            return made if len(outputs) > 1 else None
    return None


def _example(statements: list[Statement], canvas: str, seed: int) -> Pair | None:
    """Return the pair for a seed; None if the canvas or a statement fails, changes nothing or leaves only black."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        grid = as_grid(_execute(canvas, None))
    except _NO_GRID:
        return None
    output = _output(statements, grid)
    return None if output is None else Pair(grid, output)


def _output(statements: list[Statement], grid: Grid) -> Grid | None:
    """Return a program's output; None if a statement fails, changes nothing or leaves only black."""
    try:
        steps = [grid, *map(as_grid, run_statements(statements, grid))]
    except _NO_GRID:
        return None
    changes = [*pairwise(steps), (steps[0], steps[-1])]  # the last pair: a statement may undo the one before
    if any(np.array_equal(before, after) for before, after in changes) or not steps[-1].any():
        return None
    return steps[-1]


@lru_cache(maxsize=65536)
def _compiled(code: str) -> CodeType:
    return compile(code, "<generated>", "exec")


def _execute(code: str, grid: Any) -> Any:
    """Execute `code` on a grid and return the variable `grid` afterwards."""
    namespace = {**_NAMESPACE, "grid": grid}
    exec(_compiled(code), namespace)
    return namespace["grid"]


def _source(statements: list[Statement], canvas: str) -> str:
    concepts = ", ".join(dict.fromkeys(statement.operation.family for statement in statements))
    generate_input = "\n".join(f"    {line}" for line in canvas.splitlines())
    body = program_body(statements)
    return (
        f"from common import *\n\n# concepts:\n# {concepts}\n\n\ndef main(grid):\n{body}\n    return grid\n\n\n"
        f"def generate_input():\n{generate_input}\n    return grid\n"
    )
