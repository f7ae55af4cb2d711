"""Paths that HTCondor copies to the machine of a job, and those at which it would hold the job."""

from pathlib import Path

import pytest
from messages import Wording

from arc_refinery.errors import InputError
from arc_refinery.runs.project import check_archive, check_that_it_travels


@pytest.mark.parametrize("path", ["mine", "mine/inner", "a,b", "mine/../other"])
def test_what_would_be_held_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    if path == "mine":
        Path("mine").symlink_to("elsewhere")
    else:
        Path("mine/inner/deeper").mkdir(parents=True)
        Path("mine/inner/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError) as error:
        check_that_it_travels(["elsewhere", path])
    wording(error.value)


def test_files_links_to_files_and_what_is_not_there_yet_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("file").touch()
    Path("mine/link").symlink_to(tmp_path / "file")
    check_that_it_travels(["mine", "file", "mine/link", "fetched/later"])


@pytest.mark.parametrize("archive", ["mine", "{here}/mine", "missing.tar.gz"])
def test_an_archive_that_cannot_be_unpacked_is_refused(archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    with pytest.raises(InputError, match=r"ARC_REFINERY_ENVIRONMENT: .*expected an archive"):
        check_archive(archive.format(here=tmp_path))


def test_an_archive_may_be_on_the_machines_of_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("environment.tar.gz").touch()
    check_archive("environment.tar.gz")
    check_archive("/no/such/environment.tar.gz")
