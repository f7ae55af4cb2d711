"""Runs of Snakemake in a folder: which are still running, and the lock that a killed one has left.

Snakemake 9 locks its folder with files that stay when it is killed, and then asks for `--unlock`. Here each run also
holds a file locked (flock) while it lives, which ends with its process, however that ends:

    .snakemake/locks/0.output.lock      Snakemake's
    .snakemake/runs/gpu7-4711.json      {"host": "gpu7", "pid": 4711, ...}

The next run removes Snakemake's locks if every recorded run has certainly ended.
"""

import atexit
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Literal

State = Literal["alive", "ended", "unknown"]


def _content(path: Path) -> str:
    """A file of one line, or nothing: containers lack some."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Machine:
    """The machine of a process; machines may share a name, so a reboot shows only beside the same `machine_id`."""

    host: str = field(default_factory=socket.gethostname)
    machine_id: str = field(default_factory=lambda: _content(Path("/etc/machine-id")))
    boot_id: str = field(default_factory=lambda: _content(Path("/proc/sys/kernel/random/boot_id")))


@dataclass(frozen=True)
class Record:
    host: str
    machine_id: str
    boot_id: str
    pid: int
    started: str
    queue: str = ""  # name of a cluster's queue where jobs outlive this run, and which the next run does not clear

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


class Run:
    """The record of this process; it is removed when the process ends in order."""

    def __init__(self, folder: Path, record: Record) -> None:
        self._folder, self._record = folder, record
        self._path = folder / f"{record.host}-{record.pid}.json"
        unlocked = self._path.with_suffix(".new")
        self._file = hold(unlocked)
        self._write()
        os.replace(unlocked, self._path)  # so nobody sees it before it is locked
        atexit.register(self._leave)

    def leaves_jobs_in(self, queue: str) -> None:
        """Note that jobs of this run continue when it is killed: then the lock stays until a person has looked."""
        self._record = replace(self._record, queue=queue)
        with _alone(self._folder):
            self._write()

    def _leave(self) -> None:
        with _alone(self._folder):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(asdict(self._record)) + "\n")
        self._file.flush()


def hold(path: Path) -> IO[str]:
    """Open a file and lock it until it is closed or this process ends; waits for another holder."""
    file = path.open("a+")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def is_held(path: Path) -> bool:
    """Whether a living process holds this file."""
    with path.open("r+") as file:  # NFS grants an exclusive lock only on a file that is open for writing
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def enter(snakemake: Path, say: Callable[[str], None]) -> Run | None:
    """Record this run in Snakemake's folder, and remove the locks of runs that were killed.

    Where a lock has to stay, `say` receives who may hold it and what to type. Returns None if the file system has no
    flock: then nothing can be known.
    """
    here = Machine()
    folder = snakemake / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):  # else a run that starts now might lock between the look and the removal
        states = {path: _state(path, here) for path in sorted(folder.glob("*.json"))}
        locks = sorted((snakemake / "locks").glob("*.lock"))
        if set(states.values()) == {"ended"}:
            for path in (*locks, *states):
                path.unlink(missing_ok=True)
            if locks:
                say("Removed the lock of a run that was killed. Its finished results are kept.")
        elif locks:
            say(_why_locked(snakemake, states))
        try:
            return Run(folder, Record(**asdict(here), pid=os.getpid(), started=time.strftime("%Y-%m-%d %H:%M:%S")))
        except OSError as error:
            say(f"{folder}: files cannot be locked here ({error}); a killed run will need `snakemake --unlock`.")
            return None


def _state(path: Path, here: Machine) -> State:
    record = _read(path)
    if record is None:
        return "unknown"
    if record.boot_id == here.boot_id != "":
        try:
            if is_held(path):
                return "alive"
        except OSError:  # another user's file
            return "unknown"
    elif (record.host, record.machine_id) != (here.host, here.machine_id) or not here.machine_id:
        return "unknown"
    return "unknown" if record.queue else "ended"


def _why_locked(snakemake: Path, states: dict[Path, State]) -> str:
    if not states:
        return (
            f"{snakemake / 'locks'}: this folder is locked, and there is no record of the run that locked it. If no "
            "Snakemake runs here, on any machine, type `snakemake --unlock`, then the same command again."
        )
    if living := [path for path, state in states.items() if state == "alive"]:
        return (
            f"Another run of Snakemake works in this folder: {', '.join(str(_read(path)) for path in living)}. "
            "If both make the same files, type this command again when the other has ended."
        )
    doubtful = {path: _read(path) for path, state in states.items() if state == "unknown"}
    removal = f"`rm {snakemake / 'locks'}/*.lock {' '.join(map(str, doubtful))}`"
    if queues := {record.queue for record in doubtful.values() if record and record.queue}:
        return (
            f"{snakemake / 'locks'}: a run was killed whose jobs may continue in the queue of {', '.join(queues)} and "
            f"would write the same files. Remove them there (docs/run.md), then type {removal} and the same "
            "command again."
        )
    return (
        f"{snakemake / 'locks'}: whether the run that locked this folder has ended cannot be known here "
        f"({', '.join(str(record or path) for path, record in doubtful.items())}). Type the same command on its "
        f"machine; or, if it has ended, type {removal} and the same command again."
    )


def _read(path: Path) -> Record | None:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process looks at the records."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
