"""The processes themselves: what is left when callers and servers die, machines without seccomp, ordinary users."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import psutil
import pytest
from hostile import arena
from hostile.arena import LIMITS

import arc_refinery
from arc_refinery.sandbox import Executor, Limits, Outcome, Program, Status
from arc_refinery.sandbox import executor as executor_module

pytestmark = pytest.mark.hostile

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(Path(__file__).parents[1])])}


# ---- the caller dies ----

CALLER = """
import sys
import numpy as np
from arc_refinery.sandbox import Executor, Limits, Program
n_jobs, programs_per_child, source = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with Executor(n_jobs, Limits(cpu_seconds=600.0, wall_seconds=600.0), programs_per_child) as executor:
    list(executor.run(Program(str(i), f"{source}\\n# {i}", ()) for i in range(12)))
"""
PROGRAMS = {
    "sleeps": "import time\ntime.sleep(1000)",
    "blocks signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "sheds": "import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nwhile True: pass",  # PR_SET_PDEATHSIG
}


@contextmanager
def caller(mode: str, source: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with an executor that runs such programs."""
    arguments = [*map(str, arena.MODES[mode]), source]
    with subprocess.Popen([sys.executable, "-c", CALLER, *arguments], env=ENVIRONMENT) as process:
        try:
            yield process
        finally:
            process.kill()


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def seconds_to_live(family: Sequence[psutil.Process], patience: float) -> float:
    """Seconds from now until all of them have ended."""
    start = time.monotonic()
    while any(map(lives, family)) and time.monotonic() < start + patience:
        time.sleep(0.002)
    seconds = time.monotonic() - start
    for process in family:  # this process has adopted them
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return seconds


@pytest.mark.parametrize("name", PROGRAMS)
def test_killing_the_caller_leaves_no_process(mode: str, name: str) -> None:
    n_servers, _ = arena.MODES[mode]
    with caller(mode, PROGRAMS[name]) as process:
        family: list[psutil.Process] = []
        with arena.time_limit(60):
            while len(family) < 2 * n_servers or not all(map(lives, family)):  # each server with a program, for good
                assert process.poll() is None
                family = psutil.Process(process.pid).children(recursive=True)
                time.sleep(0.3)
        process.kill()
        assert seconds_to_live(family, patience=10.0) < 1.0  # the kernel does it, in milliseconds


def test_killing_the_caller_while_its_servers_start(mode: str) -> None:
    n_servers, _ = arena.MODES[mode]
    with caller(mode, PROGRAMS["sleeps"]) as process:
        family: list[psutil.Process] = []
        with arena.time_limit(60):
            while len(family) < n_servers:
                family = psutil.Process(process.pid).children()
        process.kill()
        # A server that is still importing notices when it is done with that, which may take as long as a start.
        seconds_to_live(family, patience=30.0)
        assert not any(map(lives, family))


# ---- servers die ----

NAPPING = "import time\ndef transform(grid):\n    time.sleep(0.03)\n    return grid[:, ::-1]\n# {}"


def signal_servers(*steps: str) -> subprocess.Popen[bytes]:
    """From outside, while this process waits for outcomes: seconds to sleep, or a signal to send to the servers."""
    pids = " ".join(str(server.pid) for server in arena.servers())
    return subprocess.Popen(
        ["sh", "-c", "; ".join(f"sleep {step}" if step[0].isdigit() else f"kill -{step} {pids}" for step in steps)]
    )


