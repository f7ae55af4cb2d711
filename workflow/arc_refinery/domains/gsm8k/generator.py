"""Generate problems that need a calculator, as rows of GSM8K.

A problem is drawn from the stream of (seed, level, split, index). Its text alone decides its split (`split_of`), so
that no held-out text is ever in a training set, for any seeds.
"""

import hashlib
import random

from arc_refinery.refining.config.tasks import Split
from arc_refinery.seeding import stream_seed

LEVELS = (1, 2, 3)  # difficulty

_HELD_OUT_ONE_IN = 8


# By level: fewest and most operations; fewest and most digits of the numbers; share of word problems (the others are
# bare expressions)
_DIFFICULTIES = {1: ((1, 1), (3, 4), 0.3), 2: ((2, 2), (3, 4), 0.6), 3: ((3, 4), (3, 5), 0.8)}
MAX_VALUE = 10**12  # largest intermediate result

NAMES = "Anna Ben Carla David Emma Felix Greta Hugo Ida Jonas Kira Leo Mia Noah Olga Paul".split()  # noqa: SIM905
THINGS = "apples beads books bottles bricks cards coins eggs nails pencils plants shells stamps tiles".split()  # noqa: SIM905
ASKING = ("What is {}?", "Compute {}.", "Calculate {}.", "How much is {}?")


def gsm8k_row(level: int, split: Split, seed: int, index: int) -> dict[str, str]:
    """Return a problem: `question`; `answer` with one line per step, its calculation marked, and `#### number`."""
    rng = random.Random(stream_seed(seed, "gsm8k", level, split, index))
    steps, digits, stories = _DIFFICULTIES[level]
    while True:
        n_steps = rng.randint(*steps)
        question, lines, value = (_story if rng.random() < stories else _expression)(rng, n_steps, digits)
        if split_of(question) == split:
            return {"question": question, "answer": "\n".join([*lines, f"#### {value}"])}


def split_of(text: str) -> Split:
    """Return the split of a question, by its text alone: one in eight is held out."""
    is_held_out = int(hashlib.sha256(text.encode()).hexdigest(), 16) % _HELD_OUT_ONE_IN == 0
    return "heldout" if is_held_out else "train"


def _expression(rng: random.Random, n_steps: int, digits: tuple[int, int]) -> tuple[str, list[str], int]:
    """Return a question, the lines of its answer, and the value."""
    text, value = _tree(rng, n_steps, digits)
    line = f"{text} = <<{text.replace(' ', '')}={value}>>{value}"
    return rng.choice(ASKING).format(text), [line], value


def _tree(rng: random.Random, n_steps: int, digits: tuple[int, int]) -> tuple[str, int]:
    """Return an expression with `n_steps` operations and its value, a natural number up to `MAX_VALUE`."""
    if n_steps == 0:
        number = _number(rng, digits)
        return str(number), number
    while True:
        n_left = rng.randrange(n_steps)
        operation = rng.choice("+-**/")
        (left, x), (right, y) = _tree(rng, n_left, digits), _tree(rng, n_steps - 1 - n_left, digits)
        if operation == "/":  # by a divisor, so that the result is a whole number
            y = _divisor(rng, x)
            right = str(y)
            if y == 1 or n_steps - 1 - n_left:
                continue
        if operation == "-" and x < y:
            (left, x), (right, y) = (right, y), (left, x)
        value = {"+": x + y, "-": x - y, "*": x * y, "/": x // y}[operation]
        if value <= MAX_VALUE:
            return f"{_bracketed(left)} {operation} {_bracketed(right)}", value


def _bracketed(expression: str) -> str:
    return f"({expression})" if " " in expression else expression


def _number(rng: random.Random, digits: tuple[int, int]) -> int:
    n_digits = rng.randint(*digits)
    return rng.randrange(10 ** (n_digits - 1), 10**n_digits)


def _divisor(rng: random.Random, number: int) -> int:
    """Return a random divisor from 3 to 999; 1 if there is none."""
    divisors = [divisor for divisor in range(3, min(number, 1000)) if number % divisor == 0]
    return rng.choice(divisors) if divisors else 1


def _story(rng: random.Random, n_steps: int, digits: tuple[int, int]) -> tuple[str, list[str], int]:
    """Return a word problem about a number of things: question, lines of the answer, value."""
    who, things = rng.choice(NAMES), rng.choice(THINGS)
    sentences, lines, value, n_done = [], [], _number(rng, digits), 0
    if rng.random() < 0.5:
        boxes = rng.randrange(12, 100)
        sentences.append(f"{who} has {boxes} boxes with {value} {things} each.")
        lines.append(_line("There are", f"{boxes} * {value}", boxes * value, things))
        value, n_done = boxes * value, 1
    else:
        sentences.append(f"{who} has {value} {things}.")
    for _ in range(n_steps - n_done - 1):
        sentence, line, value = _event(rng, who, things, value, digits)
        sentences.append(sentence)
        lines.append(line)
    if len(lines) == n_steps:
        return " ".join([*sentences, f"How many {things} are there?"]), lines, value
    ending, line, value = _ending(rng, who, things, value, digits)
    return " ".join([*sentences, ending]), [*lines, line], value


_Event = tuple[str, str, int]  # sentence of the question, line of the answer, number after it


def _event(rng: random.Random, who: str, things: str, value: int, digits: tuple[int, int]) -> _Event:
    kind = rng.choice(("buys", "boxes", "gives", "times"))
    number = _number(rng, digits)
    if kind == "boxes":
        boxes = rng.randrange(3, 40)
        now = value + boxes * number
        sentence = f"Then {who} buys {boxes} boxes with {number} {things} each."
        return sentence, _line("Then there are", f"{value} + {boxes} * {number}", now, things), now
    if kind == "times" and value < MAX_VALUE // 100:
        times = rng.randrange(3, 30)
        sentence = f"A year later there are {times} times as many."
        return sentence, _line("Then there are", f"{times} * {value}", times * value, things), times * value
    if kind == "gives" and number < value:
        sentence = f"Then {who} gives {number} of them away."
        return sentence, _line("Then there are", f"{value} - {number}", value - number, things), value - number
    sentence = f"Then {who} buys {number} more."
    return sentence, _line("Then there are", f"{value} + {number}", value + number, things), value + number


def _ending(rng: random.Random, who: str, things: str, value: int, digits: tuple[int, int]) -> _Event:
    kind = rng.choice(("counted", "sold", "shared", "left over"))
    if kind == "counted":
        sentence, line, value = _event(rng, who, things, value, digits)
        return f"{sentence} How many {things} are there now?", line, value
    if kind == "sold":
        price = rng.randrange(3, 100)
        sentence = f"{who} sells all of them for ${price} each. How many dollars does {who} get?"
        return sentence, _line(f"{who} gets", f"{value} * {price}", value * price, "dollars"), value * price
    if kind == "shared" and (schools := _divisor(rng, value)) > 1:
        sentence = f"{who} shares them equally among {schools} schools. How many {things} does each school get?"
        return sentence, _line("Each school gets", f"{value} / {schools}", value // schools, things), value // schools
    size = rng.randrange(12, 100)
    sentence = f"{who} fills bags with {size} {things} each, as many as possible. How many {things} are left over?"
    return sentence, _line("Left over are", f"{value} % {size}", value % size, things), value % size


def _line(before: str, calculation: str, value: int, unit: str) -> str:
    return f"{before} {calculation} = <<{calculation.replace(' ', '')}={value}>>{value} {unit}."
