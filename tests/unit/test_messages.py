"""The golden file of messages has those of tests that exist."""

import pytest
from messages import COLLECTED, module_of, read, written


def test_no_message_is_left_of_a_test_that_is_gone(request: pytest.FixtureRequest):
    collected = request.config.stash[COLLECTED]
    modules = set(map(module_of, collected))
    assert {test for test in read() if module_of(test) in modules} <= collected


def test_messages_are_read_as_they_were_written(tmp_path, monkeypatch: pytest.MonkeyPatch):
    messages = {"a.py::one[x]": ["first\nline\n\nthird", "second"], "b.py::two": ["third"]}
    monkeypatch.setattr("messages.GOLDEN", tmp_path / "messages.txt")
    (tmp_path / "messages.txt").write_text(written(messages))
    assert read.__wrapped__() == messages
