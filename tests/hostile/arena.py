"""Meeting of hostile programs and the sandbox: good programs around them, and a look at what they leave behind."""

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import psutil

from arc_refinery.arc.grids import Grid
from arc_refinery.sandbox import Executor, Limits, Outcome, Program

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=3.0, memory_mb=256)
MODES = {"alone": (2, 1), "shared": (1, 32)}  # number of servers, programs per child
NOBODY = 65534
# Not so in some containers; a line has the first user here, the first outside, and their number.
_USERS = [[*map(int, line.split())] for line in Path("/proc/self/uid_map").read_text().splitlines()]
HAS_NOBODY = any(NOBODY in range(first, first + number) for first, _, number in _USERS)
PROGRAM_USER = NOBODY if os.geteuid() == 0 and HAS_NOBODY else os.geteuid()  # whom programs run as
PATIENCE_SECONDS = 20  # for a handful of programs: far more than the limits allow them

GRID = np.array([[1, 2]], np.uint8)
GOOD = "def transform(grid): return grid[:, ::-1]"  # [[2, 1]]

# What it returns shows whether numpy, builtins, common and chance are as they should be.
NEIGHBOUR = """
from common import *

def transform(grid):
    left, right = grid[0]
    row = [right, left, np.sum(grid) % 10, Color.ALL_COLORS[9], random.randrange(10), np.random.randint(10)]
    return np.array([row + [len(sorted("abc")), int(100 * np.pi) % 10]])
# neighbour {number}
"""
# With 11 neighbours, the first batch of a single server has 12 // 2 + 1 = 7 programs: 2 before the hostile one and 4
# after it.
N_NEIGHBOURS = 11
PLACE = 2

PR_SET_CHILD_SUBREAPER = 36


def attack(executor: Executor, source: str) -> Outcome:
    """The outcome of a hostile program that ran among good ones, which are unhurt; no process has come or gone."""
    sources = [neighbour(number) for number in range(N_NEIGHBOURS)]
    inputs = [np.array([[number // 10, number % 10]], np.uint8) for number in range(N_NEIGHBOURS)]
    sources.insert(PLACE, source)
    inputs.insert(PLACE, GRID)
    before = descendants()
    outcomes = outcomes_of(executor, sources, inputs)
    psutil.wait_procs(descendants() - before, timeout=1)  # a child that has answered may be about to end
    assert descendants() == before
    hostile = outcomes.pop(PLACE)
    assert [(outcome.error, [grid.tolist() for grid in outcome.outputs]) for outcome in outcomes] == [
        # 6: random.seed(0); random.randrange(10). 5: np.random.seed(0); np.random.randint(10). 4: int(314.15) % 10.
        ("", [[[number % 10, number // 10, (number // 10 + number % 10) % 10, 9, 6, 5, 3, 4]]])
        for number in range(N_NEIGHBOURS)
    ]
    return hostile


def neighbour(number: int) -> str:
    """A good program; each number's is distinct, for equal ones are executed once."""
    return NEIGHBOUR.format(number=number)


def outcomes_of(executor: Executor, sources: Sequence[str], inputs: Sequence[Grid] | None = None) -> list[Outcome]:
    """The outcomes of programs with one input each: one for each program, in order, and in time."""
    grids = [GRID] * len(sources) if inputs is None else inputs
    programs = [Program(str(i), source, (grid,)) for i, (source, grid) in enumerate(zip(sources, grids, strict=True))]
    with time_limit(PATIENCE_SECONDS):
        outcomes = list(executor.run(programs))
    assert [outcome.program_id for outcome in outcomes] == [str(i) for i in range(len(sources))]
    return outcomes


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """An executor that waits for ever fails the test instead of stopping the suite."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the executor was not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def adopt_orphans() -> None:
    """Become the parent of all descendants that lose theirs, so that `descendants` misses none."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def servers() -> list[psutil.Process]:
    """The living servers of this suite's executors."""
    return [server for server in _all_servers() if server not in _of_others]


def leave_out_others() -> None:
    """From now on `servers` does not show those that live already: of an executor that other suites share."""
    _of_others.update(_all_servers())


_of_others: set[psutil.Process] = set()


def _all_servers() -> list[psutil.Process]:
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if "arc_refinery.sandbox.server" in child.cmdline()]
