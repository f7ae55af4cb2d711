"""Sides of a comparison: an experiment or one of its arms; values of repeated arms, paired by training.

side("results/demo:refine-trained")   the arm `refine-trained` of the experiment `demo`; `results/demo`: all its arms
by_training(experiment, "trained", [[1.0, 0.5], [0.5, 0.0]]) == {0: [1.0, 0.5], 1: [0.5, 0.0]}   (seeds 0 and 1)
match_runs({0: x, 1: y}, {0: z, 1: u, 2: v})   x is paired with z, y with u
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arc_refinery import config, records
from arc_refinery.config import BaseArm, Compared
from arc_refinery.errors import InputError
from arc_refinery.evaluation.intervals import Estimate, estimate_difference
from arc_refinery.records import RecordError

AnyArm = TypeVar("AnyArm", bound=BaseArm)
Values = NDArray[np.float64]
Runs = dict[int | None, Values]  # (tasks,) values by seed of training (None: untrained), means over samplings
ADVICE = "Give the settings.json of the experiment that made it, or run the experiment again"
_COLUMNS = ("model", "adapter", "seed", "temperature", "top_p")


@dataclass(frozen=True, slots=True)
class Side:
    """The results of an experiment, or of one of its arms."""

    folder: Path
    experiment: Compared[Any]
    arm: str = ""  # empty: all of them

    @property
    def sets(self) -> list[str]:
        return self.experiment.set_names

    @property
    def arms(self) -> list[str]:
        """Names that can be compared: arms, and repeated arms by the name that their repetitions share."""
        return list(dict.fromkeys([*self.experiment.repetitions, *(arm.name for arm in self.experiment.arms)]))

    @property
    def title(self) -> str:
        return f"`{self.folder}:{self.arm}`" if self.arm else f"`{self.folder}`"


def read_sides(texts: Sequence[str]) -> list[Side]:
    """Parse the sides of a comparison, two or more; those of refining are of one domain."""
    if len(texts) < 2:
        raise InputError(
            f"nothing to compare with {texts[0] if texts else 'anything'}; name two experiments, or arms of them, "
            "such as results/demo:refine-trained results/demo:independent"
        )
    sides = [side(text) for text in texts]
    domains = {side.experiment.domain: side for side in sides if hasattr(side.experiment, "domain")}
    if len(domains) > 1:
        (domain, first), (other, second), *_ = domains.items()
        raise InputError(
            f"{first.folder} is of the domain {domain}, {second.folder} of the domain {other}; compare experiments of "
            "one domain"
        )
    return sides


def side(text: str) -> Side:
    """Parse `<folder of an experiment's results>` or `<folder>:<arm>`."""
    folder, _, arm = text.rpartition(":") if ":" in text and not Path(text).is_dir() else (text, "", "")
    settings = Path(folder, "settings.json")
    if not settings.is_file():
        raise InputError(
            f"{settings}: no such file; expected the results of an experiment, such as results/demo, or of one of its "
            "arms, such as results/demo:independent. Run it first: snakemake --cores 2 --configfile <its config>"
        )
    experiment = config.load_experiment(settings)
    if not isinstance(experiment, Compared):
        raise InputError(f"{settings}: its kind is {experiment.kind}; expected refining or tool-use, which have arms")
    parsed = Side(Path(folder), experiment, arm)
    if arm and arm not in parsed.arms:
        raise InputError(f"{settings}: has no arm {arm}; its arms are {', '.join(parsed.arms)}")
    return parsed


def sets_of(side: Side, wanted: Sequence[str]) -> list[str]:
    """Return the wanted sets of a side, by default all."""
    if missing := [name for name in wanted if name not in side.sets]:
        raise InputError(f"{side.folder}: has no set {missing[0]}; --set can be {', '.join(side.sets)}")
    return list(dict.fromkeys(wanted)) or side.sets


def find(
    ids: Mapping[str, Sequence[str]], set_name: str | None, wanted: str | None, side: Side
) -> tuple[str, str | None]:
    """Return the set and the whole id of a task or question, of which `wanted` may be the beginning; `ids`: by set.

    Without `wanted`, the id is None. Without `set_name`, the set is the first one that has the id.
    """
    if set_name is not None and set_name not in ids:
        raise InputError(f"{side.folder}: has no set {set_name}; --set can be {', '.join(ids)}")
    sets = ids if set_name is None else {set_name: ids[set_name]}
    if wanted is None:
        return next(iter(sets)), None
    for name, known in sets.items():
        beginning = [row_id for row_id in known if row_id.startswith(wanted)]
        if wanted in known or len(beginning) == 1:
            return name, wanted if wanted in known else beginning[0]
        if beginning:
            raise InputError(
                f"--task {wanted}: begins several ids of {name}: {', '.join(beginning[:3])}; write more of it"
            )
    examples = get_close_matches(wanted, chain(*sets.values()), n=3) or [known[0] for known in sets.values() if known]
    raise InputError(
        f"--task {wanted}: is not in {', '.join(sets)} of {side.folder}; expected an id such as {', '.join(examples)}"
    )


def arms_to_show(side: Side, sides: Sequence[Side]) -> list[str]:
    """Return the arms of a side that a comparison shows: those that any side names, else all."""
    if side.arm:
        return [side.arm]
    named = {named_side.arm for named_side in sides}
    return [arm for arm in side.arms if arm in named] or list(side.experiment.repetitions)


def arms_to_pair(first: Side, second: Side) -> list[tuple[str, str]]:
    """Return pairs of arms: the named ones; with one name given, that arm of both sides; else all names in both."""
    if first.arm and second.arm:
        pairs = [(first.arm, second.arm)]
    elif named := first.arm or second.arm:
        if named not in first.arms or named not in second.arms:
            raise InputError(
                f"{first.folder} and {second.folder} do not both have the arm {named}; name two, such as "
                f"{first.folder}:{first.arm or first.arms[0]} {second.folder}:{second.arm or second.arms[0]}"
            )
        pairs = [(named, named)]
    else:
        pairs = [(arm, arm) for arm in first.experiment.repetitions if arm in second.experiment.repetitions]
    if first.folder.resolve() == second.folder.resolve() and all(arm == other for arm, other in pairs):
        raise InputError(
            f"{first.folder} would be compared with itself; name two arms, such as "
            f"{' '.join(f'{first.folder}:{arm}' for arm in first.arms[:2])}"
        )
    return pairs


def sets_to_compare(sides: Sequence[Side], wanted: Sequence[str] = ()) -> list[str]:
    """Return the wanted sets, by default all that several sides have."""
    counts = Counter(name for side in sides for name in side.sets)
    shared = [name for name, n in counts.items() if n > 1]
    folders = " and ".join(dict.fromkeys(str(side.folder) for side in sides))
    if not shared:
        raise InputError(
            f"{folders} have no set in common ({'; '.join(', '.join(side.sets) for side in sides)}); compare "
            "experiments that were evaluated on the same set"
        )
    if missing := [name for name in wanted if name not in shared]:
        raise InputError(f"{folders}: no two have the set {missing[0]}; --set can be {', '.join(shared)}")
    return list(wanted) or shared


def both_sides(runs: Sequence[Sequence[tuple[AnyArm, AnyArm]]]) -> tuple[list[list[AnyArm]], list[list[AnyArm]]]:
    """Return the first and the second arm of each pair, run by run."""
    return [[first for first, _ in run] for run in runs], [[second for _, second in run] for run in runs]


def run_means(values: Sequence[Sequence[ArrayLike]]) -> list[Values]:
    """Return the mean over the pairs of each run, (tasks,) values each."""
    return [np.mean(np.asarray(run, dtype=float), axis=0) for run in values]


def by_training(experiment: Compared[Any], arm: str, values: Sequence[ArrayLike]) -> Runs:
    """Group the values of an arm's repetitions by training; samplings with one adapter are one run."""
    by_seed: dict[int | None, list[ArrayLike]] = {}
    for repetition, repetition_values in zip(experiment.arms_called(arm), values, strict=True):
        adapters = repetition.adapters - {"none"}
        seed = experiment.seed_of(min(adapters)) if adapters else None
        by_seed.setdefault(seed, []).append(repetition_values)
    return {seed: np.mean(np.asarray(same, dtype=float), axis=0) for seed, same in by_seed.items()}


