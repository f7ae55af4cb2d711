"""Programs that attack the sandbox: each gets its verdict, its neighbours theirs, and nothing stays behind.

Nothing here claims that the network is closed: it is not yet (docs/sandbox.md).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from arc_refinery.sandbox import Executor, Limits, Outcome, Program, Status
from arc_refinery.sandbox import executor as executor_module

# Servers have their limits as arguments, and their children look like them: an odd number marks those of this run.
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=3 + os.getpid() / 1e9, memory_mb=256)
MARK = repr(LIMITS.wall_seconds)
ROOT = os.geteuid() == 0
GRID = np.array([[1, 2]], np.uint8)
GOOD = "import numpy as np\ndef transform(grid): return np.fliplr(grid)"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(2, LIMITS) as executor:
        yield executor


def attack(executor: Executor, source: str) -> Outcome:
    """The outcome of a hostile program that ran among good ones."""
    sources = [GOOD, GOOD, source, GOOD, GOOD, GOOD]
    outcomes = list(executor.run(Program(str(i), text, (GRID,)) for i, text in enumerate(sources)))
    assert [outcome.program_id for outcome in outcomes] == ["0", "1", "2", "3", "4", "5"]
    hostile = outcomes.pop(2)
    assert [[grid.tolist() for grid in outcome.outputs] for outcome in outcomes] == [[[[2, 1]]]] * 5
    assert programs_left() == []
    return hostile


def programs_left() -> list[psutil.Process]:
    """Processes of this run's sandboxes, or started by them, that are not servers."""
    mine = psutil.Process().children()
    below = [process for child in mine for process in child.children(recursive=True)]
    alike = [p for p in psutil.process_iter(["cmdline"]) if MARK in (p.info["cmdline"] or ()) and p not in mine]
    return [process for process in {*below, *alike} if process.is_running()]


def test_exit_without_a_result(executor: Executor) -> None:
    assert attack(executor, "import os\nos._exit(0)").status is Status.crash


def test_segmentation_fault(executor: Executor) -> None:
    assert attack(executor, "import ctypes\nctypes.string_at(0)").error == "Crash: killed by signal 11"


def test_python_loop(executor: Executor) -> None:
    assert attack(executor, "def transform(grid):\n    while True: pass").status is Status.timeout


def test_c_loop_that_checks_no_signals(executor: Executor) -> None:
    assert attack(executor, "sum(range(10**12))").status is Status.timeout


def test_loop_that_swallows_every_exception(executor: Executor) -> None:
    source = """
def transform(grid):
    while True:
        try:
            while True: pass
        except BaseException:
            continue
"""
    assert attack(executor, source).status is Status.timeout


def test_blocked_signals(executor: Executor) -> None:
    source = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass"
    assert attack(executor, source).status is Status.timeout


def test_sleeping_for_ever(executor: Executor) -> None:
    assert attack(executor, "import time\ntime.sleep(10**6)").status is Status.timeout


def test_stopping_itself(executor: Executor) -> None:
    assert attack(executor, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)").status is Status.timeout


def test_compile_bomb(executor: Executor) -> None:
    assert attack(executor, "x = " + "9**" * 9 + "9").status in (Status.timeout, Status.memory)


def test_memory_bomb_at_once(executor: Executor) -> None:
    assert attack(executor, "x = bytearray(10**10)").status is Status.memory


def test_memory_bomb_in_steps(executor: Executor) -> None:
    source = "import numpy as np\nx = []\nwhile True: x.append(np.empty(2**20))"
    assert attack(executor, source).status is Status.memory


def test_memory_bomb_of_small_objects(executor: Executor) -> None:
    # 250 MB of small objects take about as long as the CPU limit allows: either limit may be the first.
    assert attack(executor, "x = []\nwhile True: x = [x, x]").status in (Status.memory, Status.timeout)


def test_raising_the_memory_limit(executor: Executor) -> None:
    source = "import resource as r\nr.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY))"
    assert attack(executor, source).error_type == "ValueError"


def test_lazy_huge_output(executor: Executor) -> None:
    source = "import numpy as np\ndef transform(grid): return np.broadcast_to(np.uint8(1), (10**6, 10**6))"
    assert attack(executor, source).error_message == "output 0 has shape 1000000x1000000, expected sides of 1..30"


