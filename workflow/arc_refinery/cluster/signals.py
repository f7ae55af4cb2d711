"""End a run on a cluster on SIGTERM and SIGHUP as on Ctrl-C, which removes its jobs."""

import signal
from typing import NoReturn

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Exit cleanly on SIGTERM and SIGHUP.

    By default Snakemake waits for its jobs on SIGTERM, possibly forever, and dies without cleanup on SIGHUP. A signal
    that is ignored stays ignored, such as SIGHUP under nohup.
    """
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    """Interrupt once: a terminal that is closed sends two signals."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
