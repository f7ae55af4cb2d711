"""A file of decided answers, which take the place of a model's (sampling/decided.py)."""

from pathlib import Path

from arc_refinery.config.sampling import ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.rows import read_rows, text_field

Decided = dict[tuple[str | None, int | None], list[str]]  # answers by task and turn; None: any
_FIELDS = {"task_id", "turn", "answer"}


def identity(model: ModelConfig) -> dict[str, str]:
    """Return what decides answers beside the settings: what the file has."""
    return {"answers": content_hash([model.answers_file])} if model.answers_file else {}


def read_decided(path: Path) -> Decided:
    """Read answers; raises `InputError` for a row that is none."""
    answers: Decided = {}
    for number, row in enumerate(read_rows(path), 1):
        where = f"{path}: row {number}"
        answer = text_field(row, "answer", where, or_empty=True)
        task = text_field(row, "task_id", where) if "task_id" in row else None
        turn = row.get("turn")
        if turn is not None and not (type(turn) is int and turn > 0):
            raise InputError(f"{where}: field 'turn' is {turn!r:.60}; expected a number from 1, or no such field")
        if others := row.keys() - _FIELDS:
            raise InputError(f"{where}: field {min(others)!r} is not known; expected {', '.join(sorted(_FIELDS))}")
        answers.setdefault((task, turn), []).append(answer)
    if not answers:
        raise InputError(f"{path}: has no rows; expected one answer per line")
    return answers
