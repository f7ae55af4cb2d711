"""The caller's side: hands programs to servers, one in flight for each, and yields the outcomes in order.

Servers are started by `subprocess`, which execs: the caller is never forked. There are no threads and no signal
handlers, so an `Executor` can live in a training process. A server that dies is replaced, and its program sent again.
"""

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from arc_refinery.sandbox import wire
from arc_refinery.sandbox.types import Limits, Outcome, Program, Status

LOOK_AHEAD = 256  # programs per server that may be taken from the input before the oldest outcome is yielded
START_SECONDS = 300.0  # importing numpy from a cluster's file system may take minutes
GRACE_SECONDS = 5.0  # after the wall limit, before a silent server is given up

CHECK = Program("check", "def transform(grid):\n    return grid", (np.ones((1, 1), np.uint8),))


class Executor:
    """Runs programs on `n_jobs` servers; open it once and call `run` as often as needed, one run at a time.

    Create it in a thread that lives as long as it does: the kernel ends the servers with the thread that started them.
    """

    def __init__(self, n_jobs: int, limits: Limits) -> None:
        if n_jobs < 1:
            raise ValueError(f"n_jobs is {n_jobs}, expected 1 or more")
        self._running = False
        self._servers: list[_Server] = []
        try:
            for _ in range(n_jobs):  # they start side by side
                self._servers.append(_Server(limits))
            for server in self._servers:
                server.check()
        except BaseException:  # also KeyboardInterrupt: leave no server behind
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all servers and what they are running."""
        while self._servers:
            self._servers.pop().stop()

    def run(self, programs: Iterable[Program]) -> Iterator[Outcome]:
        """One outcome for each program, in their order, each as soon as it and those before it are there."""
        if self._running:
            raise RuntimeError("the executor is running already: finish or close that iterator first")
        self._running = True
        jobs = (_Job(index, program) for index, program in enumerate(programs))
        outcomes: dict[int, Outcome] = {}  # finished ones that wait for an earlier program
        n_taken = n_yielded = 0
        try:
            while True:
                if not self._servers:
                    raise RuntimeError("the executor is closed")
                for server in self._servers:
                    may_take = server.job is None and n_taken < n_yielded + LOOK_AHEAD * len(self._servers)
                    if may_take and (job := next(jobs, None)) is not None:
                        n_taken += 1
                        server.submit(job)
                busy = [(server, server.job) for server in self._servers if server.job is not None]
                if not busy:
                    return
                for job, outcome in _wait(busy):
                    outcomes[job.index] = outcome
                while n_yielded in outcomes:
                    n_yielded += 1
                    yield outcomes.pop(n_yielded - 1)
        finally:
            for server in self._servers:
                if server.job is not None:  # abandoned: its answer must not reach the next run
                    server.stop()
                    server.job = None
            self._running = False


@dataclass(slots=True)
class _Job:
    index: int
    program: Program
    n_lost_servers: int = 0
    deadline: float = 0.0  # of the server, not of the program


class _Server:
    """A server process, started again when it has died, and the job it has."""

    def __init__(self, limits: Limits) -> None:
        self.job: _Job | None = None
        self._limits = limits
        self._launch()

    def _launch(self) -> None:
        self.socket, its_end = socket.socketpair()
        limits = map(repr, (self._limits.cpu_seconds, self._limits.wall_seconds, self._limits.memory_mb))
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "arc_refinery.sandbox.server", *limits],
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # a Ctrl-C is for the caller
            )

    def check(self) -> None:
        """Wait until it has started and see one program through it."""
        self.socket.settimeout(START_SECONDS)
        try:
            self.socket.sendall(wire.encode_request(CHECK))
            result, _ = wire.read_reply(self.socket, len(CHECK.inputs))
        except (OSError, EOFError) as error:
            raise RuntimeError(f"a sandbox server did not start, its own message is on stderr: {error!r}") from error
        if result.status is not Status.ok:
            reason = Outcome(CHECK.program_id, *result).error
            raise RuntimeError(f"the sandbox cannot run a trivial program on this machine: {result.status}: {reason}")
        self.socket.settimeout(self._limits.wall_seconds + GRACE_SECONDS)

    def submit(self, job: _Job) -> None:
        request = wire.encode_request(job.program)
        self.job = job
        if self._process.poll() is not None:
            self.stop()
            self._launch()
            self.check()
        job.deadline = time.monotonic() + self._limits.wall_seconds + GRACE_SECONDS
        with suppress(OSError):  # that the server is dead shows when its answer is read
            self.socket.sendall(request)

    def finish(self, job: _Job) -> Outcome | None:
        """The outcome of the job; None if the server was lost over it and another one tries again."""
        try:
            result, cpu_seconds = wire.read_reply(self.socket, len(job.program.inputs))
        except (OSError, EOFError):
            return self.give_up(job)
        self.job = None
        return Outcome(job.program.program_id, *result, cpu_seconds)

    def give_up(self, job: _Job) -> Outcome | None:
        """The server is dead or silent: try once more, for its end need not be the program's fault."""
        self.stop()
        job.n_lost_servers += 1
        if job.n_lost_servers == 1:
            self.submit(job)
            return None
        self.job = None
        return Outcome(job.program.program_id, Status.crash, (), "Crash", "its server died, twice")

    def stop(self) -> None:
        """End the process: without a connection it ends its child and itself."""
        with suppress(OSError):  # closing is not enough where a fork of the caller holds the socket as well
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _wait(busy: list[tuple[_Server, _Job]]) -> Iterator[tuple[_Job, Outcome]]:
    """Block until a server has answered or is overdue; the jobs that this finishes."""
    with selectors.PollSelector() as selector:
        for server, _ in busy:
            selector.register(server.socket, selectors.EVENT_READ)
        patience = min(job.deadline for _, job in busy) - time.monotonic()
        ready = {key.fileobj for key, _ in selector.select(max(patience, 0.0))}
    for server, job in busy:
        outcome = None
        if server.socket in ready:
            outcome = server.finish(job)
        elif time.monotonic() > job.deadline:
            outcome = server.give_up(job)
        if outcome is not None:
            yield job, outcome


def _environment() -> dict[str, str]:
    """All that a server sees of the caller's environment."""
    places = [*filter(None, sys.path), str(Path(__file__).parents[2])]  # a server finds what the caller finds
    environment = {
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, places)),
        "PYTHONHASHSEED": "0",  # a set of strings has the same order in every run
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }
    if "LD_LIBRARY_PATH" in os.environ:  # some clusters' interpreters do not start without it
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment
