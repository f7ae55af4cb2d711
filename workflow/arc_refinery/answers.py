"""Take the answer out of the last turn of an episode.

The answer is in the first of these places that the text has. Of several of one kind, the last counts:

1. on the line after `####`, unless the line is a heading
2. inside `\\boxed{...}`
3. inside `<answer>...</answer>`
4. on the line after "answer is", "answer:" or "answer =", in any case
5. after `####` on the last line
6. if the answer is marked in none of these ways: on the line below the heading "Final Answer"
7. otherwise in the whole text

Where the answer is a number, the line of 1 is a heading unless it begins with one ("#### $18"); a numbered title is a
heading, too ("#### 2. Add"). Where it is a text, every line but the last is. If a text is marked in none of these ways,
any line after `####` counts.

A number is the first one in 1 to 6, or the last one in 7. What leads to the first one does not count: a calculation
("3 boxes x 4 = 12" is 12), a label ("Step 3: 18", "Total cost = 18"), a denial ("not 19 but 18"). A marked place
without a number is not an answer, and nothing else is searched; an empty one is not marked. A choice or a range ("18
or 19", "18-20") is not an answer, so naming several numbers does not pay. Numbers are exact: 18.0 is 18, 3.33 is not
10/3. Units, currencies and percent signs are ignored; 70K is 70000. A power or a root is not computed, so 10^3 is not
a number. Commas, spaces and apostrophes may separate thousands. A fraction is a number only in lowest terms; otherwise
it is an uncomputed division.
"""

import re
import unicodedata
from fractions import Fraction
from itertools import pairwise
from math import gcd

_MAX_CHARS = 60  # per number

