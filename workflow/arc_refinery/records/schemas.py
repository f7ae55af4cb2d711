"""Columns of each kind of file, derived from the fields of its record class."""

from dataclasses import fields
from typing import Literal

import pyarrow as pa

from arc_refinery.arc.tasks import Task
from arc_refinery.records.questions import Question
from arc_refinery.records.refining import Attempt, Demonstration, Overlap, Prompt, Verdict
from arc_refinery.records.transcripts import Conversation, Episode

RecordKind = Literal[
    "tasks",
    "prompts",
    "attempts",
    "verdicts",
    "demonstrations",
    "overlaps",
    "questions",
    "conversations",
    "episodes",
]

_GRID = pa.list_(pa.list_(pa.int8()))
PAIRS = pa.list_(pa.struct([("input", _GRID), ("output", _GRID)]))
GRIDS = pa.list_(_GRID)
_AUGMENTATION = pa.struct([("n_rotations", pa.int8()), ("transpose", pa.bool_()), ("colors", pa.list_(pa.int8()))])
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TYPES: dict[str, pa.DataType] = {
    "train": PAIRS,
    "test": PAIRS,
    "hidden": PAIRS,
    "augmentation": _AUGMENTATION,
    "train_order": pa.list_(pa.int8()),
    "messages": _MESSAGES,
    "train_outputs": GRIDS,
    "test_outputs": GRIDS,
    "asserts": pa.struct(
        [("statements", pa.list_(pa.string())), ("imports", pa.list_(pa.string())), ("setup", pa.string())]
    ),
    "segments": pa.list_(pa.struct([("text", pa.string()), ("is_sampled", pa.bool_())])),
    "calls": pa.list_(pa.struct([("tool", pa.string()), ("fault", pa.string())])),
    "completion_ids": pa.list_(pa.int32()),
    "mask": pa.list_(pa.int8()),
    "kind": pa.string(),
}
_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_CLASSES: dict[RecordKind, type] = {
    "tasks": Task,
    "prompts": Prompt,
    "attempts": Attempt,
    "verdicts": Verdict,
    "demonstrations": Demonstration,
    "overlaps": Overlap,
    "questions": Question,
    "conversations": Conversation,
    "episodes": Episode,
}


def schema(kind: RecordKind) -> pa.Schema:
    """Return the columns of a kind of file: the fields of its record class, in order."""
    return pa.schema([(f.name, _TYPES.get(f.name) or _SCALARS[f.type]) for f in fields(_CLASSES[kind])])  # type: ignore[index]