@dataclass(frozen=True, slots=True)
class MatchedRuns:
    """Values of two sides, (runs, tasks) each, as they are compared."""

    first: Values
    second: Values
    is_paired: bool  # by run; False: two samples of runs
    note: str  # which runs are compared, and what the interval does not cover; empty: nothing to say

    @property
    def difference(self) -> Estimate:
        return estimate_difference(self.first, self.second, self.is_paired)


def match_runs(a: Mapping[Any, Values], b: Mapping[Any, Values], what: str = "trainings") -> MatchedRuns:
    """Match the runs of two sides by seed or name; `what` they are called.

    A side of one run is paired with each of the other. Otherwise the runs that both sides have are paired; without any,
    the sides are two samples of runs.
    """
    if min(len(a), len(b)) == 1:
        n_runs, (single, *_) = max(len(a), len(b)), a if len(a) == 1 else b
        first, second = (np.array([*side.values()] * (n_runs if len(side) == 1 else 1)) for side in (a, b))
        note = f"the interval does not cover other {what} of the side that has one" if n_runs > 1 else ""
        return MatchedRuns(first, second, True, _note(note if single is not None else "", n_runs, what))
    shared = [run for run in a if run in b]
    first, second = (np.array([side[run] for run in shared or side]) for side in (a, b))
    if not shared:
        note = f"the sides have no {what} in common, so {len(a)} and {len(b)} are compared as independent samples"
    elif len(shared) == max(len(a), len(b)):
        note = ""
    else:
        counts = f"{len(shared)} of {len(a)} and {len(b)} {what}"
        note = f"{counts} are compared, those that both sides have: {', '.join(map(str, shared))}"
        if len(shared) == 1:
            note += f"; the interval does not cover other {what}"
    n_runs = len(shared) or min(len(a), len(b))
    return MatchedRuns(first, second, bool(shared), _note(note, n_runs, what))


def _note(text: str, n_runs: int, what: str) -> str:
    too_few = f"two {what} are too few for an interval, which takes three" if n_runs == 2 else ""
    sentences = "; ".join(filter(None, [text, too_few]))
    return f"{sentences[:1].upper()}{sentences[1:]}." if sentences else ""


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


def _is_same_model(first: str, second: str) -> bool:
    """Return whether two paths name one model: folders may have moved since."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    return Path(first).name == Path(second).name and not (Path(first).exists() and Path(second).exists())
