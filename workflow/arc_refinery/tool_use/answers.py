"""Take the answer out of the last turn of an episode.

Where the answer stands, in this order; only the last of its kind counts:

1. on the line that follows `####`
2. inside `\\boxed{...}`
3. on the line behind "answer is", "answer:" or "answer =", in any case
4. nowhere in particular: in the whole text

For a number, the first one of 1 to 3 counts, without a calculation that leads to it ("3 + 4 = 7" is 7), and the last
one of 4. A place that is marked and holds no number is no answer: nothing else is searched. So an answer is one number,
and naming several ones does not pay. It is exact: 18.0 is 18, 3.33 is not 10/3. A unit, a currency or a percent sign
says nothing. A fraction is a number where it is in its lowest terms, else a division that is left to be done.
"""

import re
import unicodedata
from fractions import Fraction
from math import gcd

MAX_CHARS = 60  # of a number

_SAID = re.compile(r"\banswer\b[\s*_]{0,8}(?:is\b|[:=])+", re.IGNORECASE)
_CALCULATION = re.compile(r"^[\s0-9.,$€£¥%()]*[0-9)]\s*[-+*/x×÷−][\s0-9.,$€£¥%+\-*/x×÷−=()]*=(?=[^=]*[0-9])")
_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}"), r"\1/\2"),
    (re.compile(r"(?:\\times|\\cdot|[×·x*])\s*10\s*\^\s*\{?\s*([-+]?\d{1,3})\s*\}?"), r"e\1"),
    (re.compile(r"(?<=\d)\s+e(?=[-+]?\d)"), "e"),
    (re.compile(r"\\text\s*\{([^{}]*)\}"), r" \1"),
    (re.compile(r"(?<=\d)(?:\{,\}|\\,|\\!)(?=\d{3})"), ","),
    (re.compile(r"\\([$%,;!: ])"), r"\1"),
)
_NUMBER = re.compile(
    r"""
    (?<![\w.]) (?<!\d[:/])                                      # not inside a word, a time, a date, a version
    (?P<sign>(?<![\w)])[-−+])? (?:[$€£¥][ ]?)? (?P<second_sign>(?<=[$€£¥])[-−])?
    (?:(?P<mixed>\d+)[ ]+(?=\d+/\d))?
    (?P<digits>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)
    (?P<exponent>[eE][-+]?\d{1,3}(?!\d))?
    (?:[ ]?/[ ]?(?P<denominator>\d+)(?!\.\d))?
    (?:[ ](?P<scale>hundred|thousand|million|billion)\b(?!-))?
    (?!\d | [:/._]\d | [eE][-+]?\d)                            # 3:30, 1/2/2026, 3.14.15, 1_000, 1e9999
    """,
    re.VERBOSE | re.ASCII,
)
_SCALES = {None: 1, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}


def final_number(text: str) -> Fraction | None:
    """The number that a text gives as its answer; None where it gives none."""
    marked = marked_answer(text)
    numbers = _numbers(text if marked is None else _CALCULATION.sub("", marked))
    if not numbers:
        return None
    return numbers[-1 if marked is None else 0]


def final_text(text: str) -> str:
    """The answer as text, made comparable: see `normalized`. Unmarked, the whole text is the answer."""
    marked = marked_answer(text)
    return normalized(text if marked is None else marked)


def marked_answer(text: str) -> str | None:
    """What a text marks as its answer; None where it marks nothing."""
    if "####" in text:
        return _line(text.rpartition("####")[2])
    if "\\boxed{" in text:
        return _braced(text.rpartition("\\boxed{")[2])
    if said := list(_SAID.finditer(text)):
        return _line(text[said[-1].end() :].lstrip(" *_:="))
    return None


def normalized(text: str) -> str:
    """Text without what does not matter: case, width of characters, runs of white space, quotes and marks around it."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" .,;:!?\"'`*_$“”‘’")


def _line(text: str) -> str:
    """The first line that is not blank."""
    return text.lstrip().partition("\n")[0]


def _braced(text: str) -> str:
    """Up to the brace that closes one before the text, or to the end."""
    depth = 1
    for index, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:index]
    return text


def _numbers(text: str) -> list[Fraction]:
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    found = (_number(match) for match in _NUMBER.finditer(text))
    return [number for number in found if number is not None]


def _number(match: re.Match[str]) -> Fraction | None:
    """The exact value of a written number; None for overlong ones, and for a division that is left to be done: 48/4."""
    if len(match[0]) > MAX_CHARS:
        return None
    number = Fraction(match["digits"].replace(",", "") + (match["exponent"] or ""))
    if match["denominator"] is not None:
        denominator = int(match["denominator"])
        if denominator < 2 or number.denominator != 1 or gcd(number.numerator, denominator) != 1:
            return None
        number /= denominator
    number = (number + int(match["mixed"] or 0)) * _SCALES[match["scale"]]
    return -number if (match["sign"] or match["second_sign"] or "+") in "-−" else number
