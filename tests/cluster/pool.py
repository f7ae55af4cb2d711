"""A private HTCondor pool of one machine or two, below one folder, on the loopback interface."""

import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SOFTWARE = Path(sys.prefix) / "htcondor"  # where `make condor` unpacks it

_CONFIG = """
RELEASE_DIR = {software}/usr
LIB = $(RELEASE_DIR)/lib
LIBEXEC = $(RELEASE_DIR)/libexec/condor
SHARE = $(RELEASE_DIR)/share/condor
LOCAL_DIR = {folder}
RUN = {folder}/run
LOCK = {folder}/lock
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR =
# a client that root runs wants an identity, and uses it for nothing
CONDOR_IDS = 0.0
MAIL = /bin/true
use ROLE: CentralManager
use ROLE: Submit
use ROLE: Execute

NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:{port}
USE_SHARED_PORT = False
NO_DNS = True
DEFAULT_DOMAIN_NAME = local
UID_DOMAIN = local
FILESYSTEM_DOMAIN = local

# Whoever can read the token may do everything. The Python bindings refuse to prove who they are by a file here.
SEC_DEFAULT_AUTHENTICATION = REQUIRED
SEC_DEFAULT_AUTHENTICATION_METHODS = IDTOKENS
TRUST_DOMAIN = local
SEC_PASSWORD_DIRECTORY = {folder}/keys
SEC_TOKEN_POOL_SIGNING_KEY_FILE = {folder}/keys/POOL
SEC_TOKEN_DIRECTORY = {folder}/tokens
SEC_TOKEN_SYSTEM_DIRECTORY = {folder}/tokens
ALLOW_READ = {owner}@local
ALLOW_WRITE = {owner}@local
ALLOW_DAEMON = {owner}@local
ALLOW_NEGOTIATOR = {owner}@local
ALLOW_ADMINISTRATOR = {owner}@local

# root would otherwise change kernel settings of the machine
ENABLE_KERNEL_TUNING = False
BASE_CGROUP =
START = True
SUSPEND = False
PREEMPT = False
NUM_CPUS = {cpus}
MEMORY = {mem_mb}
SLOT_TYPE_1 = 100%
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1_PARTITIONABLE = True
RUNBENCHMARKS = 0
STARTD_CRON_JOBLIST =
SCHEDD_CRON_JOBLIST =

# one job at a time is waited for here, not a thousand machines served
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_MIN_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
UPDATE_INTERVAL = 2
STARTER_UPDATE_INTERVAL = 2
SHADOW_QUEUE_UPDATE_INTERVAL = 2
PERIODIC_EXPR_INTERVAL = 2
"""

# Two cards that exist on paper: an A100 (capability 8.0, 47,661 MB) and a TITAN RTX (7.5, 24,220 MB), with a driver for
# CUDA 13, which the simulation leaves out. Jobs are matched with them and told their names.
_GPUS = """
MACHINE_RESOURCE_INVENTORY_GPUs = {folder}/gpus
ENVIRONMENT_FOR_AssignedGPUs = CUDA_VISIBLE_DEVICES=/CUDA//
"""
_DISCOVERY = """\
#!/bin/sh
{software}/usr/libexec/condor/condor_gpu_discovery -properties -simulate:4,1,3,1 \\
  | sed 's/Capability=/MaxSupportedVersion=13000; &/'
"""
A100, TITAN = "GPU-a0223334", "GPU-b1223334"

# Another machine: its daemons have their own folder and address, and with it their own name.
_SECOND = """
LOCAL_DIR = {folder}
RUN = {folder}/run
LOCK = {folder}/lock
NETWORK_INTERFACE = 127.0.0.2
DAEMON_LIST = MASTER STARTD
SEC_USE_FAMILY_SESSION = False
"""


def is_unpacked() -> bool:
    return (SOFTWARE / "complete").exists()


