"""Processes of a training: alone, each function is that of the one process there is."""

import pytest

from arc_refinery.errors import InputError
from arc_refinery.training import processes


@pytest.mark.parametrize(("n", "started"), [(1, "2"), (2, "1")])
def test_another_number_of_processes_than_the_settings_say_is_refused(
    monkeypatch: pytest.MonkeyPatch, n: int, started: str
):
    monkeypatch.setenv("WORLD_SIZE", started)
    with pytest.raises(InputError, match=f"n_processes is {n}, but {started} were started; start one, which starts"):
        processes.join(n)


def test_one_process_is_the_first_and_all():
    processes.join(1)
    assert (processes.count(), processes.index(), processes.is_first()) == (1, 0, True)
    assert processes.broadcast("a") == processes.on_first(lambda: "a") == "a"
    assert processes.gather(["a", "b"]) == ["a", "b"]
