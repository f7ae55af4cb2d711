"""How a run on a cluster ends when it is asked to: as at Ctrl-C, which removes its jobs."""

import signal
from typing import NoReturn

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """End at SIGTERM and SIGHUP. Snakemake alone waits for its jobs at SIGTERM, maybe for ever, and dies at SIGHUP.

    A signal that is ignored stays ignored, as SIGHUP under nohup.
    """
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    """Once: a terminal that is closed sends two signals."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
