"""Types of the sandbox: programs and scripts go in, outcomes come out. Neither contains expected outputs.

Exception: a caller's own script may, if its executor runs only such scripts (asserts/run.py).
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Literal, Self

from arc_refinery.arc.grids import Grid
from arc_refinery.errors import InputError


class Status(StrEnum):
    """End of a program."""

    ok = "ok"  # one valid grid for each input; for a script, all sources ran to their end
    invalid_output = "invalid_output"  # one output is not a valid grid
    error = "error"  # it raised, or it defines no `transform`
    timeout = "timeout"  # over the limit of CPU time or wall time
    memory = "memory"  # over the limit of address space
    crash = "crash"  # its process ended without a result
    protocol = "protocol"  # it wrote to the pipe that carries its result


MAX_SECONDS = 86_400  # largest limit: a day
MAX_MEMORY_MB = 2**20


@dataclass(frozen=True, slots=True)
class Program:
    """Source that defines `transform`, and the grids to call it on."""

    program_id: str
    source: str
    inputs: tuple[Grid, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Sources that are executed one after the other in one namespace, then expressions that are evaluated in it.

    An `interactive` one runs as if typed by a user: as `__main__`, keeping what it prints, and a source that ends in an
    expression prints its value.

    `n_replayed` of the sources are earlier ones, run again for the state that they leave, and each has a time limit of
    its own. What the first `n_replayed` of an interactive script print is dropped.
    """

    program_id: str
    sources: tuple[str, ...]
    expressions: tuple[str, ...] = ()
    names: tuple[tuple[str, bytes], ...] = ()  # variables defined before the first source, packed by `plain`
    classes: tuple[str, ...] = ()  # that the sources define, whose instances are plain; `names` are then defined last
    interactive: bool = False
    n_replayed: int = 0
    cpu_seconds: float | None = None  # limit for each of the replayed sources and for the rest; None: the executor's
    program: int | None = None  # index of the source whose lines errors name; None: any source's

    def limits(self, defaults: "Limits") -> "Limits":
        """Return the limits of the whole script."""
        each = defaults.cpu_seconds if self.cpu_seconds is None else self.cpu_seconds
        return defaults.with_cpu_seconds(each * (1 + self.n_replayed))


@dataclass(frozen=True, slots=True)
class Value:
    """Value of an expression of a script."""

    kind: Literal["plain", "not_plain", "error"]
    data: bytes = b""  # packed by `plain`, or forged: only pass it to another script, never unpack it here
    error: str = ""  # the exception as `TypeError: message`, or what is not plain
    line: int | None = None  # line of the program that raised


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of executing a program on its inputs, or a script."""

    program_id: str
    status: Status
    outputs: tuple[Grid, ...] = ()  # one for each input; empty unless status is ok
    error_type: str = ""  # the exception's class, or our own word without an exception
    error_message: str = ""
    error_line: int | None = None  # line of the program that raised
    cpu_seconds: float = 0.0  # measured, different in every run: never store it in a result file
    values: tuple[Value, ...] = ()  # for a script, one for each expression; empty unless status is ok
    printed: str = ""  # by an interactive script, even if it then failed

    @property
    def error(self) -> str:
        """One line for the model to read, like `TypeError: message (line 3)`; empty when ok."""
        if self.status is Status.ok:
            return ""
        text = f"{self.error_type}: {' '.join(self.error_message.split())}".removesuffix(": ")
        return text if self.error_line is None else f"{text} (line {self.error_line})"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program, over all its inputs together."""

    cpu_seconds: float = 1.0
    wall_seconds: float = 10.0  # for programs that sleep: a busy machine must not change a verdict
    memory_mb: int = 512  # address space beyond what the server itself has mapped (numpy, scipy, common)

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            highest = MAX_MEMORY_MB if name == "memory_mb" else MAX_SECONDS
            if not 0 < value <= highest:
                raise InputError(f"the limit {name} is {value}, expected a positive number of at most {highest}")

    def with_cpu_seconds(self, cpu_seconds: float) -> Self:
        """Return limits with more or less CPU time; more of it also brings more wall time, in proportion."""
        more = max(cpu_seconds / self.cpu_seconds, 1.0)
        return replace(self, cpu_seconds=cpu_seconds, wall_seconds=min(self.wall_seconds * more, MAX_SECONDS))


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a self-check."""

    promise: str  # or the property of the machine that was looked at
    is_kept: bool
    result: str  # status and error of a hostile program, or the property of the machine
