"""A private Slurm of two nodes on one machine, below one folder: Debian's packages unpacked, nothing installed."""

import os
import platform
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2")
_CLIENTS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sacct", "sacctmgr", "sshare")

# The nodes are this machine twice; their sizes are made up, so that jobs of the full-size experiment fit.
_CONFIG = """
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# no cgroups: what jobs ask for is granted and counted, but not enforced
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
# jobs that have ended are remembered for as long as a test may look at them
MinJobAge=3600
KillWait=2
MpiDefault=none
PropagateResourceLimits=NONE
MailProg=/bin/true
GresTypes=gpu
NodeName=cpu1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64 RealMemory=256000 TmpDisk=100000
NodeName=gpu1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64 RealMemory=256000 TmpDisk=100000 \
Gres=gpu:a100:2 Feature=gpu80g
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpus Nodes=gpu1 MaxTime=INFINITE State=UP
"""

# Two cards that are no cards: jobs are given a share of them and told their numbers.
_GRES = """
NodeName=gpu1 Name=gpu Type=a100 File=/dev/null
NodeName=gpu1 Name=gpu Type=a100 File=/dev/zero
"""


class Unavailable(Exception):
    """There is no way to have a Slurm on this machine; the message says why."""


def unpack(folder: Path) -> None:
    """Debian's packages of Slurm and of the libraries that this machine lacks, unpacked into `folder`."""
    if missing := [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]:
        raise Unavailable(f"{' and '.join(missing)} missing: a private Slurm takes a machine with Debian")
    apt = folder / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    # own lists and own cache: the machine's are neither changed nor locked
    own = [f"Dir::State::Lists={apt}/lists", f"Dir::Cache={apt}", "Debug::NoLocking=1", "APT::Sandbox::User="]
    own.append("APT::Update::Post-Invoke-Success::=")
    command = ["apt-get", "-qq", *(word for option in own for word in ("-o", option))]
    download = ["install", "--download-only", "--yes", "--reinstall", "--no-install-recommends", *_PACKAGES]
    for arguments in (["update"], download):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"Debian's packages of Slurm cannot be had: {done.stderr.strip().partition(chr(10))[0]}")
    for package in (apt / "archives").glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    shutil.rmtree(apt)


@dataclass
class Slurm:
    """The daemons of one cluster. `programs` is the folder that a client needs on its PATH, and all that it needs."""

    folder: Path
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    def start(self) -> None:
        """Unpack, configure and start; returns when both nodes wait for jobs."""
        software = self.folder / "software"
        unpack(software)
        self._configure(software)
        munged = ["--foreground", "--force", f"--key-file={self.folder}/munge.key", "--num-threads=2"]
        for kind in ("socket", "pid-file", "log-file", "seed-file"):
            munged.append(f"--{kind}={self.folder}/munge.{kind.removesuffix('-file')}")
        self._daemon("munged", *munged)
        self._until((self.folder / "munge.socket").exists, "munged opens no socket")
        self._daemon("slurmctld", "-D")
        for node in ("cpu1", "gpu1"):
            self._daemon("slurmd", "-D", "-N", node, "-d", str(self.programs / "slurmstepd"))
        self._until(self._is_ready, "the nodes do not get ready")

    def stop(self) -> None:
        """End jobs and daemons."""
        with ExitStack() as last:
            last.callback(self._kill)
            if len(self._daemons) == 4 and all(daemon.poll() is None for daemon in self._daemons):
                if queued := self.run("squeue", "--noheader", "--format=%A").split():
                    self.run("scancel", *queued)
                self._until(lambda: not self.run("squeue", "--noheader"), "jobs do not end")

    def run(self, program: str, *arguments: str) -> str:
        """Output of one of Slurm's commands."""
        done = subprocess.run([self.programs / program, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def jobs(self) -> list[dict[str, str]]:
        """All jobs that the cluster remembers, also the finished ones, as `scontrol` describes them."""
        lines = self.run("scontrol", "--oneliner", "show", "job").splitlines()
        return [
            dict(word.split("=", 1) for word in line.split() if "=" in word)
            for line in lines
            if line.startswith("JobId=")
        ]

    def _configure(self, software: Path) -> None:
        (plugins,) = software.glob("usr/lib/*/slurm-wlm")
        for name in ("bin", "state", "spool-cpu1", "spool-gpu1"):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        with ExitStack() as probes:  # all of them at once: one port would else be found three times
            sockets = [probes.enter_context(socket.socket()) for _ in range(3)]
            for probe in sockets:
                probe.bind(("127.0.0.1", 0))
            ports = [probe.getsockname()[1] for probe in sockets]
        user = pwd.getpwuid(os.geteuid()).pw_name
        host = platform.node().split(".")[0]
        content = _CONFIG.format(folder=self.folder, plugins=plugins, ports=ports, user=user, host=host)
        (self.folder / "slurm.conf").write_text(content)
        (self.folder / "gres.conf").write_text(_GRES)
        # The libraries are Slurm's and munge's alone, so it does no harm that jobs inherit the path to them.
        # SLURM_CONF is set here and not left to the caller: the plugin takes it away from the job steps.
        environment = f"LD_LIBRARY_PATH={plugins}:{plugins.parent} SLURM_CONF={self.folder}/slurm.conf"
        targets = {name: software / "usr/bin" / name for name in _CLIENTS}
        for name in ("slurmctld", "slurmd", "slurmstepd"):
            # Debian's packages leave this to scripts that run at installation. The name matters: a controller that is
            # called otherwise knows of no GPUs.
            targets[name] = software / "usr/sbin" / name
            targets[name].symlink_to(f"{name}-wlm")
        targets["munged"] = software / "usr/sbin/munged"
        for name, target in targets.items():
            (self.programs / name).write_text(f'#!/bin/sh\n{environment} exec {target} "$@"\n')
            (self.programs / name).chmod(0o755)

    def _daemon(self, program: str, *arguments: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            started = subprocess.Popen(
                [self.programs / program, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append(started)

    def _is_ready(self) -> bool:
        sinfo = [str(self.programs / "sinfo"), "--noheader", "--Node", "--partition=main", "--format=%T"]
        states = subprocess.run(sinfo, capture_output=True, text=True, check=False).stdout
        return states.split() == ["idle"] * 2

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            dead = [str(daemon.args) for daemon in self._daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in self.folder.glob("*.log"))
                raise RuntimeError(f"{f'ended: {dead}' if dead else otherwise}\n{logs}")
            time.sleep(0.1)

    def _kill(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        # The processes that watch over jobs are children of none of them; their programs lie in our folder.
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "exe").readlink().is_relative_to(self.folder):
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:  # it has just ended, or belongs to somebody else
                continue
