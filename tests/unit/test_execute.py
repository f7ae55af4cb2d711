"""`arc-refinery execute` as its users run it: JSON lines in, JSON lines out, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FLIP = "from common import *\ndef transform(grid):\n    return np.fliplr(grid)"


def execute(tmp_path: Path, *flags: str, lines: list[Any]) -> subprocess.CompletedProcess[str]:
    programs = tmp_path / "programs.jsonl"
    programs.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    command = ["execute", "--programs", programs, "--output", tmp_path / "verdicts.jsonl", *flags]
    return subprocess.run(
        [sys.executable, "-c", "from arc_refinery.cli import main; main()", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("programs_per_child", ["1", "8"])
def test_one_verdict_a_program_in_their_order(tmp_path: Path, programs_per_child: str) -> None:
    lines = [
        {"program_id": "flip", "source": FLIP, "inputs": [[[1, 2], [3, 4]], [[5, 6]]]},
        {"program_id": "é", "source": "while True: pass", "inputs": [[[1]]]},
        {"program_id": "index", "source": "def transform(grid):\n    return grid[7]", "inputs": [[[1]]]},
        {"program_id": "exit", "source": "import os\nos._exit(3)", "inputs": []},
        {"program_id": "number", "source": "def transform(grid): return 4", "inputs": [[[1]]]},
        {
            "program_id": "flip",
            "source": FLIP,
            "inputs": [[[7, 0]]],
            "note": "ids may repeat, other fields are ignored",
        },
        {"program_id": "none", "source": FLIP, "inputs": []},
    ]
    done = execute(
        tmp_path, "--n-jobs", "2", "--cpu-seconds", "0.4", "--programs-per-child", programs_per_child, lines=lines
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert all(row.pop("cpu_seconds") > 0 for row in rows)
    keys = ["program_id", "status", "outputs", "error_type", "error_message", "error_line"]
    assert all(list(row) == keys for row in rows)
    assert [list(row.values()) for row in rows] == [
        ["flip", "ok", [[[2, 1], [4, 3]], [[6, 5]]], "", "", None],
        ["é", "timeout", [], "Timeout", "more than 0.4 s of CPU time", None],
        ["index", "error", [], "IndexError", "index 7 is out of bounds for axis 0 with size 1", 2],
        ["exit", "crash", [], "Crash", "the process ended without a result", None],
        ["number", "invalid_output", [], "InvalidOutput", "output 0 is 0-D, expected 2-D", None],
        ["flip", "ok", [[[0, 7]]], "", "", None],
        ["none", "ok", [], "", "", None],
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: is no JSON (Expecting property name enclosed in double quotes, column 2)"),
        ("[]", "line 2: is a list; expected {"),
        ({"source": "", "inputs": []}, "line 2: program_id is missing; expected {"),
        ({"program_id": 7, "source": "", "inputs": []}, "line 2: program_id is a int; expected {"),
        (
            {"program_id": "a", "source": "", "inputs": [[[1, 2], [3]]]},
            "line 2: inputs: grid 0 is rows of different len",
        ),
        ({"program_id": "a", "source": "", "inputs": [[[1]], [[12]]]}, "line 2: inputs: grid 1 is cells 12..12, expec"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_written(tmp_path: Path, line: Any, message: str) -> None:
    done = execute(tmp_path, lines=[{"program_id": "flip", "source": FLIP, "inputs": []}, line])
    assert done.returncode == 1
    assert f"arc-refinery: {tmp_path}/programs.jsonl, {message}" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["programs.jsonl"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--cpu-seconds", "0"], "the limit cpu_seconds is 0.0, expected a positive number"),
        (["--n-jobs", "0"], "n_jobs is 0, expected 1 or more"),
        (["--programs", "missing.jsonl"], "missing.jsonl: no such file; expected lines like {"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: list[str], message: str) -> None:
    done = execute(tmp_path, *flags, lines=[])
    assert done.returncode == 1
    assert f"arc-refinery: {message}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    done = execute(tmp_path, "--programs", str(tmp_path / "binary"), lines=[])
    assert done.returncode == 1
    assert f"arc-refinery: {tmp_path}/binary: cannot be read as UTF-8 text" in done.stderr