@dataclass
class Pool:
    """Daemons of one pool. `environment` is what a client needs to reach it."""

    software: Path
    folder: Path
    cpus: int = 4
    mem_mb: int = 8192
    gpus: bool = True
    _master: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        programs = f"{self.software}/usr/bin{os.pathsep}{self.software}/usr/sbin"
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "CONDOR_CONFIG": str(self.folder / "condor_config"), "PATH": path}

    def configure(self) -> None:
        """Write configuration and credentials; the pool keeps both over restarts."""
        for name in ("log", "spool", "execute", "lock", "run", "keys", "tokens"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "execute").chmod(0o755)
        for name in ("keys", "tokens"):
            (self.folder / name).chmod(0o700)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        owner = self._account()
        content = _CONFIG.format(
            software=self.software, folder=self.folder, port=port, owner=owner, cpus=self.cpus, mem_mb=self.mem_mb
        )
        if self.gpus:
            content += _GPUS.format(folder=self.folder)
            (self.folder / "gpus").write_text(_DISCOVERY.format(software=self.software))
            (self.folder / "gpus").chmod(0o755)
        (self.folder / "condor_config").write_text(content)
        key = self.folder / "keys" / "POOL"
        key.write_text(secrets.token_hex(64))
        key.chmod(0o600)
        token = self.folder / "tokens" / "pool"
        token.write_text(self.client("condor_token_create", "-identity", f"{owner}@local", "-key", "POOL"))
        token.chmod(0o600)

    def start(self) -> None:
        """Start the daemons and wait until jobs can be submitted and matched."""
        self._master = self._launch(self.folder)
        wait_until(self._is_ready, 60, lambda: f"the pool is not ready; {self.folder}/log says why: {self.log_tail()}")

    @contextmanager
    def second_machine(self, hidden: Path | None = None) -> Iterator[None]:
        """Have another machine in the pool, as large as the first and with the same cards on paper.

        `hidden` is a folder that it does not see.
        """
        folder = self.folder / "second"
        for name in ("log", "execute", "lock", "run"):
            (folder / name).mkdir(parents=True)
        (folder / "execute").chmod(0o755)
        content = (self.folder / "condor_config").read_text()
        (folder / "condor_config").write_text(content + _SECOND.format(folder=folder))
        master = self._launch(folder, hidden)
        try:
            wait_until(
                lambda: len(set(self.client("condor_status", "-af", "Machine").split())) == 2,
                60,
                lambda: f"the second machine is not ready; {folder}/log says why",
            )
            yield
        finally:
            _quit(master)
            shutil.rmtree(folder)

    def stop(self) -> None:
        """End the daemons at once, and with them the jobs that run; the queue stays on disk."""
        if self._master is not None:
            _quit(self._master)
        self._master = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def client(self, *command: str) -> str:
        """Output of one of HTCondor's commands."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self, constraint: str = "true", *, history: bool = False) -> list[dict[str, Any]]:
        """Job ads as the schedd has them: those in the queue, or those that have left it."""
        command = ["condor_history", "-json"] if history else ["condor_q", "-all", "-json"]
        job_ads: list[dict[str, Any]] = json.loads(self.client(*command, "-constraint", constraint) or "[]")
        return job_ads

    def remove(self, number: int | str) -> None:
        """Remove a job, and wait until it has left the queue: one that runs is only asked to end."""
        self.client("condor_rm", str(number))
        wait_until(lambda: not self.jobs(f"ClusterId == {number}"), 60, lambda: f"job {number} stays in the queue")

    def processes(self) -> list[psutil.Process]:
        """The daemons and the jobs that run."""
        return psutil.Process(self._master.pid).children(recursive=True) if self._master else []

    def log_tail(self) -> str:
        logs = [self.folder / "master.out", *sorted((self.folder / "log").glob("*Log"))]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-500:]}" for path in logs if path.exists())

    def _launch(self, folder: Path, hidden: Path | None = None) -> subprocess.Popen[bytes]:
        """Start the daemons that the configuration in a folder names."""
        command = [str(self.software / "usr/sbin/condor_master"), "-f"]
        if os.geteuid() == 0:
            # HTCondor refuses jobs of root. In a namespace where root is called otherwise it takes itself for the pool
            # of an ordinary user, and what jobs write is root's outside.
            ids = [f"--map-user={_DAEMON}", f"--map-group={_DAEMON}"]
            command = ["unshare", "--user", *ids, *command]
        if hidden:  # an empty file system in its place
            cover = 'mount --make-rprivate / && mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", cover, str(hidden), *command]
        with (folder / "master.out").open("wb") as out:
            return subprocess.Popen(
                command,
                cwd=folder,
                env={
                    "PATH": "/usr/local/bin:/usr/bin:/bin",
                    "HOME": str(folder),
                    "CONDOR_CONFIG": str(folder / "condor_config"),
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _is_ready(self) -> bool:
        assert self._master is not None and self._master.poll() is None, self.log_tail()
        queries = (["condor_status"], ["condor_status", "-schedd"], ["condor_status", "-negotiator"])
        answers = [
            subprocess.run([*query, "-af", "Name"], env=self.environment, capture_output=True, text=True, check=False)
            for query in queries
        ]
        queue = subprocess.run(["condor_q", "-totals"], env=self.environment, capture_output=True, check=False)
        return all(answer.stdout.strip() for answer in answers) and queue.returncode == 0

    def _account(self) -> str:
        return pwd.getpwuid(os.geteuid() or _DAEMON).pw_name


def _quit(master: subprocess.Popen[bytes]) -> None:
    master.send_signal(signal.SIGQUIT)
    try:
        master.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(master.pid, signal.SIGKILL)
        master.wait()


_DAEMON = 1  # the account `daemon`, which every Debian has


def wait_until(condition: Callable[[], Any], seconds: float, message: Callable[[], str]) -> Any:
    """The first truthy value of `condition`; fails with the message when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(message())
