"""The sandbox as a command (`arc-refinery execute`): programs in and outcomes out as JSON lines.

{"program_id": "flip", "source": "import numpy as np\\n\\ndef transform(grid):\\n    return np.fliplr(grid)",
 "inputs": [[[0, 1], [2, 3]]]}
{"program_id": "flip", "status": "ok", "outputs": [[[1, 0], [3, 2]]], "error_type": "", "error_message": "",
 "error_line": null, "cpu_seconds": 0.002893}
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from arc_refinery.arc.grids import GridError, as_grid
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, check_regular, decode_json, in_words
from arc_refinery.sandbox.executor import Executor
from arc_refinery.sandbox.types import Outcome, Program

EXPECTED = '{"program_id": "...", "source": "...", "inputs": [[[0, 1], [2, 3]], ...]}'


def count_programs(programs: Path) -> int:
    """Return the number of programs of a file; raise `InputError` unless all can be executed."""
    check_regular(programs)  # it is read twice
    names: set[str] = set()
    for program in read_programs(programs):
        if program.program_id in names:
            raise InputError(f"{programs}: two programs are called {program.program_id}; give each its own program_id")
        names.add(program.program_id)
    if not names:
        raise InputError(f"{programs}: has no programs; expected at least one")
    return len(names)


def execute_file(programs: Path, output: Path, executor: Executor, n_programs: int) -> None:
    """Write one outcome per line for each program of a file, in order, with a progress bar of `n_programs`.

    Equal programs with equal inputs are executed once and have the same `cpu_seconds`.
    """
    with atomic_write(output) as unfinished, open(unfinished, "w", encoding="utf-8") as lines:
        outcomes = executor.run(read_programs(programs))
        for outcome in tqdm(outcomes, total=n_programs, unit="program", mininterval=1):
            lines.write(f"{json.dumps(outcome_row(outcome))}\n")


def read_programs(path: Path) -> Iterator[Program]:
    """Yield the programs of a file, one per line; raise `InputError` that names file, line and field."""
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _program(line, f"{path}, line {number}")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected lines like {EXPECTED}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text: {error}") from None


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as a JSON object."""
    return {
        "program_id": outcome.program_id,
        "status": str(outcome.status),
        "outputs": [grid.tolist() for grid in outcome.outputs],
        "error_type": outcome.error_type,
        "error_message": outcome.error_message,
        "error_line": outcome.error_line,
        "cpu_seconds": round(outcome.cpu_seconds, 6),
    }


def _program(line: str, where: str) -> Program:
    row = decode_json(line.strip(), f"{where}: it", EXPECTED)
    if not isinstance(row, dict):
        raise InputError(f"{where}: is {in_words(row)}; expected {EXPECTED}")
    for field, kind in (("program_id", str), ("source", str), ("inputs", list)):
        if field not in row:
            raise InputError(f"{where}: {field} is missing; expected {EXPECTED}")
        if not isinstance(row[field], kind):
            raise InputError(f"{where}: {field} is {in_words(row[field])}; expected {EXPECTED}")
    inputs = []
    for number, grid in enumerate(row["inputs"]):
        try:
            inputs.append(as_grid(grid))
        except GridError as error:
            raise InputError(f"{where}: inputs: grid {number} is {error}") from None
    return Program(row["program_id"], row["source"], tuple(inputs))