def test_killed_servers_are_replaced_and_no_outcome_is_lost_or_doubled(mode: str) -> None:
    n_jobs, programs_per_child = arena.MODES[mode]
    sources = [NAPPING.format(i) for i in range(40)]
    with Executor(n_jobs, LIMITS, programs_per_child) as executor:
        first = arena.servers()
        kill(first)  # idle
        assert {outcome.error for outcome in arena.outcomes_of(executor, sources[:8])} == {""}
        second = arena.servers()
        with signal_servers("0.3", "KILL"):  # in the middle of a batch
            outcomes = arena.outcomes_of(executor, sources)
        assert [(outcome.error, outcome.outputs[0].tolist()) for outcome in outcomes] == [("", [[2, 1]])] * 40
        third = arena.servers()
        assert len({*first, *second, *third}) == 3 * n_jobs
        ids = []
        for outcome in executor.run(Program(str(i), NAPPING.format(i), (arena.GRID,)) for i in range(20)):
            ids.append(outcome.program_id)
            assert outcome.error == ""
            if outcome.program_id == "10":
                kill(third)
        assert ids == [str(i) for i in range(20)]
        assert arena.attack(executor, "while True: pass").status is Status.timeout
    assert arena.servers() == []


def test_a_killer_that_goes_from_server_to_server_is_no_fault_of_a_program() -> None:
    slow = "import time\ndef transform(grid):\n    time.sleep(1.0)\n    return grid[:, ::-1]"
    with Executor(2, LIMITS) as executor:
        idle, busy = arena.servers()
        command = f"sleep 0.4; kill -KILL {busy.pid}; sleep 0.4; kill -KILL {idle.pid}"
        with subprocess.Popen(["sh", "-c", command]):
            outcomes = arena.outcomes_of(executor, [arena.GOOD, slow])
    assert [(outcome.error, outcome.outputs[0].tolist()) for outcome in outcomes] == [("", [[2, 1]])] * 2


def kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        process.kill()


def test_a_program_whose_servers_die_twice_is_a_crash(mode: str) -> None:
    n_jobs, programs_per_child = arena.MODES[mode]
    is_done = threading.Event()

    def kill_servers_that_run_something() -> None:
        first_seen: dict[int, float] = {}
        while not is_done.wait(0.05):
            for server in arena.servers():
                with suppress(psutil.NoSuchProcess):
                    seen = [first_seen.setdefault(child.pid, time.monotonic()) for child in server.children()]
                    if any(time.monotonic() - since > 1.0 for since in seen):  # the one that sleeps
                        server.kill()

    killer = threading.Thread(target=kill_servers_that_run_something)
    with Executor(n_jobs, LIMITS, programs_per_child) as executor:
        killer.start()
        try:
            sources = ["def transform(grid): return grid", "import time\ntime.sleep(1000)", arena.GOOD]
            outcomes = arena.outcomes_of(executor, sources)
        finally:
            is_done.set()
            killer.join()
        assert [outcome.error for outcome in outcomes] == ["", "Crash: its server died, twice", ""]
        assert arena.outcomes_of(executor, [arena.GOOD])[0].status is Status.ok


def test_a_stopped_server_is_given_up(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "GRACE_SECONDS", 0.5)
    n_jobs, programs_per_child = arena.MODES[mode]
    with Executor(n_jobs, Limits(cpu_seconds=0.5, wall_seconds=1.0, memory_mb=256), programs_per_child) as executor:
        stopped = arena.servers()
        for server in stopped:
            server.suspend()
        outcomes = arena.outcomes_of(executor, [f"{arena.GOOD}\n# {i}" for i in range(3)])
        assert [(outcome.error, outcome.outputs[0].tolist()) for outcome in outcomes] == [("", [[2, 1]])] * 3
        # Two servers are stopped: the second one may have been handed nothing that the other did not take back.
        assert any(not lives(server) for server in stopped)
        for server in stopped:
            with suppress(psutil.NoSuchProcess):
                server.resume()


BURNING = """
import time
def transform(grid):
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
    return grid
# {}
"""


def test_a_server_that_pauses_changes_no_verdict(mode: str) -> None:
    """As on a busy machine, where a server may get no processor for a while and its child does."""
    n_jobs, programs_per_child = arena.MODES[mode]
    with Executor(n_jobs, LIMITS, programs_per_child) as executor:
        with signal_servers("0.3", "STOP", "0.8", "CONT"):
            outcomes = arena.outcomes_of(executor, [BURNING.format(i) for i in range(8)])
        assert [outcome.error for outcome in outcomes] == [""] * 8


