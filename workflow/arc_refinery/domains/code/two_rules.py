"""Pairs of tasks with one text and two rules: only a check that feedback reveals tells which rule is meant.

    Write a function `sort_by_length(words)` that sorts the words in a list by their length, shortest first.

shown               assert sort_by_length(['kite', 'rain', 'cat', 'hat']) == ['cat', 'hat', 'kite', 'rain']
two-rules-0425-a    ... == ['nest', 'door', 'boat', 'goat', 'tiger'] of ['nest', 'door', 'boat', 'tiger', 'goat']
two-rules-0425-b    ... == ['boat', 'door', 'goat', 'nest', 'tiger']

A pair is an open point (open_points.py), here the order of words of equal length, with or without a step before it and
one after it that both rules share. The rules agree on the shown test, and differ on each revealed and hidden one. A
number names the same pair whatever the seed: a seed selects the half of the open points, and the order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice, product, zip_longest
from string import Template
from typing import Any

from arc_refinery.domains.code.open_points import FIRST_HALF, SECOND_HALF, OpenPoint
from arc_refinery.seeding import stream

NAME = "two-rules"
N_REVEALED, N_HIDDEN = 2, 4
MOST_VARIANTS = 12  # of one open point, so that none has most of the pairs
_N_DRAWS = 3000
_MOST_EQUAL = 3  # results of one rule on revealed and hidden tests: a constant is never right on all
_LONGEST_INPUT = 72  # characters

Step = tuple[str, str]  # what a text says, and its expression; ("", "") is no step
_NUMBERS = (
    ("double every number in `$x`", "[2 * n for n in $x]"),
    ("add 3 to every number in `$x`", "[n + 3 for n in $x]"),
    ("leave out the first number in `$x`", "$x[1:]"),
    ("leave out the last number in `$x`", "$x[:-1]"),
)
_ENDS = (("leave out the first element of `$x`", "$x[1:]"), ("leave out the last element of `$x`", "$x[:-1]"))
_CHARACTERS = (
    ("remove the first character of `$x`", "$x[1:]"),
    ("remove the last character of `$x`", "$x[:-1]"),
)
BEFORE: dict[str, tuple[Step, ...]] = {
    "": (),
    "number": (("add 1 to `$x`", "$x + 1"), ("add 10 to `$x`", "$x + 10"), ("double `$x`", "2 * $x")),
    "numbers": (
        *_NUMBERS,
        ("drop all odd numbers from `$x`", "[n for n in $x if n % 2 == 0]"),
        ("drop all even numbers from `$x`", "[n for n in $x if n % 2]"),
    ),
    "in order": (_NUMBERS[0], *_NUMBERS[2:]),  # whose differences count
    "sorted": _NUMBERS[1:],
    "words": (
        ("leave out the first word in `$x`", "$x[1:]"),
        ("leave out the last word in `$x`", "$x[:-1]"),
        ("drop all words that contain the letter `a` from `$x`", "[word for word in $x if 'a' not in word]"),
        ("remove the first letter of every word in `$x`", "[word[1:] for word in $x]"),
    ),
    "strings": _ENDS,
    "characters": _CHARACTERS,
    "text": (
        *_CHARACTERS,
        ("remove every letter `e` from `$x`", "$x.replace('e', '')"),
    ),
    "grid": (
        ("reverse the order of the rows of `$x`", "$x[::-1]"),
        ("add 1 to every number in `$x`", "[[n + 1 for n in row] for row in $x]"),
    ),
}
_REVERSE = ("reverse the resulting list", "$x[::-1]")
_DECORATE = (
    ("reverse the resulting string", "$x[::-1]"),
    ("put square brackets around the result", "f'[{$x}]'"),
    ("add an exclamation mark to the end of the result", "$x + '!'"),
)
AFTER: dict[str, tuple[Step, ...]] = {
    "": (),
    "number": (
        ("add 3 to the result", "$x + 3"),
        ("double the result", "2 * $x"),
        ("convert the result to a string", "str($x)"),
    ),
    "numbers": (
        _REVERSE,
        ("add 1 to every number in the result", "[n + 1 for n in $x]"),
        ("double every number in the result", "[2 * n for n in $x]"),
        ("join the resulting numbers with commas to a string", "','.join(map(str, $x))"),
    ),
    "list": (_REVERSE, ("convert the resulting list to a tuple", "tuple($x)")),
    "words": (
        _REVERSE,
        ("write every word in the result in upper case", "[word.upper() for word in $x]"),
        ("join the resulting words with dashes to a string", "'-'.join($x)"),
    ),
    "strings": (_REVERSE, ("join the resulting strings with dashes to one string", "'-'.join($x)")),
    "cased": _DECORATE,
    "text": (("convert the result to upper case", "$x.upper()"), *_DECORATE),
    "grid": (
        ("add 1 to every number in the result", "[[n + 1 for n in row] for row in $x]"),
        ("double every number in the result", "[[2 * n for n in row] for row in $x]"),
    ),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """An open point with the steps before and after it."""

    number: int
    point: OpenPoint
    k: Any
    before: Step
    after: Step

    @property
    def first_arg(self) -> str:
        return self.point.args.split(",")[0]

    @property
    def text(self) -> str:
        what = Template(self.point.text).substitute(k=self.k)
        sentences = [f"Write a function `{self.point.name}({self.point.args})` that {what}."]
        if self.before[0]:
            sentences.append(f"Before doing so, {_filled(self.before[0], self.first_arg)}.")
        if self.after[0]:
            sentences.append(f"Finally, {self.after[0]}.")
        return " ".join(sentences)

    def program(self, rule: str) -> str:
        arg = self.first_arg
        code = Template(Template(self.point.code).safe_substitute(rule=rule)).substitute(k=self.k)
        *lines, result = code.split("\n")
        before = [f"{arg} = {_filled(self.before[1], arg)}"] if self.before[1] else []
        end = [f"result = {result}", f"return {_filled(self.after[1], 'result')}"]
        body = [*before, *lines, *(end if self.after[1] else [f"return {result}"])]
        return "\n".join([f"def {self.point.name}({self.point.args}):", *(f"    {line}" for line in body)]) + "\n"


def n_pairs(seed: int) -> int:
    """Return the number of pairs of a seed."""
    return len(_variants(seed % 2))


def rows(n_wanted: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the two rows of each of the first pairs of a seed.

    Even seeds and odd ones have no pair in common. The first pairs are of different open points.
    """
    for variant in islice(_in_order(seed), n_wanted):
        yield from pair(variant)


