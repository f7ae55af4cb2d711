"""The exec'd interpreter behind an `Executor`: forks children that run programs, and reports what became of each.

    python -P -m arc_refinery.sandbox.server CPU_SECONDS WALL_SECONDS MEMORY_MB SECCOMP    (a socket is its stdin)

Covered (tests/hostile/): endless loops, sleepers, memory bombs, crashes, processes, files, network, signals, tracing,
descriptors, forged results, state carried over to the next program, orphans.
Not covered: kernel exploits, timing side channels (docs/sandbox.md).

It is single-threaded, learns no expected outputs, and imports all that a program may import before the first fork.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import random
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from importlib.machinery import BuiltinImporter, FrozenImporter
from types import CodeType
from typing import Any, Self

import numpy as np

from arc_refinery.sandbox import child, seccomp, wire
from arc_refinery.sandbox.sharing import Sharing, peak_rss_kb
from arc_refinery.sandbox.types import Limits, Status
from arc_refinery.sandbox.wire import ALONE, Request, Result

# What programs can import besides what these import themselves. The list decides, not the machine: a child that has
# dropped root's privileges could not read an environment below /root, and an ordinary user's could.
PRELOADED = """
    abc array ast base64 bisect calendar cmath collections.abc colorsys contextlib copy csv ctypes dataclasses datetime
    decimal difflib enum fractions functools hashlib heapq inspect io itertools json logging math
    numbers operator pickle pprint queue random re secrets signal socket statistics string struct subprocess textwrap
    threading time timeit traceback types typing warnings weakref zlib _strptime
    encodings.ascii encodings.latin_1 encodings.utf_16 encodings.utf_32 encodings.unicode_escape
    numpy numpy.char numpy.fft numpy.lib.stride_tricks numpy.linalg numpy.ma numpy.polynomial numpy.random numpy.rec
    numpy.typing scipy scipy.ndimage
""".split()  # noqa: SIM905 (one name a line would fill a page)
# numpy.f2py takes these where they are installed: every mapping of their libraries would make each fork dearer.
LEFT_OUT = ("charset_normalizer", "chardet")

# Python and numpy write down what they learn in a function's first runs: once here, or else in every child anew, which
# copies a page of memory for each.
REHEARSAL = """
from common import *
import numpy as np

def cells(grid, color):
    return [(x, y) for x in range(grid.shape[0]) for y in range(grid.shape[1]) if grid[x, y] == color]

def transform(grid):
    output = np.zeros_like(grid)
    for obj in find_connected_components(grid, connectivity=8, monochromatic=False, background=Color.BLACK):
        x, y, width, height = bounding_box(obj)
        blit_sprite(output, crop(obj), x, y, background=Color.BLACK)
        output = np.where(obj != 0, obj, output)
    for color in sorted(set(grid.flatten().tolist())):
        for x, y in cells(grid, color):
            output[x, y] = max(int(color), 0)
    if np.array_equal(output, grid) and np.any(output == 1):
        output = np.rot90(np.fliplr(output.T.copy()))
    return output
