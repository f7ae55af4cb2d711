"""How a command ends with all that it has started: at SIGTERM, at Ctrl-C, and with the Snakemake that started it."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

SNAKEMAKE = "ARC_REFINERY_SNAKEMAKE"  # variable with the process that runs this job; the Snakefile sets it


def end_at_sigterm() -> None:
    signal.signal(signal.SIGTERM, _end)


def end_with_snakemake() -> None:
    """End when the Snakemake of this job is killed: the next run would make the same files beside it.

    A parent-death signal would not do, because a shell lies between the two.
    """
    if pid := os.environ.get(SNAKEMAKE):  # else it was started by hand
        _end_with(int(pid), threading.Event())


@contextmanager
def ending_with(pid: int) -> Iterator[None]:
    """End at once if another process ends while this one is in the context."""
    is_over = threading.Event()
    _end_with(pid, is_over)
    try:
        yield
    finally:
        is_over.set()


def end(number: int) -> None:
    """Send a signal to all child processes first: vLLM's engine is one, and would keep the GPU."""
    _signal_children(number)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def interrupt_once() -> None:
    """Let Ctrl-C end Snakemake in order, which waits for its jobs; each further Ctrl-C kills these jobs.

    A second KeyboardInterrupt would end Snakemake amid its clean-up, with a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # SIGINT may be ignored in the background
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGINT, _kill_jobs)
    raise KeyboardInterrupt


def _kill_jobs(*_: object) -> None:
    os.write(2, b"Interrupted again: killing the jobs. Type the same command again to continue.\n")  # no lock, as a log
    _signal_children(signal.SIGKILL)


def _signal_children(number: int) -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _end(number: int, _frame: FrameType | None) -> None:
    end(number)


def _end_with(pid: int, is_over: threading.Event) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        end(signal.SIGKILL)
    except OSError:
        return  # Linux before 5.3, or a container that forbids it
    threading.Thread(target=_end_after, args=(descriptor, is_over), name=f"end-with-{pid}", daemon=True).start()


def _end_after(descriptor: int, is_over: threading.Event) -> None:
    select.select([descriptor], [], [])
    if not is_over.is_set():
        end(signal.SIGKILL)  # at once: a handler of SIGTERM would wait for the main thread
