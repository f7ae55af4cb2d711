"""The forked child: gives up what it can, runs one program on its inputs, writes one result, ends.

Whatever touches the program's objects happens here, under the limits: converting what `transform` returned and
describing what it raised call the program's code as well.
"""

import ctypes
import math
import os
import re
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from types import ModuleType, TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from arc_refinery.sandbox import wire
from arc_refinery.sandbox.types import MAX_COLOR, MAX_SIDE, Grid, Limits, Status
from arc_refinery.sandbox.wire import Request, Result

PROGRAM_FILE = "<program>"
COLORS = frozenset(range(MAX_COLOR + 1))
RESULT_FD = 3
MAX_FDS = 64  # of the server
NOBODY = 65534

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
_LIBC = ctypes.CDLL(None, use_errno=True)


class InvalidOutput(Exception):
    """What `transform` returned is no grid; the message says which output and why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a server makes once for all its children: everything that a child touches first costs it a copied page."""

    server_pid: int
    null_fd: int
    rlimits: tuple[tuple[int, int], ...]
    out_of_memory: bytes  # the result of a program that has left no memory to make one

    @classmethod
    def of_this_server(cls, limits: Limits) -> Self:
        baseline = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        return cls(
            server_pid=os.getpid(),
            null_fd=os.open(os.devnull, os.O_RDWR),
            rlimits=(
                (resource.RLIMIT_AS, baseline + limits.memory_mb * 2**20),
                (resource.RLIMIT_CPU, math.ceil(limits.cpu_seconds) + 1),  # a backstop: the server counts precisely
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_FSIZE, 0),
                (resource.RLIMIT_NPROC, 0),
                (resource.RLIMIT_NOFILE, RESULT_FD + 1),
            ),
            out_of_memory=wire.encode_result(
                Result(Status.memory, (), "MemoryError", f"more than {limits.memory_mb} MB")
            ),
        )


def run(setting: Setting, result_fd: int, program: Request) -> NoReturn:
    """The child's whole life; it ends in `os._exit`, for the frames above this one are the server's."""
    exit_status = 1
    try:
        for fd in (0, 1, 2):
            os.dup2(setting.null_fd, fd)
        os.dup2(result_fd, RESULT_FD, inheritable=False)
        os.closerange(RESULT_FD + 1, MAX_FDS)
        try:
            confine(setting)
            frame = wire.encode_result(judge(program))
        except MemoryError:
            frame = setting.out_of_memory
        except OSError as error:  # of `confine`: a child that keeps something that it should give up runs no program
            frame = wire.encode_result(Result(Status.crash, (), *describe(error)))
        while frame:
            frame = frame[os.write(RESULT_FD, frame) :]
        exit_status = 0
    finally:
        os._exit(exit_status)


def confine(setting: Setting) -> None:
    """Give up resources and privileges for good."""
    os.setsid()
    for what, most in setting.rlimits:
        resource.setrlimit(what, (most, most))
    if os.geteuid() == 0:  # root is exempt from NPROC and may write every file
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    prctl(PR_SET_PDEATHSIG, SIGKILL)  # after setresuid, which clears it
    if os.getppid() != setting.server_pid:
        raise ProcessLookupError("the server is gone")


def prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def judge(program: Request) -> Result:
    """Run the program on each input; raises nothing but MemoryError."""
    try:
        return Result(Status.ok, execute(program))
    except MemoryError:
        raise
    except InvalidOutput as error:
        return Result(Status.invalid_output, (), "InvalidOutput", str(error))
    except BaseException as error:  # noqa: BLE001 (whatever a program raises is its verdict)
        return Result(Status.error, (), *describe(error))


def execute(program: Request) -> tuple[Grid, ...]:
    module = ModuleType("program")
    sys.modules["program"] = module  # dataclasses look their module up
    exec(compile(program.source, PROGRAM_FILE, "exec", dont_inherit=True), module.__dict__)
    if "transform" not in module.__dict__:
        raise NameError("the program defines no function named 'transform'")
    transform = module.__dict__["transform"]
    return tuple(as_output(index, transform(grid.astype(np.int64))) for index, grid in enumerate(program.inputs))


def as_output(index: int, value: Any) -> Grid:
    try:
        return as_grid(value)
    except MemoryError:
        raise
    except InvalidOutput as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 (the program's own __array__, __eq__ or __repr__ may raise anything)
        reason = "does not convert to a grid: {}: {}".format(*describe(error))
    raise InvalidOutput(f"output {index} {reason}")


def as_grid(value: Any) -> Grid:
    """What `transform` returned, as a grid.

    Accepted: anything of which numpy makes a 2-D array with sides of 1..30 whose cells equal integers of 0..9, so also
    booleans and floats like 2.0. Not accepted: 1.5, NaN, text, complex numbers.
    """
    if value is None:
        raise InvalidOutput("is None, expected a 2-D grid")
    array = np.asarray(value)
    if array.ndim != 2:
        raise InvalidOutput(f"is {array.ndim}-D, expected 2-D")
    height, width = array.shape
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        raise InvalidOutput(f"has shape {height}x{width}, expected sides of 1..{MAX_SIDE}")
    if array.dtype.kind not in "buifO":
        raise InvalidOutput(f"has cells of type {array.dtype}, expected integers")
    for row in array.tolist():
        for cell in row:
            if cell not in COLORS:
                raise InvalidOutput(f"has a cell {cell!r:.100}, expected integers of 0..{MAX_COLOR}")
    return array.astype(np.uint8)


def describe(error: BaseException) -> tuple[str, str, int | None]:
    """Type, message and line of the program's exception, the same in every run on every machine."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PROGRAM_FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        name, message = type(error).__name__, error.msg if isinstance(error, SyntaxError) else str(error)
        return name, re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", message[: wire.TEXT_CHARS]), line
    except BaseException:  # noqa: BLE001 (the program's own __str__ may raise anything)
        return "Exception", "its message cannot be shown", line
