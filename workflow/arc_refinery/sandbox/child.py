"""The forked child: drops its rights, runs programs on their inputs, writes a result for each, and exits.

Everything that touches a program's objects happens here, under the limits: compiling it, converting what `transform`
returned and describing what it raised all use the program's objects or call its code.
"""

import ast
import ctypes
import io
import math
import os
import random
import re
import resource
import sys
import time
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from arc_refinery.arc.grids import MAX_SIDE, N_COLORS, Grid
from arc_refinery.sandbox import plain, wire
from arc_refinery.sandbox.seccomp import Filter
from arc_refinery.sandbox.sharing import Sharing
from arc_refinery.sandbox.types import Limits, Status, Value
from arc_refinery.sandbox.wire import ALONE, Request, Result

PROGRAM_FILE = "<program>"
_OTHER_FILE = "<setup>"  # of sources and expressions whose lines errors do not name
VALID_CELLS = frozenset(range(N_COLORS))
RESULT_FD = 3
MAX_FDS = 64  # file descriptors of the server
NOBODY = 65534
_TYPES = ("Any", "Callable", "List", "Optional", "Set", "Tuple", "Union")

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _capset = _libc.prctl, _libc.capset
# linux/capability.h: version 3 and this process; no effective, permitted or inheritable capability
_CAPABILITIES, _NONE = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()


class InvalidOutput(Exception):
    """The return value of `transform` is not a grid; the message says which output and why."""


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """Made once by a server for all its children: each memory page that a child changes first has to be copied."""

    server_pid: int
    null_fd: int
    rlimits: tuple[tuple[int, int], ...]
    filter: Filter | None
    sharing: Sharing
    has_nobody: bool  # false in a user namespace of one user, which Apptainer and rootless containers may make
    out_of_memory: bytes  # the result of a program that has left no memory to encode one

    @classmethod
    def for_this_server(cls, limits: Limits, filter: Filter | None, sharing: Sharing) -> Self:
        baseline = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        return cls(
            server_pid=os.getpid(),
            null_fd=os.open(os.devnull, os.O_RDWR),
            rlimits=(
                (resource.RLIMIT_AS, baseline + limits.memory_mb * 2**20),
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_FSIZE, 0),
                (resource.RLIMIT_NPROC, 0),
                (resource.RLIMIT_NOFILE, RESULT_FD + 1),
            ),
            filter=filter,
            sharing=sharing,
            has_nobody=_is_mapped(NOBODY, Path("/proc/self/uid_map")),
            out_of_memory=wire.encode_result(
                Result(Status.memory, (), "MemoryError", f"more than {limits.memory_mb} MB")
            ),
        )


def run(setup: ChildSetup, result_fd: int, programs: Sequence[Request], is_alone: bool, cpu_seconds: float) -> NoReturn:
    """Run the whole child; it ends in `os._exit`, because the frames above this one belong to the server."""
    exit_status = 1
    try:
        for fd in (0, 1, 2):
            os.dup2(setup.null_fd, fd)
        os.dup2(result_fd, RESULT_FD, inheritable=False)
        os.closerange(RESULT_FD + 1, MAX_FDS)
        try:
            confine(setup, math.ceil(cpu_seconds * len(programs)) + 1)
        except OSError as error:  # a child that could not drop all its rights runs no program
            os.write(RESULT_FD, wire.encode_reply(wire.encode_result(Result(Status.crash, (), *describe(error))), 0.0))
        else:
            run_programs(programs, is_alone, setup)
        exit_status = 0
    finally:
        os._exit(exit_status)


