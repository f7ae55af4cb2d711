"""How a command ends with all that it has started: at SIGTERM, and with the Snakemake that started it."""

import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType

SNAKEMAKE = "ARC_REFINERY_SNAKEMAKE"  # variable with the process that runs this job; the Snakefile sets it


def end_at_sigterm() -> None:
    signal.signal(signal.SIGTERM, _end)


def end_with_snakemake() -> None:
    """End when the Snakemake of this job is killed: the next run would make the same files beside it.

    A parent-death signal would not do, because a shell lies between the two.
    """
    if not (pid := os.environ.get(SNAKEMAKE)):
        return  # started by hand
    try:
        descriptor = os.pidfd_open(int(pid))
    except ProcessLookupError:
        end(signal.SIGKILL)
    except OSError:
        return  # Linux before 5.3, or a container that forbids it
    threading.Thread(target=_end_after, args=(descriptor,), name="end-with-snakemake", daemon=True).start()


def end(number: int) -> None:
    """Send a signal to all child processes first: vLLM's engine is one, and would keep the GPU."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end(number: int, _frame: FrameType | None) -> None:
    end(number)


def _end_after(descriptor: int) -> None:
    select.select([descriptor], [], [])
    end(signal.SIGKILL)  # at once: a handler of SIGTERM would wait for the main thread
