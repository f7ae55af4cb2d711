"""The caller's side: sends programs to servers and yields the outcomes in order.

    program    "def transform(grid):\\n    return grid[5]", on the input [[0, 1], [2, 3]]
    outcome    status error, error "IndexError: index 5 is out of bounds for axis 0 with size 2 (line 2)", outputs ()

Servers are started by `subprocess`, which execs: the caller is never forked. There are no threads and no signal
handlers, so an `Executor` can live in a training process. A server that dies is replaced, and its programs are resent.
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
from collections.abc import Generator, Iterable, Iterator, Sequence
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
REMEMBERED = 4096  # distinct programs whose outcomes are kept for equal ones
START_SECONDS = 300.0  # importing numpy from a cluster's file system may take minutes
GRACE_SECONDS = 5.0  # after the wall limit, until a silent server is given up

_TRIVIAL_PROGRAM = Program("check", "def transform(grid):\n    return grid", (np.ones((1, 1), np.uint8),))

logger = logging.getLogger(__name__)


class Executor:
    """Runs programs on `n_jobs` servers; open it once and call `run` as often as needed, one run at a time.

    With `programs_per_child` above 1, programs that cannot affect each other share processes: much cheaper, and meant
    for scoring in bulk (docs/internals.md). Create it in a thread that lives as long as it does: the kernel kills the
    servers when the thread that started them ends.
    """

    def __init__(
        self,
        n_jobs: int,
        limits: Limits,
        programs_per_child: int = 1,
        allow_without_seccomp: bool = False,
        library: str = BARC,
        modules: Sequence[str] = (),
    ) -> None:
        """`library` names the module that programs import as `common`.

        `modules` are further ones that programs may import, as far as they are installed.
        """
        for name, value in (("n_jobs", n_jobs), ("programs_per_child", programs_per_child)):
            if value < 1:
                raise InputError(f"{name} is {value}, expected 1 or more")
        missing = seccomp.what_is_missing()
        if missing and not allow_without_seccomp:
            raise InputError(
                f"programs cannot be executed safely here: {missing}. Run on another machine; or accept that programs"
                " can access what this user can (files, network, processes): sandbox.allow_without_seccomp: true in the"
                " config, --allow-without-seccomp on the command line"
            )
        if missing:
            logger.warning("programs are executed without the seccomp filter: %s", missing)
        self._programs_per_child = programs_per_child
        self._limits = limits
        self._running = False
        self._servers: list[_Server] = []
        try:
            for _ in range(n_jobs):  # they start in parallel
                self._servers.append(_Server(limits, not missing, library, modules))
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
        """Peak resident memory so far, in MiB: each server plus its largest child, summed over the servers."""
        return sum(server.peak_kb for server in self._servers) / 1024

    def run(self, programs: Iterable[Program | Script]) -> Generator[Outcome, None, None]:
        """Yield one outcome for each program or script, in order, as soon as it and all earlier ones are finished.

        The input is read as far ahead as the servers need. Programs with equal source and equal inputs are executed
        once unless they are very far apart. A script has a child of its own.
        """
        if self._running:
            raise RuntimeError("the executor is running already: finish or close that iterator first")
        self._running = True
        queue = _Queue(programs, LOOK_AHEAD * len(self._servers), self._limits)
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
                if server.batch:  # abandoned: its replies must not reach the next run
                    server.stop()
                    server.batch = []
            self._running = False

    def _batch_size(self, queue: "_Queue") -> int:
        """Return the batch size, smaller towards the end so that the servers finish together."""
        return min(self._programs_per_child, queue.n_ready() // (2 * len(self._servers)) + 1)


@dataclass(slots=True, eq=False)
class _Job:
    """A program that is executed once for all equal ones."""

    request: bytes
    form: wire.OutputForm
    wall_seconds: float
    is_alone: bool = False  # shares its child with no other program
    n_lost_servers: int = 0
    outcome: Outcome | None = None


class _Queue:
    """The programs between the caller's input and the caller's output."""

    def __init__(self, programs: Iterable[Program | Script], look_ahead: int, limits: Limits) -> None:
        self._input = iter(programs)
        self._look_ahead = look_ahead
        self._limits = limits
        self._waiting: deque[tuple[str, _Job]] = deque()  # read but not yet yielded, in order
        self._ready: deque[_Job] = deque()
        self._recent: OrderedDict[bytes, _Job] = OrderedDict()

    def n_ready(self) -> int:
        """Read as much input as the look-ahead allows; return the number of jobs that can be taken."""
        while len(self._waiting) < self._look_ahead and (program := next(self._input, None)) is not None:
            is_script = isinstance(program, Script)
            limits = program.limits(self._limits) if isinstance(program, Script) else self._limits
            request = wire.encode_request(program, limits.cpu_seconds)
            key = hashlib.sha256(request).digest()
            job = self._recent.get(key)
            if job is None:
                job = self._recent[key] = _Job(request, wire.form_of(program), limits.wall_seconds, is_script)
                self._ready.append(job)
                if len(self._recent) > REMEMBERED:
                    self._recent.popitem(last=False)
            self._waiting.append((program.program_id, job))
        return len(self._ready)

    def is_waiting(self) -> bool:
        """Return whether outcomes of programs that were read are still due, including repeats of finished ones."""
        return bool(self._waiting)

    def take(self, n_jobs: int) -> list[_Job]:
        """Take up to `n_jobs` jobs that may share a child."""
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
    """A server process, restarted when it has died, and its current batch."""

    def __init__(self, limits: Limits, use_seccomp: bool, library: str, modules: Sequence[str]) -> None:
        self.batch: list[_Job] = []
        self.peak_kb = 0  # including processes that died
        self._limits = limits
        self._use_seccomp = use_seccomp
        self._modules = (library, *modules)
        self._launch()

    def _launch(self) -> None:
        self.socket, its_end = socket.socketpair()
        limits = (self._limits.cpu_seconds, self._limits.wall_seconds, self._limits.memory_mb)
        with its_end:
            settings = [*map(repr, (*limits, self._use_seccomp)), *self._modules]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "arc_refinery.sandbox.server", *settings],
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the caller only
            )

    def check(self) -> None:
        """Wait until the server has started, and run one program on it."""
        self.socket.settimeout(START_SECONDS)
        try:
            self.socket.sendall(wire.encode_batch([wire.encode_request(_TRIVIAL_PROGRAM)]))
            ((result, _),) = self._replies([wire.form_of(_TRIVIAL_PROGRAM)])
        except (OSError, EOFError) as error:
            raise RuntimeError(f"a sandbox server did not start; its own message is on stderr: {error!r}") from error
        assert result is not None  # it was alone
        if result.status is not Status.ok:
            reason = _outcome(result).error
            raise RuntimeError(f"the sandbox cannot run a trivial program on this machine: {result.status}: {reason}")

    def submit(self, batch: list[_Job]) -> None:
        self.batch = batch
        # What ended a job's first server may be ending this one too, so its second one is new.
        if self._process.poll() is not None or any(job.n_lost_servers for job in batch):
            self.stop()
            self._launch()
            self.check()
        patience = sum(job.wall_seconds for job in batch) + GRACE_SECONDS
        self.socket.settimeout(patience)
        self.deadline = time.monotonic() + patience
        with suppress(OSError):  # a dead server is noticed when its reply is read
            self.socket.sendall(wire.encode_batch([job.request for job in batch]))

    def finish(self) -> list[_Job]:
        """Set the outcomes of the batch; return the jobs without an outcome, to be tried again."""
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

    def _replies(self, forms: list[wire.OutputForm]) -> list[tuple[wire.Result | None, float]]:
        replies, peak_kb = wire.read_replies(self.socket, forms)
        self.peak_kb = max(self.peak_kb, peak_kb)
        return replies

    def give_up(self) -> list[_Job]:
        """Stop a dead or silent server. This may be no program's fault, so each is tried once more, alone."""
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
        with suppress(OSError):  # closing is not enough if a fork of the caller also holds the socket
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
    """Wait until a server has replied or is overdue; return the jobs to be tried again."""
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
    """Return the environment of a server: all that it sees of the caller's."""
    folders = [*filter(None, sys.path), str(Path(__file__).parents[2])]  # a server finds what the caller finds
    environment = {
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, folders)),
        "PYTHONHASHSEED": "0",  # a set of strings has the same order in every run
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }
    if "LD_LIBRARY_PATH" in os.environ:  # some clusters' interpreters do not start without it
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment
