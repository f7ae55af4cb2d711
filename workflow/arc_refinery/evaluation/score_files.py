"""Scores of tasks in files of any evaluation: one row per attempt, with a task and a number.

    {"doc_id": 17, "exact_match": 1.0, "seed": 3}    read_scores([path], ScoreColumns("doc_id", "exact_match", "seed"))

Read are JSON lines, JSON (a list of rows, an object with one, or rows by the ids of tasks), CSV, Parquet, and the .eval
files of inspect_ai: score_rows.py. Columns inside others have names with dots: `scores.match.value`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from arc_refinery.errors import InputError
from arc_refinery.evaluation.score_rows import Row, score_rows
from arc_refinery.evaluation.sides import Values

# Columns that are taken if none is named. lm-evaluation-harness 0.4.13: doc_id; inspect_ai 0.3.285: id
TASKS = ("task_id", "doc_id", "question_id", "example_id", "problem_id", "id", "instance_id", "sample_id")
SCORES = ("solved", "is_correct", "correct", "right", "score", "reward", "exact_match", "acc", "pass@1")
MORE_SCORES = ("passed", "resolved", "is_resolved")  # without one of these: human-eval, SWE-bench
# EvalPlus, BigCodeBench, own files
OUTCOMES = {
    **dict.fromkeys(("pass", "passed", "correct", "success"), 1.0),
    **dict.fromkeys(("fail", "failed", "incorrect", "failure", "timeout"), 0.0),
}
GRADES = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, **OUTCOMES}
BY_SCORER = {"scores": "value", "rewards": "score"}  # columns with an object per scorer: inspect_ai, verifiers
# Columns that all rows of a task share
QUESTIONS = ("question", "problem", "doc", "target", "instruction", "input", "expected", "passage", "query")
# Beginnings of the word that says what a column has, if it may differ between attempts at one question
OF_ATTEMPTS = re.compile(
    r"(?:answer|attempt|trial|try|retr|run|seed|epoch|repeat|replic|rep$|rollout|iter|step|turn|arm|model|adapter|prompt"
    r"|resp|output|completion|predict|generat|result|status|outcome|error|exception|finish|stop|reason|extract|parse|verdict"
    r"|judg|score|correct|solve|pass|reward|metric|time|date|created|start|end|uuid|hash|token|cost|length|len$|latency"
    r"|duration|elapsed|seconds|code$|program$|patch|solution|log|trace|explan|thought|thinking|comment|feedback|filter|text"
    r"|content|message|host|worker|node|store|attach|usage|role|sample|temperature|call|rank|gpu|device|pid$)"
)
# Words that only say how it is named or counted
COUNTING = {"id", "idx", "index", "n", "no", "num", "number", "count", "name", "key", "at", "ms", "k", "i", "j"}
LABEL = 60  # characters at most of the name of a subject or a set
FEW_LABELS = 8
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".tsv", ".parquet", ".eval")
MAX_LISTED = 20
SideFiles: TypeAlias = Path | Sequence[Path]
LARGEST = 1e100  # score, with which sums of squares are still numbers


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """Columns to read; empty: found by name."""

    task: str = ""
    score: str = ""
    run: str = ""  # empty: all rows are of one run
    side: str = ""  # empty: each file is a side
    where: tuple[tuple[str, str], ...] = ()  # columns and values that a row must have
    is_task_found: bool = False  # by name


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a side, by run and by task: means over the rows of a task in a run."""

    name: str
    runs: Mapping[str, Mapping[str, float]]
    n_rows: tuple[int, ...]  # numbers of rows that tasks have in a run, without repetitions
    filter: str = ""  # of lm-evaluation-harness: how an answer was taken out of a text
    left_out: tuple[tuple[str, int], ...] = ()  # why rows were left out, and their numbers
    logs: tuple[str, ...] = ()  # sentences about its files, such as that a run was cancelled

    @property
    def tasks(self) -> list[str]:
        """Tasks that all runs have, in the order of the first."""
        first, *others = self.runs.values()
        return [task for task in first if all(task in other for other in others)]

    def of(self, runs: Iterable[str]) -> "Scores":
        return replace(self, runs={run: self.runs[run] for run in runs})

    def table(self, tasks: Sequence[str]) -> dict[str, Values]:
        return {run: np.array([values[task] for task in tasks]) for run, values in self.runs.items()}


def is_score_file(text: str) -> bool:
    return text.endswith(SUFFIXES) and not Path(text).is_dir()


