"""Filter of system calls: the kernel refuses all that are not allowed (seccomp(2), classic BPF).

The allow-list is what Python and numpy need to compute: memory, clocks, reading and writing open descriptors, exiting.
Everything else, including future system calls, fails with EPERM: files, processes, signals to others, sockets, shared
memory, limits. The filter cannot be removed and survives exec.
"""

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kernel's numbers for one kind of machine."""

    audit: int  # AUDIT_ARCH_*, which tells a filter by which table a call was made
    seccomp: int
    allowed: dict[str, int]


ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000003E,
        317,
        {
            "read": 0,
            "write": 1,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "rt_sigaction": 13,
            "rt_sigprocmask": 14,
            "rt_sigreturn": 15,
            "sched_yield": 24,
            "mremap": 25,
            "madvise": 28,
            "nanosleep": 35,
            "getpid": 39,
            "exit": 60,
            "gettimeofday": 96,
            "getrusage": 98,
            "sigaltstack": 131,
            "gettid": 186,
            "time": 201,
            "futex": 202,
            "restart_syscall": 219,
            "clock_gettime": 228,
            "clock_getres": 229,
            "clock_nanosleep": 230,
            "exit_group": 231,
        },
    ),
    "aarch64": Architecture(  # has no `time`: the C library asks clock_gettime
        0xC00000B7,
        277,
        {
            "read": 63,
            "write": 64,
            "mmap": 222,
            "mprotect": 226,
            "munmap": 215,
            "brk": 214,
            "rt_sigaction": 134,
            "rt_sigprocmask": 135,
            "rt_sigreturn": 139,
            "sched_yield": 124,
            "mremap": 216,
            "madvise": 233,
            "nanosleep": 101,
            "getpid": 172,
            "exit": 93,
            "gettimeofday": 169,
            "getrusage": 165,
            "sigaltstack": 132,
            "gettid": 178,
            "futex": 98,
            "restart_syscall": 128,
            "clock_gettime": 113,
            "clock_getres": 114,
            "clock_nanosleep": 115,
            "exit_group": 94,
        },
    ),
}
_CLONE3 = 435  # on all machines; ENOSYS makes libc fall back to clone(2), whose EPERM the program then sees

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_SPEC_ALLOW = 4  # without it, old kernels slow the process to prevent speculation attacks: see docs/internals.md

_syscall = ctypes.CDLL(None, use_errno=True).syscall


class Filter:
    """A filter for this machine that is compiled once and installed in many processes."""

    def __init__(self) -> None:
        architecture = ARCHITECTURES[platform.machine()]
        self._number = architecture.seccomp
        code = compiled(architecture)
        self._code = ctypes.create_string_buffer(code)
        length = len(code) // 8
        self._program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", length, ctypes.addressof(self._code)))

    def install(self) -> None:
        """Filter this process from now on; it must have set no_new_privs. Raises OSError if the kernel refuses."""
        if _syscall(self._number, _SET_MODE_FILTER, _SPEC_ALLOW, self._program):
            raise OSError(ctypes.get_errno(), "seccomp failed")


def what_is_missing() -> str | None:
    """Return why programs cannot be filtered on this machine; None if they can."""
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return f"the filter is written for {' and '.join(ARCHITECTURES)}, this machine is {platform.machine()}"
    action = ctypes.c_uint32(_ERRNO)
    if _syscall(architecture.seccomp, _GET_ACTION_AVAIL, 0, ctypes.byref(action)):
        return f"the kernel, or the container, refuses seccomp(2): {os.strerror(ctypes.get_errno())}"
    return None


def compiled(architecture: Architecture) -> bytes:
    """Return the filter as instructions (struct sock_filter)."""
    calls = [*architecture.allowed.values(), _CLONE3]
    refused, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    # After the comparisons: refused, allowed, unknown. A jump counts the instructions that it skips.
    comparisons = [_instruction(_JUMP_IF_EQUAL, call, len(calls) - i) for i, call in enumerate(calls)]
    comparisons[-1] = _instruction(_JUMP_IF_EQUAL, _CLONE3, 2)
    return b"".join(
        [
            _instruction(_LOAD, _ARCHITECTURE),
            _instruction(_JUMP_IF_EQUAL, architecture.audit, 1),
            _instruction(_RETURN, _KILL_PROCESS),
            _instruction(_LOAD, _NUMBER),
            *comparisons,
            _instruction(_RETURN, refused),
            _instruction(_RETURN, _ALLOW),
            _instruction(_RETURN, unknown),
        ]
    )


def _instruction(code: int, operand: int, jump_if_equal: int = 0) -> bytes:
    return struct.pack("HBBI", code, jump_if_equal, 0, operand)  # struct sock_filter
