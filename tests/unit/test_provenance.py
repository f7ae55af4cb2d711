"""Packages that a report names: also those of jobs, which may run in other environments."""

from pathlib import Path

import handmade
import pytest

from arc_refinery.records import files, installed_versions
from arc_refinery.reporting import provenance

ARMS = {"first": [{"n_predictions": 4}]}
ANSWERS = {"turn1": {"a": "SSww", "b": "wwww"}}
HERE = installed_versions()


def packages(folder: Path) -> str:
    experiment, results = handmade.finished(folder, handmade.settings(ARMS), ANSWERS, "ab", n_shards=2)
    (table,) = (block for block in provenance.section(experiment, results) if block.startswith("| package"))
    return table


def test_equal_environments_are_one_column(tmp_path: Path):
    header, _, *rows = packages(tmp_path).splitlines()
    assert header == "| package | version |"
    assert f"| torch | {HERE['torch']} |" in rows


def test_packages_of_jobs_in_another_environment_have_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    there = {"arc-refinery": HERE["arc-refinery"], "torch": "2.11.0+cu130", "vllm": "0.31.0"}
    monkeypatch.setattr(files, "installed_versions", lambda: there)
    header, _, *rows = packages(tmp_path).splitlines()
    assert header == "| package | sampling | this report |"
    assert f"| torch | 2.11.0+cu130 | {HERE['torch']} |" in rows
    assert "| vllm | 0.31.0 | – |" in rows
    assert f"| trl | – | {HERE['trl']} |" in rows


def test_jobs_with_other_versions_of_one_package_are_all_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    versions = iter(range(1000))
    monkeypatch.setattr(files, "installed_versions", lambda: {"torch": f"2.{next(versions):04}"})
    (row,) = (line for line in packages(tmp_path).splitlines() if line.startswith("| torch |"))
    assert row.count(",") == 1  # two shards
