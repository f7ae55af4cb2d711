"""Results that are dated in the future are dated as of now; all others keep their dates."""

import os
import time
from pathlib import Path

from arc_refinery.runs.clock import date_back

DAY = 86_400.0


def dated(path: Path, seconds: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (seconds, seconds))
    return path


def test_only_what_is_dated_in_the_future_is_dated_back(tmp_path: Path):
    now = time.time()
    old = dated(tmp_path / "x/tasks/heldout.parquet", now - DAY)
    soon = dated(tmp_path / "x/a.parquet", now + 30)
    hidden = dated(tmp_path / "x/adapters/trained/.snakemake_timestamp", now + DAY)
    late = dated(tmp_path / "x.md", now + 2 * DAY)
    other = dated(tmp_path / "y/part1.parquet", now + DAY)
    said: list[str] = []
    date_back(tmp_path / "x", said.append)
    assert old.stat().st_mtime == now - DAY
    assert soon.stat().st_mtime == now + 30
    assert now <= hidden.stat().st_mtime == late.stat().st_mtime <= time.time()
    assert other.stat().st_mtime == now + DAY
    (message,) = said
    assert message.startswith(f"{tmp_path / 'x'}: 2 files were dated in the future")
    date_back(tmp_path / "x", said.append)
    assert len(said) == 1


def test_a_link_is_dated_back_and_its_file_is_left_alone(tmp_path: Path):
    future = time.time() + DAY
    cached = dated(tmp_path / "cache/weights", future)
    link = tmp_path / "x/weights"
    link.parent.mkdir()
    link.symlink_to(cached)
    os.utime(link, (future, future), follow_symlinks=False)
    date_back(tmp_path / "x", lambda _: None)
    assert link.lstat().st_mtime <= time.time()
    assert cached.stat().st_mtime == future


def test_an_experiment_without_results_has_none_in_the_future(tmp_path: Path):
    said: list[str] = []
    date_back(tmp_path / "none", said.append)
    assert said == []
