"""Outputs of a stage or a command, checked before it starts: it never replaces files that it did not make.

A stage declares its outputs where it names them, and so does a command, or in its own `writes`:

    output: Annotated[Path, Writes(records_file, "tasks")]

What already exists there must be empty or of the same making, may not be an input, and must be writable.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from pydantic import BaseModel

from arc_refinery.errors import InputError
from arc_refinery.files import read_json

PATHS = ("path", "solutions", "only", "template", "model_path", "start")  # texts of flags that name an input
SNAKEMAKES = ".snakemake_timestamp"  # in each folder that a rule declares
ADAPTER = ("adapter_config.json", "adapter_model.safetensors", "training.jsonl", "samples.parquet", "checkpoints")


@dataclass(frozen=True, slots=True)
class Output:
    """A file or a folder that a command writes."""

    path: Path
    what: str  # a file of tasks
    why_not_overwritable: Callable[[Path], str]  # what is there instead; empty if a command like this one wrote it
    is_folder: bool = False
    is_whole: bool = False  # a folder that is replaced with all that is in it


Outputs = Mapping[str, Sequence[Output]]  # by the name of the flag's field


class Writes:
    """On a field with a path, or with several: what the command writes there."""

    def __init__(self, kind: Callable[..., Output | list[Output]], *facts: str) -> None:
        self.kind, self.facts = kind, facts

    def outputs(self, value: Path | tuple[Path, ...] | None) -> list[Output]:
        paths = value if isinstance(value, tuple) else [value] if value else []
        kinds = [self.kind(path, *self.facts) for path in paths]
        return [output for kind in kinds for output in (kind if isinstance(kind, list) else [kind])]


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check_outputs(arguments: Mapping[str, Any], declared: Outputs, label: Callable[[str], str] = flag_of) -> None:
    """Raise `InputError` if a command would replace an input or something that it did not make.

    `label` is what a person types for the field of an argument.
    """
    named = [pair for name, value in arguments.items() if name not in declared for pair in _texts(name, value)]
    taken = {os.path.realpath(path): f"is read by {label(name)}" for name, path in named}
    for name, outputs in declared.items():
        for output in outputs:
            where = f"{label(name)}: {output.path}"
            if (place := os.path.realpath(output.path)) in taken:
                raise InputError(f"{where} {taken[place]}, and would be replaced; name another output")
            taken[place] = f"is also written by {label(name)}"
            if fault := _fault(output):
                raise InputError(f"{where} {fault}")
    _check_apart([(label(name), output) for name, outputs in declared.items() for output in outputs])


def _check_apart(outputs: Sequence[tuple[str, Output]]) -> None:
    """Raise `InputError` if an output is in a folder that another one replaces."""
    for (outer_flag, outer), (flag, inner) in permutations(outputs, 2):
        if outer.is_whole and Path(os.path.realpath(inner.path)).is_relative_to(os.path.realpath(outer.path)):
            raise InputError(
                f"{flag}: {inner.path} is in {outer.path}, which {outer_flag} replaces; name another output"
            )


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield what may name an input, in a value and in what is inside it."""
    if (isinstance(value, Path) or (isinstance(value, str) and name in PATHS)) and "\0" not in str(value):
        yield name, str(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(name, item)
    elif isinstance(value, BaseModel):
        for inner, item in value:
            yield from _texts(inner, item)


def _fault(output: Output) -> str:
    """Return why an output cannot be written; empty if it can."""
    path, kind = output.path, "a folder" if output.is_folder else "a file"
    if path.name in ("", ".."):
        return f"has no name of its own; expected the path of {output.what}"
    try:
        if fault := _fault_of_parent(path):
            return fault
        if not path.exists():
            return ""
        if path.is_dir() != output.is_folder:
            other = "a folder" if path.is_dir() else "a file" if path.is_file() else "a pipe or a device"
            return f"is {other}; expected the path of {output.what}, which is {kind}. Name another output"
        if not (path.is_file() or path.is_dir()):
            return "is a pipe or a device; name another output"
        is_empty = not any(path.iterdir()) if output.is_folder else not path.stat().st_size
        reason = "" if is_empty else output.why_not_overwritable(path)
    except Exception:  # noqa: BLE001  # whatever its reader raises
        reason = "it cannot be read as one"
    if not reason:
        return ""
    return f"exists and is not {output.what}: {reason}. Nothing was changed; name another output, or move it away"


def _fault_of_parent(path: Path) -> str:
    parent = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not parent.is_dir():
        return f"cannot be written: {parent} is a file where a folder is needed. Name another output, or move it away"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"cannot be written: {parent} is not writable; make it so, or write elsewhere"
    return ""


# Kinds of outputs


def records_file(path: Path, kind: str) -> Output:
    def why_not_overwritable(path: Path) -> str:
        from arc_refinery import records

        other = records.kind_of(path)
        return "" if other == kind else f"it holds {other}"

    return Output(path, f"a file of {kind}", why_not_overwritable)


def table(path: Path, columns: Sequence[str]) -> Output:
    def why_not_overwritable(path: Path) -> str:
        import pyarrow.parquet as pq

        names = pq.read_schema(path).names  # its errors are OSError or ValueError
        return "" if {*columns} <= {*names} else f"its columns are {', '.join(names[:5])}"

    return Output(path, f"a table with the columns {', '.join(islice(columns, 3))}, ...", why_not_overwritable)


def page(path: Path, title: str) -> Output:
    """A Markdown page that begins with `# <title>`, or its HTML page."""
    begins = rf"# {title}\b" if path.suffix != ".html" else rf"(?s)<!doctype html>.*<title>{title}\b"
    return _text(path, f"a page with the title {title!r}", begins)


def _text(path: Path, what: str, begins: str) -> Output:
    def why_not_overwritable(path: Path) -> str:
        with path.open("rb") as file:
            start = file.read(40_000).decode(errors="replace")
        return "" if re.match(begins, start) else f"it begins with {start[:40]!r}"

    return Output(path, what, why_not_overwritable)


def report(path: Path, title: str) -> list[Output]:
    return [page(path, title), page(path.with_suffix(".html"), title)]


def picture(path: Path) -> list[Output]:
    """A plot as PNG, and next to it as SVG."""
    return [Output(path, "a plot as PNG", _why_not_a_plot), svg(path.with_suffix(".svg"))]


def svg(path: Path) -> Output:
    return _text(
        path, "a plot as SVG", r'(?s)<\?xml.*<!DOCTYPE svg.*http://purl\.org/dc/dcmitype/StillImage.*id="figure_1"'
    )


def _why_not_a_plot(path: Path) -> str:
    """Photos and drawings have other chunks: matplotlib writes the size, the resolution and the cells."""
    with path.open("rb") as file:
        start = file.read(62)
    is_plot = start[:8] == b"\x89PNG\r\n\x1a\n" and start[12:16] == b"IHDR" and start[37:41] == b"pHYs"
    return "" if is_plot and start[-4:] == b"IDAT" else "it is not a PNG file as a plot is saved"


def csv(path: Path, header: str) -> Output:
    return _text(path, f"a table that begins with {header!r}", re.escape(header))


def lines(path: Path, *keys: str) -> Output:
    """JSON lines; the first one, at least, has these keys."""

    def why_not_overwritable(path: Path) -> str:
        with path.open("rb") as file:
            first = json.loads(file.readline(1_000_000))
        return _lacks(first, keys)

    return Output(path, f"a file of JSON lines with the keys {', '.join(keys)}", why_not_overwritable)


def json_file(path: Path, *keys: str) -> Output:
    return Output(path, f"a JSON file with the keys {', '.join(keys)}", lambda path: _lacks(read_json(path, ""), keys))


def submission(path: Path) -> Output:
    """Kaggle's: `{"<task>": [{"attempt_1": ..., "attempt_2": ...}]}`."""

    def why_not_overwritable(path: Path) -> str:
        read_json(path, "a submission", dict[str, list[_Guesses]])
        return ""

    return Output(path, "a submission", why_not_overwritable)


class _Guesses(BaseModel):
    attempt_1: Any


def folder(path: Path, what: str, needed: Iterable[str], names: str = ".*") -> Output:
    """A folder that holds the files `needed`, and whose entries all match `names`."""

    def why_not_overwritable(path: Path) -> str:
        entries = sorted(entry.name for entry in path.iterdir() if entry.name != SNAKEMAKES)
        if foreign := [name for name in entries if not re.fullmatch(names, name)]:
            return f"it holds {foreign[0]}"
        lacking = [name for name in needed if name not in entries]
        return f"it holds {entries[0]}, but no {lacking[0]}" if entries and lacking else ""

    return Output(path, what, why_not_overwritable, is_folder=True, is_whole=True)


def folder_of_files(path: Path, what: str, needed: Sequence[str]) -> Output:
    """A folder into which files are written; others stay."""
    return replace(folder(path, what, needed), is_whole=False)


def adapter(path: Path) -> Output:
    return folder(path, "an adapter that was trained here", ADAPTER[:3], "|".join(map(re.escape, ADAPTER)))


def checkpoints(path: Path) -> Output:
    from arc_refinery.training.checkpoints import foreign

    return Output(path, "a folder of checkpoints", foreign, is_folder=True, is_whole=True)


def curves(path: Path) -> Output:
    return Output(path, "a folder of curves", lambda _: "", is_folder=True)


def links(path: Path) -> list[Output]:
    """Files of the hub, and beside them their list."""
    folder_of_links = Output(path, "a folder of links", lambda _: "", is_folder=True)
    return [folder_of_links, json_file(path.with_name(f"{path.name}.json"), "repository", "commit", "files")]


def torch_file(path: Path) -> Output:
    return Output(path, "a checkpoint", lambda path: "" if is_zipfile(path) else "torch did not write it")


def _lacks(content: Any, keys: Sequence[str]) -> str:
    lacking = [key for key in keys if not isinstance(content, dict) or key not in content]
    return f"it has no key {lacking[0]}" if lacking else ""
