"""The exec'd interpreter behind an `Executor`: forks children that run programs, and reports their results.

    python -P -m arc_refinery.sandbox.server CPU_SECONDS WALL_SECONDS MEMORY_MB SECCOMP LIBRARY [MODULE ...]

A socket is its stdin.

Covered (tests/hostile/): endless loops, sleepers, memory bombs, crashes, processes, files, network, signals, tracing,
descriptors, forged results, state carried over to the next program, orphans.
Not covered: kernel exploits, timing side channels (docs/internals.md).

It is single-threaded, never receives expected outputs, and imports all that programs may import before the first fork.
"""

import contextlib
import ctypes
import gc
import importlib.util
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

# Modules that programs can import, with the modules that these import. The list makes this the same on all machines: a
# child that has dropped root's privileges could not read an environment below /root, an ordinary user's child could.
PRELOADED = """
    abc array ast base64 bisect calendar cmath collections.abc colorsys contextlib copy csv ctypes dataclasses datetime
    decimal difflib enum fractions functools hashlib heapq inspect io itertools json logging math
    numbers operator pickle pprint queue random re secrets signal socket statistics string struct subprocess textwrap
    threading time timeit traceback types typing warnings weakref zlib _strptime
    encodings.ascii encodings.latin_1 encodings.utf_16 encodings.utf_32 encodings.unicode_escape
    numpy numpy.char numpy.fft numpy.lib.stride_tricks numpy.linalg numpy.ma numpy.polynomial numpy.random numpy.rec
    numpy.typing scipy scipy.ndimage
""".split()  # noqa: SIM905 (one name per line would fill a page)
# numpy.f2py imports these if installed: mapping their libraries would make each fork slower.
LEFT_OUT = ("charset_normalizer", "chardet")

# Python and numpy cache what they learn in a function's first runs. It is done once here, because it would copy memory
# pages in every child.
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


class ChildEnding(Enum):
    """Why the server stopped listening to a child."""

    closed = auto()  # end of the result pipe: the child has exited or closed it
    malformed = auto()  # what it wrote is not a result
    cpu = auto()
    wall = auto()