"""
READ_BYTES = 2**16

_fork = ctypes.PyDLL(None, use_errno=True).fork


class Ending(Enum):
    """Why the server stopped listening to a child."""

    closed = auto()  # the result pipe is at its end: the child has ended, or has closed it
    malformed = auto()  # what came is no result
    cpu = auto()
    wall = auto()


def main() -> None:
    limits = Limits(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    child.prctl(child.PR_SET_PDEATHSIG, signal.SIGKILL)  # its children have the same
    child.prctl(child.PR_SET_DUMPABLE, 0)  # a child of the same user can neither trace this process nor open its files
    child.prctl(child.PR_SET_NO_NEW_PRIVS, 1)  # inherited
    resource.setrlimit(resource.RLIMIT_NOFILE, (child.MAX_FDS, child.MAX_FDS))
    sharing = preload(sys.argv[5])
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every page in every child
    setting = child.Setting.of_this_server(limits, seccomp.Filter() if sys.argv[4] == "True" else None, sharing)
    with socket.socket(fileno=0) as executor, contextlib.suppress(EOFError, ConnectionError):
        while True:
            programs = wire.read_batch(executor)
            # No name for the replies: children of the next batch would find them.
            executor.sendall(wire.encode_replies(list(execute(programs, setting, limits, executor)), peak_kb()))


def peak_kb() -> int:
    """Peak resident memory of this server with its largest child, whose pages were this server's to begin with."""
    return max(peak_rss_kb(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def preload(library: str) -> Sharing:
    """Import everything that programs may import, and the module `library` as `common`.

    Every further import then fails the same way everywhere.
    """
    sys.modules.update(dict.fromkeys(LEFT_OUT))  # type: ignore[arg-type]  # None: the import fails
    for name in PRELOADED:
        importlib.import_module(name)
    for name in LEFT_OUT:
        del sys.modules[name]
    common: Any = importlib.import_module(library)
    common.__name__, common.__file__ = "common", "common.py"  # an ImportError's message names them
    sys.modules["common"] = common
    parts = [module for name, module in sys.modules.items() if name.startswith(library)]
    sharing = Sharing(common, parts)
    rehearse(sharing)
    tame_chance()
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    return sharing


def rehearse(sharing: Sharing) -> None:
    grid = np.arange(100, dtype=np.uint8).reshape(10, 10) % 10
    for _ in range(20):
        code = child.compiled(REHEARSAL)
        assert isinstance(code, CodeType)
        wire.encode_result(child.judge(code, (grid, grid)))
        sharing.allows(code)


def tame_chance() -> None:
    """Make generators that nobody seeded start from 0 instead of the kernel's entropy."""
    chance: Any = random
    bit_generator: Any = np.random.bit_generator
    seed_with = chance.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed_with(self, 0 if a is None else a, version)

    chance.Random.seed = seed
    chance.seed = chance._inst.seed
    bit_generator.randbits = random.getrandbits  # what default_rng() and np.random.seed() start from
    child.seed()


def execute(
    programs: Sequence[Request], setting: child.Setting, limits: Limits, executor: socket.socket
) -> Iterator[tuple[bytes, float]]:
    """Result frame and CPU seconds of each program, in order; SystemExit when the executor hangs up.

    Several programs share a child as long as all goes well. What else happens, except a timeout, need not be a
    program's own doing: where a child breaks off, the next one starts; at its first program, that one has to come back
    alone.
    """
    is_alone = len(programs) == 1
    n_done = 0
    while n_done < len(programs):
        first = n_done
        with Child(programs[first:], is_alone, setting, limits, executor) as running:
            for program in programs[first:]:
                result = running.read_result(program.form, is_last=n_done + 1 == len(programs))
                if isinstance(result, Ending):
                    is_own_doing = is_alone or result in (Ending.cpu, Ending.wall)
                    if not is_own_doing and n_done > first:
                        break
                    yield verdict(result, running.end(), limits) if is_own_doing else ALONE, running.lap()
                    n_done += 1
                    break
                yield result, running.lap()
                n_done += 1


class Child:
    """A forked child that is running programs, and what it has written."""

    def __init__(
        self,
        programs: Sequence[Request],
        is_alone: bool,
        setting: child.Setting,
        limits: Limits,
        executor: socket.socket,
    ) -> None:
        self._is_alone, self._limits, self._executor = is_alone, limits, executor
        self._read_fd, write_fd = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            child.run(setting, write_fd, programs, is_alone, limits.cpu_seconds)
        os.close(write_fd)
        self._clock = ~self._pid << 3 | 2  # the kernel's MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
        self._cpu_at_start = self._cpu_seconds = 0.0
        self._data = bytearray()
        self._is_closed = False
        self._wait_status: int | None = None
        self._poller = select.poll()
        self._poller.register(self._read_fd, select.POLLIN)
        self._poller.register(executor, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._read_fd)

    def end(self) -> int:
        """Kill it, whatever it is doing; its wait status."""
        if self._wait_status is None:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
            with contextlib.suppress(ProcessLookupError):  # it may not have got as far as setsid
                os.killpg(self._pid, signal.SIGKILL)
            _, self._wait_status = os.waitpid(self._pid, 0)
        return self._wait_status

    def lap(self) -> float:
        """CPU seconds, at the last look, since the last lap."""
        cpu_seconds, self._cpu_at_start = self._cpu_seconds - self._cpu_at_start, self._cpu_seconds
        return cpu_seconds

    def read_result(self, form: wire.Form, is_last: bool) -> bytes | Ending:
        """The next program's result, or why there is none.

        One thread uses no more CPU than wall time passes, so sleeping for what is left of either never comes too late.
        """
        deadline = time.monotonic() + self._limits.wall_seconds
        while True:
            try:
                reply = self._parse(form, is_last)
            except wire.WireError:
                return Ending.malformed
            self._cpu_seconds = time.clock_gettime(self._clock)
            if reply is not None and not self._is_alone:  # it may be at a later program by now
                self._cpu_seconds = reply[1]
            cpu_left = self._limits.cpu_seconds - (self._cpu_seconds - self._cpu_at_start)
            if reply is not None:
                return reply[0] if cpu_left > 0 else Ending.cpu
            if self._is_closed:
                return Ending.closed
            time_left = min(cpu_left, deadline - time.monotonic())
            if not self._listen(max(time_left, 0.0)) and time_left <= 0:
                return Ending.cpu if cpu_left <= 0 else Ending.wall

    def _parse(self, form: wire.Form, is_last: bool) -> tuple[bytes, float] | None:
        """The reply that has come, if it has come as a whole: for the last one, that is when the pipe is closed."""
        reply = None if is_last and not self._is_closed else wire.take_reply(self._data, *form)
        if reply is None:
            if len(self._data) > wire.max_reply_bytes(*form):
                raise wire.WireError("too much on the result pipe")
            return None
        if is_last and self._data:
            raise wire.WireError("bytes after the result")
        if self._is_alone or reply[0] != ALONE:
            wire.decode_result(reply[0], *form)
        return reply

    def _listen(self, seconds: float) -> bool:
        """Wait until the child writes or ends, for so long at most; whether it did. SystemExit: no executor."""
        ready = {fd for fd, _ in self._poller.poll(1000 * seconds + 1)}
        if self._executor.fileno() in ready:  # it sends nothing before it has its replies: the connection has ended
            self.end()
            sys.exit()
        if self._read_fd in ready:
            chunk = os.read(self._read_fd, READ_BYTES)
            self._data += chunk
            self._is_closed = not chunk
        return self._read_fd in ready


def fork() -> int:
    """fork(2) without Python's at-fork hooks.

    This process has one thread, so there are no locks to make anew; what the hooks would do is to copy 200 pages and
    to seed `random` from the kernel.
    """
    pid: int = _fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork failed")
    return pid


def verdict(ending: Ending, wait_status: int, limits: Limits) -> bytes:
    """The result frame of a program that gave none."""
    match ending:
        case Ending.cpu:
            result = Result(Status.timeout, (), "Timeout", f"more than {limits.cpu_seconds:g} s of CPU time")
        case Ending.wall:
            result = Result(Status.timeout, (), "Timeout", f"more than {limits.wall_seconds:g} s")
        case Ending.malformed:
            result = Result(Status.protocol, (), "Protocol", "malformed result")
        case Ending.closed if os.WIFSIGNALED(wait_status):
            result = Result(Status.crash, (), "Crash", f"killed by signal {os.WTERMSIG(wait_status)}")
        case Ending.closed:
            result = Result(Status.crash, (), "Crash", "the process ended without a result")
    return wire.encode_result(result)


if __name__ == "__main__":
    main()