# ---- the caller ends ----


def running_for_ever(programs_per_child: int) -> tuple[Executor, Iterator[Outcome]]:
    """An executor of two servers after the first outcome: one server is at a program that does not end."""
    n_first = 1 if programs_per_child == 1 else 12 // 4 + 1  # programs of the first batch
    endless = "def transform(grid):\n    while True: pass"  # which may share a child, too
    sources = [arena.GOOD] * n_first + [endless] * (12 - n_first)
    executor = Executor(2, Limits(cpu_seconds=600.0, wall_seconds=600.0), programs_per_child)
    outcomes = executor.run(Program(str(i), f"{text}\n# {i}", (arena.GRID,)) for i, text in enumerate(sources))
    assert next(outcomes).status is Status.ok
    with arena.time_limit(arena.PATIENCE_SECONDS):
        while not any(server.children() for server in arena.servers()):  # it may not have forked yet
            time.sleep(0.01)
    return executor, outcomes


def test_closing_ends_running_programs(mode: str) -> None:
    before = arena.descendants()
    executor, outcomes = running_for_ever(arena.MODES[mode][1])
    executor.close()
    assert arena.descendants() == before
    with pytest.raises(RuntimeError, match="closed"):
        list(outcomes)


def test_abandoning_a_run_ends_running_programs(mode: str) -> None:
    executor, outcomes = running_for_ever(arena.MODES[mode][1])
    with executor:
        outcomes.close()  # type: ignore[attr-defined]  # the iterator is a generator
        assert not any(server.children() for server in arena.servers())
        assert arena.outcomes_of(executor, [arena.GOOD])[0].status is Status.ok


# ---- without seccomp ----

# Before the executor is made, a filter that refuses the call that makes filters (317), and no other.
WITHOUT_SECCOMP = """
import ctypes, json, struct, sys
from hostile import arena
from arc_refinery.errors import InputError
from arc_refinery.sandbox import Executor

def instruction(code, operand, skip_unless_equal=0): return struct.pack("HBBI", code, 0, skip_unless_equal, operand)
code = instruction(0x20, 0) + instruction(0x15, 317, 1) + instruction(0x06, 0x00050001) + instruction(0x06, 0x7fff0000)
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER

arena.adopt_orphans()
n_jobs, programs_per_child = arena.MODES[sys.argv[1]]
sources = json.loads(sys.argv[2])
try:
    with Executor(n_jobs, arena.LIMITS, programs_per_child, allow_without_seccomp=bool(sources)) as executor:
        print(json.dumps([arena.attack(executor, source).error for source in sources]))
except InputError as error:
    print(json.dumps([str(error)]))
assert arena.descendants() == set()
"""


