"""The exec'd interpreter behind an `Executor`: forks one child per program and reports what became of it.

    python -P -m arc_refinery.sandbox.server CPU_SECONDS WALL_SECONDS MEMORY_MB    (a socket is its stdin)

Covered (tests/hostile/): endless loops, sleepers, memory bombs, crashes, processes left behind, content in files,
descriptors, forged results, state carried over to the next program, orphans.
Not covered yet: the NETWORK IS OPEN, there is NO SECCOMP filter, world-readable files can be read, and where the
executor runs as an ordinary user a program can signal, delete and truncate whatever that user can (docs/sandbox.md).

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
from enum import Enum, auto
from importlib.machinery import BuiltinImporter, FrozenImporter
from typing import Any

import numpy as np

from arc_refinery.sandbox import child, wire
from arc_refinery.sandbox.types import Limits, Status
from arc_refinery.sandbox.wire import Request, Result

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

_fork = ctypes.PyDLL(None, use_errno=True).fork


class Ending(Enum):
    """Why the server stopped listening to a child."""

    closed = auto()  # the result pipe is at its end: the child has ended, or has closed it
    flood = auto()  # more bytes than any result has
    cpu = auto()
    wall = auto()


def main() -> None:
    limits = Limits(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    # SIGTERM, not SIGKILL: a program can shed its own parent-death signal, so the server ends its child itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    child.prctl(child.PR_SET_PDEATHSIG, signal.SIGTERM)
    child.prctl(child.PR_SET_DUMPABLE, 0)  # a child of the same user can neither trace this process nor open its files
    child.prctl(child.PR_SET_NO_NEW_PRIVS, 1)  # inherited
    resource.setrlimit(resource.RLIMIT_NOFILE, (child.MAX_FDS, child.MAX_FDS))
    preload()
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every page in every child
    setting = child.Setting.of_this_server(limits)
    with socket.socket(fileno=0) as executor, contextlib.suppress(EOFError, ConnectionError):
        while True:
            result, cpu_seconds = execute(wire.read_request(executor), setting, limits, executor)
            executor.sendall(wire.encode_reply(result, cpu_seconds))


def preload() -> None:
    """Import everything that programs may import, then make every further import fail the same way everywhere."""
    for name in PRELOADED:
        importlib.import_module(name)
    common: Any = importlib.import_module("arc_refinery.barc.common")
    common.__name__, common.__file__ = "common", "common.py"  # an ImportError's message names them
    sys.modules["common"] = common
    bit_generator: Any = np.random.bit_generator
    bit_generator.randbits = random.getrandbits  # the entropy of an unseeded default_rng(): now seeded as well
    random.seed(0)
    np.random.seed(0)
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]


def execute(program: Request, setting: child.Setting, limits: Limits, executor: socket.socket) -> tuple[bytes, float]:
    """The result frame of one program and its CPU seconds; SystemExit when the executor hangs up."""
    read_fd, write_fd = os.pipe()
    pid = fork()
    if pid == 0:
        child.run(setting, write_fd, program)
    os.close(write_fd)
    try:
        data, ending = listen(pid, read_fd, wire.max_result_bytes(len(program.inputs)), limits, executor)
    finally:
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
        with contextlib.suppress(ProcessLookupError):  # it may not have got as far as setsid
            os.killpg(pid, signal.SIGKILL)
        os.close(read_fd)
        _, wait_status, usage = os.wait4(pid, 0)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    if ending is Ending.closed and cpu_seconds > limits.cpu_seconds:
        ending = Ending.cpu
    return verdict(data, ending, wait_status, limits, len(program.inputs)), cpu_seconds


def fork() -> int:
    """fork(2) without Python's at-fork hooks.

    This process has one thread, so there are no locks to make anew; what the hooks would do is to copy 200 pages and
    to seed `random` from the kernel.
    """
    pid: int = _fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork failed")
    return pid


def listen(pid: int, read_fd: int, max_bytes: int, limits: Limits, executor: socket.socket) -> tuple[bytes, Ending]:
    """Collect what the child writes until it ends or breaks a limit.

    One thread uses no more CPU than wall time passes, so sleeping for what is left of either never comes too late.
    """
    cpu_clock = ~pid << 3 | 2  # the kernel's MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
    deadline = time.monotonic() + limits.wall_seconds
    poller = select.poll()
    poller.register(read_fd, select.POLLIN)
    poller.register(executor, select.POLLIN)
    data = bytearray()
    while len(data) <= max_bytes:
        cpu_left = limits.cpu_seconds - time.clock_gettime(cpu_clock)
        wall_left = deadline - time.monotonic()
        if cpu_left <= 0:
            return bytes(data), Ending.cpu
        if wall_left <= 0:
            return bytes(data), Ending.wall
        ready = {fd for fd, _ in poller.poll(1000 * min(cpu_left, wall_left) + 1)}
        if executor.fileno() in ready:  # it sends nothing before it has its reply: this is the end of the connection
            sys.exit()
        if read_fd in ready:
            chunk = os.read(read_fd, max_bytes + 1 - len(data))
            if not chunk:
                return bytes(data), Ending.closed
            data += chunk
    return bytes(data), Ending.flood


def verdict(data: bytes, ending: Ending, wait_status: int, limits: Limits, n_inputs: int) -> bytes:
    """The child's own result if it is a sound one, else what its end says."""
    match ending:
        case Ending.cpu:
            result = Result(Status.timeout, (), "Timeout", f"more than {limits.cpu_seconds:g} s of CPU time")
        case Ending.wall:
            result = Result(Status.timeout, (), "Timeout", f"more than {limits.wall_seconds:g} s")
        case Ending.flood:
            result = Result(Status.protocol, (), "Protocol", "too much on the result pipe")
        case Ending.closed if os.WIFSIGNALED(wait_status):
            result = Result(Status.crash, (), "Crash", f"killed by signal {os.WTERMSIG(wait_status)}")
        case Ending.closed if not data:
            result = Result(Status.crash, (), "Crash", "the process ended without a result")
        case Ending.closed:
            try:
                wire.decode_result(data, n_inputs)
            except wire.WireError as error:
                result = Result(Status.protocol, (), "Protocol", str(error))
            else:
                return data
    return wire.encode_result(result)


if __name__ == "__main__":
    main()
