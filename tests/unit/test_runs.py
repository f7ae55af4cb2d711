"""The lock of a killed run is removed; that of a living one, or of one that cannot be known, never."""

import errno
import fcntl
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from messages import Wording

from arc_refinery.runs import lock as runs
from arc_refinery.runs.project import keep_edited

HERE = socket.gethostname()
RUN = """
import sys, time
from pathlib import Path
from arc_refinery.runs.lock import acquire_run_lock
run = acquire_run_lock(Path(sys.argv[1]), lambda message: None)
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
    run = runs.acquire_run_lock(folder, said.append)
    assert run is not None
    run._file.close()
    return said


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def anonymous(message: str, folder: Path) -> str:
    """Without what no two runs have in common."""
    message = message.replace(str(folder), "<folder>")
    message = re.sub(rf"\b{re.escape(HERE)}\b", "<host>", message)
    message = re.sub(r"\bprocess \d+", "process <pid>", message)
    return re.sub(r"started [-\d]+ [:\d]+", "started <time>", message)


def left_by(folder: Path, *lines: str) -> None:
    """The lock of a run that was killed, and the lines that it had written."""
    (folder / "run.lock").write_text("".join(f"{line}\n" for line in lines))
    (folder / "locks/0.output.lock").touch()


def test_the_lock_of_a_killed_run_is_removed(folder, start, wording: Wording):
    kill(start())
    assert locked(folder)
    (message,) = enter(folder)
    wording(message)
    assert not locked(folder)
    assert enter(folder) == []


def test_the_lock_of_a_living_run_stays(folder, start, wording: Wording):
    living = start()
    (message,) = enter(folder)
    assert locked(folder)
    assert f"process {living.pid} on {HERE}" in message
    wording(anonymous(message, folder))


def test_a_lock_stays_while_any_other_run_lives(folder, start):
    killed, living = start(), start()
    kill(killed)
    (message,) = enter(folder)
    assert locked(folder)
    assert f"process {living.pid} " in message
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


def test_a_lock_of_another_machine_stays_until_a_person_has_looked(folder, wording: Wording):
    left_by(folder, "process 7 on gpu7, started 2026-11-23 10:00:00")
    (message,) = enter(folder)
    assert locked(folder)
    assert "process 7 on gpu7, started 2026-11-23 10:00:00" in message and "`snakemake --unlock`" in message
    wording(message)
    (folder / "locks/0.output.lock").unlink()  # as `snakemake --unlock` does
    assert enter(folder) == []
    left_by(folder, *(folder / "run.lock").read_text().splitlines())
    enter(folder)
    assert not locked(folder)


def test_a_lock_stays_while_jobs_may_be_in_a_queue(folder, start, wording: Wording):
    kill(start("slurm"))
    (message,) = enter(folder)
    assert locked(folder)
    assert "slurm" in message
    wording(anonymous(message, folder))


def test_a_run_that_ends_in_order_leaves_nothing_to_look_at(folder, start):
    run = start("slurm")
    (folder / "locks/0.output.lock").unlink()
    kill(run)
    assert enter(folder) == []
    left_by(folder, *(folder / "run.lock").read_text().splitlines())
    enter(folder)
    assert not locked(folder)


def test_without_flock_snakemakes_own_lock_stays(folder, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left_by(folder)
    monkeypatch.setattr(fcntl, "flock", refuse)
    said: list[str] = []
    assert runs.acquire_run_lock(folder, said.append) is None
    assert locked(folder) and "`snakemake --unlock`" in said[0]


def test_a_page_that_was_edited_is_kept_and_one_that_was_not_stays(tmp_path: Path):
    said: list[str] = []
    pages = [tmp_path / name for name in ("a.md", "b.html", "unknown.md", "missing.md")]
    for page in pages[:3]:
        page.write_text(page.name)
    made = dict.fromkeys(pages[1:], pages[1].stat().st_mtime) | {pages[0]: 1000.0, pages[2]: None}
    keep_edited(made, said.append)
    (kept,) = tmp_path.glob("a.md.edited-*")
    assert kept.read_text() == "a.md" and [str(kept) in text for text in said] == [True]
    assert sorted(path.name for path in tmp_path.iterdir()) == [kept.name, "b.html", "unknown.md"]
