"""Questions from rows of GSM8K and of short texts on disk.

GSM8K: `question`, and `answer`, whose last line is `#### number`.
Text with a short correct answer, for `exact_match`: `question` and `answer`.

Other fields and blank lines are ignored; the log names some that matter. A row that cannot be used is an error; none is
skipped silently.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Question
from arc_refinery.rows import numbered, read_rows, text_field
from arc_refinery.tool_use.config.experiment import RowForm
from arc_refinery.tool_use.grading.answers import final_number, normalized

logger = logging.getLogger(__name__)

# Fields that other data sets have and that matter, and why: multiple choice, questions on a text
_NOT_SHOWN = dict.fromkeys(
    ("choices", "options", "context", "passage"), "the question does not show it; add it to its text"
)
_UNUSED: dict[RowForm, dict[str, str]] = {
    "gsm8k": _NOT_SHOWN,
    "text": _NOT_SHOWN | {"aliases": "only answer counts as correct"},
}


def questions_from_file(path: Path, form: RowForm) -> Iterator[Question]:
    """Yield the questions of a file of rows, in order; raise `InputError` for a bad row.

    At the end, log which fields that matter are not used.
    """
    stem = Path(path.name.removesuffix(".gz")).stem
    unused: Counter[str] = Counter()
    try:
        for number, row in enumerate(read_rows(path), 1):
            question = READERS[form](row, numbered(stem, number), f"{path}: row {number}")
            unused.update(field for field in _UNUSED[form] if row.get(field))
            yield question
    finally:  # also if the caller takes only the first questions
        for field, n in unused.items():
            logger.warning("%s: field %r of %d rows is not used: %s", path, field, n, _UNUSED[form][field])


def gsm8k_question(row: Any, name: str, where: str) -> Question:
    text, answer = text_field(row, "question", where), text_field(row, "answer", where)
    solution, mark, number = answer.rpartition("####")
    if not mark or final_number(f"#### {number}") is None:
        last = answer.strip().rpartition("\n")[2]
        raise InputError(f"{where}: field 'answer' ends in {last!r:.60}; expected a last line like '#### 72'")
    return Question(name, text, "gsm8k", number.strip(), solution=solution.rstrip())


def text_question(row: Any, name: str, where: str) -> Question:
    answer = text_field(row, "answer", where)
    if not normalized(answer):
        raise InputError(f"{where}: field 'answer' is {answer!r:.60}; expected letters or digits")
    return Question(name, text_field(row, "question", where), "exact_match", answer)


READERS: dict[RowForm, Callable[[Any, str, str], Question]] = {
    "gsm8k": gsm8k_question,
    "text": text_question,
}
