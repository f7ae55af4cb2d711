"""`arc-refinery execute` as its users run it: JSON lines in, JSON lines out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from messages import Wording

from arc_refinery.cli.programs import Execute
from arc_refinery.config import Sandbox
from arc_refinery.errors import InputError
from arc_refinery.sandbox import seccomp, surroundings
from arc_refinery.sandbox.jsonl import count_programs
from arc_refinery.sandbox.surroundings import PROMISES
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
@pytest.mark.slow
def test_one_verdict_a_program_in_their_order(tmp_path: Path, programs_per_child: str, wording: Wording) -> None:
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
    messages = {row["program_id"]: row.pop("error_message") for row in rows}
    assert [list(row.values()) for row in rows] == [
        ["flip", "ok", [[[2, 1], [4, 3]], [[6, 5]]], "", None],
        ["é", "timeout", [], "Timeout", None],
        ["index", "error", [], "IndexError", 2],
        ["exit", "crash", [], "Crash", None],
        ["number", "invalid_output", [], "InvalidOutput", None],
        ["flip again", "ok", [[[0, 7]]], "", None],
        ["none", "ok", [], "", None],
    ]
    failed = {"é": "0.4 s", "index": "index 7", "exit": "", "number": "output 0"}
    assert {name for name, message in messages.items() if message} == set(failed)
    for name, fact in failed.items():
        assert fact in messages[name]
        wording(messages[name])


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("{", "JSON"),
        ("[]", "list"),
        ({"source": "", "inputs": []}, "program_id is missing"),
        ({"program_id": 7, "source": "", "inputs": []}, "program_id is a number"),
        ({"program_id": "a", "source": "", "inputs": [[[1, 2], [3]]]}, "inputs: grid 0"),
        ({"program_id": "a", "source": "", "inputs": [[[1]], [[12]]]}, "inputs: grid 1 is cells 12..12"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, fact: str, wording: Wording) -> None:
    programs = write(tmp_path, [{"program_id": "flip", "source": FLIP, "inputs": []}, line])
    with pytest.raises(InputError) as caught:
        count_programs(programs)
    text = str(caught.value)
    assert text.startswith(f"{programs}, line 2: ") and fact in text
    wording(text)


def test_a_wrong_line_ends_the_command_without_a_traceback(tmp_path: Path, wording: Wording) -> None:
    done = execute(tmp_path, lines=["{"])
    assert done.returncode == 1
    (message,) = (line for line in done.stderr.splitlines() if line.startswith("arc-refinery: "))
    assert message.startswith(f"arc-refinery: {tmp_path}/programs.jsonl, line 1: ")
    wording(message)
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["programs.jsonl"], "nothing is written"


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("binary", "missing"):
        with pytest.raises(InputError) as caught:
            count_programs(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path}/{name}: ")
        wording(caught.value)


def trials(capsys: pytest.CaptureFixture[str]) -> dict[str, bool]:
    """Which promises the printed table says are kept."""
    lines = capsys.readouterr().out.splitlines()
    return {line[8:50].strip(): line.startswith("kept") for line in lines if line.startswith(("kept", "BROKEN"))}


def promise_of(program: str) -> str:
    """The promise that a program tries."""
    (promise,) = (name for name, (body, *_) in PROMISES.items() if program in body)
    return promise


@pytest.mark.slow
def test_the_self_check_tries_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    Execute(self_check=True).run()
    assert trials(capsys) == dict.fromkeys(PROMISES, True)


@pytest.mark.slow
def test_the_self_check_finds_a_sandbox_without_its_filter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    monkeypatch.setattr(seccomp, "what_is_missing", lambda: "there is no filter")
    with pytest.raises(InputError) as caught:
        Execute(self_check=True, sandbox=Sandbox(allow_without_seccomp=True)).run()
    outcome = trials(capsys)
    n_broken = list(outcome.values()).count(False)
    assert str(caught.value).startswith(f"{n_broken} of {len(PROMISES)} ")
    wording(str(caught.value).replace(f"{n_broken} of", "<number> of"))  # not the same for every user
    assert [outcome[promise_of(program)] for program in ("os.urandom", "socket.socket", "while True")] == [
        False,
        False,
        True,
    ]


@pytest.mark.slow
def test_the_self_check_names_what_is_wrong_with_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    rows = [Trial("Python", True, "3.11"), Trial("memory of the cgroup", False, "100 MB")]
    monkeypatch.setattr(surroundings, "surroundings", lambda limits, n_jobs: rows)
    with pytest.raises(InputError) as caught:
        Execute(self_check=True).run()
    assert "memory of the cgroup" in str(caught.value) and "Python" not in str(caught.value)
    wording(caught.value)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["fine", "Python", "3.11"],
        ["WRONG", "memory", "of", "the", "cgroup", "100", "MB"],
    ]


def test_the_self_check_says_what_is_missing_before_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    monkeypatch.setattr(seccomp, "what_is_missing", lambda: "there is no filter")
    with pytest.raises(InputError) as caught:
        Execute(self_check=True).run()
    assert "there is no filter" in str(caught.value)
    wording(caught.value)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG"))
    assert line.endswith("there is no filter")
    wording(line)


def test_the_self_check_takes_no_programs(tmp_path: Path, wording: Wording) -> None:
    with pytest.raises(InputError) as caught:
        Execute(programs=write(tmp_path, []), self_check=True).run()
    assert all(flag in str(caught.value) for flag in ("--programs", "--output", "--self-check"))
    wording(caught.value)
