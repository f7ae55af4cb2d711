"""The caller's side: hands programs to servers and yields the outcomes in order.

Servers are started by `subprocess`, which execs: the caller is never forked. There are no threads and no signal
handlers, so an `Executor` can live in a training process. A server that dies is replaced, and its programs sent again.
"""

import hashlib
import logging
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from arc_refinery.errors import InputError
from arc_refinery.sandbox import seccomp, wire
from arc_refinery.sandbox.types import Limits, Outcome, Program, Script, Status

BARC = "arc_refinery.barc.common"  # the library that BARC programs import
LOOK_AHEAD = 256  # programs per server that may be taken from the input before the oldest outcome is yielded
REMEMBERED = 4096  # distinct programs whose outcome is kept for others that are equal
START_SECONDS = 300.0  # importing numpy from a cluster's file system may take minutes
GRACE_SECONDS = 5.0  # after the wall limit, before a silent server is given up

CHECK = Program("check", "def transform(grid):\n    return grid", (np.ones((1, 1), np.uint8),))

logger = logging.getLogger(__name__)


class SandboxUnavailable(InputError):
    """This machine cannot hold programs; the message says what it lacks and what to do."""


class Executor:
    """Runs programs on `n_jobs` servers; open it once and call `run` as often as needed, one run at a time.

    With `programs_per_child` above 1, programs that have no means to disturb each other share processes: much cheaper,
    and meant for scoring in bulk (docs/sandbox.md). Create it in a thread that lives as long as it does: the kernel
    ends the servers with the thread that started them.
    """

    def __init__(
        self,
        n_jobs: int,
        limits: Limits,
        programs_per_child: int = 1,
        allow_without_seccomp: bool = False,
        library: str = BARC,
    ) -> None:
        """`library` names the module that programs import as `common`."""
        for name, value in (("n_jobs", n_jobs), ("programs_per_child", programs_per_child)):
            if value < 1:
                raise InputError(f"{name} is {value}, expected 1 or more")
        missing = seccomp.what_is_missing()
        if missing and not allow_without_seccomp:
            raise SandboxUnavailable(
                f"programs cannot be executed safely here: {missing}. Run on another machine; or accept that programs"
                " can reach what this user can (files, network, processes): sandbox.allow_without_seccomp: true in the"
                " config, --allow-without-seccomp on the command line"
            )
        if missing:
            logger.warning("programs are executed without the seccomp filter: %s", missing)
        self._programs_per_child = programs_per_child
        self._running = False
        self._servers: list[_Server] = []
        try:
            for _ in range(n_jobs):  # they start side by side
                self._servers.append(_Server(limits, not missing, library))
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

    @property
    def peak_mb(self) -> float:
        """Peak resident memory so far, in MiB: of each server with its largest child, summed over the servers."""
        return sum(server.peak_kb for server in self._servers) / 1024

    def run(self, programs: Iterable[Program | Script]) -> Generator[Outcome, None, None]:
        """One outcome for each program or script, in their order, each as soon as it and those before it are there.

        The input is read as far ahead as the servers need. Programs with equal source and equal inputs, unless very far
        apart, are executed once. A script has its child for itself.
        """
        if self._running:
            raise RuntimeError("the executor is running already: finish or close that iterator first")
        self._running = True
        queue = _Queue(programs, LOOK_AHEAD * len(self._servers))
        try:
            while True:
                if not self._servers:
                    raise RuntimeError("the executor is closed")
                for server in self._servers:
                    if not server.batch and (batch := queue.take(self._batch_size(queue))):
                        server.submit(batch)
                busy = [server for server in self._servers if server.batch]
                if not (busy or queue.is_waiting()):
                    return
                for job in _wait(busy) if busy else ():
                    queue.put_back(job)
                yield from queue.finished()
        finally:
            for server in self._servers:
                if server.batch:  # abandoned: its answer must not reach the next run
                    server.stop()
                    server.batch = []
            self._running = False

    def _batch_size(self, queue: "_Queue") -> int:
        """Fewer programs at once towards the end, so that the servers end together."""
        return min(self._programs_per_child, queue.n_ready() // (2 * len(self._servers)) + 1)


@dataclass(slots=True, eq=False)
class _Job:
    """A program that is executed for all that are equal to it."""

    request: bytes
    form: wire.Form
    is_alone: bool = False  # shares its child with no other program
    n_lost_servers: int = 0
    outcome: Outcome | None = None


class _Queue:
    """The programs between the caller's input and the caller's output."""

    def __init__(self, programs: Iterable[Program | Script], look_ahead: int) -> None:
        self._input = iter(programs)
        self._look_ahead = look_ahead
        self._waiting: deque[tuple[str, _Job]] = deque()  # all that have been read and not been yielded, in order
        self._ready: deque[_Job] = deque()
        self._recent: OrderedDict[bytes, _Job] = OrderedDict()

    def n_ready(self) -> int:
        """Jobs that can be taken, after reading as much of the input as the look-ahead allows."""
        while len(self._waiting) < self._look_ahead and (program := next(self._input, None)) is not None:
            request = wire.encode_request(program)
            key = hashlib.sha256(request).digest()
            job = self._recent.get(key)
            if job is None:
                job = self._recent[key] = _Job(request, wire.form_of(program), is_alone=isinstance(program, Script))
                self._ready.append(job)
                if len(self._recent) > REMEMBERED:
                    self._recent.popitem(last=False)
            self._waiting.append((program.program_id, job))
        return len(self._ready)

    def is_waiting(self) -> bool:
        """Whether programs have been read whose outcomes have not been yielded, be it because equal ones are done."""
        return bool(self._waiting)

    def take(self, n_jobs: int) -> list[_Job]:
        """Up to so many jobs that may share a child."""
        jobs: list[_Job] = []
        while self._ready and len(jobs) < n_jobs and not (jobs and self._ready[0].is_alone):
            jobs.append(self._ready.popleft())
            if jobs[-1].is_alone:
                break
        return jobs

    def put_back(self, job: _Job) -> None:
        self._ready.appendleft(job)

    def finished(self) -> Iterator[Outcome]:
        while self._waiting and (outcome := self._waiting[0][1].outcome) is not None:
            yield replace(outcome, program_id=self._waiting.popleft()[0])


class _Server:
    """A server process, started again when it has died, and the batch that it has."""

    def __init__(self, limits: Limits, use_seccomp: bool, library: str) -> None:
        self.batch: list[_Job] = []
        self.peak_kb = 0  # also of those that died
        self._limits = limits
        self._use_seccomp = use_seccomp
        self._library = library
        self._launch()

    def _launch(self) -> None:
        self.socket, its_end = socket.socketpair()
        limits = (self._limits.cpu_seconds, self._limits.wall_seconds, self._limits.memory_mb)
        with its_end:
            settings = [*map(repr, (*limits, self._use_seccomp)), self._library]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "arc_refinery.sandbox.server", *settings],
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
            self.socket.sendall(wire.encode_batch([wire.encode_request(CHECK)]))
            ((result, _),) = self._replies([wire.form_of(CHECK)])
        except (OSError, EOFError) as error:
            raise RuntimeError(f"a sandbox server did not start, its own message is on stderr: {error!r}") from error
        assert result is not None  # it was alone
        if result.status is not Status.ok:
            reason = _outcome(result).error
            raise RuntimeError(f"the sandbox cannot run a trivial program on this machine: {result.status}: {reason}")

    def submit(self, batch: list[_Job]) -> None:
        self.batch = batch
        if self._process.poll() is not None:
            self.stop()
            self._launch()
            self.check()
        patience = len(batch) * self._limits.wall_seconds + GRACE_SECONDS
        self.socket.settimeout(patience)
        self.deadline = time.monotonic() + patience
        with suppress(OSError):  # that the server is dead shows when its answer is read
            self.socket.sendall(wire.encode_batch([job.request for job in batch]))

    def finish(self) -> list[_Job]:
        """Give the jobs of the batch their outcomes; those that have none yet and are to be tried again."""
        try:
            replies = self._replies([job.form for job in self.batch])
        except (OSError, EOFError):
            return self.give_up()
        batch, self.batch = self.batch, []
        for job, (result, cpu_seconds) in zip(batch, replies, strict=True):
            if result is None:
                job.is_alone = True
            else:
                job.outcome = _outcome(result, cpu_seconds)
        return [job for job in batch if job.outcome is None]

    def _replies(self, forms: list[wire.Form]) -> list[tuple[wire.Result | None, float]]:
        replies, peak_kb = wire.read_replies(self.socket, forms)
        self.peak_kb = max(self.peak_kb, peak_kb)
        return replies

    def give_up(self) -> list[_Job]:
        """The server is dead or silent. Its end need not be a program's fault: each is tried once more, alone."""
        self.stop()
        batch, self.batch = self.batch, []
        for job in batch:
            job.is_alone = True
            job.n_lost_servers += 1
            if job.n_lost_servers > 1:
                job.outcome = Outcome("", Status.crash, (), "Crash", "its server died, twice")
        return [job for job in batch if job.outcome is None]

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


def _outcome(result: wire.Result, cpu_seconds: float = 0.0) -> Outcome:
    status, outputs, error_type, message, line, values, printed = result
    return Outcome("", status, outputs, error_type, message, line, cpu_seconds, values, printed or "")


def _wait(busy: list[_Server]) -> list[_Job]:
    """Block until a server has answered or is overdue; the jobs that are to be tried again."""
    with selectors.PollSelector() as selector:
        for server in busy:
            selector.register(server.socket, selectors.EVENT_READ)
        patience = min(server.deadline for server in busy) - time.monotonic()
        ready = {key.fileobj for key, _ in selector.select(max(patience, 0.0))}
    again = []
    for server in busy:
        if server.socket in ready:
            again += server.finish()
        elif time.monotonic() > server.deadline:
            again += server.give_up()
    return again


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
