"""Sentences on what a comparison of two experiments leaves out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arc_refinery.evaluation.sides import Side

MAX_NAMED = 20  # longer lists of what is left out are only counted


def sets_of_one(first: Side[Any], second: Side[Any], wanted: Sequence[str] = ()) -> list[str]:
    """Return a sentence for each side that has sets which the other lacks; none if the sets were chosen."""
    pairs = ((first, second), (second, first)) if not wanted else ()
    alone = {one.folder: [name for name in one.sets if name not in other.sets] for one, other in pairs}
    return [
        f"Not compared, because only `{folder}` has it: {listed(names)}." for folder, names in alone.items() if names
    ]


def only_one_has(ids: Mapping[Path, Iterable[str]], common: Collection[str], what: str) -> list[str]:
    """Return a sentence for each folder with ids that are not common; `what` names them, such as `tasks`."""
    shared = set(common)
    alone = {folder: [one for one in of_folder if one not in shared] for folder, of_folder in ids.items()}
    return [
        f"Left out, because only `{folder}` has them: "
        f"{listed(names) if len(names) <= MAX_NAMED else f'{len(names)} {what}'}."
        for folder, names in alone.items()
        if names
    ]


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
