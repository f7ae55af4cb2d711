"""A stand-in for the program nvidia-smi on a machine with two GPUs, one of them in parts."""

import os
from pathlib import Path

import pytest

FIRST = "GPU-6a96bd13-70bc-6494-6d62-1b77a9a7f29f"
SECOND = "GPU-6a96ffff-0000-1111-2222-333344445555"
PART = "MIG-11c29e81-e611-50b5-b5ef-609c0a0fe58b"
LISTED = f"""\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {FIRST})
  MIG 1g.10gb     Device  0: (UUID: {PART})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {SECOND})
"""


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$*" = -L ] && cat <<LISTED\n{LISTED}LISTED\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
