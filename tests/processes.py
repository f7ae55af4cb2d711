"""Programs of this repository, each in a process of its own that starts fast.

Importing Snakemake takes longer than a dry run, and importing TRL longer than a short training. Processes are therefore
forked from a server that has imported everything and has run nothing. What runs in them is what the console scripts
run; they can be killed with their process group, as started programs can.

Jobs of a Snakemake that runs to its end start in the same way: `arc-refinery` on its path is a client of the server.
"""

import atexit
import json
import multiprocessing
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import ModuleType

PROGRAMS = ("arc-refinery", "snakemake")
BIN = Path(sys.executable).parent
MODULES = ["snakemake.cli", "snakemake.api", "arc_refinery.config", "arc_refinery.sampling.transformers_sampler"]
MODULES += ["arc_refinery.training.grpo", "arc_refinery.training.sft", "arc_refinery.reporting.report"]
_NUMBER = 8  # bytes of a number that is sent


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a shell in which this Python's programs are found."""
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **(changes or {})}


class Running:
    """A started program, with as much of Popen's interface as is asked for here."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._code: int | None = None
        self.pid = _receive(connection)

    @property
    def returncode(self) -> int:
        assert self._code is not None
        return self._code

    def poll(self) -> int | None:
        if self._code is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self._code

    def wait(self) -> int:
        if self._code is None:
            self._code = _receive(self._connection)
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


class Server:
    """Forks programs; ends with this process. `within` is a command that starts another."""

    def __init__(self, modules: Iterable[str], variables: Mapping[str, str], within: Sequence[str] = ()) -> None:
        self._temporary = tempfile.TemporaryDirectory()
        self.address = f"{self._temporary.name}/server"
        client = Path(self._temporary.name) / "arc-refinery"
        self.write_client(client, ["arc-refinery"])
        self.path_of_jobs = client.with_name("path")  # bash reads it; our rules put this environment on the path first
        self.path_of_jobs.write_text(f'PATH="{client.parent}:$PATH"')
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(100)
            command = [*within, sys.executable, __file__, str(listener.fileno()), *modules]
            descriptors = [listener.fileno()]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=descriptors, env=variables)
        atexit.register(self.end)

    def write_client(self, path: Path, command: Sequence[str]) -> None:
        """Write a program that starts a command here, with its own arguments behind it."""
        path.write_text(_CLIENT.format(python=sys.executable, address=self.address, n=_NUMBER, command=list(command)))
        path.chmod(0o755)

    def start(
        self, command: Sequence[str], folder: Path, stdout: Path, stderr: Path, variables: Mapping[str, str]
    ) -> Running:
        """Start a program in a folder, as the leader of a process group."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        request = json.dumps([list(command), str(folder), dict(variables), True]).encode()
        descriptors = [os.open(os.devnull, os.O_RDONLY), *(os.open(path, flags, 0o644) for path in (stdout, stderr))]
        socket.send_fds(connection, [len(request).to_bytes(_NUMBER, "big")], descriptors)
        connection.sendall(request)
        for descriptor in descriptors:
            os.close(descriptor)
        return Running(connection)

    def run(
        self, command: Sequence[str], folder: Path, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as temporary:
            stdout, stderr = (Path(temporary) / name for name in ("stdout", "stderr"))
            code = self.start(command, folder, stdout, stderr, variables).wait()
            return subprocess.CompletedProcess(command, code, stdout.read_text(), stderr.read_text())

    def kill_when(
        self, command: Sequence[str], folder: Path, variables: Mapping[str, str], enough: Callable[[], bool]
    ) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            output = Path(temporary) / "output"
            process = self.start(command, folder, output, output, variables)
            while not enough():
                assert process.poll() is None, f"it ended before it could be killed: {output.read_text()}"
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end(self) -> None:
        self._process.communicate()
        self._temporary.cleanup()


@cache
def server() -> Server:
    return Server(MODULES, environment())


def can_be_forked(command: Sequence[str]) -> bool:
    """Return whether a command is one of `PROGRAMS`, or `python -c ...`."""
    return command[0] in PROGRAMS or list(command[:2]) == [sys.executable, "-c"]


def start(
    command: Sequence[str], folder: Path, stdout: Path, stderr: Path, changes: Mapping[str, str] | None = None
) -> Running:
    """Start a command that can be forked; `changes` are made to its environment."""
    return server().start(command, folder, stdout, stderr, environment(changes))


def run(
    command: Sequence[str], folder: Path, changes: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder and wait for its end; fast if it can be forked, and so are the jobs of Snakemake."""
    variables = environment(changes)
    if not can_be_forked(command):
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if command[0] == "snakemake":
        variables["BASH_ENV"] = str(server().path_of_jobs)
    return server().run(command, folder, variables)


def kill_when(command: Sequence[str], folder: Path, enough: Callable[[], bool]) -> None:
    """Start a command; as soon as it has made enough progress, end it and all that it started with SIGKILL."""
    server().kill_when(command, folder, environment(), enough)


# the server

_CLIENT = """\
#!{python} -ISE
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([[*{command!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ), False]).encode()
    socket.send_fds(server, [len(request).to_bytes({n}, "big")], [0, 1, 2])
    server.sendall(request)
    number = int.from_bytes(server.recv({n}), "big")
    for signal_number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signal_number, lambda received, _: os.kill(number, received))
    code = int.from_bytes(server.recv({n}), "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def _serve(listener: socket.socket) -> None:
    """Fork a program for each client, until the standard input ends; one whose client is gone is killed."""
    programs: dict[int, tuple[ForkProcess, socket.socket]] = {}  # by the descriptor that tells its end
    clients: dict[socket.socket, ForkProcess] = {}
    while True:
        for ready in wait([0, listener, *programs, *clients]):
            if ready == 0:
                return
            if ready is listener:
                client, _ = listener.accept()
                program = _fork(client)
                programs[program.sentinel], clients[client] = (program, client), program
            elif isinstance(ready, int):
                program, client = programs.pop(ready)
                program.join()
                if clients.pop(client, None):
                    _send(client, program.exitcode or 0)
                client.close()
            elif isinstance(ready, socket.socket) and ready in clients:
                clients.pop(ready).kill()


def _fork(client: socket.socket) -> ForkProcess:
    size, descriptors, _, _ = socket.recv_fds(client, _NUMBER, 3)
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += client.recv(1 << 16)
    context = multiprocessing.get_context("fork")
    program = context.Process(target=_run, args=(*json.loads(request), descriptors))
    program.start()
    for descriptor in descriptors:
        os.close(descriptor)
    assert program.pid
    _send(client, program.pid)
    return program


def _run(command: list[str], folder: str, variables: dict[str, str], leads: bool, descriptors: list[int]) -> None:
    if leads:
        os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # tests in the background may ignore some
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))  # packages of a test
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.stdin = open(0)  # noqa: SIM115 (multiprocessing has closed it)
    sys.modules["__main__"] = ModuleType("__main__")  # what this program spawns would import this file
    try:
        _become(command)
    finally:
        atexit._run_exitfuncs()  # multiprocessing would leave them out


def _become(command: list[str]) -> None:
    if command[0] in PROGRAMS:
        sys.argv = [str(BIN / command[0]), *command[1:]]
        sys.orig_argv = [sys.executable, *sys.argv]  # a training in several processes starts itself again
    else:
        sys.argv, sys.orig_argv = command[1:], command
    match command[0]:
        case "snakemake":
            import htcondor2
            from snakemake.cli import main

            htcondor2.reload_config()  # it was read where no pool is named
            main()
        case "arc-refinery":
            from arc_refinery.cli import main

            main()
        case _:
            _, _, code, *words = command
            sys.argv = ["-c", *words]
            exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))


def _send(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(_NUMBER, "big", signed=True))


def _receive(connection: socket.socket) -> int:
    return int.from_bytes(connection.recv(_NUMBER), "big", signed=True)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        for module in sys.argv[2:]:
            import_module(module)
        _serve(inherited)


def disk_states(folder: Path, copies: Path, run: Callable[[], object]) -> list[Path]:
    """Copies of a folder as SIGKILL would leave it before each write, rename or removal in it while `run` runs."""
    states: dict[tuple[tuple[str, int], ...], Path] = {}
    is_watching = True

    def copy() -> None:
        nonlocal is_watching
        is_watching = False  # copying writes, too
        files = sorted(path for path in folder.rglob("*"))
        state = tuple((str(path), path.stat().st_mtime_ns if path.is_file() else 0) for path in files)
        if state not in states:
            states[state] = Path(shutil.copytree(folder, copies / str(len(states))))
        is_watching = True

    def on_event(event: str, arguments: tuple[object, ...]) -> None:
        if is_watching and (
            event in {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
            or (event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        ):
            copy()

    sys.addaudithook(on_event)  # cannot be removed
    run()
    copy()
    is_watching = False
    return list(states.values())
