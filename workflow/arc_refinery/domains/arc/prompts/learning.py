"""Recover the templates that a model was trained with from its own published training rows.

Grids found in the texts become slots, and so do numbers between them that count pairs. A template fits a row if
rendering it with the row's grids reproduces the row's texts character for character. Every notation and reading is
tried, and the one that fits most rows is used.

Not supported: rows with more than one test input, pairs labelled by anything but numbers, sizes of grids in the text,
grids of bare words that share a line with other text. Such rows end in an error that shows the position.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from tqdm import tqdm

from arc_refinery.arc.grids import UNKNOWN, Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.prompts.notation import COLOR_WORDS, DIGITS, Notation
from arc_refinery.domains.arc.prompts.template import Template
from arc_refinery.domains.arc.prompts.texts import first_turn
from arc_refinery.domains.prompts import fill
from arc_refinery.errors import InputError
from arc_refinery.rows import read_rows

SAMPLE = 300  # rows that the template is learned from; all rows are checked against it
MAX_MISFITS = 5  # rows that do not fit and are described
CONSTANT_SHARE = 0.9  # a grid that this share of the rows has in one position may be part of the text
BETWEEN_TESTS = "\n\n"  # rows have one test input, tasks may have more

# Text around cells and rows: start, row_start, between_cells, row_end, between_rows, end
_LINES = [("", "", " ", end, "\n", "") for end in ("", " ")] + [("", "", cells, "", "\n", "") for cells in (", ", ",")]
_LISTS = [
    ("[", "[", cells, "]", rows, "]") for cells in (", ", ",", " ") for rows in (", ", ",", ",\n", ",\n ", "\n ")
] + [("", "[", cells, "]", "\n", "") for cells in (", ", ",", " ")]
_DIGITS_ALONE = ("", "", "", "", "\n", "")

# Meanings of a number in the text, in order of preference; "" is a number that is the same in all rows
_MEANINGS = ("number", "index", "", "n_pairs", "next_number")
_SLOT = re.compile(
    r"\{(colors|n_pairs|next_number|number|index|pairs|tests|input|output|similarity|shape|other_shape|grid|error|row)\}"
)
_NUMBER = re.compile(r"(\d+)")
_WORD = re.compile(r"\s*\S+")

_Instance = tuple[str, Mapping[str, int]]  # a text in one row, and possible meanings of its numbers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FirstTurnRow:
    """The first turn of one row."""

    number: int  # from 1
    system: str  # empty: no system message
    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class LearnedTemplate:
    template: Template
    n_rows: int
    n_fitting: int
    n_prefixed: int  # rows that fit and whose answer starts with the assistant prefix
    misfits: tuple[str, ...]  # number and reason of the first rows that do not fit


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to split a user text into grids and the texts around them."""

    notation: Notation
    prose: frozenset[tuple[int, str]]  # looks like a grid but is text: index from the start or (-1) the end
    test_first: bool

    def parts(self, text: str) -> tuple[list[str], list[Grid]]:
        """Return the n grids of a text and the n + 1 texts around them."""
        around, grids = self.notation.find(text)
        if not self.prose:
            return around, grids
        texts, slots = around[:1], []
        for index, (grid, after) in enumerate(zip(grids, around[1:], strict=True)):
            written = self.notation.write(grid)
            if {(index, written), (index - len(grids), written)} & self.prose:
                texts[-1] += written + after
            else:
                texts.append(after)
                slots.append(grid)
        return texts, slots


