"""Programs of this repository, each in a process of its own that starts fast.

Importing Snakemake takes longer than a dry run, and importing TRL longer than a short training. Processes are therefore
forked from one that has imported everything and has run nothing (multiprocessing's fork server). What runs in them is
what the console scripts run; they can be killed with their process group, as started programs can.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

PROGRAMS = ("arc-refinery", "snakemake")
BIN = Path(sys.executable).parent
_PRELOADED = ["snakemake.cli", "snakemake.api", "arc_refinery.config", "arc_refinery.sampling.transformers_sampler"]
_PRELOADED += ["arc_refinery.training.grpo", "arc_refinery.training.sft", "arc_refinery.reporting.refining.report"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOADED)


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a shell in which this Python's programs are found."""
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **(changes or {})}


@dataclass(frozen=True)
class Running:
    """A started program, with as much of Popen's interface as is asked for here."""

    _process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int:
        assert self._process.exitcode is not None
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def start(
    command: Sequence[str], folder: Path, stdout: Path, stderr: Path, changes: Mapping[str, str] | None = None
) -> Running:
    """Start one of `PROGRAMS` in a folder, as the leader of a process group; `changes` are made to its environment."""
    for path in (stdout, stderr):
        path.touch()
    process = _context.Process(target=_run, args=(list(command), folder, environment(changes), stdout, stderr))
    process.start()
    return Running(process)


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder and wait for its end; fast if it is one of `PROGRAMS`."""
    if command[0] not in PROGRAMS:
        return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    with tempfile.TemporaryDirectory() as temporary:
        stdout, stderr = (Path(temporary) / name for name in ("stdout", "stderr"))
        code = start(command, folder, stdout, stderr).wait()
        return subprocess.CompletedProcess(command, code, stdout.read_text(), stderr.read_text())


def kill_when(command: Sequence[str], folder: Path, enough: Callable[[], bool]) -> None:
    """Start one of `PROGRAMS`; as soon as it has made enough progress, end it and all that it started with SIGKILL."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "output"
        process = start(command, folder, output, output)
        while not enough():
            assert process.poll() is None, f"it ended before it could be killed: {output.read_text()}"
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _run(command: list[str], folder: Path, variables: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # tests in the background may ignore some
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for descriptor, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
    sys.argv = [str(BIN / command[0]), *command[1:]]
    sys.orig_argv = [sys.executable, *sys.argv]  # a training that is rolled back starts itself again
    try:
        if command[0] == "snakemake":
            import htcondor2
            from snakemake.cli import main

            htcondor2.reload_config()  # it was read where no pool is named
        else:
            from arc_refinery.cli import main
        main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing would leave them out
