"""Atomic writes, and what a user reads where one fails."""

import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from messages import Wording

from arc_refinery.errors import InputError
from arc_refinery.files import append, atomic_write


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may exceed 1000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_text(path: Path, size: int) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text("x" * size)


def write_parquet(path: Path, size: int) -> None:
    table = pa.table({"bytes": [os.urandom(size)]})
    with atomic_write(path) as unfinished, pq.ParquetWriter(unfinished, table.schema) as file:
        file.write_table(table)


def write_folder(path: Path, size: int) -> None:
    with atomic_write(path) as unfinished:
        unfinished.mkdir()
        (unfinished / "one").write_text("x" * size)


WRITERS = pytest.mark.parametrize("write", [write_text, write_parquet, write_folder])


@WRITERS
def test_a_file_that_would_be_too_large_is_named_and_the_old_one_stays(small_files, tmp_path, write, wording: Wording):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(InputError) as caught:
        write(path, 100_000)
    assert str(caught.value).startswith(f"{path}: ") and "`ulimit -f`" in str(caught.value)
    wording(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert path.read_text() == "old"


@WRITERS
def test_a_full_disk_is_named(tmp_path, write):
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path]).returncode:
        pytest.skip("only root can mount a small file system, and not in every container")
    try:
        with pytest.raises(InputError) as caught:
            write(tmp_path / "out", 1_000_000)
        assert str(caught.value).startswith(f"{tmp_path}/out: ") and "`df`" in str(caught.value)
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@WRITERS
def test_a_path_under_a_file_is_named_before_anything_is_computed(tmp_path, write, wording: Wording):
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as caught:
        write(tmp_path / "file/out", 10)
    assert str(caught.value).startswith(f"{tmp_path}/file/out: ")
    wording(caught.value)


def test_a_read_only_folder_is_named_before_anything_is_computed(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission"), atomic_write(tmp_path / "out"):
        pytest.fail("computed")


def test_an_error_in_reading_is_not_taken_for_one_in_writing(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "there/out"):
        (tmp_path / "elsewhere/input").read_text()


def test_lines_that_cannot_be_appended_are_an_error_of_the_user(small_files, tmp_path, wording: Wording):
    append(tmp_path / "log", "x" * 900)
    with pytest.raises(InputError) as caught:
        append(tmp_path / "log", "x" * 900)
    assert str(caught.value).startswith(f"{tmp_path}/log: ") and "`ulimit -f`" in str(caught.value)
    wording(caught.value)


def test_a_folder_replaces_a_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").touch()
    write_folder(tmp_path / "out", 1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one"]


def test_two_processes_use_different_temporary_names_and_the_dead_ones_are_removed(tmp_path):
    prefix = f".out.{socket.gethostname()}-"
    with subprocess.Popen(["true"]) as ended:
        pass
    dead, living, elsewhere = (
        tmp_path / name for name in (f"{prefix}{ended.pid}.tmp", f"{prefix}1.tmp", ".out.x-7.tmp")
    )
    for path in (dead, living, elsewhere):
        path.touch()
    with atomic_write(tmp_path / "out") as unfinished:
        assert unfinished not in (dead, living, elsewhere)
        unfinished.touch()
    assert {path.name for path in tmp_path.iterdir()} == {"out", living.name, elsewhere.name}


def test_errors_of_the_safetensors_library_are_explained(small_files, tmp_path, wording: Wording):
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with pytest.raises(InputError) as caught, atomic_write(tmp_path / "w", SafetensorError) as path:
        save_file({"weights": torch.zeros(10_000)}, path)
    assert str(caught.value).startswith(f"{tmp_path}/w: ") and "`ulimit -f`" in str(caught.value)
    wording(caught.value)
