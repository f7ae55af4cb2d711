"""Check that results were made with the settings that a report or a comparison shows beside them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.records import RecordError

ADVICE = "Give the settings.json of the experiment that made it, or run the experiment again"
_COLUMNS = ("model", "adapter", "seed", "temperature", "top_p")


def check_rows(path: Path, cls: type[Any], expected: Mapping[str, tuple[str, Any]]) -> None:
    """Raise `RecordError` unless all rows have the expected values; `expected` has the config's key of each column."""
    table = records.columns(path, cls, _COLUMNS)
    for row in table.group_by(list(_COLUMNS)).aggregate([]).to_pylist():
        row["adapter"] = Path(row["adapter"]).name
        for column, (key, value) in expected.items():
            is_equal = _is_same_model(row[column], value) if column == "model" else row[column] == value
            if not is_equal:
                raise RecordError(
                    f"{path}: was made with {column} {row[column]!r}, but the settings say {value!r} ({key}). {ADVICE}"
                )


def _is_same_model(one: str, other: str) -> bool:
    """Whether two paths name one model: folders may have moved since."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return Path(one).name == Path(other).name and not (Path(one).exists() and Path(other).exists())
