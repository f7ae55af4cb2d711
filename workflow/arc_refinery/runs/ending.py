"""End a command with all that it has started: at SIGTERM, at Ctrl-C, and with the Snakemake that started it.

Also how Snakemake itself ends on Ctrl-C, and a run on a cluster on any signal: it removes its jobs.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_stopped = threading.Event()
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


def is_stopped() -> bool:
    """Whether Ctrl-C, or on a cluster any signal, has ended this run of Snakemake."""
    return _stopped.is_set()


def exit_quietly_on_interrupt() -> None:
    """Let Ctrl-C end Snakemake without a traceback until the first job starts."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # SIGINT may be ignored in the background
        signal.signal(signal.SIGINT, _leave)


def interrupt_once() -> None:
    """Let Ctrl-C end Snakemake in order, which waits for its jobs; each further Ctrl-C kills these jobs.

    A second KeyboardInterrupt would end Snakemake amid its clean-up, with a traceback.
    """
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def end_on_signals() -> None:
    """End a run on a cluster cleanly on the first signal; later ones do not disturb that.

    By default Snakemake waits for its jobs on SIGTERM, possibly forever, dies without cleanup on SIGHUP, and ends with
    a traceback on a second Ctrl-C. A signal that is ignored stays ignored, such as SIGHUP under nohup.
    """
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _remove_jobs)


def _leave(*_: object) -> NoReturn:
    os.write(2, b"Stopped before the first job. The same command starts again.\n")  # no lock, as a log has
    sys.exit(128 + signal.SIGINT)


def _remove_jobs(*_: object) -> NoReturn:
    _stopped.set()
    for number in _ENDING:
        signal.signal(number, _wait if number == signal.SIGINT else signal.SIG_IGN)  # a closed terminal sends two
    raise KeyboardInterrupt


def _wait(*_: object) -> None:
    # no lock, as a log has
    os.write(
        2, b"Still removing the jobs, which takes some seconds. Ctrl-\\ ends at once and leaves them in the queue.\n"
    )


def _interrupt(*_: object) -> NoReturn:
    _stopped.set()
    signal.signal(signal.SIGINT, _kill_jobs)
    raise KeyboardInterrupt


def _kill_jobs(*_: object) -> None:
    os.write(2, b"\nInterrupted again: killing the jobs.\n")  # no lock, as a log has
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
