"""How dataclasses become flags, and what flags that are not given mean."""

from pathlib import Path
from typing import Literal

import tyro

Flat = tyro.conf.OmitArgPrefixes  # type: ignore[type-arg]


def usual_dtype() -> Literal["float32", "bfloat16"]:
    import torch

    return "bfloat16" if torch.cuda.is_available() else "float32"


def beside(output: Path, what: str) -> Path:
    return output.with_name(f"{output.name}.{what}")
