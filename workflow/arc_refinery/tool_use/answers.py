"""Take the answer out of the last turn of an episode.

The answer is in the first of these places that the text has. Of several of one kind, the last counts:

1. on the line after `####`
2. inside `\\boxed{...}`
3. on the line after "answer is", "answer:" or "answer =", in any case
4. if none of these: in the whole text

A number is the first one in 1 to 3, or the last one in 4. What leads to the first one does not count: a calculation
("3 boxes x 4 = 12" is 12), a label ("Step 3: 18"), a denial ("not 19 but 18"). A marked place without a number is not
an answer, and nothing else is searched. A choice or a range ("18 or 19", "18-20") is not an answer, so naming several
numbers does not pay. Numbers are exact: 18.0 is 18, 3.33 is not 10/3. Units, currencies and percent signs are ignored.
A fraction is a number only in lowest terms; otherwise it is an uncomputed division.
"""

import re
import unicodedata
from fractions import Fraction
from itertools import pairwise
from math import gcd

_MAX_CHARS = 60  # per number

_ANSWER_IS = re.compile(r"\banswer\b[\s*_]{0,8}(?:is\b|[:=])+", re.IGNORECASE)
# what leads to a number, in this order
_LEADS = (
    re.compile(r"^\W*not\b(?! only)(?:[^.;]|\.(?=\d))*?\bbut\b"),
    re.compile(r"^\W*[A-Za-z]+(?: \d+)?:(?=\s[^:]*\d)"),
    re.compile(r"^[\s0-9.,$€£¥%()]*[0-9)]\s*[-+*/x×÷−][\s0-9.,$€£¥%+\-*/x×÷−=()]*=(?=[^=]*[0-9])"),
    re.compile(r"^[\s$€£¥]*[\d.,]+%?(?:\s[A-Za-z]+){1,3}\s[+*/x×÷]\s[\w\s.,$€£¥%+*/×÷]*=(?=[^=]*[0-9])"),
)
_SPACED_SIGN = re.compile(r"(####[ \t]?[-−])[ \t](?=[$€£¥]?[ \t]?\.?\d)")
_TEXT = (re.compile(r"\\text\s*\{([^{}]*)\}"), r" \1")
_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}"), r"\1/\2"),
    (re.compile(r"(?:\\times|\\cdot|[×·x*])\s*10\s*\^\s*\{?\s*([-+]?\d{1,3})\s*\}?"), r"e\1"),
    (re.compile(r"(?<=\d)\s+e(?=[-+]?\d)"), "e"),
    _TEXT,
    (re.compile(r"(?<=\d)(?:\{,\}|\\,|\\!)(?=\d{3})"), ","),
    (re.compile(r"\\([$%,;!: ])"), r"\1"),
    (re.compile(r"\bRs\.\s?(?=\d)"), ""),
)
_NUMBER = re.compile(
    r"""
    (?<![\w.]) (?<!\d[:/])                                      # not inside a word, a time, a date, a version
    (?P<sign>(?<![\w)])[-−–+])? (?:[$€£¥][ ]?)? (?P<second_sign>(?<=[$€£¥])[-−–])?
    (?:(?P<mixed>\d+)[ ]+(?=\d+/\d))?
    (?P<digits>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)
    (?P<exponent>[eE][-+]?\d{1,3}(?!\d))?
    (?:[ ]?/[ ]?(?P<denominator>\d+)(?!\.\d))?
    (?:[ ](?P<scale>hundred|thousand|million|billion)\b(?!-))?
    (?!\d | [:/._]\d | [eE][-+]?\d)                            # 3:30, 1/2/2026, 3.14.15, 1_000, 1e9999
    """,
    re.VERBOSE | re.ASCII,
)
# between two numbers; a word before "or" is also behind the second one: "18 apples or 19 apples"
_CHOICE = re.compile(
    r"[\s*$€£¥]*(?:[-−–,]|to|(?:,\s*)?or|and|and/or|vs\.?)[\s*$€£¥]*|\s(?P<word>[a-z]{1,20})\s+or\s+", re.IGNORECASE
)
_SCALES = {None: 1, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}


def final_number(text: str) -> Fraction | None:
    """Return the number that a text gives as its answer, or None."""
    marked = marked_answer(_SPACED_SIGN.sub(r"\1", text))
    if marked is None:
        return next((number for number, _ in reversed(_numbers(text))), None)
    for lead in _LEADS:
        marked = lead.sub("", marked)
    numbers = _numbers(marked)
    return numbers[0][0] if numbers and not numbers[0][1] else None


def final_text(text: str) -> str:
    """Return the answer as `normalized` text; if none is marked, the whole text."""
    marked = marked_answer(text)
    return normalized(text if marked is None else marked)


def marked_answer(text: str) -> str | None:
    """Return the text marked as the answer, or None."""
    if "####" in text:
        return _line(text.rpartition("####")[2])
    if "\\boxed{" in text:
        return _braced(text.rpartition("\\boxed{")[2])
    if found := list(_ANSWER_IS.finditer(text)):
        return _line(text[found[-1].end() :].lstrip(" *_:="))
    return None


def normalized(text: str) -> str:
    """Return text in folded case and character width, single spaces, and no `\\text{}`, no punctuation around it."""
    pattern, plain = _TEXT
    text = pattern.sub(plain, text)
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" .,;:!?\"'`*_$“”‘’")


def _line(text: str) -> str:
    """Return the first line that is not blank."""
    return text.lstrip().partition("\n")[0]


def _braced(text: str) -> str:
    """Return the text up to the brace that closes one opened before it, or to the end."""
    depth = 1
    for index, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:index]
    return text


def _numbers(text: str) -> list[tuple[Fraction, bool]]:
    """Return all numbers, each with whether another one follows as its alternative."""
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    found = list(_NUMBER.finditer(text))
    chosen = [_is_choice(text, match, after) for match, after in pairwise(found)]
    numbers = [(_number(match), is_one) for match, is_one in zip(found, [*chosen, False], strict=False)]
    return [(number, is_one) for number, is_one in numbers if number is not None]


def _is_choice(text: str, match: re.Match[str], after: re.Match[str]) -> bool:
    gap = _CHOICE.fullmatch(text, match.end(), after.start("digits"))
    if gap is None or _number(match) == _number(after):
        return False
    return gap["word"] is None or text.startswith(gap["word"], after.end() + 1)


def _number(match: re.Match[str]) -> Fraction | None:
    """Return the exact value of a written number; None for overlong ones and uncomputed divisions such as 48/4."""
    if len(match[0]) > _MAX_CHARS:
        return None
    number = Fraction(match["digits"].replace(",", "") + (match["exponent"] or ""))
    if match["denominator"] is not None:
        denominator = int(match["denominator"])
        if denominator < 1 or number.denominator != 1 or gcd(number.numerator, denominator) != 1:
            return None
        number /= denominator
    number = (number + int(match["mixed"] or 0)) * _SCALES[match["scale"]]
    return -number if (match["sign"] or match["second_sign"] or "+") in "-−–" else number
