"""Names of GPUs in CUDA_VISIBLE_DEVICES, with a stand-in for nvidia-smi on PATH."""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvidia_smi import FIRST, PART, SECOND, put_on_path

from arc_refinery.errors import InputError
from arc_refinery.sampling.gpus import (
    check_mig,
    complete_visible_devices,
    keep_gpus,
    let_segments_grow,
)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("devices", "completed"),
    [
        ("GPU-6a96bd13", FIRST),
        ("GPU-6a96f", SECOND),
        ("MIG-11c29e81", PART),
        ("GPU-6a96bd13,GPU-6a96ffff", f"{FIRST},{SECOND}"),
        (f"{SECOND},GPU-6a96bd13,0", f"{SECOND},{FIRST},0"),
        # left alone
        ("0,1", "0,1"),
        (FIRST, FIRST),
        (f"MIG-{FIRST}/1/0", f"MIG-{FIRST}/1/0"),
        ("", ""),
        ("-1", "-1"),
    ],
)
def test_beginnings_are_completed_and_other_forms_stay(
    nvidia_smi: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, devices: str, completed: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    with caplog.at_level(logging.WARNING):
        complete_visible_devices()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == completed
    assert not caplog.records


@pytest.mark.parametrize(("device", "n"), [("GPU-6a96", 2), ("GPU-ffffffff", 0), ("MIG-9", 0)])
def test_a_name_that_fits_none_or_several_stays_and_the_log_says_so(
    nvidia_smi: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, device: str, n: int
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
    with caplog.at_level(logging.WARNING):
        complete_visible_devices()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == device
    assert f"{device} is the start of {n} names" in caplog.text and FIRST in caplog.text


def test_without_nvidia_smi_the_log_says_what_could_not_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-6a96bd13")
    complete_visible_devices()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-6a96bd13"
    assert "`nvidia-smi -L`, which would complete names of GPUs, failed" in caplog.text


def test_without_the_variable_it_is_not_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    complete_visible_devices()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize("visible", [None, "", "0,1", FIRST])
def test_only_names_of_mig_are_looked_up(monkeypatch: pytest.MonkeyPatch, visible: str | None):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setitem(sys.modules, "pynvml", None)  # cannot be imported, as on machines without a GPU
    check_mig()


@pytest.mark.parametrize(("number", "is_found"), [(0, True), (1, False)])
def test_a_mig_instance_must_have_the_number_of_a_gpu(monkeypatch: pytest.MonkeyPatch, number: int, is_found: bool):
    """As vLLM looks it up (tests/gpu_envs/test_engine.py), on a machine with one GPU."""

    class NVMLError(Exception):
        pass

    def by_index(index: int) -> None:
        if index:
            raise NVMLError("Invalid Argument")

    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda name: number,
        nvmlDeviceGetIndex=lambda handle: handle,
        nvmlDeviceGetHandleByIndex=by_index,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", PART)
    with nullcontext() if is_found else pytest.raises(InputError, match=f"CUDA_VISIBLE_DEVICES is {PART}, but vLLM"):
        check_mig()


@pytest.mark.parametrize(
    ("visible", "n_own", "own"),
    [
        ("0,1,2", 1, "0"),
        ("0,1,2", 2, "0,1"),
        ("3,5", 1, "3"),
        ("4,5", 1, "4"),  # transformers would spread its batches over both
        ("4,5,6", 2, "4,5"),
        (f"{SECOND},{FIRST}", 1, SECOND),
        ("7", 1, "7"),
        ("", 1, ""),
        ("", 2, ""),  # on CPUs
        (None, 1, FIRST),
    ],
)
def test_the_training_keeps_its_gpus(
    nvidia_smi: None,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    n_own: int,
    own: str,
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "to be restored")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    keep_gpus(n_own)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == own


def test_each_process_needs_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(InputError, match=r"n_processes = 3 need a GPU each, but 2 are visible \(0, 1\); set resources"):
        keep_gpus(3)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        # the user's own setting stays
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:512"},) * 2,
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},) * 2,
    ],
)
def test_blocks_of_gpu_memory_grow_in_training(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    expected: dict[str, str],
):
    def settings(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.endswith("_ALLOC_CONF")}

    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    let_segments_grow()
    assert settings(os.environ) == expected
