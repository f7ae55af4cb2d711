"""Limits that the self-check reads, from files as kernels write them."""

import os
import platform
import struct
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from arc_refinery.sandbox import Limits, seccomp, surroundings
from arc_refinery.sandbox.types import Trial

LIMITS = Limits(cpu_seconds=1.0, wall_seconds=10.0, memory_mb=512)
MB = 2**20


def rows(root: Path, n_jobs: int = 2) -> dict[str, Trial]:
    return {row.promise: row for row in surroundings.surroundings(LIMITS, n_jobs, root)}


def put(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    """A job's cgroup inside one of its user, on a machine of today."""
    put(tmp_path, "proc/self/cgroup", "0::/user/job\n")
    for folder in ("user", "user/job"):
        for name in ("memory.max", "cpu.max", "pids.max"):
            put(tmp_path, f"sys/fs/cgroup/{folder}/{name}", "max 100000\n" if name == "cpu.max" else "max\n")
    return tmp_path


def test_nothing_is_limited_where_there_are_no_cgroups(tmp_path: Path):
    limits = rows(tmp_path)
    assert all(limits[f"{what} of the cgroup"].is_kept for what in ("memory", "CPU time", "processes"))
    assert limits["CPU time of the cgroup"].result == "not limited"


def test_limits_of_the_word_max_are_none(version_2: Path):
    limits = rows(version_2)
    assert limits["memory of the cgroup"].result == "not limited; expected 2 programs of 512 MB"
    assert limits["CPU time of the cgroup"].result == limits["processes of the cgroup"].result == "not limited"


@pytest.mark.parametrize(("megabytes", "is_enough"), [(1024, True), (1023, False)])
def test_a_cgroup_must_hold_all_programs_at_once(version_2: Path, megabytes: int, is_enough: bool):
    put(version_2, "sys/fs/cgroup/user/memory.max", f"{megabytes * MB}\n")  # limit of the outer cgroup
    put(version_2, "sys/fs/cgroup/user/job/memory.max", f"{4096 * MB}\n")
    expected = Trial("memory of the cgroup", is_enough, f"{megabytes} MB for 2 programs of 512 MB")
    assert rows(version_2)["memory of the cgroup"] == expected


# two programs share the cores: a program has a half of them in 10 s of wall time, and needs 1 s
@pytest.mark.parametrize(("quota", "is_enough", "seconds"), [(20000, True, "1.0"), (10000, False, "0.5")])
def test_a_program_must_reach_its_cpu_limit_first(version_2: Path, quota: int, is_enough: bool, seconds: str):
    put(version_2, "sys/fs/cgroup/user/job/cpu.max", f"{quota} 100000\n")
    row = rows(version_2)["CPU time of the cgroup"]
    assert row.is_kept == is_enough
    assert row.result == f"{quota / 100000:g} cores: {seconds} s of CPU time in 10 s, limit 1 s"


@pytest.mark.parametrize(("n", "is_enough"), [(5, True), (4, False)])
def test_servers_and_their_children_must_be_allowed(version_2: Path, n: int, is_enough: bool):
    put(version_2, "sys/fs/cgroup/user/pids.max", f"{n}\n")
    assert rows(version_2)["processes of the cgroup"].is_kept == is_enough


def test_cgroups_of_version_1_are_read(tmp_path: Path):
    put(tmp_path, "proc/self/cgroup", "3:memory:/slurm/job7\n2:cpu,cpuacct:/slurm\n1:name=systemd:/\n")
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")  # none
    put(tmp_path, "sys/fs/cgroup/memory/slurm/job7/memory.limit_in_bytes", f"{100 * MB}\n")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")  # none
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "5000\n")
    put(tmp_path, "sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us", "100000\n")
    limits = rows(tmp_path)
    memory = limits["memory of the cgroup"]
    assert (memory.is_kept, memory.result) == (False, "100 MB for 2 programs of 512 MB")
    assert limits["CPU time of the cgroup"].result.startswith("0.05 cores: 0.2 s of CPU time")


def test_a_container_shows_its_own_cgroup_at_the_top(tmp_path: Path):
    put(tmp_path, "proc/self/cgroup", "0::/../outside/of/it\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", f"{100 * MB}\n")
    assert not rows(tmp_path)["memory of the cgroup"].is_kept


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "neither AppArmor nor SELinux"),
        ({"sys/module/apparmor/parameters/enabled": "N\n"}, "neither AppArmor nor SELinux"),
        (
            {"sys/module/apparmor/parameters/enabled": "Y\n", "proc/self/attr/current": "docker-default (enforce)\n"},
            "AppArmor: docker-default (enforce)",
        ),
        (
            {"sys/fs/selinux/enforce": "1", "proc/self/attr/current": "system_u:system_r:container_t:s0\0"},
            "SELinux: system_u:system_r:container_t:s0",
        ),
    ],
)
def test_security_modules_are_named(tmp_path: Path, files: dict[str, str], expected: str):
    for path, content in files.items():
        put(tmp_path, path, content)
    assert rows(tmp_path)["security modules"] == Trial("security modules", True, expected)


def test_a_missing_filter_and_a_container_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seccomp, "what_is_missing", lambda: "the container refuses")
    put(tmp_path, "proc/self/status", "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n")
    row = rows(tmp_path)["system calls can be filtered"]
    assert row.result == "the container refuses; this process is under another filter already, as in a container"
    assert not row.is_kept
    put(tmp_path, "proc/self/status", "Name:\tpython\nSeccomp:\t0\n")
    assert rows(tmp_path)["system calls can be filtered"].result == "the container refuses"


def test_a_temporary_folder_without_execution_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tempfile.gettempdir()
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    assert rows(tmp_path)["temporary folder"].result == f"{folder} is mounted noexec, which does not matter"
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=0))
    assert rows(tmp_path)["temporary folder"].result == folder


@pytest.mark.parametrize(
    ("implementation", "bits", "is_ours"), [("CPython", 64, True), ("CPython", 32, False), ("PyPy", 64, False)]
)
def test_a_python_of_another_kind_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, implementation: str, bits: int, is_ours: bool
):
    monkeypatch.setattr(platform, "python_implementation", lambda: implementation)
    monkeypatch.setattr(struct, "calcsize", lambda form: bits // 8)
    row = rows(tmp_path)["Python"]
    assert row.is_kept == is_ours
    assert row.result.startswith(implementation)