def test_hostile_array_method(executor: Executor) -> None:
    source = """
class Output:
    def __array__(self, *args, **kwargs):
        while True: pass
def transform(grid): return Output()
"""
    assert attack(executor, source).status is Status.timeout
    assert attack(executor, source.replace("while True: pass", "raise KeyError")).status is Status.invalid_output
    assert attack(executor, source.replace("while True: pass", "import os; os._exit(0)")).status is Status.crash


def test_hostile_error_message(executor: Executor) -> None:
    source = """
class Error(Exception):
    def __str__(self):
        while True: pass
raise Error
"""
    assert attack(executor, source).status is Status.timeout
    assert attack(executor, source.replace("while True: pass", "raise SystemExit")).error_type == "Exception"
    assert len(attack(executor, source.replace("while True: pass", "return 'x' * 10**7")).error_message) == 1000


def test_endless_recursion(executor: Executor) -> None:
    source = "def transform(grid): return transform(grid)"
    assert attack(executor, source).error_type == "RecursionError"
    unlimited = f"import sys\nsys.setrecursionlimit(10**9)\n{source}"
    assert attack(executor, unlimited).status in (Status.timeout, Status.memory, Status.crash)


def test_fork_bomb(executor: Executor) -> None:
    assert attack(executor, "import os\nwhile True: os.fork()").error_type == "BlockingIOError"


def test_threads(executor: Executor) -> None:
    source = "import threading\nwhile True: threading.Thread(target=input).start()"
    assert attack(executor, source).error_message == "can't start new thread"


def test_daemon(executor: Executor) -> None:
    source = """
import os, time
def transform(grid):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    return grid
"""
    assert attack(executor, source).error_type == "BlockingIOError"


def test_another_program(executor: Executor) -> None:
    assert attack(executor, "import os\nos.system('sleep 1000')").status is not Status.timeout
    assert attack(executor, "import subprocess\nsubprocess.run(['sleep', '1000'])").status is Status.error
    # As root this needs a process that nobody's limit does not grant; else the result pipe closes on exec.
    in_place = attack(executor, "import os\nos.execv('/bin/sleep', ['sleep', '1000'])")
    assert in_place.status in (Status.error, Status.crash)


def test_flooding_stdout_and_stderr(executor: Executor) -> None:
    source = f"import os\nfor _ in range(2000):\n    print('x' * 10**4)\n    os.write(2, b'x' * 10**4)\n{GOOD}"
    assert attack(executor, source).status is Status.ok


def test_reading_stdin(executor: Executor) -> None:
    assert attack(executor, "input()").error_type == "EOFError"


def test_junk_on_all_descriptors(executor: Executor) -> None:
    source = f"""
import os
for fd in range(3, 64):
    try:
        os.write(fd, b"junk")
    except OSError:
        pass
{GOOD}
"""
    assert attack(executor, source).status is Status.protocol


def test_flooding_the_result_pipe(executor: Executor) -> None:
    assert attack(executor, "import os\nwhile True: os.write(3, b'x' * 10**6)").status is Status.protocol


def test_closing_the_result_pipe(executor: Executor) -> None:
    assert attack(executor, "import os, time\nos.close(3)\ntime.sleep(1000)").status is Status.crash


def test_closing_all_descriptors(executor: Executor) -> None:
    assert attack(executor, f"import os\nos.closerange(0, 99)\n{GOOD}").status is Status.crash


def test_forged_result_with_an_invalid_grid(executor: Executor) -> None:
    source = """
import numpy as np, os
from arc_refinery.sandbox import wire
frame = wire.encode_result(wire.Result(list(wire.Status)[0], (np.full((40, 40), 77, np.uint8),)))
os.write(3, frame)
os._exit(0)
"""
    assert attack(executor, source).status is Status.protocol


@pytest.mark.parametrize("fd", [1, 3])
def test_pickle_on_a_descriptor(executor: Executor, tmp_path: Path, fd: int) -> None:
    target = tmp_path / "unpickled"
    source = f"""
import os, pickle
class Payload:
    def __reduce__(self): return open, ({str(target)!r}, "w")
os.write({fd}, pickle.dumps(Payload()))
{GOOD}
"""
    assert attack(executor, source).status is (Status.ok if fd == 1 else Status.protocol)
    assert not target.exists()


