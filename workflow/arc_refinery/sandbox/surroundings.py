"""Effects of a machine or container on the sandbox: kernel, security modules, folders, cgroups, Python.

    fine    system calls can be filtered              seccomp on x86_64
    WRONG   memory of the cgroup                      600 MB for 2 programs of 512 MB

A limit of the cgroup below ours changes verdicts: the kernel then kills a program, or its server, before our limit
makes it a `MemoryError` or a `timeout`.

The self-check runs small hostile programs: `import os; os.fork()` must end in `error: PermissionError`.
docs/internals.md lists all promises with their tests; those here depend on the machine's kernel and take only seconds.
"""

import os
import platform
import struct
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from arc_refinery.sandbox import seccomp
from arc_refinery.sandbox.executor import Executor
from arc_refinery.sandbox.types import Limits, Program, Status, Trial

REFUSED = (Status.error, "PermissionError")
# Each promise, the body of a `transform` that tests it, and the expected status and type of error
PROMISES: dict[str, tuple[str, Status, str]] = {
    "a right program gives its grid": ("return grid", Status.ok, ""),
    "an endless loop is ended": ("while True: pass", Status.timeout, ""),
    "memory is limited": ("return bytearray(2**40)", Status.memory, "MemoryError"),
    "no file is read": ("open('/etc/passwd').read()", *REFUSED),
    "no file is made": ("open('/tmp/arc-refinery-self-check', 'w')", *REFUSED),
    "no folder is listed": ("import os; os.listdir('/')", *REFUSED),
    "no process is started": ("import os; os.fork()", *REFUSED),
    "no network is reached": ("import socket; socket.socket()", *REFUSED),
    "no other process gets a signal": ("import os; os.kill(os.getppid(), 0)", *REFUSED),
    "no random numbers come from the kernel": ("import os; os.urandom(1)", *REFUSED),
    "leaving without an answer is a crash": ("import os; os._exit(0)", Status.crash, ""),
}
BITS = {"x86_64": 64, "aarch64": 64}  # word size of programs that the filter is written for


def surroundings(limits: Limits, n_jobs: int, root: Path = Path("/")) -> list[Trial]:
    """Return one row per property of this machine; `root` has its `proc` and `sys`."""
    cgroup = _Cgroup(root)
    return [
        _filter(root),
        Trial("security modules", True, _security_modules(root)),
        Trial("temporary folder", True, _temporary_folder()),
        _memory(cgroup, limits, n_jobs),
        _cpu(cgroup, limits, n_jobs),
        _processes(cgroup, n_jobs),
        _python(),
    ]


def _filter(root: Path) -> Trial:
    missing = seccomp.what_is_missing()
    state = missing or f"seccomp on {platform.machine()}"
    status = _text(root / "proc/self/status") or ""
    if "Seccomp:\t2" in status:
        state += "; this process is under another filter already, as in a container"
    return Trial("system calls can be filtered", missing is None, state)


def _security_modules(root: Path) -> str:
    """Describe what confines this process; it can only take rights away from programs."""
    context = _text(root / "proc/self/attr/current")
    if _text(root / "sys/module/apparmor/parameters/enabled") == "Y":
        return f"AppArmor: {context or 'unknown profile'}"
    if (root / "sys/fs/selinux/enforce").exists():
        return f"SELinux: {context or 'unknown context'}"
    return "neither AppArmor nor SELinux"


def _temporary_folder() -> str:
    """Describe it; neither the sandbox nor a program in it executes files there."""
    folder = tempfile.gettempdir()
    return f"{folder}{' is mounted noexec, which does not matter' if os.statvfs(folder).f_flag & os.ST_NOEXEC else ''}"


def _memory(cgroup: "_Cgroup", limits: Limits, n_jobs: int) -> Trial:
    wanted = f"{n_jobs} programs of {limits.memory_mb} MB"
    most = cgroup.least("memory", "memory.max", "memory.limit_in_bytes")
    if most is None:
        return Trial("memory of the cgroup", True, f"not limited; expected {wanted}")
    state = f"{most // 2**20} MB for {wanted}"
    return Trial("memory of the cgroup", most >= n_jobs * limits.memory_mb * 2**20, state)


