"""A run on a cluster ends at signals as at Ctrl-C."""

import signal
from collections.abc import Iterator

import pytest

from arc_refinery.runs.ending import end_on_signals, exit_quietly_on_interrupt, interrupt_once


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    # the default, even where the tests run under nohup, which ignores SIGHUP
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_run_and_later_ones_do_not_disturb_its_end(number: signal.Signals) -> None:
    end_on_signals()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    for later in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.raise_signal(later)


def test_a_second_ctrl_c_says_what_the_run_waits_for(capfd: pytest.CaptureFixture[str]) -> None:
    end_on_signals()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == ""
    signal.raise_signal(signal.SIGINT)
    assert "Still removing the jobs" in capfd.readouterr().err


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_on_signals()
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_ctrl_c_before_the_first_job_ends_with_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    exit_quietly_on_interrupt()
    with pytest.raises(SystemExit) as end:
        signal.raise_signal(signal.SIGINT)
    assert end.value.code == 130
    assert len(capfd.readouterr().err.splitlines()) == 1
    interrupt_once()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_quietly_on_interrupt()
    interrupt_once()
    signal.raise_signal(signal.SIGINT)
