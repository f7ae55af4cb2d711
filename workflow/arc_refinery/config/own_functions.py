"""A user's Python in the job's process: rewards and users who reply. Import its file, interrupt what takes too long."""

import faulthandler
import importlib.util
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from numbers import Real
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from arc_refinery.config.own_code import OwnCode
from arc_refinery.errors import InputError
from arc_refinery.sandbox.child import describe

IMPORT_SECONDS = 40.0  # limit per file; torch takes 10 from a cold disk
MAX_SECONDS = 600.0  # limit per call: what takes longer will hardly end
GRACE_SECONDS = 10.0  # then the process ends: code that catches everything, or never returns from C, stops only so


class OwnFunction:
    """A function of one argument; its errors name the file, the function, the line and the task or question."""

    def __init__(self, code: OwnCode) -> None:
        """Import the file; raise `InputError` if it cannot be used."""
        self._code = code
        self._function = defined_by(code)

    def __call__(self, argument: Any, about: str) -> Any:
        """`about` is, say, `the question sums/7`."""
        try:
            with time_limit(MAX_SECONDS, GRACE_SECONDS), without_exit():
                return self._function(argument)
        except TimeIsUp as error:
            fault = f"was still running after {MAX_SECONDS:g} s, {self._where(error)}; make it faster"
            raise self.error(about, fault) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            fault = f"raised {reason_of(error, self._where(error))}; correct it"
            raise self.error(about, fault) from error

    def error(self, about: str, fault: str) -> InputError:
        return InputError(f"{self._code}, on {about}: {fault}")

    def _where(self, error: BaseException) -> str:
        """Return the last line of the file that led to an error."""
        own = self._code.path.resolve()
        frames = traceback.extract_tb(error.__traceback__)
        lines = (frame.lineno for frame in reversed(frames) if Path(frame.filename).resolve() == own)
        return next((f"in line {line}" for line in lines), "in another file")


def number_in(value: object) -> float:
    """Return the number that a function of the user returned: not a number if it is none, infinite if too large."""
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.inf


def defined_by(code: OwnCode) -> Any:
    """Return the function or class of a file, which is imported once; raises `InputError`."""
    module = import_file(code.path)
    definition = getattr(module, code.name, None)
    if not callable(definition):
        what = f"{definition!r:.80}" if hasattr(module, code.name) else "deleted"
        raise InputError(
            f"{code}: after the import of its file it is {what}; expected the function or class that the file defines"
        )
    return definition


@cache
def import_file(path: Path) -> ModuleType:
    """Import a file of the user, once; raises `InputError`."""
    name = f"own code of {path}"  # no other module has it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    try:
        with time_limit(IMPORT_SECONDS, GRACE_SECONDS), without_exit():
            spec.loader.exec_module(module)
    except TimeIsUp:
        raise InputError(
            f"{path}: its import was still running after {IMPORT_SECONDS:g} s; does it loop or wait? Do slow work in "
            "the first call"
        ) from None
    except BaseException as error:
        reason = reason_of(error)
        raise InputError(f"{path}: cannot be imported: {reason}. Correct it, or install what it needs") from error
    return module


def reason_of(error: BaseException, where: str = "") -> str:
    """Return type, place and message of what a user's code raised, whose own `__str__` may raise, too."""
    name, message, _ = describe(error)
    return f"{f'{name} {where}'.strip()}: {message}".removesuffix(": ")


@contextmanager
def without_exit() -> Iterator[None]:
    """Let `os._exit` raise in this process, which would otherwise end without a word."""
    process, end = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != process:
            end(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = end


class TimeIsUp(BaseException):
    """No `except Exception` of a user's code swallows it."""


@contextmanager
def time_limit(seconds: float, grace: float | None = None) -> Iterator[None]:
    """Raise `TimeIsUp` after so many seconds, in the main thread; elsewhere, Python can interrupt nothing.

    With `grace`, the process ends so many seconds later, with a traceback that shows where it was.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUp

    previous = signal.signal(signal.SIGALRM, expire)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, as the code may catch it
    if grace is not None:
        faulthandler.dump_traceback_later(seconds + grace, exit=True)
    try:
        yield
    finally:
        if grace is not None:
            faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, previous)