def _in_order(seed: int) -> Iterator[Variant]:
    """Yield one variant of each open point, then a second one of each, ..."""
    by_point: dict[str, list[Variant]] = {}
    for variant in _variants(seed % 2):
        by_point.setdefault(variant.point.name, []).append(variant)
    orders = [[of_point[i] for i in _permutation(len(of_point), seed, name)] for name, of_point in by_point.items()]
    for number, turn in enumerate(zip_longest(*orders)):
        yield from filter(None, (turn[i] for i in _permutation(len(turn), seed, "turn", number)))


def _permutation(n: int, *address: int | str) -> list[int]:
    return [int(i) for i in stream(NAME, *address).permutation(n)]


def _variants(half: int) -> list[Variant]:
    numbers = count(1)
    halves = [
        [Variant(next(numbers), *parts) for point in points for parts in _parts(point)]
        for points in (FIRST_HALF, SECOND_HALF)
    ]
    return halves[half]


def _parts(point: OpenPoint) -> list[tuple[OpenPoint, Any, Step, Step]]:
    none = ("", "")
    parts = list(product([point], point.k, (none, *BEFORE[point.takes]), (none, *AFTER[point.gives])))
    return [parts[i] for i in _permutation(len(parts), "variants", point.name)[:MOST_VARIANTS]]


def pair(variant: Variant) -> Iterator[dict[str, Any]]:
    """Yield the two rows of a pair."""
    rng = stream(NAME, "pair", variant.text)
    programs = [variant.program(rule) for rule in variant.point.rules]
    if rng.random() < 0.5:
        programs.reverse()
    shown, separating = _inputs(variant, [_function(program, variant.point.name) for program in programs], rng)
    for index, program in enumerate(programs):
        tests = [
            f"assert {variant.point.name}({', '.join(map(repr, args))}) == {_literal(results[index])}"
            for args, results in [shown, *separating]
        ]
        yield {
            "task_id": f"{NAME}-{variant.number:04}-{'ab'[index]}",
            "prompt": variant.text,
            "tests": tests[:1],
            "revealed_tests": tests[1 : 1 + N_REVEALED],
            "hidden_tests": tests[1 + N_REVEALED :],
            "reference": program,
        }


_Case = tuple[tuple[Any, ...], list[Any]]  # arguments, and the result of each rule


def _inputs(variant: Variant, functions: list[Callable[..., Any]], rng: Any) -> tuple[_Case, list[_Case]]:
    """Return an input on which the rules agree, if possible one with a result of its own, and those that separate."""
    agreeing: list[_Case] = []
    separating: list[_Case] = []
    is_telling = False
    for args, results in _cases(variant, functions, rng):
        if results[0] == results[1]:
            if not is_telling:
                is_telling = results[0] not in ([], "", args[0])
                agreeing.append((args, results))
        elif len(separating) < N_REVEALED + N_HIDDEN and all(
            sum(known[rule] == results[rule] for _, known in separating) < _MOST_EQUAL for rule in range(2)
        ):
            separating.append((args, results))
        if is_telling and len(separating) == N_REVEALED + N_HIDDEN:
            break
    assert agreeing and len(separating) == N_REVEALED + N_HIDDEN, variant.text
    return agreeing[-1 if is_telling else 0], separating


def _cases(variant: Variant, functions: list[Callable[..., Any]], rng: Any) -> Iterator[_Case]:
    """Yield different short inputs that the step before changes."""
    arg, step = variant.first_arg, variant.before[1]
    before = _function(f"def before({arg}): return {_filled(step, arg)}", "before")
    known: set[str] = set()
    for _ in range(_N_DRAWS):
        args = variant.point.draw(rng, variant.k)
        key = repr(args)
        if key in known or len(key) > _LONGEST_INPUT or (step and before(args[0]) == args[0]):
            continue
        known.add(key)
        try:
            yield args, [function(*args) for function in functions]
        except (ValueError, IndexError, ZeroDivisionError):  # of an empty list
            continue


def _function(program: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    function: Callable[..., Any] = namespace[name]
    return function


def _literal(result: Any) -> str:
    # in the order in which a rule fills a dictionary, a shown test would tell the rule
    return repr(dict(sorted(result.items())) if isinstance(result, dict) else result)


def _filled(text: str, name: str) -> str:
    return Template(text).substitute(x=name)