_MONEY = "$€£¥₹"
_MARK = re.compile(r"#{4,}\s*((?:(?!####)[^\n])*)")
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_ANSWER_IS = re.compile(r"(?<!/)\banswer\b[\s*_]{0,8}(?:is\b|[:=])+", re.IGNORECASE)
_ANSWER_HEADING = re.compile(
    r"^[ \t#*_]*(?:the[ ])?(?:final[ ])?answer[ \t#*_]*\n(?=\s*\S)", re.IGNORECASE | re.MULTILINE
)
_OPENING = re.compile(r"\A(?:\s|\*|\$\$|\\[\[(])+")
_BEGINS_WITH_NUMBER = re.compile(r"(?:[^\w\\]|_)*(?:[A-Za-z]\s?=|USD?|EUR|GBP|INR|Rs\.?)?[^\w\\]*(?:[0-9]|\\)")
_NUMBERED_TITLE = re.compile(r"\W*\d{1,2}(?:\.\d{1,2})*(?:[.):][\s*_]+[A-Za-z]|\s+[*_]*[A-Z][a-z])")
_TIMES = re.compile(r"\\(?:times|cdot|div)(?![A-Za-z])|[·⋅]")  # any operator does: its result is written behind it
# Texts before an answer that are not part of it, removed in this order
_LEADS = (
    re.compile(r"<<[^<>]*>>"),  # GSM8K's annotations
    re.compile(r"^\W*not\b(?! only)(?:[^.;]|\.(?=\d))*?\bbut\b"),
    re.compile(r"^\W*[A-Za-z]+(?: [A-Za-z]+){0,5}(?:(?: \d+)?:| =)(?=\s[^:]*\d)"),
    re.compile(
        rf"^[\s0-9.,{_MONEY}%()]*(?:[0-9)]\s*[-+*/x×÷−]|%\s*of\s)[\s0-9.,{_MONEY}%+\-*/x×÷−=()]*=(?=[^=]*[0-9])"
    ),
    re.compile(rf"^[\s{_MONEY}]*[\d.,]+%?(?:\s[A-Za-z]+){{1,3}}\s[+*/x×÷]\s[\w\s.,{_MONEY}%+*/×÷]*=(?=[^=]*[0-9])"),
)
_SPACED_SIGN = re.compile(rf"((?<!#)#{{4,}}[ \t]?[-−])[ \t](?=[{_MONEY}]?[ \t]?\.?\d)")
_TEXT = (re.compile(r"\\text\s*\{([^{}]*)\}"), r" \1")
_THOUSANDS = re.compile(
    r"(?<![\w.,/:]) (?<!\d[ ]) [1-9]\d{0,2}"
    r"(?P<mark>\{,\} | \\[,!;:\ ] | [~'’ \u00a0\u2007\u2009\u202f]) \d{3} (?:(?P=mark)\d{3})*"
    r"(?! \d | [ ]?/\d+(?![ \d]*=) | (?P=mark)\d | -[A-Za-z])",
    re.VERBOSE | re.ASCII,
)
_LATEX = (
    (re.compile(r"(?<=\d)(?:\\[,;:! ]|[~\s])*(?=\\[cdst]?frac)"), " "),
    (
        re.compile(r"\\[cdst]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))"),
        r"\1\2/\3\4",
    ),
    (re.compile(r"(?:\\times|\\cdot|[×·x*])\s*10\s*\^\s*\{?\s*([-+]?\d{1,3})\s*\}?"), r"e\1"),
    (re.compile(r"(?<=\d)\s+e(?=[-+]?\d)"), "e"),
    _TEXT,
    (re.compile(r"(?<=\d)(?:\{,\}|\\,|\\!)(?=\d{3})"), ","),
    (re.compile(r"\\([$%,;!: ])"), r"\1"),
    (re.compile(r"\bRs\.\s?(?=\d)"), ""),
)
_NUMBER = re.compile(
    rf"""
    (?<![\w.]) (?<!\d[:/])                                      # not inside a word, a time, a date, a version
    (?<!\^) (?<!\^\{{) (?<!sqrt\{{)                              # cm^2, \sqrt{{16}}
    (?P<sign>(?<![\w)])[-−–+])? (?P<money>[{_MONEY}][ ]?)? (?P<second_sign>(?<=[{_MONEY}])[-−–])?
    (?:(?P<mixed>\d+)[ ]+(?=\d+/\d))?
    (?P<digits>(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d{{1,2}}(?:,\d{{2}})+,\d{{3}}(?!\d)|\d+)(?:\.\d+)?|\.\d+)
    (?P<exponent>[eE][-+]?\d{{1,3}}(?!\d))?
    (?:[ ]?/[ ]?(?P<denominator>\d+)(?!\.\d))?
    (?:(?P<letter>(?(money)[ ]?(?:[kK]|[mM]n?|[bB]n?)|[kKM]))(?!\w|[ ]?=|[ ]?[-+*/][ ]?[\d.]+[ ]?=))?  # not 4K = 96
    (?:[ ](?P<scale>hundred|thousand|lakh|million|crore|billion|trillion)s?\b(?!-))?
    (?!\d | [:/._]\d | [eE][-+]?\d)                            # 3:30, 1/2/2026, 3.14.15, 1_000, 1e9999
    (?![ ]?\^[ ]?\{{?[-\d] | [²³])                              # 10^3
    """,
    re.VERBOSE | re.ASCII,
)
# between two numbers; a word before "or" is also behind the second one: "18 apples or 19 apples"
_CHOICE = re.compile(
    rf"[\s*{_MONEY}]*(?:[-−–,]|to|(?:,\s*)?or|and|and/or|vs\.?)[\s*{_MONEY}]*|\s(?P<word>[a-z]{{1,20}})\s+or\s+",
    re.IGNORECASE,
)
# full-width marks, and the slash of a fraction
_ASCII = {0xFF01 + index: 0x21 + index for index in range(94)} | {0x2044: "/"}
_SCALES = {
    "k": 1000,
    "m": 10**6,
    "b": 10**9,
    "hundred": 100,
    "thousand": 1000,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}


def final_number(text: str) -> Fraction | None:
    """Return the number that a text gives as its answer, or None."""
    marked = marked_number(text) or _below_heading(text)
    if marked is None:
        return next((number for number, _ in reversed(_numbers(_plain_digits(text)))), None)
    marked = _TIMES.sub("*", marked)
    for lead in _LEADS:
        marked = lead.sub("", marked)
    numbers = _numbers(marked)
    return numbers[0][0] if numbers and not numbers[0][1] else None