def confine(setup: ChildSetup, cpu_seconds: int) -> None:
    """Permanently drop resources, privileges and system calls."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))  # a backstop: the server measures precisely
    for what, most in setup.rlimits:
        resource.setrlimit(what, (most, most))
    if os.geteuid() == 0:  # root is exempt from NPROC and may write every file
        if setup.has_nobody:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        elif _capset(_CAPABILITIES, _NONE):  # without them, it is the user that started the container
            raise OSError(ctypes.get_errno(), "capset failed")
    prctl(PR_SET_PDEATHSIG, SIGKILL)  # after setresuid, which clears it
    if os.getppid() != setup.server_pid:
        raise ProcessLookupError("the server is gone")
    if setup.filter is not None:
        setup.filter.install()


def _is_mapped(user: int, uid_map: Path) -> bool:
    if not uid_map.exists():  # a kernel without user namespaces
        return True
    ranges = ([int(number) for number in line.split()] for line in uid_map.read_text().splitlines())
    return any(first <= user < first + length for first, _, length in ranges)


def prctl(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def run_programs(programs: Sequence[Request], is_alone: bool, setup: ChildSetup) -> None:
    """Write a result for each program, up to one that changes the state they share.

    Unless it is alone, a program that might do more than compute, or that runs out of memory, gets the result `ALONE`.
    """
    for index, program in enumerate(programs):
        if index:
            seed()
        try:
            code = compiled(program.source)
            if isinstance(code, CodeType) and not (is_alone or setup.sharing.allows(code)):
                frame = ALONE
            elif program.script:
                frame = wire.encode_result(run_script(program.script))
            else:
                frame = wire.encode_result(code if isinstance(code, Result) else run_program(code, program.inputs))
        except MemoryError:
            frame = setup.out_of_memory if is_alone else ALONE
        reply = wire.encode_reply(frame, time.process_time())
        while reply:
            reply = reply[os.write(RESULT_FD, reply) :]
        if not (is_alone or setup.sharing.is_intact()):
            return


def seed() -> None:
    """Reset the random state to what each program starts with."""
    random.seed(0)
    np.random.seed(0)


def compiled(source: str) -> CodeType | Result:
    """Return the program's code, or its result if it does not compile; raises only MemoryError."""
    try:
        return compile(source, PROGRAM_FILE, "exec", dont_inherit=True)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 (SyntaxError, ValueError, RecursionError, UnicodeError ...)
        return Result(Status.error, (), *describe(error))


def run_program(code: CodeType, inputs: Sequence[Grid]) -> Result:
    """Run the program on each input; raises only MemoryError."""
    try:
        return Result(Status.ok, call_transform(code, inputs))
    except MemoryError:
        raise
    except InvalidOutput as error:
        return Result(Status.invalid_output, (), "InvalidOutput", str(error))
    except BaseException as error:  # noqa: BLE001 (whatever a program raises is its result)
        return Result(Status.error, (), *describe(error))


def call_transform(code: CodeType, inputs: Sequence[Grid]) -> tuple[Grid, ...]:
    module = ModuleType("program")
    sys.modules["program"] = module  # dataclasses look up their module
    vars(module).update(given_names())
    exec(code, module.__dict__)
    if "transform" not in module.__dict__:
        raise NameError("the program defines no function named 'transform'")
    transform = module.__dict__["transform"]
    return tuple(as_output(index, transform(grid.astype(np.int64))) for index, grid in enumerate(inputs))


def given_names() -> dict[str, Any]:
    """Return what programs need not import, as in the published runs: numpy, names for type hints, the library."""
    common = sys.modules["common"]
    names = {"np": np, "numpy": np, "NDArray": NDArray, **{name: getattr(typing, name) for name in _TYPES}}
    return names | {name: getattr(common, name) for name in getattr(common, "__all__", ())}


