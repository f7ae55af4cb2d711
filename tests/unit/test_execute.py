"""`arc-refinery execute` as its users run it: JSON lines in, JSON lines out."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arc_refinery.cli.attempts import Execute
from arc_refinery.errors import InputError
from arc_refinery.sandbox import seccomp, surroundings
from arc_refinery.sandbox.jsonl import count_programs
from arc_refinery.sandbox.self_check import PROMISES
from arc_refinery.sandbox.types import Trial

FLIP = "from common import *\ndef transform(grid):\n    return np.fliplr(grid)"


def write(tmp_path: Path, lines: list[Any]) -> Path:
    programs = tmp_path / "programs.jsonl"
    programs.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return programs


def execute(tmp_path: Path, *flags: str, lines: list[Any]) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = ["execute", "--programs", write(tmp_path, lines), "--output", tmp_path / "verdicts.jsonl", *flags]
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
            "program_id": "flip again",
            "source": FLIP,
            "inputs": [[[7, 0]]],
            "note": "other fields are ignored",
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
        ["flip again", "ok", [[[0, 7]]], "", "", None],
        ["none", "ok", [], "", "", None],
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: it is not valid JSON (Expecting property name enclosed in double quotes"),
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
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    programs = write(tmp_path, [{"program_id": "flip", "source": FLIP, "inputs": []}, line])
    with pytest.raises(InputError, match=re.escape(f"{programs}, {message}")):
        count_programs(programs)


def test_a_wrong_line_ends_the_command_without_a_traceback(tmp_path: Path) -> None:
    done = execute(tmp_path, lines=["{"])
    assert done.returncode == 1
    assert f"arc-refinery: {tmp_path}/programs.jsonl, line 1: it is " in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["programs.jsonl"], "nothing is written"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cpu_seconds": 0.0}, "the limit cpu_seconds is 0.0, expected a positive number"),
        ({"n_jobs": 0}, "n_jobs is 0, expected 1 or more"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: dict[str, Any], message: str) -> None:
    given = {
        "programs": write(tmp_path, [{"program_id": "flip", "source": FLIP, "inputs": []}]),
        "output": tmp_path / "verdicts.jsonl",
    } | flags
    with pytest.raises(InputError, match=re.escape(message)):
        Execute(**given).run()


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=f"{tmp_path}/binary: cannot be read as UTF-8 text"):
        count_programs(tmp_path / "binary")
    with pytest.raises(InputError, match=f"{tmp_path}/missing: no such file; expected lines like {{"):
        count_programs(tmp_path / "missing")


def trials(capsys: pytest.CaptureFixture[str]) -> dict[str, bool]:
    """Which promises the printed table says are kept."""
    lines = capsys.readouterr().out.splitlines()
    return {line[8:50].strip(): line.startswith("kept") for line in lines if line.startswith(("kept", "BROKEN"))}


def test_the_self_check_tries_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    Execute(self_check=True).run()
    assert trials(capsys) == dict.fromkeys(PROMISES, True)


def test_the_self_check_finds_a_sandbox_without_its_filter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seccomp, "what_is_missing", lambda: "there is no filter")
    with pytest.raises(InputError, match="promises of the sandbox are broken here"):
        Execute(self_check=True, allow_without_seccomp=True).run()
    kept = trials(capsys)
    assert not kept["no random numbers come from the kernel"]
    assert not kept["no network is reached"]
    assert kept["an endless loop is ended"]


def test_the_self_check_names_what_is_wrong_with_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Trial("Python", True, "3.11"), Trial("memory of the cgroup", False, "100 MB")]
    monkeypatch.setattr(surroundings, "surroundings", lambda limits, n_jobs: rows)
    with pytest.raises(InputError, match="from those of other machines: memory of the cgroup; see above"):
        Execute(self_check=True).run()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["fine", "Python", "3.11"],
        ["WRONG", "memory", "of", "the", "cgroup", "100", "MB"],
    ]


def test_the_self_check_says_what_is_missing_before_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seccomp, "what_is_missing", lambda: "there is no filter")
    with pytest.raises(InputError, match="programs cannot be executed safely here: there is no filter"):
        Execute(self_check=True).run()
    assert "WRONG   system calls can be filtered              there is no filter" in capsys.readouterr().out


def test_the_self_check_takes_no_programs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --programs and --output, or --self-check alone"):
        Execute(write(tmp_path, []), self_check=True).run()
