"""The words of the sandbox: programs and scripts go in, outcomes come out. Expected outputs have no place in either.

A script of the caller's own may hold them where its executor runs nothing but such (tool_use/code_exec.py).
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from math import inf
from typing import Literal

from arc_refinery.errors import InputError
from arc_refinery.grids import Grid


class Status(StrEnum):
    """What became of a program."""

    ok = "ok"  # one valid grid for each input; a script: its sources ran to their end
    invalid_output = "invalid_output"  # something else than a grid for one of them
    error = "error"  # it raised, or it defines no `transform`
    timeout = "timeout"  # over the limit of CPU or of wall time
    memory = "memory"  # over the limit of address space
    crash = "crash"  # its process ended without an answer
    protocol = "protocol"  # it wrote to the pipe that its answer goes through


@dataclass(frozen=True, slots=True)
class Program:
    """Source that defines `transform`, and the grids to call it on."""

    program_id: str
    source: str
    inputs: tuple[Grid, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Sources that are executed one after the other in one namespace, then expressions that are evaluated in it.

    An `interactive` one is what a user would type: it is `__main__`, what it prints is kept, and a source that ends in
    an expression prints its value.
    """

    program_id: str
    sources: tuple[str, ...]
    expressions: tuple[str, ...] = ()
    names: tuple[tuple[str, bytes], ...] = ()  # what is there before the first source, packed by `plain`
    interactive: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression of a script gave."""

    kind: Literal["plain", "not_plain", "error"]
    data: bytes = b""  # packed by `plain`, or forged: hand it to another script, unpack it nowhere else
    error: str = ""  # the exception like `TypeError: message`, or what is not plain


@dataclass(frozen=True, slots=True)
class Outcome:
    """What executing one program on its inputs, or one script, gave."""

    program_id: str
    status: Status
    outputs: tuple[Grid, ...] = ()  # one for each input; empty unless status is ok
    error_type: str = ""  # the exception's class, or a word of ours where there was no exception
    error_message: str = ""
    error_line: int | None = None  # line of the program that raised
    cpu_seconds: float = 0.0  # a measurement, different in every run: never store it in a result file
    values: tuple[Value, ...] = ()  # of a script, one for each expression; empty unless status is ok
    printed: str = ""  # by an interactive script, also by one that then failed

    @property
    def error(self) -> str:
        """One line for the model to read, like `TypeError: message (line 3)`; empty when ok."""
        if self.status is Status.ok:
            return ""
        text = f"{self.error_type}: {' '.join(self.error_message.split())}".removesuffix(": ")
        return text if self.error_line is None else f"{text} (line {self.error_line})"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use, over all of its inputs together."""

    cpu_seconds: float = 1.0
    wall_seconds: float = 10.0  # for programs that sleep: a busy machine must not change a verdict
    memory_mb: int = 512  # address space above what the server itself has mapped (numpy, scipy, common)

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < inf:
                raise InputError(f"the limit {name} is {value}, expected a positive number")
