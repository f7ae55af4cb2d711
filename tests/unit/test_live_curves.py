"""Curves of running trainings in a terminal."""

from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from arc_refinery.cli.results import Curves
from arc_refinery.errors import InputError
from arc_refinery.reporting import live


def write(folder: Path, values: dict[int, float], tag: str = "train/reward") -> None:
    with SummaryWriter(str(folder)) as writer:
        for step, value in values.items():
            writer.add_scalar(tag, value, step)


def test_steps_that_are_written_again_replace_all_from_there_on():
    assert live.merged([(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.5), (4, 0.6)]) == {1: 0.1, 2: 0.5, 4: 0.6}
    assert live.merged([]) == {}


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([0.0, 7.0, 3.0], 20, "▁█▄"),
        ([1.0, 1.0], 20, "▁▁"),  # never changed
        ([0.0, 0.0, 6.0, 8.0, 14.0, 14.0], 3, "▁▅█"),  # means 0, 7, 14
        ([], 20, ""),
    ],
)
def test_bars_are_means_between_the_lowest_and_the_highest(values: list[float], width: int, expected: str):
    assert live.bars(values, width) == expected


def test_the_parts_of_a_training_and_what_a_resumed_one_wrote_make_one_curve(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "100")
    write(tmp_path / "trained@2.log.tensorboard", {1: 0.25, 2: 0.5})
    write(tmp_path / "trained.log.tensorboard", {3: 0.75, 4: 9.0})
    write(tmp_path / "trained.log.tensorboard", {4: 0.125})
    write(tmp_path / "sft.log.tensorboard", {1: 1.5}, "train/loss")
    live.show(tmp_path)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split(",")[0] for line in lines if "written" in line] == ["sft: step 1", "trained: step 4"]
    (reward,) = (line.split() for line in lines if line.startswith("mean reward"))
    assert reward[2:] == ["▂▅█▁", "0.25", "0.125", "0.75", "0.125"]
    (loss,) = (line.split() for line in lines if line.startswith("loss"))
    assert loss[-4:] == ["1.5"] * 4


def test_one_training_can_be_named(tmp_path: Path):
    write(tmp_path / "a.log.tensorboard", {1: 0.25})
    write(tmp_path / "b.log.tensorboard", {1: 0.25})
    assert live.folders(tmp_path).keys() == {"a", "b"}
    assert live.folders(tmp_path / "b.log.tensorboard") == {"b": [tmp_path / "b.log.tensorboard"]}


def test_a_folder_without_curves_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="holds no curves of running trainings; expected logs/<experiment>/adapters"):
        live.folders(tmp_path / "none")


def test_following_shows_new_steps_until_ctrl_c(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "trained.log.tensorboard", {1: 0.25})
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        write(tmp_path / "trained.log.tensorboard", {2: 0.5})

    monkeypatch.setattr("arc_refinery.reporting.live.sleep", sleep)
    live.follow(tmp_path, 7.0)
    assert waits == [7.0, 7.0]
    assert "trained: step 2" in capsys.readouterr().out


def test_a_picture_of_running_trainings_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="give one of the two"):
        Curves(log=tmp_path, output=tmp_path / "curves.png", follow=True).run()