def final_text(text: str) -> str:
    """Return the answer as `normalized` text; if none is marked, the whole text."""
    lines = (line[1] for line in reversed(list(_MARK.finditer(text))))
    marked = marked_text(text) or _below_heading(text) or next((line for line in lines if line.strip()), None)
    return normalized(text if marked is None else marked)


def marked_number(text: str) -> str | None:
    """Return the text marked as the answer where that is a number, or None."""
    text = _SPACED_SIGN.sub(r"\1", _plain_digits(text))
    lines = list(_MARK.finditer(text))
    numbers = (line[1] for line in reversed(lines) if _BEGINS_WITH_NUMBER.match(line[1]))
    number = next((line for line in numbers if not _NUMBERED_TITLE.match(line)), None)
    return number or _otherwise_marked(text) or (_last_line(text, lines) or None)


def marked_text(text: str) -> str | None:
    """Return the text marked as the answer where that is a text, or None."""
    return _last_line(text, list(_MARK.finditer(text))) or _otherwise_marked(text)


def _below_heading(text: str) -> str | None:
    """Return the line below the last heading "Final Answer"; it is a place for the answer, not a mark."""
    headings = list(_ANSWER_HEADING.finditer(_plain_digits(text)))
    return _line(headings[-1].string[headings[-1].end() :]) if headings else None


def _last_line(text: str, lines: list[re.Match[str]]) -> str:
    """Return what follows the last `####`, if it is the last line."""
    return lines[-1][1].strip() if lines and not text[lines[-1].end() :].strip() else ""


def _otherwise_marked(text: str) -> str | None:
    """Return the text marked as the answer in another way than by `####`."""
    if "\\boxed{" in text and (boxed := _braced(text.rpartition("\\boxed{")[2])).strip():
        return boxed
    if tagged := [match[1] for match in _ANSWER_TAG.finditer(text) if match[1].strip()]:
        return str(tagged[-1])
    said = [_line(text[match.end() :].lstrip(" *_:=")) for match in _ANSWER_IS.finditer(text)]
    return next((line for line in reversed(said) if line.strip(" *_#")), None)


def normalized(text: str) -> str:
    """Return text in folded case and character width, single spaces, and no `\\text{}`, no punctuation around it."""
    pattern, plain = _TEXT
    text = pattern.sub(plain, text)
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" .,;:!?\"'`*_$“”‘’")


def _line(text: str) -> str:
    """Return the first line with more than signs that open a formula or bold text."""
    return _OPENING.sub("", text).partition("\n")[0]


def _braced(text: str) -> str:
    """Return the text up to the brace that closes one opened before it, or to the end."""
    depth = 1
    for index, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:index]
    return text


def _plain_digits(text: str) -> str:
    """Return text with digits of other scripts and widths as those of ASCII, and ½ as 1/2."""
    if text.isascii():
        return text
    text = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", text)
    text = re.sub("[¼-¾⅐-⅞]", lambda sign: unicodedata.normalize("NFKC", sign[0]), text)
    text = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text)
    return text.translate(_ASCII)


def _numbers(text: str) -> list[tuple[Fraction, bool]]:
    """Return all numbers, each with whether another one follows as its alternative."""
    text = _THOUSANDS.sub(lambda match: match[0].replace(match["mark"], ","), text)
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    matches = list(_NUMBER.finditer(text))
    are_choices = [_is_choice(text, match, after) for match, after in pairwise(matches)]
    numbers = [(_number(match), is_one) for match, is_one in zip(matches, [*are_choices, False], strict=False)]
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
    number += int(match["mixed"] or 0)
    for scale in (match["letter"] and match["letter"].strip()[0].lower(), match["scale"]):
        number *= _SCALES.get(scale, 1)
    return -number if (match["sign"] or match["second_sign"] or "+") in "-−–" else number
