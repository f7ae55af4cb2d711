"""A user's Python in the job's process: import a file, and interrupt what takes too long."""

import importlib.util
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType

from arc_refinery.config.own_code import OwnCodeError


@cache
def import_file(path: Path) -> ModuleType:
    """Import a file of the user, once; raises `OwnCodeError`."""
    name = f"own code of {path}"  # no other module has it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise OwnCodeError(
            f"{path}: cannot be imported: {type(error).__name__}: {error}. Correct it, or install what it needs"
        ) from error
    return module


class TimeIsUp(BaseException):
    """No `except Exception` of a user's code swallows it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` after so many seconds, in the main thread; elsewhere, Python can interrupt nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUp

    previous = signal.signal(signal.SIGALRM, expire)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, previous)