def run_without_seccomp(mode: str, sources: Sequence[str], *prefix: str) -> list[str]:
    command = [*prefix, sys.executable, "-c", WITHOUT_SECCOMP, mode, json.dumps(sources)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    errors: list[str] = json.loads(done.stdout)
    return errors


def test_without_seccomp_it_does_not_start(mode: str) -> None:
    (message,) = run_without_seccomp(mode, [])
    assert "refuses seccomp(2): Operation not permitted" in message
    assert "sandbox.allow_without_seccomp: true" in message
    assert "--allow-without-seccomp" in message


def test_without_seccomp_the_weaker_walls_hold(mode: str) -> None:
    no_process = "BlockingIOError: [Errno 11] Resource temporarily unavailable (line 2)"
    expected = {
        "import os\nwhile True: os.fork()": no_process,
        "import os\nif os.fork() == 0: os.setsid(); os.fork()": no_process,
        "import threading\nthreading.Thread(target=print).start()": "RuntimeError: can't start new thread (line 2)",
        "import time\ntime.sleep(1000)": "Timeout: more than 3 s",
        "while True: pass": "Timeout: more than 0.5 s of CPU time",
        "x = bytearray(10**10)": "MemoryError: more than 256 MB",
        "import os\nos._exit(0)": "Crash: the process ended without a result",
        "import os\nos.write(3, b'x')": "Protocol: malformed result",
        "open('/etc/passwd')": "OSError: [Errno 24] Too many open files: '/etc/passwd' (line 1)",
        arena.GOOD: "",
    }
    assert run_without_seccomp(mode, list(expected)) == list(expected.values())


def test_without_seccomp_no_byte_goes_into_a_file(mode: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        file = Path(name, "file")
        file.write_text("kept")
        file.chmod(0o666)
        source = f"import os\nos.close(0)\nos.write(os.open({str(file)!r}, os.O_WRONLY | os.O_APPEND), b'x')"
        assert run_without_seccomp(mode, [source]) == ["OSError: [Errno 27] File too large (line 3)"]
        assert file.read_text() == "kept"


# ---- as root of a user namespace that has no other user, as in a container ----

ONLY_ROOT = ("unshare", "--user", "--map-root-user")


@pytest.mark.skipif(
    subprocess.run([*ONLY_ROOT, "true"], check=False, capture_output=True).returncode != 0,
    reason="this machine forbids user namespaces",
)
def test_root_of_a_namespace_loses_its_rights(mode: str) -> None:
    rights = "[line.split() for line in open('/proc/self/status') if line[:3] in ('Uid', 'Cap')]"
    (error,) = run_without_seccomp(mode, [f"import os\nos.close(0)\nraise ValueError({rights})"], *ONLY_ROOT)
    none = [f"['Cap{name}:', '{0:016x}']" for name in ("Inh", "Prm", "Eff")]
    assert error.startswith(f"ValueError: [['Uid:', '0', '0', '0', '0'], {', '.join(none)}, ")


# ---- as an ordinary user ----


def interpreter_of_nobody(environment: dict[str, str], folder: str) -> str | None:
    """An interpreter with which the user nobody can run these tests: this one, or the system's of the same version."""
    system = shutil.which(f"python3.{sys.version_info.minor}", path=os.defpath)
    for candidate in filter(None, (sys.executable, system)):
        command = [candidate, "-c", "import arc_refinery, numpy, psutil, pytest, scipy"]
        with suppress(PermissionError):
            if (
                subprocess.run(command, check=False, capture_output=True, **as_nobody(environment, folder)).returncode
                == 0
            ):
                return candidate
    return None


def as_nobody(environment: dict[str, str], folder: str) -> dict[str, Any]:
    return {"env": environment, "cwd": folder, "user": arena.NOBODY, "group": arena.NOBODY, "extra_groups": []}


@pytest.mark.skipif(os.geteuid() != 0 or not arena.HAS_NOBODY, reason="this run has one user")
def test_all_of_this_as_an_ordinary_user(request: pytest.FixtureRequest) -> None:
    packages = {str(Path(package.__file__ or "").parents[1]) for package in (numpy, arc_refinery)}
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, arena.NOBODY, arena.NOBODY)
        environment = {
            "HOME": folder,
            "PATH": os.defpath,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(packages),
        }
        interpreter = interpreter_of_nobody(environment, folder)
        if interpreter is None:
            pytest.skip("the user nobody cannot read this environment, nor has the system an interpreter for it")
        tests, results = Path(__file__).parent, Path(folder, "results.xml")
        command = [
            interpreter,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--basetemp",
            f"{folder}/temporary",
            "--tb=line",
        ]
        command += ["--rootdir", str(request.config.rootpath), "--junitxml", str(results)]
        # Who runs the servers changes nothing in how many programs share a child.
        command += [str(tests), "-k", "not alone", "--deselect", request.node.nodeid]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=900, **as_nobody(environment, folder)
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        (suite,) = ElementTree.parse(results).getroot()
        counts = {name: int(suite.attrib[name]) for name in ("failures", "errors", "skipped")}
        assert counts == {"failures": 0, "errors": 0, "skipped": 0}
        assert int(suite.attrib["tests"]) > 100
