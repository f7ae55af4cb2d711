"""Functions whose description leaves one point open, with the two rules that settle it.

text        Write a function `longest_word(words)` that returns the longest word in a list.
program     max($rule, key=len), where $rule is `words` (of equally long ones, the first) or `words[::-1]` (the last)
inputs      drawn by `draw` until the rules agree on one, and differ on others (two_rules.py)

Points that resemble each other are in the same half, so that training on one half says little about the other.
"""

# ruff: noqa: SIM905 (words in one string are easier to read and to extend)

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.random import Generator

WORDS = (
    "ant apple bear bird boat book cake cat cloud dog door eagle fish fork frog goat grape hat horse house jam kite "
    "lamp leaf lemon map moon mouse nest onion owl pear pen pie rain ring river rose salt ship sock star stone sun "
    "table tea tiger tree wolf"
).split()
REPETITIVE = (
    "banana bottle letter coffee summit cannon access pepper rabbit kitten hammer balloon success address noodle "
    "tattoo cookie rubber dinner cabbage settle needle mirror puddle pillow"
).split()
WITH_Y = "sky yard happy toy year yellow candy party city story".split()
NAMES = "Anna ben Carla dora Emil frida Gus hanna Ida jonas Karl lena Mona nora Otto paul".split()


@dataclass(frozen=True)
class OpenPoint:
    name: str  # of the function
    args: str
    text: str  # behind "Write a function `longest_word(words)` that"
    code: str  # lines, the last one an expression; "$rule" is one of the rules, "$k" one of `k`
    rules: tuple[str, str]
    draw: Callable[[Generator, Any], tuple[Any, ...]]  # arguments
    takes: str = ""  # what may be done to the first argument before: a key of two_rules.BEFORE
    gives: str = ""  # what may be done to the result: a key of two_rules.AFTER
    k: tuple[Any, ...] = ("",)


def ints(r: Generator, low: int, high: int, shortest: int = 4, longest: int = 7) -> list[int]:
    return [int(n) for n in r.integers(low, high + 1, r.integers(shortest, longest + 1))]


def number(r: Generator, low: int, high: int) -> int:
    return int(r.integers(low, high + 1))


def one(r: Generator, options: Sequence[Any]) -> Any:
    return options[int(r.integers(len(options)))]


def some(r: Generator, options: Sequence[Any], least: int, most: int, repeated: bool = False) -> list[Any]:
    n = r.integers(least, most + 1)
    return [options[i] for i in r.choice(len(options), n, replace=repeated)]


def text(r: Generator, options: Sequence[str], least: int, most: int, between: str = " ") -> str:
    return between.join(some(r, options, least, most))


def scores(r: Generator) -> dict[str, int]:
    return {name.title(): number(r, 5, 9) for name in some(r, NAMES, 3, 5)}


