"""A run on a cluster ends at signals as at Ctrl-C."""

import signal
from collections.abc import Iterator

import pytest

from arc_refinery.cluster.signals import end_on_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    # the default, even where the tests run under nohup, which ignores SIGHUP
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_run_and_later_ones_do_not_disturb_its_end(number: signal.Signals) -> None:
    end_on_signals()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_on_signals()
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