def test_writing_files(executor: Executor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder, "file")
        assert attack(executor, f"open({str(path)!r}, 'w').write('x')").error_type == "OSError"
        assert not path.exists()
        path.write_text("kept")
        path.chmod(0o666)
        # With a descriptor of its own freed for it the file opens, but takes no byte.
        source = f"import os\nos.close(0)\nos.write(os.open({str(path)!r}, os.O_WRONLY | os.O_APPEND), b'x')"
        assert attack(executor, source).error_message == "[Errno 27] File too large"
        assert path.read_text() == "kept"


@pytest.mark.skipif(not ROOT, reason="an ordinary user's programs may do to files what the user may (docs/sandbox.md)")
def test_files_of_the_caller_are_out_of_reach(executor: Executor, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("kept")
    path.chmod(0o600)
    for call in (
        f"os.remove({str(path)!r})",
        f"os.truncate({str(path)!r}, 0)",
        f"os.close(0); os.open({str(path)!r}, 0)",
    ):
        assert attack(executor, f"import os\n{call}").error_type == "PermissionError"
    assert path.read_text() == "kept"


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"])
def test_signals_to_the_server(executor: Executor, monkeypatch: pytest.MonkeyPatch, signal_name: str) -> None:
    monkeypatch.setattr(executor_module, "GRACE_SECONDS", 1.0)
    outcome = attack(executor, f"import os, signal\nos.kill(os.getppid(), signal.{signal_name})")
    if ROOT:  # the program is somebody else
        assert outcome.error_type == "PermissionError"
    else:  # it succeeds, twice, and hurts itself only
        assert outcome.error == "Crash: its server died, twice"


def test_tracing_the_server(executor: Executor) -> None:
    attach = "ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0)"  # 16 = PTRACE_ATTACH
    outcome = attack(executor, f"import ctypes, os\nif {attach} == 0: raise ValueError('attached')\n{GOOD}")
    assert outcome.status is Status.ok
    source = "import os\nos.close(0)\nos.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)"
    assert attack(executor, source).error_type == "PermissionError"


# ---- the processes themselves ----

CALLER = f"""
import sys
import numpy as np
from arc_refinery.sandbox import Executor, Limits, Program
with Executor(2, Limits(cpu_seconds=600.0, wall_seconds={MARK}e3)) as executor:
    list(executor.run(Program(str(i), sys.argv[1], ()) for i in range(4)))
"""
SHED = "import ctypes, time\nctypes.CDLL(None).prctl(1, 0)\ntime.sleep(1000)"  # 1 = PR_SET_PDEATHSIG


@pytest.mark.parametrize("source", ["import time\ntime.sleep(1000)", "while True: pass", SHED])
def test_killing_the_caller_leaves_no_process(source: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", CALLER, source], env=environment) as caller:
        family: list[psutil.Process] = []
        while len(family) < 4:  # two servers with a program each
            time.sleep(0.5)  # also for the programs to get going
            assert caller.poll() is None
            family = psutil.Process(caller.pid).children(recursive=True)
        caller.kill()
    _, alive = psutil.wait_procs(family, timeout=5.0)  # it takes some 0.1 s
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_killed_servers_are_replaced_and_no_outcome_is_lost_or_doubled() -> None:
    with Executor(2, LIMITS) as executor:
        ids = []
        for outcome in executor.run(Program(str(i), GOOD, (GRID,)) for i in range(60)):
            assert outcome.status is Status.ok
            ids.append(outcome.program_id)
            if outcome.program_id in ("10", "30"):
                kill_servers()
        assert ids == [str(i) for i in range(60)]
        kill_servers()
        assert attack(executor, GOOD).status is Status.ok


def kill_servers() -> None:
    for process in psutil.Process().children():
        if process.status() != psutil.STATUS_ZOMBIE and MARK in process.cmdline():
            process.kill()


def test_closing_ends_running_programs() -> None:
    executor = Executor(2, LIMITS)
    outcomes = executor.run(Program(str(i), GOOD if i == 0 else "while True: pass", (GRID,)) for i in range(9))
    next(outcomes)
    executor.close()
    assert programs_left() == []
    with pytest.raises(RuntimeError, match="closed"):
        next(outcomes)