def main() -> None:
    limits = Limits(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    child.prctl(child.PR_SET_PDEATHSIG, signal.SIGKILL)  # its children set the same
    child.prctl(child.PR_SET_DUMPABLE, 0)  # a child of the same user can neither trace this process nor open its files
    child.prctl(child.PR_SET_NO_NEW_PRIVS, 1)  # inherited
    resource.setrlimit(resource.RLIMIT_NOFILE, (child.MAX_FDS, child.MAX_FDS))
    sharing = preload(sys.argv[5], sys.argv[6:])
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every page in every child
    setup = child.ChildSetup.for_this_server(limits, seccomp.Filter() if sys.argv[4] == "True" else None, sharing)
    with socket.socket(fileno=0) as executor, contextlib.suppress(EOFError, ConnectionError):
        while True:
            programs = wire.read_batch(executor)
            # Bind no name to the replies: children of the next batch would find them.
            executor.sendall(wire.encode_replies(list(execute(programs, setup, limits, executor)), peak_kb()))


def peak_kb() -> int:
    """Return the peak resident memory of this server or its largest child, whose pages start as this server's."""
    return max(peak_rss_kb(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def preload(library: str, modules: Sequence[str]) -> Sharing:
    """Import everything that programs may import, and the module `library` as `common`.

    `modules` are further ones, as far as they are installed.

    Every further import then fails the same way everywhere.
    """
    sys.modules.update(dict.fromkeys(LEFT_OUT))  # type: ignore[arg-type]  # None: the import fails
    for name in PRELOADED:
        importlib.import_module(name)
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    for name in LEFT_OUT:
        del sys.modules[name]
    common: Any = importlib.import_module(library)
    common.__name__, common.__file__ = "common", "common.py"  # named in the messages of ImportErrors
    sys.modules["common"] = common
    parts = [module for name, module in sys.modules.items() if name.startswith(library)]
    sharing = Sharing(common, parts)
    rehearse(sharing)
    seed_rngs()
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    return sharing


def rehearse(sharing: Sharing) -> None:
    grid = np.arange(100, dtype=np.uint8).reshape(10, 10) % 10
    for _ in range(20):
        code = child.compiled(REHEARSAL)
        assert isinstance(code, CodeType)
        wire.encode_result(child.run_program(code, (grid, grid)))
        sharing.allows(code)


def seed_rngs() -> None:
    """Make unseeded random generators start from 0 instead of the kernel's entropy."""
    random_module: Any = random
    bit_generator: Any = np.random.bit_generator
    seed_with = random_module.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed_with(self, 0 if a is None else a, version)

    random_module.Random.seed = seed
    random_module.seed = random_module._inst.seed
    bit_generator.randbits = random.getrandbits  # the source of default_rng() and np.random.seed()
    child.seed()


def execute(
    programs: Sequence[Request], setup: child.ChildSetup, limits: Limits, executor: socket.socket
) -> Iterator[tuple[bytes, float]]:
    """Yield result frame and CPU seconds of each program, in order; SystemExit when the executor disconnects.

    Several programs share a child as long as all goes well. Any failure except a timeout may be another program's
    fault: the program at which a child fails is the first one in the next child. If that child fails at it, too, the
    program must be sent again alone.
    """
    is_alone = len(programs) == 1
    if is_alone and programs[0].cpu_seconds:
        limits = limits.with_cpu_seconds(programs[0].cpu_seconds)
    n_done = 0
    while n_done < len(programs):
        first = n_done
        with Child(programs[first:], is_alone, setup, limits, executor) as running:
            for program in programs[first:]:
                result = running.read_result(program.form, is_last=n_done + 1 == len(programs))
                if isinstance(result, ChildEnding):
                    is_own_fault = is_alone or result in (ChildEnding.cpu, ChildEnding.wall)
                    if not is_own_fault and n_done > first:
                        break
                    yield failure_frame(result, running.end(), limits) if is_own_fault else ALONE, running.lap()
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
        setup: child.ChildSetup,
        limits: Limits,
        executor: socket.socket,
    ) -> None:
        self._is_alone, self._limits, self._executor = is_alone, limits, executor
        self._read_fd, write_fd = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            child.run(setup, write_fd, programs, is_alone, limits.cpu_seconds)
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
        """Kill the child, whatever it is doing; return its wait status."""
        if self._wait_status is None:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the id is still the child's
            with contextlib.suppress(ProcessLookupError):  # it may not have reached setsid
                os.killpg(self._pid, signal.SIGKILL)
            _, self._wait_status = os.waitpid(self._pid, 0)
        return self._wait_status

    def lap(self) -> float:
        """Return the CPU seconds since the last lap, as of the last measurement."""
        cpu_seconds, self._cpu_at_start = self._cpu_seconds - self._cpu_at_start, self._cpu_seconds
        return cpu_seconds

    def read_result(self, form: wire.OutputForm, is_last: bool) -> bytes | ChildEnding:
        """Return the next program's result, or why there is none.

        One thread cannot use CPU time faster than wall time, so sleeping for the rest of either is never too long.
        """
        deadline = time.monotonic() + self._limits.wall_seconds
        while True:
            try:
                reply = self._parse(form, is_last)
            except wire.WireError:
                return ChildEnding.malformed
            self._cpu_seconds = time.clock_gettime(self._clock)
            if reply is not None and not self._is_alone:  # it may be at a later program by now
                self._cpu_seconds = reply[1]
            cpu_left = self._limits.cpu_seconds - (self._cpu_seconds - self._cpu_at_start)
            if reply is not None:
                return reply[0] if cpu_left > 0 else ChildEnding.cpu
            if self._is_closed:
                return ChildEnding.closed
            time_left = min(cpu_left, deadline - time.monotonic())
            if not self._listen(max(time_left, 0.0)) and time_left <= 0:
                return ChildEnding.cpu if cpu_left <= 0 else ChildEnding.wall

    def _parse(self, form: wire.OutputForm, is_last: bool) -> tuple[bytes, float] | None:
        """Return the next reply if it is complete; the last one is complete when the pipe is closed."""
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
        """Wait up to `seconds` until the child writes or ends; return whether it did. SystemExit: no executor."""
        ready = {fd for fd, _ in self._poller.poll(1000 * seconds + 1)}
        if self._executor.fileno() in ready:  # it sends nothing until it has its replies, so the connection has ended
            self.end()
            sys.exit()
        if self._read_fd in ready:
            chunk = os.read(self._read_fd, READ_BYTES)
            self._data += chunk
            self._is_closed = not chunk
        return self._read_fd in ready


def fork() -> int:
    """fork(2) without Python's at-fork hooks.

    This process has one thread, so no locks need to be recreated; the hooks would copy 200 memory pages and seed
    `random` from the kernel.
    """
    pid: int = _fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork failed")
    return pid


def failure_frame(ending: ChildEnding, wait_status: int, limits: Limits) -> bytes:
    """Return the result frame of a program that wrote none."""
    match ending:
        case ChildEnding.cpu:
            result = Result(Status.timeout, (), "Timeout", f"more than {limits.cpu_seconds:g} s of CPU time")
        case ChildEnding.wall:
            result = Result(Status.timeout, (), "Timeout", f"more than {limits.wall_seconds:g} s")
        case ChildEnding.malformed:
            result = Result(Status.protocol, (), "Protocol", "malformed result")
        case ChildEnding.closed if os.WIFSIGNALED(wait_status):
            result = Result(Status.crash, (), "Crash", f"killed by signal {os.WTERMSIG(wait_status)}")
        case ChildEnding.closed:
            result = Result(Status.crash, (), "Crash", "the process ended without a result")
    return wire.encode_result(result)


if __name__ == "__main__":
    main()
