"""The lock that a killed run of Snakemake has left.

Snakemake 9 locks its folder with files that stay when it is killed, and then asks for `--unlock`. Here each run also
holds a file (flock) while its process lives, however that ends:

    .snakemake/locks/0.output.lock      Snakemake's
    .snakemake/run.lock                 process 4711 on gpu7, started 2026-11-23 10:00:00

A run that finds this file held by nobody removes Snakemake's locks. They stay if a line there names another machine,
because on some file systems a lock is seen only by the machine that holds it, or a cluster's queue, whose jobs outlive
a run.
"""

import fcntl
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO


class Run:
    """This process, in the file that it holds."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        self._note(f"process {os.getpid()} on {socket.gethostname()}, started {started}")

    def leaves_jobs_in(self, queue: str) -> None:
        """Note that jobs of this run continue when it is killed: then the lock stays until a person has looked."""
        self._note(f"jobs in {queue}")

    def _note(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


def hold(path: Path) -> IO[str]:
    """Open a file and lock it until it is closed or this process ends; waits for another holder."""
    file = path.open("a+")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def is_held(path: Path) -> bool:
    """Whether a living process holds this file."""
    with path.open("r+") as file:  # NFS grants an exclusive lock only on a file that is open for writing
        return not _take(file)


def _take(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def acquire_run_lock(snakemake: Path, say: Callable[[str], None]) -> Run | None:
    """Hold the file in Snakemake's folder until this process ends, and remove the locks of runs that were killed.

    Where a lock has to stay, `say` receives who may hold it and what to type. Returns None if the file system has no
    flock: then nothing can be known.
    """
    path = snakemake / "run.lock"
    try:
        snakemake.mkdir(exist_ok=True)
        file = path.open("a+")
        is_alone = _take(file)
        file.seek(0)
        lines = file.read()
        locks = sorted((snakemake / "locks").glob("*.lock"))
        why = _why_locked(snakemake / "locks", lines, is_alone) if locks else ""
        if why:
            say(why)
        elif is_alone:
            file.truncate(0)
            for lock in locks:
                lock.unlink(missing_ok=True)
            if locks:
                say("Removed the lock of a run that was killed. Its finished results are kept.")
        fcntl.flock(file, fcntl.LOCK_SH)  # so that runs of other experiments may work beside this one
        return Run(file)
    except OSError as error:
        say(f"{path}: cannot be locked here ({error.strerror}); a killed run will need `snakemake --unlock`.")
        return None


def _why_locked(locks: Path, lines: str, is_alone: bool) -> str:
    """Return why Snakemake's locks have to stay; empty if all runs in these lines have ended."""
    runs = "; ".join(re.findall(r"^process .*", lines, re.MULTILINE))
    if not is_alone:
        return (
            f"Another run of Snakemake works in this folder: {runs}. "
            "If both make the same files, type this command again when the other has ended."
        )
    if not runs:
        return (
            f"{locks}: this folder is locked, and there is no record of the run that locked it. If no "
            "Snakemake runs here, on any machine, type `snakemake --unlock`, then the same command again."
        )
    if queues := sorted(set(re.findall(r"^jobs in (.*)", lines, re.MULTILINE))):
        return (
            f"{locks}: a run was killed whose jobs may continue in the queue of {', '.join(queues)} and "
            "would write the same files. Remove them there (docs/run.md), then type `snakemake --unlock` and the same "
            "command again."
        )
    if set(re.findall(r"^process \d+ on (.*), started", lines, re.MULTILINE)) == {socket.gethostname()}:
        return ""
    return (
        f"{locks}: whether the run that locked this folder has ended cannot be known here ({runs}). Type the same "
        "command on its machine; or, if it has ended, type `snakemake --unlock` and the same command again."
    )