def learn(
    path: Path, colors: Sequence[str] | None = None, min_share: float = 0.9, n_rows: int | None = None
) -> LearnedTemplate:
    """Learn the template of rows (see `read_first_turns`); `colors` are the words for 0 to 9 if they are not ours.

    With `n_rows`, only the first `n_rows` rows are read. The assistant prefix is text that at least `min_share` of the
    answers start with (see `_common_prefix`). Raises `InputError` if the template fits less than `min_share` of the
    rows.
    """
    rows = islice(read_first_turns(path), n_rows)
    sample = list(islice(rows, SAMPLE))
    template, reading = _most_fitting(sample, tuple(colors or COLOR_WORDS), path)
    n_read = n_fitting = n_prefixed = 0
    misfits: list[str] = []
    prefix = _common_prefix([row.assistant for row in sample if not _misfit(row, template, reading)], min_share)
    for n_read, row in enumerate(tqdm(chain(sample, rows), unit="row", mininterval=5), 1):  # noqa: B007
        if reason := _misfit(row, template, reading):
            misfits += [f"row {row.number}: {reason}"] if len(misfits) < MAX_MISFITS else []
            continue
        n_fitting += 1
        n_prefixed += row.assistant.startswith(prefix)
    if n_fitting < min_share * n_read:
        raise InputError(
            f"{path}: the template that fits most rows fits {n_fitting} of {n_read}; expected {min_share:.0%} "
            "(--min-share). " + "; ".join(misfits[:2]) + _hint(sample, reading.notation)
        )
    return LearnedTemplate(replace(template, assistant_prefix=prefix), n_read, n_fitting, n_prefixed, tuple(misfits))


def tasks_of_rows(path: Path, template: Template, n_rows: int | None = None) -> Iterator[Task]:
    """Yield the tasks of rows, called `row 1`, ..., as far as they can be read in the notation of a learned template.

    Rows do not have the output of the test pair, so it is `UNKNOWN`.
    """
    n_before, *_, n_after = (
        len(template.notation.find(text)[1]) for text in re.split("{pairs}|{tests}", template.user)
    )
    test_first = 0 <= template.user.find("{tests}") < template.user.find("{pairs}")
    for row in islice(read_first_turns(path), n_rows):
        grids = template.notation.find(row.user)[1]
        task = _task(grids[n_before : len(grids) - n_after], test_first)
        if task:
            yield replace(task, task_id=f"row {row.number}", test=(Pair(task.test[0].input, UNKNOWN),))


def _common_prefix(answers: Sequence[str], min_share: float) -> str:
    """Return the longest text that at least `min_share` of the answers start with.

    It ends where all of them have a token boundary: after a whole word, but not between a punctuation mark and a line
    break, which may be one token.
    """
    if len(answers) < 2:
        return ""
    enough, agreeing, prefix = min_share * len(answers), list(answers), ""
    safe = ""
    while True:
        words = Counter(match[0] for answer in agreeing if (match := _WORD.match(answer, len(prefix))))
        if not words or (most := words.most_common(1)[0])[1] < enough:
            return safe
        prefix += most[0]
        agreeing = [answer for answer in agreeing if answer.startswith(prefix)]
        if prefix[-1].isalnum() or not any(answer.startswith(("\n", "\r"), len(prefix)) for answer in agreeing):
            safe = prefix


def _most_fitting(sample: Sequence[FirstTurnRow], colors: tuple[str, ...], path: Path) -> tuple[Template, _Reading]:
    for row in sample:
        if slot := _SLOT.search(row.system + row.user):
            raise InputError(f"{path}: row {row.number} has the text {slot[0]}, which is the name of a slot")
    best, n_best = None, 0
    for reading in _readings(sample, colors):
        template = _assemble(sample, reading)
        n_fitting = sum(not _misfit(row, template, reading) for row in sample) if template else 0
        if template and n_fitting > n_best:
            best, n_best = (template, reading), n_fitting
    if best is None:
        raise InputError(
            f"{path}: no template fits any of the first {len(sample)} rows. Expected a user text with the grids of two "
            f"or more train pairs and of one test input, written in the words {', '.join(colors)} or in digits"
            + _hint(sample, Notation(colors))
        )
    if len({len(best[1].parts(row.user)[1]) for row in sample}) == 1:
        logger.warning("%s: all rows have equally many pairs: numbers that count them are kept as text", path)
    return best


