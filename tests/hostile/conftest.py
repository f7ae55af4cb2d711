"""Executors in both modes: every program in a child of its own, and good programs that share one."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from arc_refinery.sandbox import Executor, Outcome

pytest.register_assert_rewrite("hostile.arena")

from hostile import arena  # noqa: E402 (its assertions are to be explained)


@pytest.fixture(scope="session", autouse=True)
def orphans_are_adopted() -> None:
    arena.adopt_orphans()


@pytest.fixture(scope="module", autouse=True)
def others_are_left_out() -> None:
    arena.leave_out_others()


@pytest.fixture(scope="module", params=list(arena.MODES))
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def executor(mode: str) -> Iterator[Executor]:
    n_jobs, programs_per_child = arena.MODES[mode]
    with Executor(n_jobs, arena.LIMITS, programs_per_child) as executor:
        yield executor


@pytest.fixture
def attack(executor: Executor) -> Callable[[str], Outcome]:
    """Runs a hostile program among good ones; they are unhurt, no process is left, and its outcome is returned."""
    return partial(arena.attack, executor)