def read_scores(sides: Sequence[SideFiles], columns: ScoreColumns) -> tuple[list[Scores], ScoreColumns]:
    """Return the sides in these files, in the order in which they appear, and the columns that were read.

    Several files of one side are its runs. Raises `InputError` for what is not a score, and where files would be read
    by different columns.
    """
    sums: dict[str, dict[str, dict[str, list[float]]]] = {}
    read: dict[Path, ScoreColumns] = {}
    filters: dict[str, set[str]] = {}
    left_out: dict[str, Counter[str]] = {}
    logs: dict[str, list[str]] = {}
    questions: dict[tuple[str, str], int] = {}
    files_of_sides = [(side,) if isinstance(side, Path) else tuple(side) for side in sides]
    if columns.run and max(map(len, files_of_sides)) > 1:
        raise InputError(
            f"--runs is {columns.run}, but files separated by commas are runs already; leave one of them out"
        )
    is_named = len({files[0].name for files in files_of_sides}) == len(files_of_sides)  # without their folders
    for files in files_of_sides:
        name_of_files = files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        for number, path in enumerate(files, 1):
            log: list[str] = []
            side = ""
            for row in _score_rows(path, columns, read, log):
                side = row.side or (name_of_files if is_named else ",".join(map(str, files)))
                run = row.run or (str(number) if len(files) > 1 else "")
                if row.score is None:
                    left_out.setdefault(side, Counter())[row.why] += 1
                    continue
                sums.setdefault(side, {}).setdefault(run, {}).setdefault(row.task, []).append(row.score)
                filters.setdefault(side, set()).update({row.filter} - {""})
                for name, text in row.questions:
                    if questions.setdefault((row.task, name), hash(text)) == hash(text):
                        continue
                    if name == "doc_hash":
                        raise InputError(
                            f"{path}: task {row.task} has another doc_hash than in a row before; expected files of the "
                            "same data"
                        )
                    _not_in_silence(path, read[path], row.task, name, "", log)
            logs.setdefault(side, []).extend(log)
    for side, reasons in left_out.items():
        if side not in sums:
            raise InputError(f"{side}: none of its {reasons.total()} samples has a score")
    for side, names in filters.items():
        if len(names) > 1:  # lm-evaluation-harness scores each answer once for each
            first, second, *_ = sorted(names)
            raise InputError(
                f"{side}: filter is {first} and {second}; choose one, such as --where filter={first}, or compare "
                "them with --side filter"
            )
    if len(ways := {(of_file.task, of_file.score) for of_file in read.values()}) > 1:
        found = "; ".join(f"{path}: {of_file.task}, {of_file.score}" for path, of_file in read.items())
        raise InputError(
            f"{len(ways)} ways to read the task and the score ({found}); name them with --task and --score, and "
            "rename columns that not all files have"
        )
    scores = [
        Scores(
            side,
            {run: {task: fsum(v) / len(v) for task, v in tasks.items()} for run, tasks in runs.items()},
            tuple(sorted({len(v) for tasks in runs.values() for v in tasks.values()})),
            min(filters[side], default=""),
            tuple(left_out.get(side, Counter()).items()),
            tuple(logs.get(side, ())),
        )
        for side, runs in sums.items()
    ]
    return scores, next(iter(read.values()))


class _ScoreRow(NamedTuple):
    task: str
    side: str
    run: str
    score: float | None  # None: left out
    why: str  # it is left out
    filter: str  # of lm-evaluation-harness
    questions: list[tuple[str, str]]  # texts by columns, that all rows of the task share


def _score_rows(
    path: Path, columns: ScoreColumns, read: dict[Path, ScoreColumns], log: list[str]
) -> Iterator[_ScoreRow]:
    """Yield the wanted rows of a file; `read` gets the columns that they are read by, `log` sentences on the file."""
    n_rows: Counter[tuple[str, str, str]] = Counter()
    n_left_out = 0
    for where, row in _wanted_rows(path, columns, log):
        why = _why_left_out(row, read[path].score if path in read else columns.score, where)
        if not why and path not in read:
            named = columns.task or _task_column(row, path), columns.score or _score_column(row, path)
            read[path] = replace(columns, task=named[0], score=named[1], is_task_found=not columns.task)
            why = _why_left_out(row, named[1], where)
        if why:
            n_left_out += 1
            side = _name(_value(row, columns.side, where), f"{where}: {columns.side}") if columns.side else ""
            yield _ScoreRow("", side, "", None, why, "", [])
            continue
        of_file = read[path]
        key = _key(row, of_file, where)
        n_rows[key] += 1
        score = _number(_value(row, of_file.score, where), where, of_file.score)
        is_hashed = of_file.task == "doc_id" and row.get("doc_hash") is not None  # lm-evaluation-harness
        names = ("doc_hash",) if is_hashed else QUESTIONS
        questions = [(name, " ".join(_text(row[name]).split())) for name in names if row.get(name) is not None]
        yield _ScoreRow(*key, score, "", _text(row.get("filter", "")), questions)
    if n_left_out and not n_rows:
        raise InputError(f"{path}: none of its {n_left_out} samples has a score")
    if not n_rows:
        wanted = " and ".join(f"{column} = {value}" for column, value in columns.where)
        raise InputError(f"{path}: has no rows{f' with {wanted} (--where)' if wanted else ''}")
    if max(n_rows.values()) > 1 and path.suffix != ".eval":  # whose ids differ
        _check_questions(path, read[path], log)


