"""The filter of system calls, decided by an interpreter of its instructions, for each kind of machine.

The numbers are compared with the kernel's own headers (Debian's linux-libc-dev).
"""

import errno
import re
import struct
from pathlib import Path

import pytest

from arc_refinery.sandbox.seccomp import ARCHITECTURES, compiled

HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}
# linux/elf-em.h and linux/audit.h: the ELF machine, 64 bits, little endian
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}
IS_64_BIT, IS_LITTLE_ENDIAN = 0x80000000, 0x40000000
OTHER_TABLES = [0x40000003, 0x40000028]  # 32-bit programs on x86 and on ARM

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def decision(code: bytes, number: int, audit: int) -> int:
    """The verdict of a filter on a system call; raises for an instruction that no filter of ours needs."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *[0] * 6)  # struct seccomp_data
    program = list(struct.iter_unpack("HBBI", code))
    loaded = at = 0
    while True:
        operation, if_equal, if_other, operand = program[at]
        at += 1
        match operation:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, operand)
            case 0x15:
                at += if_equal if loaded == operand else if_other
            case 0x06:
                return int(operand)
            case _:
                raise ValueError(f"instruction {operation:#x}")


def audit_of(machine: str) -> int:
    return ELF_MACHINE[machine] | IS_64_BIT | IS_LITTLE_ENDIAN


def numbers_of(machine: str) -> dict[str, int]:
    """The kernel's table of system calls."""
    headers = [path for path in HEADERS[machine] if path.exists()]
    if not headers:
        pytest.skip(f"no {HEADERS[machine][0]}: install linux-libc-dev")
    lines = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", headers[0].read_text(), re.MULTILINE)
    return {name: int(number) for name, number in lines}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_numbers_are_the_kernels(machine: str):
    numbers = numbers_of(machine)
    architecture = ARCHITECTURES[machine]
    assert {name: numbers.get(name) for name in architecture.allowed} == architecture.allowed
    assert numbers["seccomp"] == architecture.seccomp
    assert numbers["clone3"] == 435
    assert architecture.audit == audit_of(machine)


def test_all_machines_allow_the_same_calls():
    x86, arm = (set(ARCHITECTURES[machine].allowed) for machine in ("x86_64", "aarch64"))
    assert x86 - arm == {"time"}  # aarch64 has no such call
    assert arm < x86


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_filter_allows_what_is_listed_and_refuses_all_else(machine: str):
    architecture = ARCHITECTURES[machine]
    code = compiled(architecture)
    allowed = set(architecture.allowed.values())
    x32 = range(0x40000000, 0x40000400)  # a second table of x86_64
    wrong = {}
    for number in [*range(1024), *x32, 2**31, 2**32 - 1]:
        expected = ALLOW if number in allowed else UNKNOWN if number == 435 else REFUSE
        if (action := decision(code, number, audit_of(machine))) != expected:
            wrong[number] = hex(action)
    assert wrong == {}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_call_by_another_table_kills_the_program(machine: str):
    others = [*OTHER_TABLES, *(audit_of(other) for other in ARCHITECTURES if other != machine)]
    code = compiled(ARCHITECTURES[machine])
    assert {decision(code, number, audit) for number in range(1024) for audit in others} == {KILL}
