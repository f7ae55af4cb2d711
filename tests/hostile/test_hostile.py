"""Programs that attack the sandbox: each gets its verdict, its neighbours theirs, and nothing stays behind.

Every test runs in both modes. `attack` asserts for each hostile program that the good programs around it have the
right outcomes and that no process has come or gone, servers included.
"""

import os
import platform
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hostile import arena
from hostile.arena import GOOD, GRID

from arc_refinery.barc import common
from arc_refinery.sandbox import Executor, Limits, Outcome, Status
from arc_refinery.sandbox import executor as executor_module
from arc_refinery.sandbox.seccomp import ARCHITECTURES
from arc_refinery.sandbox.sharing import Sharing

pytestmark = pytest.mark.hostile

Attack = Callable[[str], Outcome]

TIMEOUT = "Timeout: more than 0.5 s of CPU time"
NO_MEMORY = "MemoryError: more than 256 MB"
REFUSED = "[Errno 1] Operation not permitted"

# Calls of the C library raise what it reports.
LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    if function(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


def assert_refused(outcome: Outcome) -> None:
    assert (outcome.status, outcome.error_type) == (Status.error, "PermissionError")
    assert outcome.error_message.startswith(REFUSED)


def test_hostile_and_good_programs_share_a_batch(mode: str, attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an attack: it shows that the tests of this file mean what they say in the shared mode."""
    batches = []
    submit = executor_module._Server.submit

    def record(server: executor_module._Server, batch: list[executor_module._Job]) -> None:
        batches.append([b"while True" in job.request for job in batch])
        submit(server, batch)

    monkeypatch.setattr(executor_module._Server, "submit", record)
    assert attack("while True: pass").error == TIMEOUT
    if mode == "shared":
        assert batches[0] == [False, False, True, False, False, False, False]
    else:
        assert all(len(batch) == 1 for batch in batches)
    assert Sharing(common, []).allows(compile(arena.neighbour(0), "<program>", "exec"))


# ---- endings ----


@pytest.mark.parametrize("status", [0, 1])
def test_exit_without_a_result(attack: Attack, status: int) -> None:
    outcome = attack(f"import os\nos._exit({status})")
    assert (outcome.status, outcome.error) == (Status.crash, "Crash: the process ended without a result")


def test_segmentation_fault(attack: Attack) -> None:
    assert attack("import ctypes\nctypes.string_at(0)").error == "Crash: killed by signal 11"


def test_abort(attack: Attack) -> None:
    # SIGABRT, or what the C library falls back to where it may not send itself a signal: an illegal instruction
    assert attack("import os\nos.abort()").error.startswith("Crash: killed by signal ")


def test_stack_overflow_in_c(attack: Attack) -> None:
    source = "nested = iter(())\nfor _ in range(300_000): nested = filter(None, nested)\nnext(nested)"
    assert attack(source).error == "Crash: killed by signal 11"


@pytest.mark.parametrize("raised", ["SystemExit(0)", "KeyboardInterrupt", "GeneratorExit", "BaseException"])
def test_exceptions_that_are_no_errors(attack: Attack, raised: str) -> None:
    outcome = attack(f"def transform(grid): raise {raised}")
    assert (outcome.status, outcome.error_type) == (Status.error, raised.removesuffix("(0)"))


# ---- hangs ----

SWALLOW = """
def transform(grid):
    while True:
        try:
            while True: pass
        except BaseException:
            continue
"""
HANGING_METHOD = """
class Cell:
    def __hash__(self): return hash(1)
    def {}(self, *args, **kwargs):
        while True: pass
def transform(grid): return {}
"""
HANGING_FINALIZER = """
class Value:
    def __del__(self):
        while True: pass
def transform(grid):
    {}
    return grid
"""
HANGS = {
    "Python loop": "def transform(grid):\n    while True: pass",
    "C loop of sum": "sum(range(10**12))",
    "C loop of max": "import itertools\nmax(itertools.permutations(range(20)))",
    "swallowed exceptions": SWALLOW,
    "blocked signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "big integer": "x = 9**9**9",
    "__array__": HANGING_METHOD.format("__array__", "Cell()"),
    "__len__": HANGING_METHOD.format("__len__", "Cell()") + "Cell.__getitem__ = Cell.__len__",
    "__eq__ of a cell": HANGING_METHOD.format("__eq__", "[[Cell()]]"),
    "__repr__ of a cell": HANGING_METHOD.format("__repr__", "[[Cell()]]"),
    "__str__ of an error": "class Error(Exception):\n    def __str__(self):\n        while True: pass\nraise Error",
    "__del__": HANGING_FINALIZER.format("Value()"),
    "__del__ after an error": HANGING_FINALIZER.format("value = Value(); raise KeyError"),
    "__del__ in a cycle": HANGING_FINALIZER.format("x = Value(); x.x = x; del x; [[] for _ in range(100_000)]"),
}


@pytest.mark.parametrize("name", HANGS)
def test_hangs(attack: Attack, name: str) -> None:
    outcome = attack(HANGS[name])
    assert (outcome.status, outcome.error) == (Status.timeout, TIMEOUT)


def test_sleeping_for_ever(attack: Attack) -> None:
    outcome = attack("import time\ntime.sleep(10**6)")
    assert (outcome.status, outcome.error) == (Status.timeout, "Timeout: more than 3 s")


def nested_finally(depth: int) -> list[str]:
    """The compiler writes each `finally` block down twice: two to the power of depth copies of the innermost one."""
    inner = ["    " + line for line in nested_finally(depth - 1)] if depth else ["    pass"]
    return ["try:", "    pass", "finally:", *inner]


@pytest.mark.parametrize(
    "source",
    ["\n".join(nested_finally(18)), "x = 1\n" * 500_000, "-" * 10**6 + "1", "x = [" + "[]," * 10**6 + "]"],
    ids=["finally", "lines", "minus", "list"],
)
def test_compile_bombs(attack: Attack, source: str) -> None:
    # The compiler needs some time for each byte: which of the two limits is the first depends on the machine.
    assert attack(source).error in (TIMEOUT, NO_MEMORY)


def test_endless_recursion(attack: Attack) -> None:
    source = "def transform(grid): return transform(grid)"
    assert attack(source).error_type == "RecursionError"
    # Frames of Python functions are on the heap: time or memory ends first, which one depends on the machine.
    assert attack(f"import sys\nsys.setrecursionlimit(10**9)\n{source}").error in (TIMEOUT, NO_MEMORY)
    # Those of C functions are on the stack.
    cached = "import functools, sys\nsys.setrecursionlimit(10**9)\n@functools.cache\ndef f(n): return f(n + 1)\nf(0)"
    assert attack(cached).error == "Crash: killed by signal 11"


def test_hostile_methods_of_an_output(attack: Attack) -> None:
    source = "class Output:\n    def __array__(self, *args, **kwargs): {}\ndef transform(grid): return Output()"
    assert attack(source.format("raise KeyError")).status is Status.invalid_output
    assert attack(source.format("import os; os._exit(0)")).status is Status.crash


def test_hostile_methods_of_an_error(attack: Attack) -> None:
    source = "class Error(Exception):\n    def __str__(self): {}\nraise Error"
    outcome = attack(source.format("raise SystemExit"))
    assert (outcome.status, outcome.error) == (Status.error, "Exception: its message cannot be shown (line 3)")
    assert len(attack(source.format("return 'x' * 10**7")).error_message) == 1000


# ---- memory ----

MEMORY_BOMBS = {
    "at once": "x = bytearray(10**10)",
    "a string": "x = 'x' * 10**10",
    "numpy": "import numpy as np\nx = np.ones(10**9)",
    "in steps": "import numpy as np\nx = []\nwhile True: x.append(np.empty(2**20))",
    "caught and raised again": "import numpy as np\nx = []\nwhile True:\n"
    "    try: x.append(np.empty(2**20))\n    except MemoryError: raise",
    "in a method of the output": HANGING_METHOD.format("__array__", "Cell()").replace(
        "while True: pass", "return bytearray(10**10)"
    ),
    "in the message of an error": "class E(Exception):\n    def __str__(self): return 'x' * 10**10\nraise E",
}


@pytest.mark.parametrize("name", MEMORY_BOMBS)
def test_memory_bombs(attack: Attack, name: str) -> None:
    outcome = attack(MEMORY_BOMBS[name])
    if name == "in the message of an error":  # the error is the program's, its message is lost
        assert (outcome.status, outcome.error) == (Status.error, "Exception: its message cannot be shown (line 3)")
    else:
        assert (outcome.status, outcome.error) == (Status.memory, NO_MEMORY)


def test_memory_bomb_of_small_objects(attack: Attack) -> None:
    # 256 MB of small objects take about as long as the CPU limit allows: either limit may be the first.
    assert attack("x = []\nwhile True: x = [x, x]").error in (TIMEOUT, NO_MEMORY)


def test_memory_from_the_kernel_is_limited_too(attack: Attack) -> None:
    source = (
        LIBC + "libc.mmap.restype = ctypes.c_long\ncall(libc.mmap, None, ctypes.c_size_t(2**30), 3, 0x22, -1, None)"
    )
    assert attack(source).error_message == "[Errno 12] Cannot allocate memory"


def test_raising_the_limits(attack: Attack) -> None:
    source = "import resource as r\nr.setrlimit(r.RLIMIT_{}, (r.RLIM_INFINITY, r.RLIM_INFINITY))"
    for limit in ("AS", "CPU", "NPROC", "NOFILE", "FSIZE"):
        outcome = attack(source.format(limit))
        assert outcome.error == "ValueError: not allowed to raise maximum limit (line 2)"


def test_lazy_huge_output(attack: Attack) -> None:
    source = "import numpy as np\ndef transform(grid): return np.broadcast_to(np.uint8(1), (10**6, 10**6))"
    assert attack(source).error == "InvalidOutput: output 0 has shape 1000000x1000000, expected sides of 1..30"


# ---- processes ----

PROCESSES = {
    "fork": "import os\nos.fork()",
    "fork bomb": "import os\nwhile True: os.fork()",
    "daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
""",
    "forkpty": "import os\nos.forkpty()",
    "fork of C": LIBC + "call(libc.fork)",
    "vfork of C": LIBC + "call(libc.vfork)",
    "subprocess": "import subprocess\nsubprocess.run(['sleep', '1000'])",
    "execv": "import os\nos.execv('/bin/sleep', ['sleep', '1000'])",
    "posix_spawn": "import os\nos.posix_spawn('/bin/sleep', ['sleep', '1000'], {})",
    "setsid": "import os\nos.setsid()",
    "nice": "import os\nos.nice(1)",
}


@pytest.mark.parametrize("name", PROCESSES)
def test_processes(attack: Attack, name: str) -> None:
    assert_refused(attack(PROCESSES[name]))


def test_persistent_fork_bomb(attack: Attack) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert attack(source).error == TIMEOUT


def test_shell(attack: Attack) -> None:
    # system(3) reports a child that it cannot start as a shell that exits with 127
    assert attack("import os\nraise ValueError(os.system('sleep 1000') >> 8)").error_message == "127"


def test_threads(attack: Attack) -> None:
    source = "import threading\nwhile True: threading.Thread(target=input).start()"
    assert attack(source).error == "RuntimeError: can't start new thread (line 2)"


# ---- descriptors and forged answers ----


def test_flooding_stdout_and_stderr(attack: Attack) -> None:
    source = f"import os\nfor _ in range(2000):\n    print('x' * 10**4)\n    os.write(2, b'x' * 10**4)\n{GOOD}"
    outcome = attack(source)
    assert [grid.tolist() for grid in outcome.outputs] == [[[2, 1]]]


def test_reading_stdin(attack: Attack) -> None:
    assert attack("input()").error == "EOFError: EOF when reading a line (line 1)"


def test_junk_on_all_descriptors(attack: Attack) -> None:
    source = f"""
import os
for fd in range(64):
    try:
        os.write(fd, b"junk")
    except OSError:
        pass
{GOOD}
"""
    assert attack(source).error == "Protocol: malformed result"


def test_flooding_the_result_pipe(attack: Attack) -> None:
    assert attack("import os\nwhile True: os.write(3, b'x' * 10**6)").error == "Protocol: malformed result"
    # An endless message: the first bytes are those of a sound answer.
    source = (
        "import os\nos.write(3, b'ARC2' + b'\\0' * 5 + b'\\xff' * 4 + b'\\0' * 6)\nwhile True: os.write(3, b'x' * 999)"
    )
    assert attack(source).error == "Protocol: malformed result"


def test_half_an_answer(attack: Attack) -> None:
    half = "import os\nos.write(3, b'ARC2' + b'\\0' * 5)\n"
    assert attack(f"{half}os._exit(0)").error == "Crash: the process ended without a result"
    assert attack(f"{half}while True: pass").error == TIMEOUT


def test_closing_descriptors(attack: Attack) -> None:
    assert_refused(attack("import os\nos.close(3)"))
    assert_refused(attack("import os\nos.dup2(0, 3)"))
    assert [grid.tolist() for grid in attack(f"import os\nos.closerange(0, 99)\n{GOOD}").outputs] == [[[2, 1]]]


FRAME = """
import numpy as np, os
from arc_refinery.sandbox import wire
from arc_refinery.sandbox.types import Status
def frame(*grids):
    result = wire.Result(Status.ok, tuple(np.array(grid, np.uint8) for grid in grids))
    return wire.encode_reply(wire.encode_result(result), 0.0)
alone = wire.encode_reply(wire.ALONE, 0.0)
"""
FORGERIES = {
    "colour 77": "frame([[77]])",
    "side of 31": "frame([[7] * 31])",
    "no cells": "frame([[]])",
    "no grid": "frame()",
    "two grids": "frame([[7]], [[7]])",
    "status 7": "frame([[7]])[:8] + b'ARC2\\x07' + frame([[7]])[13:]",
    "answers for its neighbours": "40 * frame([[7]])",
    "its own answer and a byte": "frame([[7]]) + b'x'",
    "its own answer and a wish to be alone": "frame([[7]]) + alone",
    "a wish to be alone": "alone",
    "a wish to be alone, and answers": "alone + 40 * frame([[7]])",
    "a wish to be alone, and many more": "100 * alone",
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("ending", ["os._exit(0)", GOOD], ids=["exits", "goes on"])
def test_forged_answers(attack: Attack, name: str, ending: str) -> None:
    outcome = attack(f"{FRAME}\nos.write(3, {FORGERIES[name]})\n{ending}")
    assert (outcome.status, outcome.error) == (Status.protocol, "Protocol: malformed result")


def test_a_program_may_write_its_own_answer(attack: Attack) -> None:
    # It could have returned the same grid.
    outcome = attack(f"{FRAME}\nos.write(3, frame([[7]]))\nos._exit(0)")
    assert [grid.tolist() for grid in outcome.outputs] == [[[7]]]


@pytest.mark.parametrize("fd", [1, 3])
def test_pickle_on_a_descriptor(attack: Attack, folder: Path, fd: int) -> None:
    target = folder / "unpickled"
    source = f"""
import os, pickle
class Payload:
    def __reduce__(self): return open, ({str(target)!r}, "w")
os.write({fd}, pickle.dumps(Payload()))
{GOOD}
"""
    assert attack(source).status is (Status.ok if fd == 1 else Status.protocol)
    assert not target.exists()


# ---- files ----


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder where everybody may do everything, with a file of the same kind."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    (path / "file").write_text("kept")
    (path / "file").chmod(0o666)
    (path / "empty").mkdir(0o777)
    yield path
    shutil.rmtree(path)


def content(folder: Path) -> list[tuple[str, int, int, int, str]]:
    rows = []
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        text = path.read_text() if stat.S_ISREG(info.st_mode) else ""
        rows.append((path.name, info.st_mode, info.st_uid, info.st_mtime_ns, text))
    return rows


FILES = {
    "read a file that all may read": "open('/etc/passwd')",
    "read": "open(folder + '/file')",
    "stat": "os.stat(folder + '/file')",
    "list": "os.listdir(folder)",
    "change folder": "os.chdir(folder)",
    "create": "open(folder + '/new', 'w')",
    "create a special file": "os.mkfifo(folder + '/new')",
    "write": "os.open(folder + '/file', os.O_WRONLY)",
    "append": "open(folder + '/file', 'a')",
    "truncate": "os.truncate(folder + '/file', 0)",
    "delete": "os.remove(folder + '/file')",
    "delete a folder": "os.rmdir(folder + '/empty')",
    "rename": "os.rename(folder + '/file', folder + '/new')",
    "chmod": "os.chmod(folder + '/file', 0o777)",
    "chown": "os.chown(folder + '/file', 65534, 65534)",
    "utime": "os.utime(folder + '/file', (0, 0))",
    "symlink": "os.symlink('/etc', folder + '/new')",
    "link": "os.link(folder + '/file', folder + '/new')",
    "make a folder": "os.mkdir(folder + '/new')",
}


@pytest.mark.parametrize("name", FILES)
def test_files(attack: Attack, folder: Path, name: str) -> None:
    before = content(folder)
    assert_refused(attack(f"import os\nfolder = {str(folder)!r}\n{FILES[name]}"))
    assert content(folder) == before


# ---- network ----

SOCKETS = {
    "internet": "socket.socket()",
    "internet, version 6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "unix": "socket.socket(socket.AF_UNIX)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "pair": "socket.socketpair()",
}


@pytest.mark.parametrize("name", SOCKETS)
def test_sockets(attack: Attack, name: str) -> None:
    assert_refused(attack(f"import socket\n{SOCKETS[name]}"))


def test_connecting(attack: Attack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        assert_refused(attack(f"import socket\nsocket.create_connection((b'127.0.0.1', {listener.getsockname()[1]}))"))
        with pytest.raises(TimeoutError):
            listener.accept()


# ---- signals and tracing ----


@pytest.fixture
def bystander() -> Iterator[psutil.Process]:
    """A process of the user that programs run as."""
    with subprocess.Popen(["sleep", "1000"], user=arena.PROGRAM_USER) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_signals(attack: Attack, bystander: psutil.Process) -> None:
    server = arena.servers()[0].pid
    sends = [
        *(f"os.kill({pid}, signal.SIG{name})" for pid in (server, bystander.pid) for name in ("KILL", "STOP", "TERM")),
        f"os.kill({os.getpid()}, signal.SIGCONT)",  # harmless signals, to the caller and to everybody
        "os.kill(-1, signal.SIGCONT)",
        f"os.killpg({server}, signal.SIGKILL)",
        "os.kill(0, signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "signal.raise_signal(signal.SIGSTOP)",
        f"signal.pidfd_send_signal(os.pidfd_open({bystander.pid}), signal.SIGKILL)",
    ]
    for send in sends:
        assert_refused(attack(f"import os, signal\n{send}"))
    for call in (f"libc.tgkill, {server}, {server}, 9", f"libc.tgkill, {bystander.pid}, {bystander.pid}, 9"):
        assert_refused(attack(f"{LIBC}\ncall({call})"))
    assert bystander.status() == psutil.STATUS_SLEEPING


@pytest.mark.parametrize("victim", ["server", "bystander", "caller"])
def test_tracing(attack: Attack, bystander: psutil.Process, victim: str) -> None:
    pid = {"server": arena.servers()[0].pid, "bystander": bystander.pid, "caller": os.getpid()}[victim]
    for call in (
        f"libc.ptrace, 16, {pid}, 0, 0",  # PTRACE_ATTACH
        f"libc.ptrace, 0x4206, {pid}, 0, 0",  # PTRACE_SEIZE
        f"libc.process_vm_readv, {pid}, None, 0, None, 0, 0",
        f"libc.process_vm_writev, {pid}, None, 0, None, 0, 0",
    ):
        assert_refused(attack(f"{LIBC}\ncall({call})"))
    for file in ("mem", "environ", "maps", "fd/0"):
        assert_refused(attack(f"open('/proc/{pid}/{file}', 'rb')"))


def test_being_traced(attack: Attack) -> None:
    assert_refused(attack(f"{LIBC}\ncall(libc.ptrace, 0, 0, 0, 0)"))  # PTRACE_TRACEME


# ---- what outlives a process ----


def test_shared_memory(attack: Attack) -> None:
    key = 0x41520000 + os.getpid() % 2**16
    for kind, arguments in (("shm", f"{key}, 4096, 0o1777"), ("sem", f"{key}, 1, 0o1777"), ("msg", f"{key}, 0o1777")):
        assert_refused(attack(f"{LIBC}\ncall(libc.{kind}get, {arguments})"))  # 0o1000 is IPC_CREAT
        rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
        assert str(key) not in [row.split()[0] for row in rows]
    assert_refused(attack("import os\nos.memfd_create('memory')"))
    file = Path(f"/dev/shm/arc-refinery-{os.getpid()}")
    assert_refused(attack(f"open({str(file)!r}, 'w')"))
    assert not file.exists()
    source = f"{LIBC}\ncall(libc.shm_open, {file.name!r}.encode(), os.O_CREAT | os.O_RDWR, 0o777)"
    assert_refused(attack(source))
    assert not file.exists()


# ---- raw system calls ----


UNFILTERED = [335, 336]  # uretprobe and uprobe: since Linux 6.13 seccomp lets them through, filter or not


def test_raw_system_calls(attack: Attack) -> None:
    allowed = sorted(ARCHITECTURES[platform.machine()].allowed.values())
    source = f"""
{LIBC}
allowed = {allowed}
x32 = 0x40000000
wrong = []
for number in [n for n in range(1024) if n not in allowed + {UNFILTERED}] + [x32 + n for n in range(1024)]:
    ctypes.set_errno(0)
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    expected = 38 if number == 435 else 1  # clone3: ENOSYS; else EPERM
    if (result, ctypes.get_errno()) != (-1, expected):
        wrong.append((number, result, ctypes.get_errno()))
raise ValueError(len(allowed), wrong)
"""
    assert attack(source).error_message == f"({len(allowed)}, [])"


@pytest.mark.parametrize("number", UNFILTERED)
def test_system_calls_that_no_filter_sees(attack: Attack, number: int) -> None:
    outcome = attack(f"{LIBC}\ncall(libc.syscall, {number}, 0, 0, 0, 0, 0, 0)")
    # Where the kernel has them it kills the caller or answers ENXIO, for they are for its own trampolines only.
    assert outcome.error.startswith(("PermissionError: [Errno 1]", "OSError: [Errno 6]", "Crash: killed by signal 4"))


def test_system_calls_of_32_bit_code(attack: Attack) -> None:
    source = f"""
{LIBC}
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, None)  # readable, writable, executable; private, anonymous
code = b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3"  # mov eax, 20 (getpid of 32-bit programs); int 0x80; ret
ctypes.memmove(page, code, len(code))
raise ValueError(ctypes.CFUNCTYPE(ctypes.c_int)(page)())
"""
    # The filter kills with SIGSYS; a kernel that runs no 32-bit code refuses the instruction with SIGSEGV.
    assert attack(source).error in ("Crash: killed by signal 31", "Crash: killed by signal 11")


@pytest.mark.parametrize(
    "call",
    [
        "libc.prctl, 1, 0, 0, 0, 0",  # PR_SET_PDEATHSIG: would outlive its server
        "libc.prctl, 4, 1, 0, 0, 0",  # PR_SET_DUMPABLE
        "libc.prctl, 22, 2, 0, 0, 0",  # PR_SET_SECCOMP
        "libc.syscall, 317, 0, 0, 0",  # seccomp
        "libc.setuid, 0",
        "libc.unshare, 0x10000000",  # CLONE_NEWUSER
    ],
)
def test_shedding_what_confines_it(attack: Attack, call: str) -> None:
    assert_refused(attack(f"{LIBC}\ncall({call})"))


# ---- other programs' grids ----

MARKER = np.array([[7, 3, 9, 5, 8, 1, 7, 4]], np.uint8)
# Counts the copies of MARKER that it can reach. It knows the marker plus 1 only, so as not to find itself.
WALK = """
import gc, sys
WANTED = bytes([8, 4, 10, 6, 9, 2, 8, 5])
PLUS_1 = bytes(range(1, 256)) + b"\\0"
def transform(grid):
    todo, seen, found = gc.get_objects(), set(), 0
    frame = sys._getframe()
    while frame:
        todo += [frame, *frame.f_locals.values()]
        frame = frame.f_back
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        todo += gc.get_referents(value)
        if type(value).__name__ == "ndarray" and value.dtype.kind in "iu":
            value = value.astype("u1").tobytes()
        if isinstance(value, (bytes, bytearray)):
            found += value.translate(PLUS_1).count(WANTED)
    raise ValueError(found)
"""
SAME = "def transform(grid): return grid  # {}"
SPOIL = "from common import *\nColor.ALL_COLORS.remove(9)\ndef transform(grid): return grid"


@pytest.fixture(scope="module")
def patient(mode: str) -> Iterator[Executor]:
    n_jobs, programs_per_child = arena.MODES[mode]
    with Executor(n_jobs, Limits(cpu_seconds=10.0, wall_seconds=60.0, memory_mb=256), programs_per_child) as executor:
        yield executor


@pytest.mark.parametrize(("index", "is_spoilt"), [(0, False), (3, False), (3, True), (6, False), (6, True), (7, True)])
def test_other_programs_grids_cannot_be_found(patient: Executor, index: int, is_spoilt: bool) -> None:
    """At each index of a batch of 7, and behind a program whose child is not used again."""
    sources = [SAME.format(i) for i in range(12)]
    inputs = [MARKER] * 12
    sources[index], inputs[index] = WALK, GRID
    if is_spoilt:
        sources[index - 1] = SPOIL
    outcomes = arena.outcomes_of(patient, sources, inputs)
    assert outcomes.pop(index).error_message == "0"
    assert [[grid.tolist() for grid in outcome.outputs] for outcome in outcomes] == [[MARKER.tolist()]] * 11


def test_a_programs_own_grid_can_be_found(patient: Executor) -> None:
    """Not an attack: it shows that the search of the test above is a search."""
    (outcome,) = arena.outcomes_of(patient, [WALK], [MARKER])
    assert outcome.status is Status.error
    assert int(outcome.error_message) > 0


# ---- what the next program finds ----

LEFT = {  # what a program does; what the next one prints, and what it should print
    "numpy function": ("import numpy as np\nnp.sum = None", "import numpy as np", "np.sum([1, 2])", "3"),
    "numpy errors": ("import numpy as np\nnp.seterr(all='raise')", "import numpy as np", "np.exp(1e9)", "inf"),
    "numpy printing": (
        "import numpy as np\nnp.set_printoptions(precision=1)",
        "import numpy as np",
        "np.array([0.125])",
        "[0.125]",
    ),
    "numpy printing, in a suspended generator": (
        "import numpy as np\ndef late():\n    with np.printoptions(precision=1): yield\nx = late()\nnext(x)",
        "import numpy as np",
        "np.array([0.125])",
        "[0.125]",
    ),
    "printing of polynomials": (
        "import numpy as np\nnp.polynomial.set_default_printstyle('ascii')",
        "import numpy as np",
        "np.polynomial.Polynomial([1, 2])",
        "1.0 + 2.0·x",
    ),
    "printing of masks": (
        "import numpy as np\nnp.ma.masked_print_option.set_display('X')",
        "import numpy as np",
        "np.ma.masked",
        "--",
    ),
    "numpy seed": (
        "import numpy as np\nnp.random.seed(7)",
        "import numpy as np",
        "np.random.rand()",
        "0.5488135039273248",
    ),
    "numpy generator": (
        "import numpy as np\nnp.random.set_bit_generator(np.random.PCG64(3))",
        "import numpy as np",
        "np.random.rand()",
        "0.5488135039273248",
    ),
    "random seed": ("import random\nrandom.seed(7)", "import random", "random.random()", "0.8444218515250481"),
    "builtins": ("import builtins\nbuiltins.sorted = None", "", "sorted('ba')", "['a', 'b']"),
    "list of common": (
        "from common import *\nColor.ALL_COLORS.remove(9)",
        "from common import *",
        "Color.ALL_COLORS",
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
    ),
    "list of common, with an equal item": (
        "from common import *\nColor.ALL_COLORS[1] = True",
        "from common import *",
        "Color.ALL_COLORS",
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
    ),
    "class of common": ("import common\ncommon.Color.RED = 5", "from common import *", "Color.RED", "2"),
    "copying": (
        "import copy, collections\ncopy.dispatch_table[collections.Counter] = lambda counter: (int, ())",
        "import copy, collections",
        "copy.copy(collections.Counter('a'))",
        "Counter({'a': 1})",
    ),
    "abstract classes": (
        "import typing\ntyping.Sequence.register(dict)",
        "import typing",
        "isinstance({}, typing.Sequence)",
        "False",
    ),
    "recursion limit": ("import sys\nsys.setrecursionlimit(77)", "import sys", "sys.getrecursionlimit()", "1000"),
    "environment": ("import os\nos.environ['LEFT'] = '1'", "import os", "'LEFT' in os.environ", "False"),
    "modules": ("import sys\nsys.modules['json'] = None", "import json", "json.dumps([1])", "[1]"),
    "all modules": ("import sys\nsys.modules.clear()", "import json", "json.dumps([1])", "[1]"),
    "warnings": ("import warnings\nwarnings.simplefilter('error')", "import numpy as np", "np.exp(1e9)", "inf"),
    "decimals": ("import decimal\ndecimal.getcontext().prec = 3", "import decimal", "decimal.getcontext().prec", "28"),
    "garbage collection": ("import gc\ngc.disable()", "import gc", "gc.isenabled()", "True"),
    "signal handler": (
        "import signal\nsignal.signal(signal.SIGTERM, print)",
        "import signal",
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL",
        "True",
    ),
    "the sandbox": (
        "from arc_refinery.sandbox import child\nchild.seed = child.prctl = child.ChildSetup = None",
        "import math",
        "math.pi",
        "3.141592653589793",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_nothing_is_left_for_the_next_program(executor: Executor, name: str) -> None:
    patch, imports, expression, expected = LEFT[name]
    probes = [f"{imports}\nraise ValueError({expression})\n# {i}" for i in range(8)]
    sources = [*probes[:2], f"{patch}\n{GOOD}", *probes[2:]]
    outcomes = arena.outcomes_of(executor, sources)
    assert outcomes.pop(2).status is Status.ok
    assert [outcome.error_message for outcome in outcomes] == [expected] * 8