def as_output(index: int, value: Any) -> Grid:
    try:
        return to_grid(value)
    except MemoryError:
        raise
    except InvalidOutput as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 (the program's own __array__, __eq__ or __repr__ may raise anything)
        reason = "does not convert to a grid: {}: {}".format(*describe(error))
    raise InvalidOutput(f"output {index} {reason}")


def to_grid(value: Any) -> Grid:
    """Convert the return value of `transform` to a grid.

    Accepted: anything that numpy converts to a 2-D array with sides of 1..30 whose cells equal integers of 0..9, also
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
    if array.dtype.kind in "fO" or array.min() < 0 or array.max() >= N_COLORS:
        for row in array.tolist():
            for cell in row:
                if cell not in VALID_CELLS:
                    raise InvalidOutput(f"has a cell {cell!r:.100}, expected integers of 0..{N_COLORS - 1}")
    return array.astype(np.uint8)


def describe(error: BaseException) -> tuple[str, str, int | None]:
    """Return type, message and line of the program's exception, the same in every run on every machine."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PROGRAM_FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        name, message = type(error).__name__, error.msg if isinstance(error, SyntaxError) else str(error)
        return name, without_addresses(message[: wire.TEXT_CHARS]), line
    except BaseException:  # noqa: BLE001 (the program's own __str__ may raise anything)
        return "Exception", "its message cannot be shown", line


def without_addresses(text: str) -> str:
    return re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", text)


def run_script(script: bytes) -> Result:
    """Execute a script and evaluate its expressions; raises only MemoryError."""
    sources, expressions, names, interactive, n_replayed, program, classes = plain.unpack(script)
    module = ModuleType("__main__" if interactive else "program")
    sys.modules[module.__name__] = module
    printed = Printed()
    if interactive:
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = printed  # type: ignore[misc]
    try:
        if not classes:
            module.__dict__.update((name, plain.unpack(data)) for name, data in names)
        for index, source in enumerate(sources):
            if index == n_replayed:
                printed.clear()
            file = PROGRAM_FILE if program in (None, index) else _OTHER_FILE
            execute_source(source, file, module, interactive)
        if classes:
            known = plain.KNOWN | {name: module.__dict__.get(name) for name in classes}
            module.__dict__.update((name, plain.unpack(data, known)) for name, data in names)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 (whatever a script raises is its result)
        return Result(Status.error, (), *describe(error), printed=printed.text())
    values = tuple(evaluate(expression, module, classes) for expression in expressions)
    return Result(Status.ok, values=values, printed=printed.text())


def execute_source(source: str, file: str, module: ModuleType, interactive: bool) -> None:
    """Execute a source; an interactive one may also end by leaving with status 0, for example by `exit()`."""
    tree = ast.parse(source, file)
    last = tree.body.pop() if interactive and tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, file, "exec", dont_inherit=True), module.__dict__)
        if last is not None:
            exec(compile(ast.Interactive([last]), file, "single", dont_inherit=True), module.__dict__)
    except SystemExit as ending:
        if not interactive or not (ending.code is None or (isinstance(ending.code, int) and ending.code == 0)):
            raise


def evaluate(expression: str, module: ModuleType, classes: Sequence[str] = ()) -> Value:
    """Evaluate an expression; raises only MemoryError."""
    try:
        code = compile(expression, _OTHER_FILE, "eval", dont_inherit=True)
        return Value("plain", data=plain.pack(eval(code, module.__dict__), classes={*plain.KNOWN, *classes}))
    except MemoryError:
        raise
    except plain.NotPlainError as error:
        return Value("not_plain", error=str(error))
    except BaseException as error:  # noqa: BLE001 (whatever a program raises is its result)
        name, message, line = describe(error)
        return Value("error", error=f"{name}: {message}".removesuffix(": "), line=line)


class Printed(io.TextIOWrapper):
    """Keeps the first bytes that a script prints, so that endless output hits the time limit, not memory.

    It is what `sys.stdout` is otherwise: text over a `buffer` of bytes, which can be configured.
    """

    def __init__(self) -> None:
        self._first_bytes = _FirstBytes()
        self._bytes = io.BufferedWriter(self._first_bytes)
        super().__init__(self._bytes, "utf-8", "backslashreplace", "\n", write_through=True)

    def clear(self) -> None:
        self._flush_all()
        self._first_bytes.content.clear()

    def text(self) -> str:
        self._flush_all()
        return without_addresses(self._first_bytes.content.decode("utf-8", "replace"))

    def _flush_all(self) -> None:
        """Flush also what a script has put in the place of `sys.stdout`, as Python does when it ends."""
        for stream in (sys.stdout, sys.stderr, self._bytes):
            try:
                stream.flush()
            except MemoryError:
                raise
            except BaseException:  # noqa: BLE001 (a script's own stream may raise anything)
                pass


class _FirstBytes(io.RawIOBase):
    name = "<stdout>"

    def __init__(self) -> None:
        self.content = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = memoryview(data)
        self.content += written[: max(wire.PRINTED_BYTES - len(self.content), 0)]
        return written.nbytes