def _readings(sample: Sequence[FirstTurnRow], colors: tuple[str, ...]) -> Iterator[_Reading]:
    quoted = tuple(f'"{color}"' for color in colors)
    notations = [
        Notation(words, *marks)
        for words, several in ((colors, _LINES + _LISTS), (quoted, _LISTS), (DIGITS, [*_LINES, *_LISTS, _DIGITS_ALONE]))
        for marks in several
    ]
    for notation in notations:
        written = [[notation.write(grid) for grid in notation.find(row.user)[1]] for row in sample]
        if sum(len(grids) >= 3 for grids in written) * 2 < len(sample):
            continue
        for prose in dict.fromkeys([frozenset(), _constant(written)]):
            yield from (_Reading(notation, prose, test_first) for test_first in (False, True))


def _constant(written: Sequence[Sequence[str]]) -> frozenset[tuple[int, str]]:
    """Return grids that nearly all rows have at the same index, counted from the start or from the end."""
    counts = Counter(
        (index - offset, text) for grids in written for offset in (0, len(grids)) for index, text in enumerate(grids)
    )
    return frozenset(place for place, count in counts.items() if count >= CONSTANT_SHARE * len(written))


def _assemble(sample: Sequence[FirstTurnRow], reading: _Reading) -> Template | None:
    """Build the template from the most frequent text at each position; None if no row can be read this way."""
    seen: dict[str, list[_Instance]] = {name: [] for name in ("lead", "inside", "between", "after", "rest")}
    for row in sample:
        around, grids = reading.parts(row.user)
        if _task(grids, reading.test_first) is None:
            continue
        n_pairs = len(grids) // 2
        outer = {"n_pairs": n_pairs, "next_number": n_pairs + 1}
        numbers = [{"number": index + 1, "index": index, "n_pairs": n_pairs} for index in range(n_pairs)]
        pairs, rest = (around[1:], around[0]) if reading.test_first else (around[:-1], around[-1])
        seen["lead"].append((pairs[0], outer))
        seen["inside"] += zip(pairs[1::2], numbers, strict=True)
        seen["between"] += zip(pairs[2:-1:2], numbers[1:], strict=True)
        seen["after"].append((pairs[-1], outer))
        seen["rest"].append((rest, outer))
    if not seen["between"]:
        return None
    texts = {name: _slotted(instances) for name, instances in seen.items()}
    system = Counter(row.system for row in sample).most_common(1)[0][0]
    return _cut(texts, system, reading)


def _cut(texts: Mapping[str, str], system: str, reading: _Reading) -> Template:
    """Split the texts around, inside and between the pairs so that labels stay with their grids."""
    lead, between, first = texts["lead"], texts["between"], {"number": 1, "index": 0}
    label = _shared_end(between, lead, first)
    lead = lead[: len(lead) - len(fill(label, first))]
    test_lead = texts["rest" if reading.test_first else "after"]
    test_label = _shared_end(label, test_lead, {})
    tests = test_lead[: len(test_lead) - len(test_label)] + "{tests}"
    test_first, test_last = f"{tests}{lead}{{pairs}}{texts['after']}", f"{lead}{{pairs}}{tests}{texts['rest']}"
    return Template(
        system=system,
        user=test_first if reading.test_first else test_last,
        pair=f"{label}{{input}}{texts['inside']}{{output}}",
        between_pairs=between[: len(between) - len(label)],
        test=test_label + "{input}",
        between_tests=BETWEEN_TESTS,
        assistant_prefix="",
        notation=reading.notation,
    )


def _slotted(seen: Sequence[_Instance]) -> str:
    """Return the most frequent text, with a slot for each number that equals one of the known values."""
    split = [(_NUMBER.split(text), values) for text, values in seen]
    usual = Counter(tuple(pieces[::2]) for pieces, _ in split).most_common(1)[0][0]
    alike = [(pieces, values) for pieces, values in split if tuple(pieces[::2]) == usual]
    text = usual[0]
    for index, following in enumerate(usual[1:]):
        numbers = [(pieces[2 * index + 1], values) for pieces, values in alike]
        literal = Counter(number for number, _ in numbers).most_common(1)[0][0]
        right = {
            meaning: sum(
                number == str(values.get(meaning, literal if not meaning else None)) for number, values in numbers
            )
            for meaning in _MEANINGS
        }
        meaning = max(_MEANINGS, key=lambda meaning: right[meaning])
        text += (f"{{{meaning}}}" if meaning else literal) + following
    return text