def _wanted_rows(path: Path, columns: ScoreColumns, log: list[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows that `where` selects, each with its name for messages."""

    def is_scored(row: Row) -> bool:
        names = {*_known_scores(row)} - {"pass@1"}  # which is of many tasks
        return bool(names) or columns.score.partition(".")[0] in row or any(row.get(name) for name in BY_SCORER)

    for number, row in enumerate(score_rows(path, is_scored, log), 1):
        where = f"{path}: row {number}"
        if all(_text(_value(row, column, where)) == value for column, value in columns.where):
            yield where, row


def _why_left_out(row: Row, score: str, where: str) -> str:
    """Return why a row has no score that counts; empty if it has one, or if it should have one.

    `score` is empty as long as the column is not known.
    """
    if row.get("invalidation"):
        return "they were invalidated"
    has_error = row.get("error") or row.get("errors")
    first, dot, _ = score.partition(".")
    if dot and first in BY_SCORER:
        value = _value(row, score, where) if row.get(first) else None
        is_scored = value is not None and value == value  # nan is not equal to itself
    elif has_error and not any(row.get(name) for name in BY_SCORER):
        is_scored = any(row.get(name) is not None for name in ([score] if score else _known_scores(row)))
    else:
        is_empty = any(row.get(name, 0) in (None, {}, []) for name in BY_SCORER)
        is_scored = bool(score or _known_scores(row) or not is_empty)
    return "" if is_scored else "they ended with an error" if has_error else "they have no score"


def _key(row: Row, columns: ScoreColumns, where: str) -> tuple[str, str, str]:
    """Return the names of a row's task, side and run."""
    parts = [columns.task] if columns.task in row else columns.task.split(",")
    task, side, run = (
        "/".join(_name(_value(row, part, where), f"{where}: {part}") for part in names if part)
        for names in (parts, [columns.side], [columns.run])
    )
    return task, side, run


def _check_questions(path: Path, columns: ScoreColumns, log: list[str]) -> None:
    """Raise `InputError`, or log a sentence, if rows that would be averaged are no attempts at one question.

    Ids may start again in each subject or set. A column tells them apart if its texts are short and few, and if it
    splits the tasks into groups of equal size, or the file into blocks; attempts differ in texts of other kinds.
    """
    answers: dict[object, str] = {}
    labels: dict[str, Counter[tuple[tuple[str, ...], str]]] = {}
    last: dict[str, str] = {}
    n_blocks: Counter[str] = Counter()
    n_rows = 0
    for where, row in _wanted_rows(path, columns, []):
        if _why_left_out(row, columns.score, where):
            continue
        n_rows, key = n_rows + 1, _key(row, columns, where)
        if "filter" not in row and "filtered_resps" in row:
            answer, filtered = (_text(row.get(name)) for name in ("resps", "filtered_resps"))
            if answers.setdefault((key, answer), filtered) != filtered:
                raise InputError(
                    f"{where}: task {key[0]} has the resps of a row before, and other filtered_resps: each answer is "
                    "scored by several filters. Keep the rows of one, or write the file with a newer "
                    "lm-evaluation-harness, which names them"
                )
        for name, label in _labels(row):
            labels.setdefault(name, Counter())[key, label] += 1
            n_blocks[name] += last.get(name) != label
            last[name] = label
    for name, groups in labels.items():
        tasks_of_labels = Counter(label for _, label in groups)
        n_labels, firsts = len(tasks_of_labels), dict(reversed(groups))
        other = next((group for group in groups if firsts[group[0]] != group[1]), None)
        is_id = n_labels == n_rows and re.search(r"(?:^|[._])id$", name)
        if not other or is_id or groups.total() < n_rows or n_labels > max(FEW_LABELS, n_rows // 2):
            continue
        are_numbers = all(_as_number(label) == _as_number(label) for label in tasks_of_labels)  # nan is not
        if (are_numbers and max(tasks_of_labels.values()) == 1) or all(x.lower() in GRADES for x in tasks_of_labels):
            continue
        if len({*groups.values()}) == 1 or n_blocks[name] == n_labels:
            differ = f"{name} ({firsts[other[0]]}, {other[1]})"
            _not_in_silence(path, columns, other[0][0], differ, name, log)


def _not_in_silence(path: Path, columns: ScoreColumns, task: str, differ: str, name: str, log: list[str]) -> None:
    """Raise `InputError` on rows of one task that seem to be of several; if --task is given, log a sentence instead."""
    what = f"rows with the {columns.task} {task} differ in {differ}"
    if not columns.is_task_found:
        log += (
            [] if any("as one question" in text for text in log) else [f"`{path}`: {what}; they count as one question."]
        )
        return
    both = f"{name},{columns.task}" if name else "and the columns that tell them apart"
    raise InputError(
        f"{path}: {what}; if they are other questions, give --task {both}; if they are attempts at one question, "
        f"--task {columns.task}"
    )


def _labels(row: Row, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the short texts and whole numbers of a row that no attempt is likely to have made, with their columns."""
    for name, value in row.items():
        column = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _labels(value, f"{column}.")
        elif isinstance(value, str | int) and not isinstance(value, bool) and 0 < len(str(value)) <= LABEL:
            is_fraction = _as_number(value) % 1 > 0  # which nan is not
            if not is_fraction and not _is_of_attempts(column):
                yield column, str(value)


def _is_of_attempts(column: str) -> bool:
    """Return whether a column may differ between attempts at one question: by what it or a column around it has."""
    parts = [re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part)) for part in column.split(".")]
    says = [[word for word in map(str.lower, part) if word not in COUNTING] for part in parts]
    heads = [part[-1] for part in says if part and (len(part) == 1 or part[-1] not in ("code", "program"))]
    return any(map(OF_ATTEMPTS.match, heads)) or not any(says)


def _task_column(row: Row, path: Path) -> str:
    if isinstance(task := row.get("task"), Mapping) and isinstance(task.get("data"), Mapping):
        return "task.data.idx"  # a trace of verifiers 0.4
    for name in TASKS:
        if name in row:
            return name
    raise InputError(f"{path}: which column names the task? Give --task, one of {_listed(row)}")


def _score_column(row: Row, path: Path) -> str:
    """Return the metric, score or reward of other tools if there is one, or a known name."""
    if isinstance(metrics := row.get("metrics"), list):
        if len(metrics) != 1:
            names = ", ".join(map(str, metrics)) or _listed(row)
            raise InputError(f"{path}: has {len(metrics)} metrics; give --score, one of {names}")
        return str(metrics[0])
    for name, key in BY_SCORER.items():
        if isinstance(scorers := row.get(name), Mapping) and scorers:
            columns = {f"{name}.{scorer}.{key}": 0 for scorer in scorers}
            if len(columns) > 1:
                raise InputError(f"{path}: has {len(columns)} {name}; give --score, one of {_listed(columns)}")
            return next(iter(columns))
    known = _known_scores(row)
    if len(known) != 1:
        which = f"{' or '.join(known)}?" if known else "which column is it?"
        raise InputError(f"{path}: the score: {which} Give --score, one of {_listed(row)}")
    return known[0]


def _known_scores(row: Row) -> list[str]:
    return (
        [name for name in SCORES if name in row]
        or [name for name in MORE_SCORES if name in row]
        or [name for name, value in row.items() if isinstance(value, str) and value.lower() in OUTCOMES]
    )


def _listed(row: Row) -> str:
    names = [str(name) for name in row]
    return ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")


def _value(row: Row, column: str, where: str) -> Any:
    """Return a value by its column, or by its place in columns: `scores.match.value`."""
    if column in row:
        return row[column]
    first, _, rest = column.partition(".")
    if rest and isinstance(inner := row.get(first), Mapping):
        return _value(inner, rest, where)
    if rest and first in row and inner is None:
        return None
    raise InputError(f"{where}: has no column {column}; it has {_listed(row)}")


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list) or value is None else str(value)


def _name(value: Any, where: str) -> str:
    text = _text(value)
    if value is None or value != value or not text.strip():  # nan is not equal to itself
        raise InputError(f"{where} is empty; expected a name or a number")
    return text


def _number(value: Any, where: str, column: str) -> float:
    if isinstance(value, Mapping) and value:
        parts = {f"{column}.{name}": 0 for name in value}
        raise InputError(f"{where}: {column} is an object; give --score, one of {_listed(parts)}")
    if isinstance(value, str):
        value = GRADES.get(value.lower(), value)
    number = _as_number(value)
    if not abs(number) <= LARGEST:
        raise InputError(f"{where}: {column} is {value!r:.60}; expected a number, true or false, or one of C, I, P, N")
    return number


def _as_number(value: Any) -> float:
    """Return a number, or nan."""
    try:
        return float("nan" if "_" in str(value) else value)  # Python would read 1_000
    except (TypeError, ValueError, OverflowError):
        return float("nan")
