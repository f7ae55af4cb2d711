"""What an experiment declared before it saw a result of its evaluation, and what was changed since.

    results/demo/registered.jsonl
    {"time": "2026-11-27T08:12:00+00:00", "hash": "5f0c...", "power": "Primary comparison: ...", "sets": [...],
     "settings": {...}}

A run that starts before the first attempt (or episode) of the evaluation is there replaces the file; a later one adds a
line if the settings are others than those of the last line. `settings` are those that differ from their defaults and
change results or comparisons.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from arc_refinery import records
from arc_refinery.config import Compared
from arc_refinery.errors import InputError
from arc_refinery.files import append, atomic_write, checked, reading
from arc_refinery.reporting.provenance import result_settings

FILE = "registered.jsonl"
PROMPTS = "prompts.parquet"  # of a turn: no result of it


class _Line(BaseModel):
    hash: str
    settings: dict[str, Any]
    sets: list[str] = []


_Lines = Annotated[list[_Line], Field(min_length=1)]
MOST_NAMED = 5  # changed keys in a sentence


def register(experiment: Compared[Any], folder: Path, warn: Callable[[str], object]) -> None:
    """Write down what is declared when a run starts; `folder` holds the experiment's results."""
    declared = _as_json(result_settings(experiment))
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "hash": records.settings_hash(declared),
        "power": experiment.expected_power,
        "sets": experiment.set_names,
        "settings": declared,
    }
    path, text = folder / FILE, f"{json.dumps(line)}\n"
    lines = _read(path) if path.exists() else []
    names = {*experiment.set_names, *(name for line in lines for name in line.get("sets", []))}  # one may be renamed
    if not _has_begun(folder, names):
        with atomic_write(path) as unfinished:
            unfinished.write_text(text)
    elif lines:
        if changed := _changes(lines[0]["settings"], declared):
            warn(f"changed after results of the evaluation were there: {_named(changed)}. The report says so")
        if lines[-1]["settings"] != declared:
            append(path, text)


def is_registered(experiment: Compared[Any], folder: Path) -> bool:
    """Return whether the comparisons are those that were declared before the first result of the evaluation."""
    path = folder / FILE
    return path.exists() and not limits(experiment, folder)


def limits(experiment: Compared[Any], folder: Path) -> list[str]:
    """Return a sentence on what was changed after the first results of the evaluation; none if nothing was."""
    path = folder / FILE
    if not path.exists():
        return []
    changed = _changes(_read(path)[0]["settings"], _as_json(result_settings(experiment)))
    if not changed:
        return []
    return [
        f"Changed after results of the evaluation were there: {_named(changed)}. What is chosen by its result is not "
        f"confirmed by it; `{folder.name}/{FILE}` has what was declared first."
    ]


def _has_begun(folder: Path, sets: Iterable[str]) -> bool:
    """Return whether there is an attempt or an episode, if only in the progress of a job that was interrupted."""
    for name in sets:
        if any(path.name != PROMPTS for path in (folder / name).rglob("*.parquet")):
            return True
        for progress in filter(Path.is_file, (folder / name).rglob(".progress/*.jsonl")):
            with progress.open("rb") as lines:
                if len(list(islice(lines, 2))) > 1:  # more than the first line, which says what is sampled
                    return True
    return False


def _read(path: Path) -> list[Any]:
    """Return the lines of the file, none of which was edited."""
    advice = "move it away, and the report no longer says what was declared first"
    with reading(path, advice):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        checked(_Lines, lines, str(path), f"what was declared; {advice}")
    for number, line in enumerate(lines, 1):
        if line["hash"] != records.settings_hash(line["settings"]):
            raise InputError(f"{path}, line {number}: its hash is not that of its settings: it was edited; {advice}")
    return lines


def _as_json(settings: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(settings, default=str))


def _changes(first: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys whose values differ, `training.grpo.beta`, with both values; None: the default."""
    before, after = (dict(_flat(settings, "")) for settings in (first, now))
    keys = dict.fromkeys([*before, *after])
    empty = [key for key in keys if before.get(key, after.get(key)) in ({}, []) or after.get(key) in ({}, [])]
    filled = {key for key in empty if any(other.startswith(f"{key}.") for other in keys)}  # sections, in the other one
    changed = (key for key in keys if before.get(key) != after.get(key) and key not in filled)
    return {key: (before.get(key), after.get(key)) for key in changed}


def _flat(value: Any, key: str) -> Any:
    """Yield the key and the value of each leaf; entries of lists go by their names, if they have such."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{key}.{item.get('name', number)}")
    else:
        yield key, value


def _named(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the keys in words: "`seed` from 0 to 1"; comparisons first."""
    keys = sorted(changed, key=lambda key: not key.startswith(("evaluation.primary", "evaluation.comparisons")))
    values = {
        key: ["its default" if value is None else json.dumps(value)[:100] for value in changed[key]] for key in keys
    }
    texts = [f"`{key}` from {before} to {now}" for key, (before, now) in values.items()]
    more = f", and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more