def _shared_end(text: str, other: str, values: Mapping[str, int]) -> str:
    """Return the longest suffix of `text` that, with its slots filled, is also a suffix of `other`.

    It begins at the start of a line in both texts, or else of a word; empty without such a suffix.
    """
    inside_slots = {position for slot in _SLOT.finditer(text) for position in range(slot.start() + 1, slot.end())}
    words: list[str] = []
    for cut in range(len(text)):
        end = text[cut:]
        filled = fill(end, values)
        if cut in inside_slots or not other.endswith(filled) or end[0].isspace():
            continue
        before = (text[:cut][-1:], other[: len(other) - len(filled)][-1:])
        if set(before) <= {"", "\n"}:
            return end
        if not any(character.isalnum() for character in before) and end[0].isalnum():
            words.append(end)
    return words[0] if words and "\n" not in words[0] else ""


def _task(grids: Sequence[Grid], test_first: bool) -> Task | None:
    """Return a row's task, whose unknown test output is set to its input; None if the grids do not form pairs."""
    if len(grids) < 3 or len(grids) % 2 == 0:
        return None
    test, pairs = (grids[0], grids[1:]) if test_first else (grids[-1], grids[:-1])
    train = tuple(Pair(input_grid, output) for input_grid, output in zip(pairs[::2], pairs[1::2], strict=True))
    return Task("", train, (Pair(test, test),), "")


def _misfit(row: FirstTurnRow, template: Template, reading: _Reading) -> str:
    """Return why the template does not fit a row; empty if it fits."""
    _, grids = reading.parts(row.user)
    task = _task(grids, reading.test_first)
    if task is None:
        return f"found {len(grids)} grids, expected two per train pair and one for the test input"
    rendered = {message["role"]: message["content"] for message in first_turn(task, template)}
    for role, text in (("system", row.system), ("user", row.user)):
        expected = rendered.get(role, "")
        if text != expected:
            position = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, expected, strict=False)))
            here = slice(max(0, position - 20), position + 30)
            return f"character {position} of its {role} text: {text[here]!r} where most rows have {expected[here]!r}"
    return ""


def _hint(sample: Sequence[FirstTurnRow], notation: Notation) -> str:
    """Name other words in lines of color words: most likely the rows use another table of colors."""
    lines = (line.split() for row in sample for line in row.user.splitlines())
    among = [line for line in lines if sum(word in notation.colors for word in line) > len(line) / 2]
    strangers = Counter(word for line in among for word in line if word not in notation.colors)
    if not strangers:
        return ""
    named = ", ".join(word for word, _ in strangers.most_common(5))
    return f". Among color words there are {named}: give all ten words, for 0 to 9, with --colors"


def read_first_turns(path: Path) -> Iterator[FirstTurnRow]:
    """Yield the first turns of a file whose rows are {"messages": [{"role", "content"}, ...]}; raises `InputError`.

    For a folder, reads all its files except hidden ones, sorted by name.
    """
    if path.is_dir():
        for file in sorted(path.rglob("[!.]*")):
            if file.is_file():
                yield from read_first_turns(file)
        return
    for number, row in enumerate(read_rows(path, ["messages"]), 1):
        yield _row(row, number, path)


def _row(row: Any, number: int, path: Path) -> FirstTurnRow:
    try:
        messages = [(message["role"], message["content"]) for message in row["messages"]]
        first = dict(reversed(messages))  # the first message of each role
        texts = first.get("system") or "", first["user"], first["assistant"]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        return FirstTurnRow(number, *texts)
    except (KeyError, TypeError):
        raise InputError(
            f'{path}: row {number}: expected {{"messages": [{{"role", "content"}}, ...]}} with the roles user and '
            "assistant, optionally preceded by system"
        ) from None