def _cpu(cgroup: "_Cgroup", limits: Limits, n_jobs: int) -> Trial:
    """Check that a program reaches its limit of CPU time before that of wall time."""
    cores = cgroup.cores()
    if cores is None:
        return Trial("CPU time of the cgroup", True, "not limited")
    reached = min(1.0, cores / n_jobs) * limits.wall_seconds
    state = f"{cores:g} cores: {reached:.1f} s of CPU time in {limits.wall_seconds:g} s, limit {limits.cpu_seconds:g} s"
    return Trial("CPU time of the cgroup", reached >= limits.cpu_seconds, state)


def _processes(cgroup: "_Cgroup", n_jobs: int) -> Trial:
    most = cgroup.least("pids", "pids.max", "pids.max")
    state = "not limited" if most is None else f"{most} in all, 2 per job"
    return Trial("processes of the cgroup", most is None or most > 2 * n_jobs, state)


def _python() -> Trial:
    """Check that Python was built for this kernel: the filter kills calls by another table, as of 32-bit programs."""
    bits = 8 * struct.calcsize("P")
    machine = platform.machine()
    libc = " ".join(platform.libc_ver()).strip() or "unknown C library"
    state = (
        f"{platform.python_implementation()} {platform.python_version()}, built for {sysconfig.get_platform()}, {libc}"
    )
    is_ours = platform.python_implementation() == "CPython" and bits == BITS.get(machine, bits)
    return Trial("Python", is_ours, state)


def self_check(executor: Executor) -> list[Trial]:
    """Run the hostile programs; return a trial for each, in the order of `PROMISES`."""
    grid = np.ones((1, 1), np.uint8)
    programs = (
        Program(promise, f"def transform(grid):\n    {body}", (grid,)) for promise, (body, _, _) in PROMISES.items()
    )
    trials = []
    for outcome in executor.run(programs):
        _, status, error_type = PROMISES[outcome.program_id]
        is_kept = outcome.status is status and (not error_type or outcome.error_type == error_type)
        result = f"{outcome.status}, {outcome.error}" if outcome.error else str(outcome.status)
        trials.append(Trial(outcome.program_id, is_kept, result))
    return trials


class _Cgroup:
    """Limits of this process's cgroup and of those above it, in both versions of cgroups."""

    def __init__(self, root: Path) -> None:
        self._mounted = root / "sys/fs/cgroup"
        lines = (_text(root / "proc/self/cgroup") or "").splitlines()
        parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
        self._paths = {name: path for _, names, path in parts for name in names.split(",")}

    def least(self, controller: str, name: str, old_name: str) -> int | None:
        """Return the smallest limit; None where there is none."""
        texts = [_text(folder / name) for folder in self._folders("")]
        texts += [_text(folder / old_name) for folder in self._folders(controller)]
        # version 1 writes a huge number where nothing is limited
        numbers = [int(text) for text in texts if text and text.isdigit() and int(text) < 2**60]
        return min(numbers, default=None)

    def cores(self) -> float | None:
        """Return how many cores it may use; None where this is not limited."""
        quotas = [(_text(folder / "cpu.max") or "max").partition(" ")[::2] for folder in self._folders("")]
        for folder in self._folders("cpu"):
            quotas.append((_text(folder / "cpu.cfs_quota_us") or "", _text(folder / "cpu.cfs_period_us") or ""))
        limited = [(int(quota), int(period)) for quota, period in quotas if quota.isdigit() and period.isdigit()]
        return min((quota / period for quota, period in limited), default=None)

    def _folders(self, controller: str) -> Iterator[Path]:
        """Yield this cgroup's folder and those above it; in a container, only the last one may be visible."""
        if controller not in self._paths:
            return
        mounted = self._mounted / controller
        inner = mounted / self._paths[controller].lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(mounted):
                yield folder


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip("\0\n ")
    except OSError:
        return None