def grid(r: Generator, high: int = 9) -> list[list[int]]:
    """Draw a small grid; every second one looks the same when it is turned upside down."""
    height, width = number(r, 2, 3), number(r, 2, 3)
    rows = [ints(r, 0, high, width, width) for _ in range(height)]
    if r.random() < 0.5:
        cells = [n for row in rows for n in row]
        half = cells[: (len(cells) + 1) // 2]
        cells = half + half[::-1][len(cells) % 2 :]
        rows = [cells[i : i + width] for i in range(0, len(cells), width)]
    return rows


def square(r: Generator, side: int) -> list[list[int]]:
    return [ints(r, 0, 9, side, side) for _ in range(side)]


def nested(r: Generator, depth: int = 3) -> list[Any]:
    return [nested(r, depth - 1) if depth > 1 and r.random() < 0.4 else number(r, 1, 9) for _ in range(number(r, 2, 4))]


def in_blocks(r: Generator, size: int) -> list[int]:
    """Draw numbers; in every second list, blocks of `size` of them are equal."""
    if r.random() < 0.5:
        return ints(r, 1, 20, size + 1, 3 * size)
    return [n for n in ints(r, 1, 20, 2, 3) for _ in range(size)]


def in_range(r: Generator, low: int, high: int) -> tuple[list[int], int, int]:
    first, last = sorted((number(r, low, high - 3), number(r, low + 3, high)))
    return ints(r, low, high, 5, 7), first, last + (first == last)


_LEFTOVER = "n = min(len(numbers), len(others))\n"
_COUNT_RUN = "best = run = 1\nfor a, b in zip(numbers, numbers[1:]):\n    run = run + 1 if a $rule b else 1\n"
_FACTORS = "factors = []\nd = 2\nwhile n > 1:\n    while n % d == 0:\n        factors.append(d)\n        n //= d\n"
_SUMMARY = (
    "parts = []\nstart = 0\nfor i, n in enumerate(numbers):\n"
    "    if i + 1 == len(numbers) or numbers[i + 1] != n + 1:\n"
    "        run = numbers[start:i + 1]\n"
    "        parts += [f'{run[0]}-{run[-1]}'] if len(run) > $rule else map(str, run)\n"
    "        start = i + 1\n','.join(parts)"
)
_FLAT = (
    "def flat(items):\n    return [n for item in items for n in (flat(item) if isinstance(item, list) else [item])]\n"
    "flat(items)"
)

FIRST_HALF = (
    # the first or another one of equals
    OpenPoint(
        "longest_word", "words", "returns the longest word in a list",
        "max($rule, key=len)", ("words", "words[::-1]"),
        lambda r, k: (some(r, WORDS, 4, 6),), "words", "text",
    ),
    OpenPoint(
        "smallest_digit_sum", "numbers", "returns the number in a list whose digits have the smallest sum",
        "min($rule, key=lambda n: sum(map(int, str(n))))", ("numbers", "numbers[::-1]"),
        lambda r, k: (ints(r, 10, 60),), "numbers", "number",
    ),
    OpenPoint(
        "word_with_most", "words", "returns the word in a list that contains the letter `$k` most often",
        "max($rule, key=lambda word: word.count('$k'))", ("words", "words[::-1]"),
        lambda r, k: (some(r, REPETITIVE, 4, 5),), "words", "text", k=("e", "o", "t"),
    ),
    OpenPoint(
        "shortest_word", "words", "returns the shortest word in a list",
        "min($rule, key=len)", ("words", "sorted(words)"),
        lambda r, k: (some(r, WORDS, 4, 6),), "words", "text",
    ),
    OpenPoint(
        "winner", "scores", "takes a dictionary of names and scores and returns the name with the highest score",
        "max($rule, key=scores.get)", ("scores", "sorted(scores)"),
        lambda r, k: (scores(r),), "", "text",
    ),
    # upper and lower case
    OpenPoint(
        "sort_names", "names", "sorts a list of names in alphabetical order",
        "sorted(names$rule)", ("", ", key=str.lower"),
        lambda r, k: (some(r, NAMES, 3, 5),), "strings", "words",
    ),
    OpenPoint(
        "count_letter", "text, letter", "counts how often `letter` occurs in a text",
        "$rule", ("text.count(letter)", "text.lower().count(letter.lower())"),
        lambda r, k: (text(r, NAMES, 2, 4), one(r, "anoACGN")), "text", "number",
    ),
    OpenPoint(
        "count_names", "names, letter", "counts the names in a list that begin with `letter`",
        "sum($rule for name in names)", ("name.startswith(letter)", "name.lower().startswith(letter.lower())"),
        lambda r, k: (some(r, ["ben", "Ben", "Bill", "carl", "Carla", "dora", "Dan", "bob"], 4, 6), one(r, "bBcCdD")),
        "strings", "number",
    ),
    OpenPoint(
        "count_different_letters", "word", "counts the different letters in a word",
        "len(set($rule))", ("word", "word.lower()"),
        lambda r, k: (text(r, NAMES, 1, 2, "").replace("o", one(r, "oO")),), "characters", "number",
    ),
    OpenPoint(
        "word_counts", "text", "returns a dictionary with the number of times that each word occurs in a text",
        "words = $rule.split()\n{word: words.count(word) for word in words}", ("text", "text.lower()"),
        lambda r, k: (" ".join(some(r, "the The cat a A dog and And".split(), 3, 6, True)),),
    ),
    # what is left over
    OpenPoint(
        "groups", "numbers, size", "splits a list into groups of `size` neighboring numbers, from the left",
        "[numbers[i:i + size] for i in range(0, $rule, size)]", ("len(numbers)", "len(numbers) - size + 1"),
        lambda r, k: (ints(r, 1, 20, 4, 8), number(r, 2, 3)), "numbers", "list",
    ),
    OpenPoint(
        "take_turns", "numbers, others",
        "takes numbers from two lists in turn, beginning with `numbers`, and returns them as one list",
        _LEFTOVER + "[x for pair in zip(numbers, others) for x in pair]$rule", ("", " + numbers[n:] + others[n:]"),
        lambda r, k: (ints(r, 1, 20, 2, 4), ints(r, 1, 20, 2, 4)), "numbers", "numbers",
    ),
    OpenPoint(
        "add_lists", "numbers, others", "adds the numbers in two lists position by position",
        _LEFTOVER + "[a + b for a, b in zip(numbers, others)]$rule", ("", " + numbers[n:] + others[n:]"),
        lambda r, k: (ints(r, 1, 20, 2, 4), ints(r, 1, 20, 2, 4)), "numbers", "numbers",
    ),
    OpenPoint(
        "count_differences", "word, other", "counts the positions at which two words have different letters",
        "sum(a != b for a, b in zip(word, other))$rule", ("", " + abs(len(word) - len(other))"),
        lambda r, k: (one(r, WORDS), one(r, WORDS)), "text", "number",
    ),
    # rounding
    OpenPoint(
        "round_all", "numbers", "rounds each number in a list to the nearest whole number",
        "[$rule for x in numbers]", ("int(x + 0.5)", "round(x)"),
        lambda r, k: ([n / 4 for n in ints(r, 1, 40, 3, 4)],), "", "numbers",
    ),
    OpenPoint(
        "round_to_multiples", "numbers", "rounds each number in a list to the nearest multiple of $k",
        "[(n + $rule) // $k * $k for n in numbers]", ("$k // 2", "($k - 1) // 2"),
        lambda r, k: ([k // 2 * number(r, 1, 9) + number(r, 0, 1) for _ in range(number(r, 3, 4))],),
        "", "numbers", k=(4, 6, 10, 20, 100),
    ),
    OpenPoint(
        "average", "numbers", "returns the average of the numbers in a list as a whole number",
        "$rule", ("sum(numbers) // len(numbers)", "int(sum(numbers) / len(numbers) + 0.5)"),
        lambda r, k: (ints(r, 1, 30, 3, 5),), "numbers", "number",
    ),
    # directions
    OpenPoint(
        "rotate", "numbers, steps", "rotates a list by `steps` positions",
        "$rule", ("numbers[steps:] + numbers[:steps]", "numbers[-steps:] + numbers[:-steps]"),
        lambda r, k: (ints(r, 1, 20, 4, 6), number(r, 1, 3)), "numbers", "numbers",
    ),
    OpenPoint(
        "rotate_grid", "grid", "rotates a grid, which is a list of rows, by 90 degrees",
        "[list(row) for row in $rule]", ("zip(*grid[::-1])", "list(zip(*grid))[::-1]"),
        lambda r, k: (grid(r),), "grid", "grid",
    ),
    OpenPoint(
        "mirror_grid", "grid", "mirrors a grid, which is a list of rows",
        "$rule", ("[row[::-1] for row in grid]", "grid[::-1]"),
        lambda r, k: (grid(r),), "grid", "grid",
    ),
    OpenPoint(
        "gather_by_parity", "numbers",
        "groups the even numbers and the odd numbers in a list together and returns one list; numbers within a group "
        "keep their order",
        "sorted(numbers, key=lambda n: $rule)", ("n % 2", "n % 2 == 0"),
        lambda r, k: ([2 * n + (r.random() < 0.5) for n in ints(r, 1, 9, 4, 6)] if r.random() < 0.7
                      else [2 * n for n in ints(r, 1, 9, 4, 6)],), "", "numbers",
    ),
    # words and texts
    OpenPoint(
        "compress", "text",
        "compresses a text with run-length encoding, where repeated letters become the letter and their number",
        "from itertools import groupby\nruns = [(letter, len(list(run))) for letter, run in groupby(text)]\n"
        "''.join($rule for letter, n in runs)", ("letter + str(n)", "letter + (str(n) if n > 1 else '')"),
        lambda r, k: ("".join(c * number(r, 1, 4) for c in some(r, "abcxyz", 2, 4)),), "characters", "text",
    ),
    OpenPoint(
        "count_words", "text", "counts the words in a text",
        "len($rule.split())", ("text", "text.replace('-', ' ')"),
        lambda r, k: (text(r, "a my old well-known song six-year-old boy part-time job new long-term plan".split(),
                           3, 6),), "", "number",
    ),
    OpenPoint(
        "capitalize_words", "text", "capitalizes the words in a text",
        "' '.join($rule for word in text.split())", ("word.capitalize()", "word[:1].upper() + word[1:]"),
        lambda r, k: (text(r, "the NASA old iPhone new TV USB stick fast eBook good DVD".split(), 2, 4),), "", "cased",
    ),
    OpenPoint(
        "initials", "text", "returns the first letters of the words in a text as one string of initials",
        "''.join($rule for word in text.split())", ("word[0]", "word[0].upper()"),
        lambda r, k: (text(r, ["Anna", "Maria", "van", "Berg", "Ludwig", "de", "Cruz", "Leonardo", "da", "Vinci"],
                           2, 4),), "", "cased",
    ),
    OpenPoint(
        "shorten", "text, limit",
        "shortens a text to `limit` characters if it is longer, and marks this with three dots, '...', at its end",
        "text if len(text) <= limit else text[:$rule] + '...'", ("limit", "limit - 3"),
        lambda r, k: (text(r, WORDS, 2, 3), number(r, 6, 14)), "text", "text",
    ),
    OpenPoint(
        "enumerate_words", "words",
        "joins the words in a list into an English enumeration with commas and the word `$k`",
        "', '.join(words[:-1]) + $rule + words[-1]", ("' $k '", "(', $k ' if len(words) > 2 else ' $k ')"),
        lambda r, k: (some(r, WORDS, 2, 5),), "words", "text", k=("and", "or"),
    ),
    OpenPoint(
        "count_pattern", "text, pattern", "counts how often `pattern` occurs in a text",
        "$rule", ("text.count(pattern)", "sum(text.startswith(pattern, i) for i in range(len(text)))"),
        lambda r, k: ("".join(some(r, "ab", 5, 8, True)), one(r, ["aa", "bb", "aba", "bab", "aaa"])),
        "characters", "number",
    ),
    OpenPoint(
        "last_word", "sentence", "returns the last word in a sentence",
        "sentence.split()[-1]$rule", ("", ".strip('.!?')"),
        lambda r, k: (text(r, WORDS, 3, 4) + one(r, ["", ".", "!", "?"]),), "", "text",
    ),
    OpenPoint(
        "without_extension", "file_name", "returns the name of a file without its extension",
        "$rule", ("file_name.split('.')[0]", "file_name.rsplit('.', 1)[0]"),
        lambda r, k: (".".join([one(r, WORDS), *some(r, ["tar", "min", "old", "v2", "test"], 0, 2),
                                one(r, ["gz", "js", "txt", "py"])]),), "", "text",
    ),
    OpenPoint(
        "split_at_commas", "text", "splits a text at its commas and returns the parts as a list",
        "$rule", ("text.split(',')", "[part for part in text.split(',') if part]"),
        lambda r, k: (",".join(some(r, [*WORDS[:20], *[""] * 8], 3, 5)),), "", "strings",
    ),
    # positions
    OpenPoint(
        "find_word", "words, target", "returns the position of `target` in a list of words, or -1 if it is not there",
        "$rule if target in words else -1", ("words.index(target)", "words.index(target) + 1"),
        lambda r, k: (some(r, WORDS[:12], 3, 5), one(r, WORDS[:12])), "strings", "",
    ),
    OpenPoint(
        "middle", "numbers", "returns the number in the middle of a list",
        "numbers[$rule]", ("(len(numbers) - 1) // 2", "len(numbers) // 2"),
        lambda r, k: (ints(r, 1, 30, 3, 8),), "numbers", "number",
    ),
    OpenPoint(
        "every_nth", "numbers, n", "returns every n-th number in a list",
        "numbers[$rule]", ("::n", "n - 1::n"),
        lambda r, k: (in_blocks(r, size := number(r, 2, 3)), size), "numbers", "numbers",
    ),
    OpenPoint(
        "month_of", "date", "returns the month of a date such as '$k/2024' as a number",
        "int(date.split('/')[$rule])", ("0", "1"),
        lambda r, k: (f"{(day := number(r, 1, 12)):02}/{one(r, [day, number(r, 1, 12)]):02}/20{number(r, 10, 29)}",),
        "", "number", k=("05/05", "11/11"),
    ),
    OpenPoint(
        "peaks", "numbers", "returns the numbers in a list that are larger than their neighbors",
        "[n for i, n in enumerate(numbers) if $rule]",
        ("0 < i < len(numbers) - 1 and numbers[i - 1] < n > numbers[i + 1]",
         "all(n > m for m in numbers[max(i - 1, 0):i] + numbers[i + 1:i + 2])"),
        lambda r, k: (ints(r, 1, 20, 4, 7),), "numbers", "numbers",
    ),
    OpenPoint(
        "longest_rise", "numbers",
        "returns the length of the longest run of neighboring numbers in a list that are in ascending order",
        _COUNT_RUN + "    best = max(best, run)\nbest", ("<", "<="),
        lambda r, k: (ints(r, 1, 9, 5, 8),), "numbers", "number",
    ),
    OpenPoint(
        "repeat_words", "words, n", "repeats the words in a list `n` times and returns them as one list",
        "$rule", ("words * n", "[word for word in words for _ in range(n)]"),
        lambda r, k: (some(r, WORDS, 1, 4), number(r, 2, 3)), "words", "words",
    ),
    OpenPoint(
        "summarize", "numbers",
        "writes a sorted list of different whole numbers as a text with ranges, such as '1-4,7,9-12'",
        _SUMMARY, ("1", "2"),
        lambda r, k: (sorted(set(ints(r, 1, 14, 6, 9))),), "sorted", "",
    ),
    # other structures
    OpenPoint(
        "flatten", "items", "flattens a nested list of numbers",
        "$rule", ("[n for item in items for n in (item if isinstance(item, list) else [item])]", _FLAT),
        lambda r, k: (nested(r),), "", "list",
    ),
    OpenPoint(
        "merge", "left, right", "merges two dictionaries into one",
        "{**$rule}", ("left, **right", "right, **left"),
        lambda r, k: ({name: number(r, 1, 9) for name in some(r, "abcde", 2, 3)},
                      {name: number(r, 1, 9) for name in some(r, "abcde", 2, 3)}),
    ),
    OpenPoint(
        "swap_keys_and_values", "table", "swaps the keys and the values of a dictionary",
        "{value: key for key, value in $rule}", ("table.items()", "reversed(table.items())"),
        lambda r, k: ({name: number(r, 1, 4) for name in some(r, "abcde", 3, 4)},),
    ),
    OpenPoint(
        "split_at", "numbers, pivot",
        "splits a list at `pivot` into a list of the smaller numbers and a list of the larger ones, and returns both "
        "in a list; every number must be in one of them",
        "[[n for n in numbers if n $rule pivot], [n for n in numbers if not n $rule pivot]]", ("<", "<="),
        lambda r, k: (ints(r, 1, 12, 4, 6), number(r, 4, 9)), "numbers", "list",
    ),
    OpenPoint(
        "sum_of_neighbors", "grid, row, column",
        "adds up the numbers in the cells next to the cell at `row` and `column` (both count from 0) of a grid",
        "sum(n for i, cells in enumerate(grid) for j, n in enumerate(cells) if $rule)",
        ("abs(i - row) + abs(j - column) == 1", "max(abs(i - row), abs(j - column)) == 1"),
        lambda r, k: ([ints(r, 0, 3, 3, 3) if r.random() < 0.5 else [0, number(r, 1, 9), 0] for _ in range(3)],
                      number(r, 0, 2), number(r, 0, 2)), "", "number",
    ),
)  # fmt: skip

SECOND_HALF = (
    # order of equals
    OpenPoint(
        "closest", "numbers, target", "returns the number in a list that is closest to `target`",
        "min(numbers, key=lambda n: (abs(n - target), $rule))", ("n", "-n"),
        lambda r, k: (ints(r, 1, 20), number(r, 5, 15)), "numbers", "number",
    ),
    OpenPoint(
        "sort_by_distance", "numbers, center", "sorts the numbers in a list by their distance from `center`",
        "sorted(numbers, key=lambda n: (abs(n - center), $rule))", ("n", "-n"),
        lambda r, k: (ints(r, 1, 15, 4, 6), number(r, 5, 10)), "numbers", "numbers",
    ),
    OpenPoint(
        "sort_by_digit_sum", "numbers", "sorts the numbers in a list by the sum of their digits, smallest sum first",
        "sorted(numbers, key=lambda n: (sum(map(int, str(n))), $rule))", ("n", "-n"),
        lambda r, k: (ints(r, 10, 60, 4, 6),), "numbers", "numbers",
    ),
    OpenPoint(
        "sort_by_length", "words", "sorts the words in a list by their length, shortest first",
        "sorted(words, key=$rule)", ("len", "lambda word: (len(word), word)"),
        lambda r, k: (some(r, WORDS, 4, 5),), "words", "words",
    ),
    OpenPoint(
        "sort_by_last_letter", "words", "sorts the words in a list by their last letter",
        "sorted(words, key=$rule)", ("lambda word: word[-1]", "lambda word: (word[-1], word)"),
        lambda r, k: (some(r, WORDS, 4, 5),), "words", "words",
    ),
    OpenPoint(
        "most_frequent", "numbers", "returns the number that occurs most often in a list",
        "max($rule, key=numbers.count)", ("numbers", "sorted(numbers)"),
        lambda r, k: (ints(r, 1, 9, 6, 8),), "numbers", "number",
    ),
    OpenPoint(
        "most_common_letter", "word", "returns the letter that occurs most often in a word",
        "max($rule, key=word.count)", ("word", "sorted(word)"),
        lambda r, k: (one(r, REPETITIVE * 4 + WORDS),), "characters", "",
    ),
    OpenPoint(
        "by_frequency", "numbers",
        "returns the different numbers in a list, sorted by how often they occur, most frequent first",
        "sorted(set(numbers), key=lambda n: (-numbers.count(n), $rule))", ("n", "numbers.index(n)"),
        lambda r, k: (ints(r, 1, 8, 6, 8),), "numbers", "numbers",
    ),
    OpenPoint(
        "ranks", "scores", "returns the rank of each score in a list, where the highest score has rank 1",
        "[1 + sum(other > score for other in $rule) for score in scores]", ("scores", "set(scores)"),
        lambda r, k: (ints(r, 1, 9, 4, 6),), "", "list",
    ),
    OpenPoint(
        "sort_codes", "codes", "sorts a list of strings of digits in ascending order",
        "sorted(codes$rule)", ("", ", key=int"),
        lambda r, k: ([str(number(r, *one(r, [(1, 9), (10, 99), (100, 300)]))) for _ in range(number(r, 3, 5))],),
        "strings", "strings",
    ),
    # the letter y
    OpenPoint(
        "count_vowels", "text", "counts the vowels in a text",
        "sum(letter in $rule for letter in text)", ("'aeiou'", "'aeiouy'"),
        lambda r, k: (text(r, WORDS + 4 * WITH_Y, 1, 3),), "text", "number",
    ),
    OpenPoint(
        "remove_vowels", "text", "removes the vowels from a text",
        "''.join(letter for letter in text if letter not in $rule)", ("'aeiou'", "'aeiouy'"),
        lambda r, k: (text(r, WORDS + 4 * WITH_Y, 1, 3),), "text", "text",
    ),
    # bounds
    OpenPoint(
        "part", "text, start, end",
        "returns the part of a text from position `start` to position `end`; positions count from 0",
        "text[start:$rule]", ("end", "end + 1"),
        lambda r, k: (one(r, REPETITIVE), number(r, 0, 2), number(r, 3, 8)), "text", "text",
    ),
    OpenPoint(
        "between", "numbers, low, high", "returns the numbers in a list that are between `low` and `high`",
        "[n for n in numbers if $rule]", ("low <= n <= high", "low < n < high"),
        lambda r, k: in_range(r, 1, 12), "numbers", "numbers",
    ),
    OpenPoint(
        "words_between", "words, low, high",
        "returns the words in a list that have between `low` and `high` letters",
        "[word for word in words if $rule]", ("low <= len(word) <= high", "low < len(word) < high"),
        lambda r, k: (some(r, WORDS + REPETITIVE, 4, 6), number(r, 2, 4), number(r, 5, 7)), "words", "words",
    ),
    OpenPoint(
        "up_to", "numbers", "returns the numbers in a list up to the first occurrence of $k, or all if $k is not in it",
        "end = numbers.index($k) if $k in numbers else len(numbers)\nnumbers[:end$rule]", ("", " + 1"),
        lambda r, k: (ints(r, 0, 6, 4, 7),), "", "numbers", k=(0, 3, 5),
    ),
    # signs
    OpenPoint(
        "differences", "numbers", "returns the differences between neighboring numbers in a list",
        "[$rule for a, b in zip(numbers, numbers[1:])]", ("b - a", "abs(b - a)"),
        lambda r, k: (ints(r, 1, 20, 3, 5) if r.random() < 0.7 else sorted(ints(r, 1, 20, 3, 5)),),
        "in order", "numbers",
    ),
    OpenPoint(
        "largest_difference", "numbers", "returns the largest difference between neighboring numbers in a list",
        "max($rule for a, b in zip(numbers, numbers[1:]))", ("b - a", "abs(b - a)"),
        lambda r, k: (ints(r, 1, 20, 4, 6),), "in order", "number",
    ),
    OpenPoint(
        "divide_all", "numbers", "divides each number in a list by $k and returns the quotients as whole numbers",
        "[$rule for n in numbers]", ("n // $k", "int(n / $k)"),
        lambda r, k: (ints(r, -12, 20, 3, 4),), "numbers", "numbers", k=(2, 3, 4, 5),
    ),
    OpenPoint(
        "remainders", "numbers", "returns the remainder of each number in a list when it is divided by $k",
        "[$rule for n in numbers]", ("n % $k", "n - $k * int(n / $k)"),
        lambda r, k: (ints(r, -12, 20, 3, 4),), "numbers", "numbers", k=(3, 4, 5, 7),
    ),
    # repeated elements
    OpenPoint(
        "remove_duplicates", "numbers",
        "removes duplicates from a list, so that each number is left once and the numbers that are left keep their "
        "order",
        "$rule", ("list(dict.fromkeys(numbers))", "list(dict.fromkeys(numbers[::-1]))[::-1]"),
        lambda r, k: (ints(r, 1, 7, 4, 6),), "numbers", "numbers",
    ),
    OpenPoint(
        "unique_words", "words", "returns the unique words in a list, in their order",
        "$rule", ("list(dict.fromkeys(words))", "[word for word in words if words.count(word) == 1]"),
        lambda r, k: (some(r, some(r, WORDS, 4, 6), 4, 6, True),), "words", "words",
    ),
    OpenPoint(
        "in_both", "numbers, others",
        "returns the numbers in the list `numbers` that are also in the list `others`, in the order of `numbers`",
        "[n for n in $rule if n in others]", ("numbers", "dict.fromkeys(numbers)"),
        lambda r, k: (ints(r, 1, 7, 4, 6), ints(r, 1, 7, 3, 4)), "numbers", "numbers",
    ),
    OpenPoint(
        "take_away", "numbers, others", "takes the numbers in the list `others` away from the list `numbers`",
        "$rule", (
            "[n for n in numbers if n not in others]",
            "rest = list(numbers)\nfor n in others:\n    if n in rest:\n        rest.remove(n)\nrest",
        ),
        lambda r, k: (ints(r, 1, 6, 4, 6), sorted({*ints(r, 1, 6, 1, 3)})), "numbers", "numbers",
    ),
    OpenPoint(
        "remove_repeats", "word", "removes repeated letters from a word",
        "''.join($rule)",
        ("dict.fromkeys(word)", "letter for i, letter in enumerate(word) if letter != word[i - 1:i]"),
        lambda r, k: (one(r, REPETITIVE),), "characters", "text",
    ),
    OpenPoint(
        "remove_smallest", "numbers", "removes the smallest number from a list",
        "[n for i, n in enumerate(numbers) if $rule]", ("n != min(numbers)", "i != numbers.index(min(numbers))"),
        lambda r, k: (ints(r, 1, 6, 4, 6),), "numbers", "numbers",
    ),
    OpenPoint(
        "nth_largest", "numbers, n", "returns the n-th largest number in a list",
        "sorted($rule, reverse=True)[n - 1]", ("numbers", "set(numbers)"),
        lambda r, k: (ints(r, 1, 9, 4, 7), number(r, 2, 3)), "numbers", "number",
    ),
    OpenPoint(
        "count_pairs", "numbers, total", "counts the pairs of numbers in a list that add up to `total`",
        "pairs = [tuple(sorted((a, b))) for i, a in enumerate(numbers) for b in numbers[i + 1:] if a + b == total]\n"
        "len($rule)", ("pairs", "set(pairs)"),
        lambda r, k: (ints(r, 1, 5, 5, 8), number(r, 4, 12)), "in order", "number",
    ),
    OpenPoint(
        "prime_factors", "n", "returns the prime factors of a whole number in ascending order",
        _FACTORS + "    d += 1\n$rule", ("factors", "sorted(set(factors))"),
        lambda r, k: (number(r, 6, 120),), "number", "numbers",
    ),
    # where a text is filled up
    OpenPoint(
        "pad", "word, width", "pads a word with the character `$k` to a length of `width`",
        "word.$rule(width, '$k')", ("ljust", "rjust"),
        lambda r, k: (one(r, WORDS), number(r, 3, 9)), "text", "", k=(".", "*", "-", "_"),
    ),
    OpenPoint(
        "center", "word, width",
        "centers a word in a string of length `width` that is filled up with the character `$k`",
        "n = width - len(word)\n'$k' * ($rule) + word + '$k' * (n - ($rule))", ("n // 2", "(n + 1) // 2"),
        lambda r, k: (word := one(r, WORDS), len(word) + number(r, 2, 7)), "text", "", k=(".", "*", "-", "_"),
    ),
    OpenPoint(
        "in_blocks", "digits, size", "splits a string of digits into blocks of `size` digits with `$k` between them",
        "first = $rule\nblocks = [digits[:first]] if first else []\n"
        "blocks += [digits[i:i + size] for i in range(first, len(digits), size)]\n'$k'.join(blocks)",
        ("0", "len(digits) % size"),
        lambda r, k: ("".join(map(str, ints(r, 1, 9, 5, 9))), number(r, 2, 4)), "characters", "", k=("-", " ", "."),
    ),
    OpenPoint(
        "staircase", "height",
        "draws a staircase of `$k` characters and returns its rows as a list of strings; the top row has one `$k`, "
        "and each row has one more than the row above",
        "[('$k' * n)$rule for n in range(1, height + 1)]", ("", ".rjust(height)"),
        lambda r, k: (number(r, 1, 9),), "", "", k=("#", "*", "x"),
    ),
    # other texts
    OpenPoint(
        "reverse_words", "text", "reverses the words in a text",
        "' '.join($rule)", ("text.split()[::-1]", "word[::-1] for word in text.split()"),
        lambda r, k: (text(r, WORDS, 2, 4) if r.random() < 0.8
                      else one(r, ["saw was", "stop pots", "now won", "live evil", "part trap", "net ten"]),),
        "", "text",
    ),
    OpenPoint(
        "clean_up_spaces", "text", "cleans up the spaces in a text, so that no two spaces are next to each other",
        "$rule", ("' '.join(text.split())", "import re\nre.sub(' +', ' ', text)"),
        lambda r, k: (one(r, ["", "", " ", "  "]) + text(r, WORDS, 2, 4, one(r, ["  ", "   "]))
                      + one(r, ["", "", " ", "  "]),), "", "text",
    ),
    OpenPoint(
        "count_characters", "text", "counts the characters in a text",
        "len($rule)", ("text", "text.replace(' ', '')"),
        lambda r, k: (text(r, WORDS, 1, 4),), "text", "number",
    ),
    OpenPoint(
        "replace_word", "text, old, new", "replaces the word `old` in a text with the word `new`",
        "$rule", ("text.replace(old, new)", "' '.join(new if word == old else word for word in text.split())"),
        lambda r, k: (text(r, "cat cats scatter dog dogs bulldog art party a the and my".split(), 3, 5),
                      one(r, ["cat", "dog", "art"]), one(r, ["pig", "fox", "hen"])), "", "text",
    ),
    # other lists
    OpenPoint(
        "split_evenly", "total, parts",
        "splits the whole number `total` into `parts` whole numbers that differ by at most 1 and returns them in a "
        "list",
        "[(total + $rule) // parts for i in range(parts)]", ("parts - 1 - i", "i"),
        lambda r, k: (number(r, 7, 30), number(r, 2, 5)), "number", "list",
    ),
    OpenPoint(
        "deal", "cards, players",
        "deals out a list of cards evenly to a number of players and returns the list of their hands; the cards in a "
        "hand keep their order",
        "[cards[$rule] for i in range(players)]",
        ("i::players", "i * len(cards) // players:(i + 1) * len(cards) // players"),
        lambda r, k: (ints(r, 1, 13, n := (players := number(r, 2, 3)) * number(r, 1, 3), n), players), "", "list",
    ),
    OpenPoint(
        "insert_next_to", "numbers, target, new",
        "inserts the number `new` next to the number `target` in a list, which has `target` at most once",
        "i = numbers.index(target)$rule if target in numbers else len(numbers)\n"
        "numbers[:i] + [new] * (target in numbers) + numbers[i:]", ("", " + 1"),
        lambda r, k: (some(r, range(1, 10), 3, 5), number(r, 1, 9), number(r, 1, 9)), "", "numbers",
    ),
    OpenPoint(
        "fill_gaps", "numbers", "replaces every None in a list with the number next to it",
        "[n if n is not None else numbers[i $rule 1] for i, n in enumerate(numbers)]", ("-", "+"),
        lambda r, k: ([x for i, n in enumerate(ints(r, 1, 5, 2, 4))
                       for x in ([n, None] if i == 0 or r.random() < 0.5 else [n])] + [number(r, 1, 5)],),
        "", "numbers",
    ),
    OpenPoint(
        "sum_of_diagonals", "grid", "adds up the numbers on the two diagonals of a square grid",
        "n = len(grid)\nsum(grid[i][i] + grid[i][n - 1 - i] for i in range(n))$rule",
        ("", " - n % 2 * grid[n // 2][n // 2]"),
        lambda r, k: (square(r, number(r, 2, 3)),), "grid", "number",
    ),
)  # fmt: skip
