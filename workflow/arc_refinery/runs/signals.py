"""End a run on a cluster in order on Ctrl-C, SIGTERM and SIGHUP: it removes its jobs."""

import os
import signal
from typing import NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Exit cleanly on the first signal; later ones do not disturb that.

    By default Snakemake waits for its jobs on SIGTERM, possibly forever, dies without cleanup on SIGHUP, and ends with
    a traceback on a second Ctrl-C. A signal that is ignored stays ignored, such as SIGHUP under nohup.
    """
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    for number in _ENDING:
        signal.signal(number, _wait if number == signal.SIGINT else signal.SIG_IGN)  # a closed terminal sends two
    raise KeyboardInterrupt


def _wait(*_: object) -> None:
    # no lock, as a log has
    os.write(
        2, b"Still removing the jobs, which takes some seconds. Ctrl-\\ ends at once and leaves them in the queue.\n"
    )
