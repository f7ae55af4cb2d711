"""Prompt templates: `compact` is for the embedded model, `words` for others, folders are learned from rows.

A folder holds `system.txt`, `user.txt`, `pair.txt`, `test.txt`, `assistant_prefix.txt`, `notation.json` and
`feedback.json`, for people to read and edit. The final line break of a text file is not part of its text.

A second turn of `compact`, in the words of `FeedbackTexts`:

    Executing your program gave:
    pair 1 correct
    pair 2 wrong, pixel similarity 50%, given 1x2
    1 30
    Write a corrected program.

That is the form `given`. In the form `residual`, every pair leads from the given grid to the expected one, as in a
first turn:

    input 1x2
    1 30
    output 1x2
    1 10
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from arc_refinery.domains.arc.prompts.notation import COLOR_WORDS, DIGITS, Notation
from arc_refinery.domains.prompts import check_slots, slots_of
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, read_json, read_text

BUILT_IN = ("compact", "words")
NOTATION, FEEDBACK = "notation.json", "feedback.json"  # in a folder, next to the text files
FeedbackForm = Literal["given", "residual"]

COMPACT_INPUT, COMPACT_OUTPUT = "\ninput ", "\noutput "
COMPACT_PAIR = f"{COMPACT_INPUT}{{input}}{COMPACT_OUTPUT}{{output}}"


@dataclass(frozen=True)
class FeedbackTexts:
    """Texts of a later turn, joined: `head`, a text for each train pair, after `revealed` if it is new, and `tail`.

    A pair's text is `residual` in that form, otherwise `correct` or `wrong`. For a program that raised: `error` and
    `tail`. Comments list all slots.
    """

    head: str = "Executing your program gave:"
    correct: str = "\npair {number} correct"  # {number}: 1, 2, ...
    wrong: str = "\npair {number} wrong, pixel similarity {similarity}%{other_shape}, given {grid}"  # 0..99
    other_shape: str = ", expected shape {shape}"  # {shape}: 2x2; empty if the program's grid has the right shape
    revealed: str = "\nPair {number} is new. Its input:\n{input}\nIts output:\n{output}"  # before that pair's own text
    residual: str = "\nPair {number}, your program gave:\n{input}\nIt should give:\n{output}"
    error: str = "Executing your program failed with {error}"
    tail: str = "\nWrite a corrected program."


@dataclass(frozen=True)
class Template:
    """Texts of a first turn. `{colors}` and `{n_pairs}` are slots of all texts except `assistant_prefix`."""

    system: str  # empty: no system message
    user: str  # {pairs}, {tests}, {next_number} (n_pairs + 1)
    pair: str  # {input}, {output}, {number} (1, 2, ...), {index} (0, 1, ...)
    between_pairs: str  # {number} and {index} of the pair that follows
    test: str  # {input}
    between_tests: str
    assistant_prefix: str  # start of every answer: the model continues from there
    notation: Notation
    feedback: FeedbackTexts = FeedbackTexts()  # texts of later turns
    form: FeedbackForm = "given"  # selects the texts of later turns


COMPACT = Template(
    system="",
    user="{pairs}",  # test inputs are left out: they do not affect the answer
    pair=COMPACT_PAIR,
    between_pairs="",
    test="",
    between_tests="",
    assistant_prefix="",
    notation=Notation(DIGITS, start="{height}x{width}", row_start="\n{row} ", between_cells="", between_rows=""),
    feedback=FeedbackTexts(revealed=COMPACT_PAIR, residual=COMPACT_PAIR),
)

WORDS = Template(
    system=(
        "You solve grid puzzles by writing Python. From a few examples you work out the one rule behind all of them, "
        "and you put it into a function that also holds for grids that you have not seen."
    ),
    user=(
        "Here are {n_pairs} examples of a puzzle. The same rule turns every input grid into its output grid.\n\n"
        "A grid is shown as color words: one line for each row, one word for each cell. In Python it is a "
        "two-dimensional numpy array of integers, which stand for the colors in this order, from 0 to 9: {colors}.\n\n"
        "{pairs}\n\n"
        "The rule has to hold for this too:\n\n"
        "{tests}\n\n"
        "Say briefly what the rule is. Then write a function `transform(grid)` that takes an input grid and returns "
        "its output grid. Give the whole program in one ```python block, without examples or tests."
    ),
    pair="Example {number}, input:\n{input}\nExample {number}, output:\n{output}",
    between_pairs="\n\n",
    test="Test input:\n{input}",
    between_tests="\n\n",
    assistant_prefix="",
    notation=Notation(COLOR_WORDS),
    feedback=FeedbackTexts(tail="\nWrite a corrected program, without examples or tests."),
)

_SEPARATORS = ("between_pairs", "between_tests")
_TEXTS = tuple(
    field.name for field in fields(Template) if field.name not in (*_SEPARATORS, "notation", "feedback", "form")
)
# Slots of each text; the first ones are slots of all texts of a first turn
_FACTS = ("colors", "n_pairs", "next_number")
_SLOTS = {
    "system": (),
    "user": ("pairs", "tests"),
    "pair": ("input", "output", "number", "index"),
    "test": ("input",),
}
_SLOTS_OF_NOTATION = {"start": ("height", "width"), "row_start": ("row",)}
_SLOTS_OF_FEEDBACK = {field.name: slots_of(str(field.default)) for field in fields(FeedbackTexts)}
# Slots that a file, or a text of feedback, must have
_REQUIRED_SLOTS = {
    "user.txt": ("pairs",),
    "pair.txt": ("input", "output"),
    "wrong": ("grid",),
    "other_shape": ("shape",),
    "residual": ("input", "output"),
    "error": ("error",),
}


def load_template(name: str, colors: Sequence[str] | None = None, form: FeedbackForm = "given") -> Template:
    """Load `compact`, `words` or the template in a folder; `colors` are ten words for the numbers 0 to 9."""
    template = replace({"compact": COMPACT, "words": WORDS}.get(name) or _read(Path(name)), form=form)
    if colors is None:
        return template
    if name == "compact":
        raise InputError("the template `compact` writes digits: leave colors out, or choose another template")
    return replace(template, notation=replace(template.notation, colors=tuple(colors)))


def template_files(name: str) -> list[Path]:
    """Return the files of a template; a built-in one has none."""
    if name in BUILT_IN:
        return []
    return [*(Path(name, f"{text}.txt") for text in _TEXTS), Path(name, NOTATION), Path(name, FEEDBACK)]


def save_template(template: Template, folder: Path) -> None:
    """Write the files that `load_template` reads."""
    _check_slots(template, folder)
    for name in _TEXTS:
        with atomic_write(folder / f"{name}.txt") as path:
            path.write_bytes(f"{getattr(template, name)}\n".encode())
    separators = {name: getattr(template, name) for name in _SEPARATORS}
    for file, content in ((NOTATION, separators | asdict(template.notation)), (FEEDBACK, asdict(template.feedback))):
        with atomic_write(folder / file) as path:
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _read(folder: Path) -> Template:
    if missing := [path for path in template_files(str(folder)) if not path.is_file()]:
        raise InputError(
            f"{missing[0]} does not exist; model.template is one of {', '.join(BUILT_IN)} or a folder that "
            "`arc-refinery prompts export` or `prompts learn` wrote"
        )
    origin = "a text of a template"
    texts: dict[str, Any] = {name: read_text(folder / f"{name}.txt", origin).removesuffix("\n") for name in _TEXTS}
    # after a prompt that ends in white space, the model continues with other tokens than it was trained on
    texts["assistant_prefix"] = texts["assistant_prefix"].rstrip()
    path = folder / NOTATION
    rest = read_json(path, "the notation of a template")
    names = [*_SEPARATORS, *(field.name for field in fields(Notation))]
    if not isinstance(rest, dict) or sorted(rest) != sorted(names):
        raise InputError(f"{path}: expected the keys {', '.join(names)}, and no other key")
    colors = rest.pop("colors")
    if wrong := [name for name, text in rest.items() if not isinstance(text, str)]:
        raise InputError(f"{path}: {wrong[0]} is {rest[wrong[0]]!r:.80}; expected a text")
    if not isinstance(colors, list) or not all(isinstance(word, str) for word in colors):
        raise InputError(f"{path}: colors is {colors!r:.80}; expected a list of ten words")
    try:
        separators = {name: rest.pop(name) for name in _SEPARATORS}
        notation = Notation(tuple(colors), **rest)
    except InputError as error:
        raise InputError(f"{path}: colors: {error}") from None
    path = folder / FEEDBACK
    feedback = read_json(path, "texts")
    names = [field.name for field in fields(FeedbackTexts)]
    are_texts = isinstance(feedback, dict) and all(isinstance(text, str) for text in feedback.values())
    if not are_texts or sorted(feedback) != sorted(names):
        raise InputError(f"{path}: expected texts under the keys {', '.join(names)}, and no other key")
    template = Template(**texts, **separators, notation=notation, feedback=FeedbackTexts(**feedback))
    _check_slots(template, folder)
    return template


def _check_slots(template: Template, folder: Path) -> None:
    """Raise `InputError` if a text has a slot that nothing fills, which the model would read, or lacks a slot."""
    feedback, notation = asdict(template.feedback), asdict(template.notation)
    del notation["colors"]
    texts = {
        **{(f"{name}.txt", "it"): (getattr(template, name), (*slots, *_FACTS)) for name, slots in _SLOTS.items()},
        (NOTATION, "between_pairs"): (template.between_pairs, ("number", "index", *_FACTS)),
        (NOTATION, "between_tests"): (template.between_tests, ()),
        **{(NOTATION, name): (text, _SLOTS_OF_NOTATION.get(name, ())) for name, text in notation.items()},
        **{(FEEDBACK, name): (text, _SLOTS_OF_FEEDBACK[name]) for name, text in feedback.items()},
    }
    for (file, name), (text, slots) in texts.items():
        required = _REQUIRED_SLOTS.get(name if file == FEEDBACK else file, ())
        check_slots(f"{folder / file}: {name}", text, slots, required)
    if "{tests}" in template.user and "{input}" not in template.test:
        raise InputError(f"{folder / 'test.txt'}: it has no {{input}}; add it, or remove {{tests}} from user.txt")
