"""CLI flag helpers and machine-dependent defaults."""

import os
import sys
from pathlib import Path
from typing import Literal, NoReturn

import tyro

Flat = tyro.conf.OmitArgPrefixes  # type: ignore[type-arg]


_ENVIRONMENT = dict(os.environ)  # as it was at startup


def start_again() -> NoReturn:
    """Restart this process with its original arguments and environment: TRL has set RANK, MASTER_PORT and others."""
    os.execve(sys.executable, sys.orig_argv, _ENVIRONMENT)


def usual_dtype() -> Literal["float32", "bfloat16"]:
    import torch

    return "bfloat16" if torch.cuda.is_available() else "float32"


def beside(output: Path, what: str) -> Path:
    return output.with_name(f"{output.name}.{what}")
