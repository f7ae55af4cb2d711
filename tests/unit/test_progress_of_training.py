"""The line that a training logs for each step."""

import logging
from types import SimpleNamespace

import pytest

from arc_refinery.training import callbacks
from arc_refinery.training.callbacks import OneLineProgress


def test_a_line_per_step_with_the_time_left_of_what_this_process_did(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = 1000.0
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: now))
    progress = OneLineProgress({"reward": "reward", "eval_reward": "held-out reward"})
    state = SimpleNamespace(global_step=10, max_steps=13)  # resumed after step 10
    progress.on_train_begin(None, state, None)
    progress.on_log(None, state, None, {"eval_reward": 0.5})
    for state.global_step, seconds in ((11, 20), (12, 40), (13, 30)):
        now += seconds
        progress.on_log(None, state, None, {"reward": 0.25, "loss": 1.0})
    assert caplog.messages == [
        "step 10 of 13: held-out reward 0.500",
        "step 11 of 13: reward 0.250, about 40 s left",
        "step 12 of 13: reward 0.250, about 30 s left",
        "step 13 of 13: reward 0.250",
    ]
