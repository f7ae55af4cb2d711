"""The lock of a killed run is removed; that of a living one, or of one that cannot be known, never."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import Wording

from arc_refinery.runs import lock as runs

HERE = runs.Machine()
RUN = """
import sys, time
from pathlib import Path
from arc_refinery.runs.lock import enter
run = enter(Path(sys.argv[1]), lambda message: None)
(Path(sys.argv[1]) / "locks/0.output.lock").write_text("results/demo.md")
if sys.argv[2:]:
    run.leaves_jobs_in(sys.argv[2])
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Snakemake's folder."""
    (tmp_path / "locks").mkdir()
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a run that holds Snakemake's lock."""
    started = []

    def start(*queue: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(folder), *queue], stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        started.append(process)
        assert process.stdout and process.stdout.readline() == "locked\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def locked(folder: Path) -> bool:
    return (folder / "locks/0.output.lock").exists()


def enter(folder: Path) -> list[str]:
    said: list[str] = []
    run = runs.enter(folder, said.append)
    assert run is not None
    run._leave()
    return said


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def anonymous(message: str, folder: Path) -> str:
    """Without what no two runs have in common."""
    message = message.replace(str(folder), "<folder>")
    message = re.sub(rf"\b{re.escape(HERE.host)}\b", "<host>", message)
    message = re.sub(r"\bprocess \d+", "process <pid>", message)
    message = re.sub(r"<host>-\d+", "<host>-<pid>", message)
    return re.sub(r"started [-\d]+ [:\d]+", "started <time>", message)


def record(folder: Path, **changes: Any) -> Path:
    """A record that a run left elsewhere or earlier, and its lock."""
    path = folder / "runs" / f"{changes.get('host', HERE.host)}-7.json"
    path.parent.mkdir(exist_ok=True)
    fields = {"host": HERE.host, "machine_id": "m", "boot_id": HERE.boot_id, "pid": 7, "started": "2026-11-23 10:00:00"}
    path.write_text(json.dumps(fields | changes))
    (folder / "locks/0.output.lock").touch()
    return path


def test_the_lock_of_a_killed_run_is_removed(folder, start, wording: Wording):
    kill(start())
    assert locked(folder)
    (message,) = enter(folder)
    wording(message)
    assert not locked(folder)
    assert not list((folder / "runs").iterdir())
    assert enter(folder) == []


def test_the_lock_of_a_living_run_stays(folder, start, wording: Wording):
    living = start()
    (message,) = enter(folder)
    assert locked(folder)
    assert f"process {living.pid} on {HERE.host}" in message
    wording(anonymous(message, folder))


def test_a_lock_stays_while_any_other_run_lives(folder, start):
    killed, living = start(), start()
    kill(killed)
    (message,) = enter(folder)
    assert locked(folder)
    assert f"process {living.pid} " in message
    assert f"process {killed.pid} " not in message
    kill(living)
    enter(folder)
    assert not locked(folder)


def test_a_stopped_run_is_alive(folder, start):
    import signal

    start().send_signal(signal.SIGSTOP)
    enter(folder)
    assert locked(folder)


def test_a_lock_without_a_record_stays(folder, wording: Wording):
    (folder / "locks/0.output.lock").touch()
    (message,) = enter(folder)
    assert locked(folder)
    assert "`snakemake --unlock`" in message
    wording(anonymous(message, folder))


def test_a_lock_of_another_machine_stays_until_the_named_files_are_removed(folder, wording: Wording):
    record(folder, host="gpu7", boot_id="other")
    (message,) = enter(folder)
    assert locked(folder)
    assert "process 7 on gpu7, started 2026-11-23 10:00:00" in message
    wording(message)
    command = message.split("type `")[1].split("`")[0]
    subprocess.run(command, shell=True, check=True)
    assert enter(folder) == []


@pytest.mark.parametrize(("machine_id", "stays"), [("m", False), ("another of this name", True), ("", True)])
def test_a_reboot_ends_a_run_only_on_the_same_machine(folder, monkeypatch, machine_id, stays):
    record(folder, boot_id="the last", machine_id=machine_id)
    machine = runs.Machine(HERE.host, machine_id if machine_id == "" else "m", HERE.boot_id)
    monkeypatch.setattr(runs, "Machine", lambda: machine)
    enter(folder)
    assert locked(folder) == stays


def test_a_lock_stays_while_jobs_may_be_in_a_queue(folder, start, wording: Wording):
    kill(start("slurm"))
    (message,) = enter(folder)
    assert locked(folder)
    assert "slurm" in message
    wording(anonymous(message, folder))


def test_an_unreadable_record_keeps_the_lock_and_is_named(folder, wording: Wording):
    path = record(folder)
    path.write_text("{")
    (message,) = enter(folder)
    assert locked(folder)
    assert str(path) in message
    wording(anonymous(message, folder))


def test_a_run_that_ends_in_order_leaves_no_record(folder):
    code = "import sys, pathlib; from arc_refinery.runs.lock import enter; enter(pathlib.Path(sys.argv[1]), print)"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    assert not list((folder / "runs").iterdir())
